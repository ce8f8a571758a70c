"""What the rows of `bracket_length` decide.

The source's text and its program differ in three things. The verdict is about the program, which
made the figures; the text is a second finding. Neither takes anything from the other.

                 program                                    text
penalty (2.58)   two full nests with one pair inserted      r nested pairs
accuracy         the right closing bracket has more than    the right closing bracket is the
                 0.8 of the probability of all closing      likeliest closing one, where a
                 ones, wherever a bracket is open           bracket closes
violation        the worst pair over the least prefix       the mean of ‖S‖ / P over pairs

Networks count when they are at 97 % or more in distribution, by the accuracy of their finding.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from triptych.core.estimates import Estimate, mean
from triptych.studies.api.decide import Check, Need, Verdict, above, at_least, below, decide, shown
from triptych.studies.api.study import Claim, Rows
from triptych.studies.api.summaries import difference, scaled
from triptych.studies.brackets.bracket_length.rows import Balanced
from triptych.studies.brackets.shared.contrasts import Penalty
from triptych.studies.brackets.shared.networks import Data

GOOD = 0.97  # accuracy in distribution
ENOUGH = 10  # networks of a kind
WEAK = -0.3  # a correlation above it is no clear negative one

Source = Literal["program", "text"]
PENALTY: dict[Source, Penalty] = {"program": "programmed", "text": "printed"}

VIOLATION = "balance violation, with the penalty minus without"
ACCURACY = "accuracy at brackets 400 to 500, with the penalty minus without, percentage points"
CORRELATION = "correlation of balance violation and accuracy at brackets 400 to 500, no penalty"


class Point(NamedTuple):
    """A network as one source measures it: balance violation, and accuracy at 400 to 500."""

    violation: float
    accuracy: float


def points(rows: Rows[Balanced], data: Data, penalty: Penalty, source: Source) -> list[Point]:
    """The networks that count, as the program or the text measures them."""
    found = [row for row in rows.of(Balanced) if (row.data, row.penalty) == (data, penalty)]
    if source == "text":
        return [Point(row.violation, row.long_best) for row in found if row.best >= GOOD]
    return [
        Point(row.violation_programmed, row.long_sure)
        for row in found
        if row.sure >= GOOD and row.violation_programmed is not None
    ]


def correlation(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Pearson's correlation with Fisher's interval; nan for fewer than four points.

    Worked value: r = 0 of 103 points has the interval ± tanh(1.96 / 10) = ± 0.193.
    """
    n = len(x)
    if n < 4 or np.std(x) == 0 or np.std(y) == 0:
        return Estimate(math.nan, math.nan, math.nan, n)
    r = float(np.clip(np.corrcoef(x, y)[0, 1], -1 + 1e-12, 1 - 1e-12))
    z, reach = math.atanh(r), 1.959964 / math.sqrt(n - 3)
    return Estimate(r, math.tanh(z - reach), math.tanh(z + reach), n)


def _correlation(found: Sequence[Point]) -> Estimate:
    return correlation([p.violation for p in found], [p.accuracy for p in found])


def _effects(plain: Sequence[Point], penal: Sequence[Point]) -> tuple[Estimate, Estimate]:
    """With the penalty minus without: violation, and accuracy in percentage points."""
    accuracy = difference([p.accuracy for p in penal], [p.accuracy for p in plain])
    return (
        difference([p.violation for p in penal], [p.violation for p in plain]),
        scaled(accuracy, 100.0),
    )


def _penalty_checks(rows: Rows[Balanced], data: Data, source: Source) -> list[Check]:
    plain = points(rows, data, "none", source)
    penal = points(rows, data, PENALTY[source], source)
    if not (plain and penal):
        return []
    violation, accuracy = _effects(plain, penal)
    return [below(VIOLATION, violation, 0.0), above(ACCURACY, accuracy, 0.0)]


def _levels(rows: Rows[Balanced], data: Data) -> list[Check]:
    """What is shown too: both networks as the program measures them."""
    checks = []
    kinds: tuple[tuple[str, Penalty], ...] = (
        ("no penalty", "none"),
        ("the program's penalty", "programmed"),
    )
    for label, penalty in kinds:
        found = points(rows, data, penalty, "program")
        if found:
            share = scaled(mean([p.accuracy for p in found]), 100.0)
            checks += [
                shown(f"{label}: balance violation", mean([p.violation for p in found])),
                shown(f"{label}: accuracy at brackets 400 to 500, %", share),
            ]
    return checks


