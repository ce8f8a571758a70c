"""One small trap for all tests: two pairs of each explicit kind, nothing trained."""

import pytest

from triptych.lab.traps.making import make_trap


@pytest.fixture(scope="session")
def small_trap():
    return make_trap(pairs=2, trained=0, seed=3)
