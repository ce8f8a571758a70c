"""One small trap for all tests: two pairs of each explicit kind, nothing trained."""

import pytest

from triptych.lab.traps import pairs
from triptych.lab.traps.making import make_trap


@pytest.fixture(scope="session", autouse=True)
def _few_sentences():
    """Truth is measured on fewer sentences: explicit networks leave no doubt on 20."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "TESTED", 20)
        yield


@pytest.fixture(scope="session")
def small_trap():
    return make_trap(pairs=2, trained=0, seed=3)
