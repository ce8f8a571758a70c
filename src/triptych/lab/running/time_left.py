"""How long a run still takes, from what its studies are expected to cost and what they have cost.

The expected cost of a study is that of all its units together. While a study runs, its rest is the
expected cost less what is spent, and the more of its units have ended, the more their own mean
counts. Studies that have ended say how fast this machine is, and those to come are corrected by it.
"""

import heapq
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_TRUSTED_S = 3.0  # this many seconds of the expected costs are believed before any are measured


class Expected(NamedTuple):
    """Units of a study that a run will do, and what all of them cost together, in seconds.

    seconds
        None where nobody knows, as for a study of a user's own.
    """

    study: str
    units: int
    seconds: float | None


@dataclass
class _Running:
    """The study that runs now."""

    units: int
    seconds: float | None
    workers: int
    ended: int = 0
    spent: float = 0.0
    since: dict[str, float] = field(default_factory=dict)


class TimeLeft:
    """Told which units begin and end, as a `Progress` is; says how many seconds are left.

    clock
        What gives the time, in seconds.
    announce
        Told the seconds left whenever something happens.
    """

    def __init__(
        self,
        studies: Sequence[Expected] = (),
        clock: Callable[[], float] = time.monotonic,
        announce: Callable[[float | None], None] | None = None,
    ) -> None:
        self._announce = announce
        self._waiting = {each.study: each for each in studies}
        self._clock = clock
        self._began = clock()
        self._now: _Running | None = None
        self._workers = 1
        self._spent = self._expected = _TRUSTED_S  # of units whose study has ended

    def begin(self, study: str, units: int, workers: int) -> None:
        """A study begins, or a part of it, with this many units to run; the others wait."""
        self._workers = max(workers, 1)
        planned = self._waiting.pop(study, None)
        seconds = None
        if planned is not None and planned.seconds is not None and planned.units:
            seconds = planned.seconds * units / planned.units
        if planned is not None and planned.units > units > 0:
            later = planned.seconds - seconds if planned.seconds and seconds else None
            self._waiting[study] = Expected(study, planned.units - units, later)
        self._now = _Running(units, seconds, self._workers)
        self._tell()

    def started(self, unit: str) -> None:
        if self._now is not None:
            self._now.since[unit] = self._clock()
            self._tell()

    def ended(self, unit: str, seconds: float) -> None:
        if self._now is not None:
            self._now.since.pop(unit, None)
            self._now.ended += 1
            self._now.spent += seconds
            self._tell()

    def end(self) -> None:
        """The study is over, finished or not."""
        now, self._now = self._now, None
        if now is not None and now.seconds and now.ended:
            self._spent += now.spent
            self._expected += now.seconds * now.ended / now.units

    def _tell(self) -> None:
        if self._announce is not None:
            self._announce(self.seconds())

    @property
    def slowness(self) -> float:
        """What was spent over what was expected, of the studies that have ended."""
        return self._spent / self._expected

    def seconds(self) -> float | None:
        """Seconds until the run is over; None where nothing is known about a study."""
        total = self._rest_of_current()
        if total is None or any(each.seconds is None for each in self._waiting.values()):
            return None
        for each in self._waiting.values():
            if each.units and each.seconds:
                rounds = math.ceil(each.units / self._workers)
                total += rounds * each.seconds / each.units * self.slowness
        return total

    def share(self) -> float | None:
        """How much of the run is done, from 0 to 1; None where nothing is known."""
        left, gone = self.seconds(), self._clock() - self._began
        if left is None:
            return None
        return gone / (gone + left) if gone + left else 1.0

    def _rest_of_current(self) -> float | None:
        """Seconds until the current study is over: its units go to workers as these are free."""
        now = self._now
        if now is None or now.ended == now.units:
            return 0.0
        each = self._cost_of_one(now)
        if each is None:
            return None
        clock, running = self._clock(), list(now.since.values())
        free = [max(each - (clock - since), 0.1 * each) for since in running]
        free += [0.0] * (now.workers - len(free))
        heapq.heapify(free)
        for _ in range(now.units - now.ended - len(running)):
            heapq.heappush(free, heapq.heappop(free) + each)
        return max(free)

    def _cost_of_one(self, now: _Running) -> float | None:
        """Seconds of a unit of the current study that has not ended."""
        seen = now.spent / now.ended if now.ended else None
        if now.seconds is None:
            return seen
        planned = (now.seconds * self.slowness - now.spent) / (now.units - now.ended)
        if seen is None:
            return planned
        # What is left of the plan is off by a tenth of the whole plan, say; what the mean of the
        # ended units gives is off by half of what is left. Weights are one over the squares.
        weight = 1 / (1 + (5 * (1 - now.ended / now.units)) ** 2)
        return (1 - weight) * max(planned, 0.1 * seen) + weight * seen
