"""Two claims of our own about the number of training pairs, as checks.

On real pairs: with every doubling of the pairs, refinement with four steps comes closer to beam
search, and its outputs get less short. The slope is that of a straight line through all runs, over
the logarithm of the number of pairs to base 2, with Student's interval. The chance of the test
sentences, which all runs translate, is added to it.

Where the law is known: one parallel step loses exactly the total correlation that the pairs have
left, and four steps mix ways in fewer and fewer sentences.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from triptych.core.estimates import Estimate, mean
from triptych.studies.api.decide import (
    Check,
    Verdict,
    above,
    at_least,
    decide,
    exactly,
    largest,
    none,
    shown,
)
from triptych.studies.api.study import Rows
from triptych.studies.refinement.translation_pairs.rows import Gap, Learned, Left, Row, Scored

DATA, SET = "software", "test"
SIZES, SMALL, LARGE = 4, 25_000, 250_000  # what a slope needs: sizes, and how far apart
STEPS_AT = (1, 2, 4, 10)


class Point(NamedTuple):
    """One run: log2 of its pairs, what it has, and half of the interval over sentences."""

    doublings: float
    value: float
    half: float = 0.0


def slope(points: Sequence[Point]) -> Estimate:
    """Σ (x - x̄)(y - ȳ) / Σ (x - x̄)², with Student's interval of n - 2 degrees of freedom.

    The runs of one size translate the same sentences, so sizes and not runs average their chance:
    a size of weight w adds (w · half)² to the square of the half width.

    Worked value: (0, 0), (1, 1), (2, 2), (3, 3.4): 5.6 / 5 = 1.12. The residuals are 0.08, -0.04,
    -0.16 and 0.12, so the standard error is √(0.048 / 2 / 5) = 0.0693, times 4.303.
    """
    if len(points) < 3 or len({point.doublings for point in points}) < 2:
        return Estimate(math.nan, math.nan, math.nan, len(points))
    x, y, half = (np.array(column) for column in zip(*points, strict=True))
    centred = x - x.mean()
    spread = float((centred**2).sum())
    found = float((centred * y).sum()) / spread
    rest = y - y.mean() - found * centred
    error = math.sqrt(float((rest**2).sum()) / (len(x) - 2) / spread)
    student = float(stats.t.ppf(0.975, len(x) - 2)) * error
    sentences = 0.0
    for size in set(x.tolist()):
        own = x == size
        weight = float(centred[own].sum()) / spread
        sentences += (weight * float(half[own].mean())) ** 2
    reach = math.hypot(student, math.sqrt(sentences))
    return Estimate(found, found - reach, found + reach, len(x))


def gap_closes(rows: Rows[Row]) -> Verdict:
    """The distance of four steps to beam search, and how short outputs are, by pairs."""
    gaps = [row for row in rows.of(Gap) if (row.data, row.on) == (DATA, SET)]
    scored = [row for row in rows.of(Scored) if (row.data, row.on) == (DATA, SET)]
    learned = [row for row in rows.of(Learned) if row.data == DATA]
    four = [row for row in gaps if row.steps == 4]
    sizes = sorted({row.pairs for row in four})
    return decide(
        above(
            "for every doubling of the pairs: BLEU by which 4 steps come closer to beam search",
            slope(_points(four)),
            0.0,
        ),
        above(
            "for every doubling of the pairs: growth of BLEU's factor for short outputs, 4 steps",
            slope(
                [
                    Point(math.log2(row.pairs), row.brevity)
                    for row in scored
                    if row.system == "T=4" and row.brevity is not None
                ]
            ),
            0.0,
        ),
        *(
            shown(
                f"{pairs:,} pairs: BLEU of refinement with {steps} step"
                f"{'' if steps == 1 else 's'} minus that of beam search",
                _at(gaps, pairs, steps),
            )
            for pairs in sizes
            for steps in STEPS_AT
        ),
        *_shares(scored, sizes),
        *(
            shown(f"{pairs:,} pairs: last fall of the validation loss, per cent", fall)
            for pairs in sizes
            if (fall := _still_falling(learned, pairs)) is not None
        ),
        *(
            shown(
                f"for every doubling of the pairs: BLEU by which {steps} step"
                f"{'' if steps == 1 else 's'} come closer to beam search",
                slope(_points([row for row in gaps if row.steps == steps])),
            )
            for steps in STEPS_AT
            if steps != 4 and sizes
        ),
        *_reaching(four),
        needs=[
            at_least("numbers of pairs", len(sizes), SIZES),
            at_least("runs of at most 25,000 pairs", sum(s <= SMALL for s in sizes), 1),
            at_least("runs of at least 250,000 pairs", sum(s >= LARGE for s in sizes), 1),
        ],
    )


def _points(gaps: Sequence[Gap]) -> list[Point]:
    return [Point(math.log2(row.pairs), row.difference, (row.high - row.low) / 2) for row in gaps]


def _at(gaps: Sequence[Gap], pairs: int, steps: int) -> Estimate | float:
    """Over seeds; of one run with the interval over sentences."""
    own = [row for row in gaps if (row.pairs, row.steps) == (pairs, steps)]
    if not own:
        return math.nan
    if len(own) == 1:
        return Estimate(own[0].difference, own[0].low, own[0].high, 1)
    return mean([row.difference for row in own])


def _shares(scored: Sequence[Scored], sizes: Sequence[int]) -> list[Check]:
    """BLEU of four steps as a share of that of beam search."""
    found = []
    for pairs in sizes:
        bleu = {
            system: [r.bleu for r in scored if (r.pairs, r.system) == (pairs, system) and r.bleu]
            for system in ("T=4", "beam 5")
        }
        if all(bleu.values()):
            four, beam = (sum(each) / len(each) for each in bleu.values())
            sentence = f"{pairs:,} pairs: BLEU of 4 steps, per cent of that of beam search"
            found.append(shown(sentence, 100 * four / beam))
    return found


def _still_falling(learned: Sequence[Learned], pairs: int) -> float | None:
    """How much the validation loss of refinement fell over the last two tenths, per cent."""
    own = [
        100 * (1 - row.validation[-1] / row.validation[-3])
        for row in learned
        if (row.pairs, row.model) == (pairs, "padir") and len(row.validation) >= 3
    ]
    return sum(own) / len(own) if own else None


def _reaching(four: Sequence[Gap]) -> list[Check]:
    """Where the straight line would come within a point of beam search: a guess, no finding."""
    line = slope(_points(four))
    if not line.value > 0:
        return []
    x = sum(math.log2(row.pairs) for row in four) / len(four)
    y = sum(row.difference for row in four) / len(four)
    pairs = 2.0 ** (x + (-1.0 - y) / line.value)
    sentence = "million pairs at which the straight line is a point below beam search (a guess)"
    return [shown(sentence, pairs / 1e6)]


def what_is_left(rows: Rows[Row]) -> Verdict:
    """One step loses what is left, and four steps mix ways less and less."""
    left = rows.of(Left)
    worlds = dict.fromkeys((row.world, row.clues) for row in left)
    lines = [
        sorted((r for r in left if (r.world, r.clues) == world), key=lambda r: r.pairs)
        for world in worlds
    ]
    # Where one way has the majority, the most probable tokens are its own and nothing is mixed.
    more = [(a, b) for line in lines for a, b in itertools.pairwise(line) if a.mixed[2] > 0]
    return decide(
        exactly(
            "one step: largest difference of its loss and the total correlation left, nats",
            largest([abs(row.one_step_kl - row.total_correlation) for row in left]),
        ),
        exactly(
            "decoding from left to right: largest share of sentences that mix ways",
            largest([row.left_to_right for row in left]),
        ),
        none(
            "larger numbers of pairs after which 4 steps mix ways in no fewer sentences, where "
            "they mix them at all",
            sum(not b.mixed[2] < a.mixed[2] for a, b in more),
            of=len(more),
        ),
        *(
            shown(
                f"{row.world}, {row.pairs:,} pairs: per cent of sentences that mix ways, 4 steps",
                100 * row.mixed[2],
            )
            for line in lines
            for row in (line[0], line[-1])
        ),
        needs=[
            at_least("worlds", len(worlds), 1),
            at_least("numbers of pairs, in all worlds", len(left), 3),
        ],
    )
