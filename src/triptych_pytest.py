"""The pytest plug-in of Triptych: fixtures for tests of samplers, of their own level over a suite.

    assert_law(program, target)              the exact law of a program
    assert_invariant(step, law)              the exact kernel of a step
    certify_by_draws(sampler, target)        a test by draws; all of a suite's share one level

It loads nothing before a test asks for a fixture. It is no part of the package `triptych`, so that
plug-ins which prepare that package for a test run find it not loaded yet.
"""

from typing import Any

import pytest

_BY_DRAWS = "certify_by_draws"
_TESTS_BY_DRAWS = "_triptych_tests_by_draws"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("triptych").addoption(
        "--law-level",
        type=float,
        default=1e-3,
        help="false alarms of all tests by draws of a suite together: a probability (0.001)",
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Count the tests by draws: each gets an equal share of the level."""
    named = (getattr(item, "fixturenames", ()) for item in session.items)
    setattr(session.config, _TESTS_BY_DRAWS, sum(_BY_DRAWS in names for names in named))


@pytest.fixture
def assert_law() -> Any:
    """`triptych.laws.assert_law`."""
    from triptych.laws import assert_law

    return assert_law


@pytest.fixture
def assert_invariant() -> Any:
    """`triptych.laws.assert_invariant`."""
    from triptych.laws import assert_invariant

    return assert_invariant


@pytest.fixture
def certify_by_draws(request: pytest.FixtureRequest) -> Any:
    """A test by draws at its share of the suite's level; the n-th of a test has 2^-n of that."""
    from triptych.laws import certify_by_draws
    from triptych.laws.certify import shared_level

    tests = max(1, getattr(request.config, _TESTS_BY_DRAWS, 1))
    share = shared_level(float(request.config.getoption("--law-level") or 1e-3), tests)
    calls = [0]

    def certify(sampler: Any, target: Any, **options: Any) -> Any:
        calls[0] += 1
        found = certify_by_draws(sampler, target, share * 0.5 ** calls[0], **options)
        if not found.passed:
            pytest.fail(str(found), pytrace=False)
        return found

    return certify
