import pytest


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    """What is committed under evidence/ has its own tests and must not decide these."""
    monkeypatch.setattr("triptych.lab.results.evidence.folder", lambda: None)
