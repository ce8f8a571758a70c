"""Interleaved timing: two programs take turns, and the ratio of each turn is what counts.

Ratios are of processor time: other programs on the machine change the wall-clock time of one turn
by more than two programs differ. Wall-clock time is kept next to it.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from triptych.core.compiled import use_compiled
from triptych.core.validation import UserError


class Seconds(NamedTuple):
    """The time of one call: of the processor, all threads together, and on the wall."""

    processor: float
    wall: float

    def times(self, factor: float) -> "Seconds":
        return Seconds(self.processor * factor, self.wall * factor)


class Comparison(NamedTuple):
    """Median seconds of each, and the median, lowest and highest ratio theirs / ours.

    In processor time; the same in wall-clock time.
    """

    ours: float
    theirs: float
    ratio: float
    low: float
    high: float
    wall_ours: float
    wall_theirs: float
    wall_ratio: float
    wall_low: float
    wall_high: float

    @classmethod
    def of(cls, turns: list[tuple[Seconds, Seconds]]) -> "Comparison":
        """From (ours, theirs) of every turn."""
        processor = [(ours.processor, theirs.processor) for ours, theirs in turns]
        wall = [(ours.wall, theirs.wall) for ours, theirs in turns]
        return cls(*_medians_and_range(processor), *_medians_and_range(wall))


def _medians_and_range(pairs: list[tuple[float, float]]) -> tuple[float, ...]:
    ratios = [theirs / ours for ours, theirs in pairs]
    medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
    return *medians, statistics.median(ratios), min(ratios), max(ratios)


def measured(program: Callable[[], Any]) -> Seconds:
    """One call, on one torch thread."""
    if torch.get_num_threads() != 1:  # some peers set it when they are imported
        raise RuntimeError(f"torch runs {torch.get_num_threads()} threads, not one")
    wall, processor = time.perf_counter(), time.process_time()
    program()
    return Seconds(time.process_time() - processor, time.perf_counter() - wall)


def seconds(program: Callable[[], Any]) -> float:
    """Wall-clock time of one call, on one torch thread."""
    return measured(program).wall


def compare(
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    *,
    turns: int,
    repeats: int = 3,
    scale: float = 1.0,
) -> Comparison:
    """`scale`: how much more work ours does than theirs, when theirs is cut short."""
    ours()
    pairs = []
    for _ in range(turns):
        peer = measured(theirs).times(scale)
        runs = [measured(ours) for _ in range(repeats)]
        mine = Seconds(*(statistics.median(column) for column in zip(*runs, strict=True)))
        pairs.append((mine, peer))
    return Comparison.of(pairs)


def fastest(program: Callable[[], Any], repeats: int) -> float:
    program()
    return min(measured(program).processor for _ in range(repeats))


@contextmanager
def one_core() -> Iterator[None]:
    """The process on one of its cores, where the system can say so.

    Entered before jax is loaded, because jax sizes its pool of threads by the cores it sees.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def with_programs(compiled: bool, measure: Callable[[bool], dict[str, Any]]) -> dict[str, Any]:
    """A row of the table, with the C programs of `use_compiled` or without."""
    try:
        use_compiled(compiled)
    except UserError as error:
        return {"what": "with the C programs", "peer": "", "not_run": str(error)}
    try:
        return measure(compiled)
    finally:
        use_compiled(False)
