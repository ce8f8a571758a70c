"""What the rows of `bracket_theory` decide about Theorem 2.2.1 and Corollary 2.2.1; the other
results are in `judge_near_balance` and `judge_parts`."""

import math
from collections.abc import Sequence
from dataclasses import replace

from triptych.studies.api.decide import (
    EXACT,
    Check,
    Verdict,
    at_edge,
    at_least,
    decide,
    exactly,
    largest,
    none,
    shown,
)
from triptych.studies.api.study import Claim, Rows
from triptych.studies.brackets.bracket_theory.judge_near_balance import NEAR_CLAIMS
from triptych.studies.brackets.bracket_theory.judge_parts import PART_CLAIMS
from triptych.studies.brackets.bracket_theory.rows import (
    Encoded,
    Patterns,
    Predicted,
    Pumped,
    Row,
    Scores,
)

LONG = 10_000  # tokens of a long prefix
MANY = 1_000_000  # pairs
RATE = 1e-3  # a rate at a million pairs is off by a few millionths

DEPENDENT = "first layers whose encodings are independent at each depth but not together"
CONFUSED = (
    "first layers independent at each depth alone, with two stacks that uniform attention cannot "
    "tell apart"
)
ONE_TYPE = "k = 1"


# ------------------------------------------------------------------ Theorem 2.2.1, sufficiency


def judge_sufficient(rows: Rows[Row]) -> Verdict:
    """Balanced attention predicts exactly, with encodings that are independent together.

    The proof uses that all encodings are independent; the theorem asks for independence at each
    depth. That weaker assumption is no edge of the statement, so that it is shown too.
    """
    found = [row for row in rows.of(Predicted) if row.scores != "uniform in both layers"]
    dependent = [row for row in rows.of(Encoded) if row.as_stated and not row.as_used]
    return decide(
        *_exact_predictions(found),
        *(
            [
                shown(DEPENDENT, float(len(dependent))),
                shown(CONFUSED, float(sum(row.apart <= EXACT for row in dependent))),
            ]
            if dependent
            else []
        ),
        *_beside_sufficient(found, rows.of(Patterns)),
        needs=[
            at_least(
                "pairs of k types and depth D with random balanced scores",
                _sizes(found, "random"),
                15,
            ),
            at_least(
                "pairs of k types and depth D with uniform attention", _sizes(found, "uniform"), 2
            ),
            at_least("prefixes of 10,000 tokens", sum(row.long >= LONG for row in found), 15),
        ],
    )


def _exact_predictions(rows: Sequence[Predicted]) -> list[Check]:
    return [
        exactly(
            "largest error of a next-bracket probability, over every short prefix",
            largest([row.error for row in rows]),
        ),
        exactly(
            "largest error of a next-bracket probability, at the end of long sampled prefixes",
            largest([row.long_error for row in rows]),
        ),
        none(
            "strings that a constructed network wrote and that are no prefix of Dyck",
            sum(row.invalid for row in rows),
            of=sum(row.strings for row in rows),
        ),
    ]


def _sizes(rows: Sequence[Predicted], scores: Scores) -> int:
    return len({(row.types, row.max_depth) for row in rows if row.scores == scores})


def _beside_sufficient(rows: Sequence[Predicted], found: Sequence[Patterns]) -> list[Check]:
    if not rows:
        return []
    width = max(row.width / (row.types * row.max_depth) ** 2 for row in rows)
    checks = [shown("largest width of the MLP that was needed, divided by k² D²", width)]
    for row in found:
        where = f"random scores of standard deviation {row.scale:g}, then balanced"
        checks += [
            shown(f"{where}: variation ‖A - A'‖² of two optimal networks", row.variation),
            shown(
                f"{where}: largest weight of a network on the innermost open bracket",
                max(row.likeness),
            ),
            shown(f"{where}: largest error of a prediction", row.error),
        ]
    if found:
        checks.append(shown("variation of two random patterns, by formula", found[0].random))
    return checks


# ------------------------------------------------------------------ Theorem 2.2.1, necessity


