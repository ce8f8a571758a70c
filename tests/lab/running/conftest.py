import pytest

from triptych.lab.running.store import Store


@pytest.fixture
def store(tmp_path):
    """An empty store; the run folder is tmp_path / "run"."""
    with Store.open(tmp_path / "run") as opened:
        yield opened
