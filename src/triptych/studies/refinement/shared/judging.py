"""What judges of real translation share: which rows decide, means over runs, and what is enough."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from triptych.core.estimates import Estimate, mean, proportion
from triptych.studies.api.decide import Need, at_least
from triptych.studies.api.study import Rows
from triptych.studies.refinement.shared.rows import Compared, Run, Scored, Trained

CAPTIONS = "multi30k"  # the corpus that decides
DECIDES = "test_2017_flickr"  # kept aside
DIRECTIONS, SEEDS = 2, 2
# Fewest steps of training before refinement counts. Set after a run had to be cut short at about
# 1,500 steps, before any of its scores was looked at; a trial of 4,188 steps came near its teacher.
STEPS = 4000

NAMES = {"padir": "refinement", "ablation": "a shorter run"}

RowT = TypeVar("RowT", bound=Run)


def captions(rows: Rows[Any], kind: type[RowT]) -> list[RowT]:
    """Rows of a kind that are about image captions."""
    return [row for row in rows.of(kind) if row.data == CAPTIONS]


def over_runs(values: Iterable[float]) -> Estimate:
    """The mean over directions and seeds; unknown with less than two."""
    found = list(values)
    if len(found) < 2:
        return Estimate(float("nan"), float("nan"), float("nan"), len(found))
    return mean(found)


def over_sentences(rows: Sequence[Compared]) -> Estimate:
    """The mean difference, its interval widened by the chance of the sentences.

    All runs translate the same sentences, so that this chance does not shrink with more runs: its
    half width is the mean of the bootstrap's, and the squares of both half widths are added.

    Worked value: differences -1 and -3, each ± 0.5 by the bootstrap. Student's half width is
    12.7062 · √2 / √2 = 12.7062, so -2 ± √(12.7062² + 0.25) = -2 ± 12.7160.
    """
    found = over_runs(row.difference for row in rows)
    if math.isnan(found.value):
        return found
    sentences = sum(row.high - row.low for row in rows) / len(rows) / 2
    reach = math.hypot(found.half_width, sentences)
    return Estimate(found.value, found.value - reach, found.value + reach, found.n)


def enough(rows: Sequence[Run], trained: Sequence[Trained], **steps: int) -> list[Need]:
    """Two directions of captions with two seeds each, and networks trained for this many steps.

    steps    by the first word of the model's name; all models of that name must have them
    """
    seeds: dict[str, set[int]] = {}
    for row in rows:
        seeds.setdefault(row.direction, set()).add(row.seed)
    done = sum(len(each) >= SEEDS for each in seeds.values())
    needs = [at_least(f"directions with {SEEDS} seeds, captions", done, DIRECTIONS)]
    for name, wanted in (steps or {"padir": STEPS}).items():
        own = [row.steps for row in trained if row.model.split()[0] == name]
        what = f"training steps of {NAMES.get(name, name)}, the fewest"
        needs.append(at_least(what, min(own, default=0), wanted))
    return needs


def rate(rows: Sequence[Scored]) -> float:
    """Repeated words in 1000 words that were written."""
    return 1000 * sum(row.repeats for row in rows) / max(1, sum(row.words for row in rows))


def times_as_many(own: Sequence[Scored], other: Sequence[Scored]) -> Estimate:
    """The rate of repeated words of some systems over that of others.

    Of all repeats of both a share p is the first's. With w and v words written the ratio of the
    rates is p / (1 - p) · v / w, and so are the ends of the interval. Repeats count as independent,
    which those in one sentence are not: the true interval is somewhat wider.

    Worked value: 30 repeats in 1000 words against 10 in 500: p = 3/4, so 3 · 500 / 1000 = 1.5.
    """
    counts = [sum(row.repeats for row in some) for some in (own, other)]
    words = [sum(row.words for row in some) for some in (own, other)]
    if sum(counts) == 0 or min(words) == 0:
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    share = proportion(counts[0], sum(counts))

    def times(p: float) -> float:
        return p / (1 - p) * words[1] / words[0] if p < 1 else math.inf

    return Estimate(times(share.value), times(share.low), times(share.high), share.n)


def by_system(rows: Iterable[Scored], system: str) -> list[Scored]:
    """The rows of one system, as "padir T=4"."""
    return [row for row in rows if f"{row.model} {row.how}" == system]