def _correlation_checks(rows: Rows[Balanced], data: Data, source: Source) -> list[Check]:
    plain = points(rows, data, "none", source)
    return [below(CORRELATION, _correlation(plain), 0.0)] if plain else []


def _needs(rows: Rows[Balanced], data: Data, *, penalty: bool = True) -> list[Need]:
    """Networks of both findings, since they are made in one run."""
    kinds: list[tuple[str, Penalty, Source]] = [
        ("measured as in the program, no penalty", "none", "program"),
        ("measured as in the text, no penalty", "none", "text"),
    ]
    if penalty:
        kinds.append(("measured as in the program, its penalty", "programmed", "program"))
        kinds.append(("measured as in the text, its penalty", "printed", "text"))
    return [
        at_least(
            f"networks at 97 % or more, {label}", len(points(rows, data, kind, source)), ENOUGH
        )
        for label, kind, source in kinds
    ]


def judge_complete(rows: Rows[Balanced]) -> Verdict:
    """Figure 2.13: the correlation, and what the penalty does to violation and accuracy."""
    by_source = {
        source: [
            *_correlation_checks(rows, "complete", source),
            *_penalty_checks(rows, "complete", source),
        ]
        for source in PENALTY
    }
    return decide(
        *by_source["program"],
        *_levels(rows, "complete"),
        needs=_needs(rows, "complete"),
        printed=by_source["text"],
    )


def judge_prefixes(rows: Rows[Balanced]) -> Verdict:
    """Figure 2.17: on prefixes the penalty still lowers the violation and helps."""
    return decide(
        *_penalty_checks(rows, "prefixes", "program"),
        *_levels(rows, "prefixes"),
        needs=_needs(rows, "prefixes"),
        printed=_penalty_checks(rows, "prefixes", "text"),
    )


def judge_no_correlation(rows: Rows[Balanced]) -> Verdict:
    """2.2.3.4: on prefixes a larger violation does not go with a lower accuracy."""
    by_source = {}
    for source in PENALTY:
        plain = points(rows, "prefixes", "none", source)
        by_source[source] = [above(CORRELATION, _correlation(plain), WEAK)] if plain else []
    return decide(
        *by_source["program"],
        needs=_needs(rows, "prefixes", penalty=False),
        printed=by_source["text"],
    )


# ------------------------------------------------------------------ rows that hold, and refute


def _networks(
    data: Data,
    penalty: Penalty,
    violation: float,
    accuracy: float,
    slope: float = -0.1,
    **fields: Any,
) -> list[Balanced]:
    """Twelve networks, the same by both measures; accuracy falls by `slope` with the violation."""
    row = Balanced(0, 2, 4, data, penalty, 1e-2, 360, 16, violation, 0.99, 0.98, accuracy, 0.8)
    found = []
    for i in range(12):
        s, noise = 0.02 * (i - 5.5), 0.0002 * (i % 3)
        far = accuracy + slope * s + noise
        one = replace(
            row,
            seed=i,
            violation=violation + s,
            violation_programmed=violation + s,
            long_best=far,
            long_sure=far,
        )
        found.append(replace(one, **fields))
    return found


def _three(
    data: Data, *, slope: float = -0.1, after: float = 0.3, far: float = 0.95
) -> list[Balanced]:
    """Networks without a penalty, and with either: their violation and accuracy are the same."""
    return [
        *_networks(data, "none", 0.6, 0.80, slope),
        *_networks(data, "programmed", after, far),
        *_networks(data, "printed", after, far),
    ]


COMPLETE_HELD = _three("complete")
COMPLETE_REFUTED = [
    _three("complete", slope=0.1),
    _three("complete", after=0.9),
    _three("complete", far=0.7),
]
PREFIXES_HELD = _three("prefixes")
PREFIXES_REFUTED = [_three("prefixes", after=0.9), _three("prefixes", far=0.7)]
UNRELATED_HELD = _three("prefixes", slope=0.1)
UNRELATED_REFUTED = [_three("prefixes", slope=-0.1)]

CLAIMS = [
    Claim("li.fig-2.13", judge_complete, COMPLETE_REFUTED, COMPLETE_HELD),
    Claim("li.fig-2.17", judge_prefixes, PREFIXES_REFUTED, PREFIXES_HELD),
    Claim("li.fig-2.17-correlation", judge_no_correlation, UNRELATED_REFUTED, UNRELATED_HELD),
]
