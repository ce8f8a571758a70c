import pytest

from triptych.lab import kept


@pytest.fixture(autouse=True)
def no_verdict_is_kept(monkeypatch):
    """Tests replace judges and figures, which no source shows; what is kept has its own tests."""
    before = kept.folder
    monkeypatch.setattr(kept, "folder", lambda kind: None if kind == "verdicts" else before(kind))