def judge_necessary(rows: Rows[Row]) -> Verdict:
    """Pairs that leave a trace drown the open bracket, at the rate of (2.49)."""
    every = rows.of(Pumped)
    several = [row for row in every if row.types > 1]
    loose = [row for row in several if row.weights != "balanced"]
    tight = [row for row in several if row.weights == "balanced"]
    single = [row for row in every if row.types == 1 and row.balance > EXACT]
    return decide(
        exactly(
            "rate of (2.49) after a million pairs: β ‖LN - S/‖S‖‖ over its limit ‖v⊥‖/‖S‖, "
            "largest distance from 1",
            largest([_rate_error(row) for row in loose]),
            below=RATE,
        ),
        none(
            "unbalanced networks that still tell two stacks apart, at least half as well",
            sum(not _confused(row) for row in loose),
            of=len(loose),
        ),
        exactly(
            "balanced networks: largest error of a probability after any number of pairs",
            largest([max(row.errors) for row in tight]),
        ),
        exactly(
            "largest difference between a prefix that is written out and one that is counted",
            largest([row.written_error for row in every]),
        ),
        at_edge(
            ONE_TYPE,
            none(
                "pairs with k = 1 that violate (2.47) in a network that stays optimal",
                sum(max(row.errors) <= EXACT for row in single),
                of=len(single),
            ),
        ),
        needs=[
            at_least("unbalanced pairs", len(loose), 10),
            at_least("unbalanced pairs with random scores", _random(loose), 5),
            at_least("balanced pairs", len(tight), 5),
            at_least("pairs inserted, in millions", _most(loose) // MANY, 1),
            at_least("pairs with k = 1", len(single), 1),
        ],
    )


def _rate_error(row: Pumped) -> float:
    if row.rate is None or row.formula is None:
        return math.nan
    return abs(row.rate / row.formula - 1)


def _confused(row: Pumped) -> bool:
    return row.truth is not None and row.apart[-1] < row.truth / 2


def _random(rows: Sequence[Pumped]) -> int:
    return sum(row.weights == "random scores" for row in rows)


def _most(rows: Sequence[Pumped]) -> int:
    return min((row.pairs[-1] for row in rows), default=0)


# ------------------------------------------------------------------ Corollary 2.2.1


def judge_uniform(rows: Rows[Row]) -> Verdict:
    """Two layers of uniform attention on tokens."""
    found = [row for row in rows.of(Predicted) if row.scores == "uniform in both layers"]
    return decide(
        *_exact_predictions(found),
        needs=[
            at_least("pairs of k types and depth D", _sizes(found, "uniform in both layers"), 3),
            at_least("prefixes of 10,000 tokens", sum(row.long >= LONG for row in found), 3),
        ],
    )


# ------------------------------------------------------------------ rows that hold and refute


def _predicted(types: int, max_depth: int, scores: Scores) -> Predicted:
    return Predicted(0, types, max_depth, scores, 100, 0.0, LONG, 200, 0.0, 20, 0, 6, 12)


_ENCODED = Encoded(0, 2, 3, "separate", "partner", True, False, 0.0)
SUFFICIENT_HELD = [
    *[_predicted(k, d, "random") for k in (2, 3, 4) for d in range(2, 8)],
    *[_predicted(k, 3, "uniform") for k in (2, 3)],
    replace(_ENCODED, encoding="joint", as_used=True, apart=1.0),
    _ENCODED,
    replace(_ENCODED, closing="after"),
]
_ONE = _predicted(2, 2, "random")
SUFFICIENT_REFUTED = [
    [*SUFFICIENT_HELD, replace(_ONE, error=0.1)],
    [*SUFFICIENT_HELD, replace(_ONE, long_error=0.1)],
    [*SUFFICIENT_HELD, replace(_ONE, invalid=1)],
]

_TWO_LAYERS = _predicted(2, 2, "uniform in both layers")
UNIFORM_HELD = [replace(_TWO_LAYERS, max_depth=d) for d in (2, 3, 4)]
UNIFORM_REFUTED = [
    [*UNIFORM_HELD, replace(_TWO_LAYERS, error=0.1)],
    [*UNIFORM_HELD, replace(_TWO_LAYERS, long_error=0.1)],
    [*UNIFORM_HELD, replace(_TWO_LAYERS, invalid=3)],
]

_PUMPED = Pumped(
    seed=0,
    types=2,
    max_depth=3,
    weights="random scores",
    pair_type=0,
    pair_level=1,
    query_type=1,
    query_level=2,
    size=0.5,
    balance=0.3,
    pairs=(1, MANY),
    distances=(0.5, 2e-6),
    rate=2.0,
    formula=2.0,
    apart=(0.7, 0.0),
    truth=0.7,
    errors=(0.0, 0.5),
    written=100,
    written_error=0.0,
)
_BALANCED = replace(
    _PUMPED,
    weights="balanced",
    size=0.0,
    balance=0.0,
    distances=(),
    rate=None,
    formula=None,
    apart=(0.7, 0.7),
    errors=(0.0, 0.0),
)
_SINGLE = replace(_PUMPED, types=1, truth=None, apart=(), errors=(0.0, 0.0))
NECESSARY_HELD = [*[_BALANCED] * 5, _SINGLE, *[_PUMPED] * 10]
NECESSARY_REFUTED = [
    [*NECESSARY_HELD, replace(_PUMPED, rate=1.0)],
    [*NECESSARY_HELD, replace(_PUMPED, apart=(0.7, 0.7))],
    [*NECESSARY_HELD, replace(_BALANCED, errors=(0.0, 0.5))],
    [*NECESSARY_HELD, replace(_PUMPED, written_error=0.1)],
]

CLAIMS = [
    Claim("li.thm-2.2.1-sufficient", judge_sufficient, SUFFICIENT_REFUTED, SUFFICIENT_HELD),
    Claim("li.thm-2.2.1-necessary", judge_necessary, NECESSARY_REFUTED, NECESSARY_HELD),
    Claim("li.cor-2.2.1", judge_uniform, UNIFORM_REFUTED, UNIFORM_HELD),
    *NEAR_CLAIMS,
    *PART_CLAIMS,
]
