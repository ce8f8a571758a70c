"""What the rows of `bracket_length` decide.

Networks count when they are at 97 % or more in distribution. The accuracy is that of the likeliest
closing bracket; the one of the authors' rule stands beside. The penalty that decides is the
authors' program, which made the figures; the one that is printed stands beside.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

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


def good(rows: Rows[Balanced], data: Data, penalty: Penalty) -> list[Balanced]:
    return [
        row
        for row in rows.of(Balanced)
        if row.best >= GOOD and (row.data, row.penalty) == (data, penalty)
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


def _correlation(networks: Sequence[Balanced]) -> Estimate:
    return correlation([row.violation for row in networks], [row.long_best for row in networks])


def _effects(
    plain: Sequence[Balanced], penal: Sequence[Balanced]
) -> tuple[Estimate, Estimate, Estimate]:
    """Penalty minus none: violation, and accuracy in points by both rules."""
    return (
        difference([row.violation for row in penal], [row.violation for row in plain]),
        scaled(difference([r.long_best for r in penal], [r.long_best for r in plain]), 100.0),
        scaled(difference([r.long_sure for r in penal], [r.long_sure for r in plain]), 100.0),
    )


def _penalty_checks(rows: Rows[Balanced], data: Data) -> tuple[list[Check], list[Need]]:
    plain, penal = good(rows, data, "none"), good(rows, data, "programmed")
    printed = good(rows, data, "printed")
    checks: list[Check] = []
    if plain and penal:
        violation, best, sure = _effects(plain, penal)
        checks += [
            below("violation, with the penalty minus without", violation, 0.0),
            above("accuracy at 400 to 500, with the penalty minus without, points", best, 0.0),
            shown("the same by the authors' rule", sure),
        ]
    if plain and printed:
        violation, best, sure = _effects(plain, printed)
        checks += [
            shown("penalty as printed: violation, minus without", violation),
            shown("penalty as printed: accuracy at 400 to 500, minus without, points", best),
            shown("the same, penalty as printed, by the authors' rule", sure),
        ]
    for label, found in (("standard training", plain), ("penalty", penal)):
        if found:
            checks += [
                shown(f"{label}: violation", mean([row.violation for row in found])),
                shown(f"{label}: accuracy at 400 to 500", mean([row.long_best for row in found])),
            ]
    needs = [
        at_least("networks at 97 % or more, standard training", len(plain), ENOUGH),
        at_least("networks at 97 % or more, with the penalty", len(penal), ENOUGH),
    ]
    return checks, needs


def judge_complete(rows: Rows[Balanced]) -> Verdict:
    """Figure 2.13: the correlation, and what the penalty does to both."""
    checks, needs = _penalty_checks(rows, "complete")
    plain = good(rows, "complete", "none")
    if plain:
        sentence = "correlation of violation and accuracy at 400 to 500, standard training"
        checks.insert(0, below(sentence, _correlation(plain), 0.0))
    return decide(*checks, needs=needs)


def judge_prefixes(rows: Rows[Balanced]) -> Verdict:
    """Figure 2.17: the penalty helps; the source finds no correlation."""
    checks, needs = _penalty_checks(rows, "prefixes")
    plain = good(rows, "prefixes", "none")
    if plain:
        checks.append(shown("correlation, standard training", _correlation(plain)))
    return decide(*checks, needs=needs)


# ------------------------------------------------------------------ rows that hold, and refute


def _networks(
    data: Data, penalty: Penalty, violation: float, accuracy: float, slope: float = -0.1
) -> list[Balanced]:
    row = Balanced(0, 2, 4, data, penalty, 1e-2, 360, 16, violation, 0.99, 0.98, accuracy, 0.8)
    spread = [0.02 * (i - 5.5) for i in range(12)]
    return [
        replace(row, seed=i, violation=violation + s, long_best=accuracy + slope * s)
        for i, s in enumerate(spread)
    ]


COMPLETE_HELD = [
    *_networks("complete", "none", 0.6, 0.80),
    *_networks("complete", "programmed", 0.3, 0.95),
]
COMPLETE_REFUTED = [
    [*_networks("complete", "none", 0.6, 0.8, 0.1), *_networks("complete", "programmed", 0.3, 0.9)],
    [*_networks("complete", "none", 0.6, 0.8), *_networks("complete", "programmed", 0.9, 0.9)],
    [*_networks("complete", "none", 0.6, 0.8), *_networks("complete", "programmed", 0.3, 0.7)],
]
PREFIXES_HELD = [
    *_networks("prefixes", "none", 0.6, 0.8),
    *_networks("prefixes", "programmed", 0.3, 0.9),
]
PREFIXES_REFUTED = [
    [*_networks("prefixes", "none", 0.6, 0.8), *_networks("prefixes", "programmed", 0.9, 0.9)],
    [*_networks("prefixes", "none", 0.6, 0.8), *_networks("prefixes", "programmed", 0.3, 0.7)],
]

CLAIMS = [
    Claim("li.fig-2.13", judge_complete, COMPLETE_REFUTED, COMPLETE_HELD),
    Claim("li.fig-2.17", judge_prefixes, PREFIXES_REFUTED, PREFIXES_HELD),
]
