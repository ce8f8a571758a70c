"""Engines as parameters: one that is not installed is skipped, with its reason."""

import pytest

from triptych.verifiers.grammars.engines import ENGINES, engine_version


def _param(engine):
    missing = engine_version(engine) is None
    reason = f"{engine} is not installed: `make test-grammars` installs it"
    return pytest.param(engine, marks=pytest.mark.skipif(missing, reason=reason))


@pytest.fixture(params=[_param(engine) for engine in ENGINES])
def engine(request):
    """Every engine."""
    return request.param


@pytest.fixture(params=[_param(engine) for engine in ENGINES[:2]])
def foreign(request):
    """Every engine that is not ours."""
    return request.param
