"""Interleaved timing: two programs take turns, and the ratio of each turn is what counts."""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Comparison(NamedTuple):
    """Median seconds of each, and the median, lowest and highest ratio theirs / ours."""

    ours: float
    theirs: float
    ratio: float
    low: float
    high: float


def seconds(program: Callable[[], Any]) -> float:
    """Wall-clock time of one call, on one torch thread."""
    if torch.get_num_threads() != 1:  # some peers set it when they are imported
        raise RuntimeError(f"torch runs {torch.get_num_threads()} threads, not one")
    started = time.perf_counter()
    program()
    return time.perf_counter() - started


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
        peer = seconds(theirs) * scale
        pairs.append((statistics.median(seconds(ours) for _ in range(repeats)), peer))
    ratios = [peer / mine for mine, peer in pairs]
    return Comparison(
        statistics.median(mine for mine, _ in pairs),
        statistics.median(peer for _, peer in pairs),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
    )


def fastest(program: Callable[[], Any], repeats: int) -> float:
    program()
    return min(seconds(program) for _ in range(repeats))
