"""How long a run still takes."""

import math

import pytest

from triptych.lab.running.time_left import Expected, TimeLeft


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def simulate(studies, workers, *, speed=1.0, unit_seconds=None):
    """Run units on `workers`, each when one is free; (time, what was said to be left) and the end.

    speed
        Expected over real seconds.
    unit_seconds
        Real seconds of the units of a study at speed 1; all alike by default.
    """
    clock = Clock()
    left = TimeLeft(studies, clock)
    said = [(0.0, left.seconds())]
    for study in studies:
        given = (unit_seconds or {}).get(study.study, [study.seconds / study.units] * study.units)
        left.begin(study.study, study.units, workers)
        waiting = [(f"unit {k}", seconds / speed) for k, seconds in enumerate(given)]
        running = []
        while waiting or running:
            while waiting and len(running) < workers:
                name, seconds = waiting.pop(0)
                left.started(name)
                running.append((clock.now + seconds, name, seconds))
            clock.now, name, seconds = min(running)
            running.remove((clock.now, name, seconds))
            left.ended(name, seconds)
            said.append((clock.now, left.seconds()))
        left.end()
    assert left.seconds() == 0
    return said, clock.now


def test_before_a_run_by_hand():
    """Two studies on 2 workers: 4 units of 10 s take 2 rounds, 3 units of 20 s take 2 rounds."""
    left = TimeLeft([Expected("a", 4, 40.0), Expected("b", 3, 60.0)], Clock())
    left.begin("a", 4, 2)
    assert left.seconds() == pytest.approx(2 * 10 + 2 * 20)
    assert left.share() == 0


def test_right_estimates_are_right_all_along():
    studies = [Expected("a", 10, 20.0), Expected("b", 7, 70.0), Expected("c", 24, 600.0)]
    said, end = simulate(studies, 2)
    for now, left in said[1:-1]:
        assert left == pytest.approx(end - now, rel=0.02, abs=2.5)  # a tenth of a unit


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_another_machine_is_corrected_for(speed):
    """Once the first two studies have ended, the time left is right within 30 %."""
    studies = [Expected("a", 40, 40.0), Expected("b", 20, 60.0), Expected("c", 20, 600.0)]
    said, end = simulate(studies, 2, speed=speed)
    for now, left in said[61:-1]:
        assert left == pytest.approx(end - now, rel=0.3, abs=4 / speed)


def test_units_that_differ():
    """Sizes grow within a study, as hidden states do: still right within 30 %, or half a unit."""
    growing = [10.0 * (1 + k // 4) for k in range(20)]
    said, end = simulate([Expected("a", 20, sum(growing))], 2, unit_seconds={"a": growing})
    for now, left in said[1:-2]:
        assert left == pytest.approx(end - now, rel=0.3, abs=20)


def test_time_passes_while_a_unit_runs():
    clock = Clock()
    left = TimeLeft([Expected("a", 1, 100.0)], clock)
    left.begin("a", 1, 1)
    left.started("unit")
    clock.now = 60.0
    assert left.seconds() == pytest.approx(40)
    assert left.share() == pytest.approx(0.6)
    clock.now = 300.0  # it takes longer than expected, and is not said to be over
    assert left.seconds() == pytest.approx(10)


def test_nothing_is_known_of_a_users_own_study():
    left = TimeLeft([Expected("mine", 3, None)], Clock())
    assert left.seconds() is None
    left.begin("mine", 3, 1)
    assert left.seconds() is None
    assert left.share() is None
    left.started("first")
    left.ended("first", 5.0)
    assert left.seconds() == pytest.approx(10)


def test_units_that_ran_before_cost_nothing():
    left = TimeLeft([Expected("a", 0, 0.0), Expected("b", 2, 10.0)], Clock())
    left.begin("a", 0, 1)
    assert left.seconds() == pytest.approx(10)
    left.end()
    assert left.seconds() == pytest.approx(10)
    assert math.isfinite(left.slowness)


def test_a_study_in_two_parts():
    left = TimeLeft([Expected("a", 5, 50.0)], Clock())
    left.begin("a", 2, 1)
    assert left.seconds() == pytest.approx(20 + 30)
    for unit in ("x", "y"):
        left.started(unit)
        left.ended(unit, 10.0)
    left.end()
    assert left.seconds() == pytest.approx(30)
    left.begin("a", 3, 1)
    assert left.seconds() == pytest.approx(30)
