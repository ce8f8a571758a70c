"""What the rows of `bracket_theory` decide."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from triptych.core.estimates import mean
from triptych.studies.api.decide import (
    EXACT,
    Check,
    Verdict,
    at_edge,
    at_least,
    below,
    decide,
    exactly,
    largest,
    none,
    shown,
)
from triptych.studies.api.study import Claim, Rows
from triptych.studies.brackets.bracket_theory.rows import (
    Approximated,
    Decayed,
    Encoded,
    Patterns,
    Predicted,
    Pruned,
    Pumped,
    Row,
    Scores,
    Shared,
    Silenced,
)

LONG = 10_000  # tokens of a long prefix
MANY = 1_000_000  # pairs
RATE = 1e-3  # a rate at a million pairs is off by a few millionths
GROWS = 0.9  # of proportional growth: leaks that also add to P grow a little less
CLOSE = 0.01  # error of a pruned network

DEPTH_ONLY = "encodings that are independent at each depth but not together"
ONE_TYPE = "k = 1"
DEPTH_ZERO = "d = 1, where nothing is left open"
NO_DECAY = "λ = 0"


# ------------------------------------------------------------------ Theorem 2.2.1, sufficiency


def judge_sufficient(rows: Rows[Row]) -> Verdict:
    """Balanced attention predicts exactly; encodings must be independent together."""
    found = [row for row in rows.of(Predicted) if row.scores != "uniform in both layers"]
    dependent = [row for row in rows.of(Encoded) if row.as_stated and not row.as_used]
    return decide(
        *_exact_predictions(found),
        at_edge(
            DEPTH_ONLY,
            none(
                "such encodings whose stacks uniform attention cannot tell apart",
                sum(row.apart <= EXACT for row in dependent),
                of=len(dependent),
            ),
        ),
        *_beside_sufficient(found, rows.of(Patterns)),
        needs=[
            at_least("pairs k, D with random balanced scores", _sizes(found, "random"), 15),
            at_least("pairs k, D with uniform attention", _sizes(found, "uniform"), 2),
            at_least("prefixes of 10,000 tokens", sum(row.long >= LONG for row in found), 15),
            at_least("first layers of dependent encodings", len(dependent), 2),
        ],
    )


def _exact_predictions(rows: Sequence[Predicted]) -> list[Check]:
    return [
        exactly(
            "every short prefix: error of a probability, largest",
            largest([row.error for row in rows]),
        ),
        exactly(
            "the end of a long sampled prefix: error of a probability, largest",
            largest([row.long_error for row in rows]),
        ),
        none(
            "strings that a construction wrote and that are no prefix of Dyck",
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
    checks = [shown("width of the MLP over k² D², largest", width)]
    for row in found:
        where = f"random balanced scores of scale {row.scale:g}"
        checks += [
            shown(f"{where}: mean variation of optimal patterns", row.variation),
            shown(f"{where}: likeness to a stack, largest", max(row.likeness)),
            shown(f"{where}: error of the predictions, largest", row.error),
        ]
    if found:
        checks.append(shown("variation of random patterns, by formula", found[0].random))
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
            "β ‖LN - S/‖S‖‖ at the most pairs, over ‖v⊥‖/‖S‖: distance from 1, largest",
            largest([_rate_error(row) for row in loose]),
            below=RATE,
        ),
        none(
            "unbalanced pairs after which two stacks are still told apart by half",
            sum(not _confused(row) for row in loose),
            of=len(loose),
        ),
        exactly(
            "balanced models: error after any number of pairs, largest",
            largest([max(row.errors) for row in tight]),
        ),
        exactly(
            "prefixes written out against their counts: distance of outputs, largest",
            largest([row.written_error for row in every]),
        ),
        at_edge(
            ONE_TYPE,
            none(
                "pairs with k = 1 that violate (2.47) in a model that stays optimal",
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
            at_least("pairs k, D", _sizes(found, "uniform in both layers"), 3),
            at_least("prefixes of 10,000 tokens", sum(row.long >= LONG for row in found), 3),
        ],
    )


# ------------------------------------------------------------------ Theorem 2.2.2


def judge_approximate(rows: Rows[Row]) -> Verdict:
    """‖S‖ N / P stays below the bound that the proof gives when it is written out."""
    found = rows.of(Approximated)
    optimal = [row for row in found if row.near == "balanced"]
    growing = _growing(optimal, "depth_zero")
    return decide(
        none(
            "models whose ‖S‖ N / P exceeds the bound from γ and the errors",
            sum(not row.share <= 1 for row in found),
            of=len(found),
        ),
        none(
            "models whose ‖S‖ N / P exceeds the bound from the separation of layer norms",
            sum(not row.measured <= 1 for row in found),
            of=len(found),
        ),
        none("models with N ≤ 8 D", sum(_short(row) for row in found), of=len(found)),
        at_edge(
            DEPTH_ZERO,
            none(
                "steps of N at which ‖S‖ N / ‖Q‖ of an optimal model grows with N",
                sum(growing),
                of=len(growing),
            ),
        ),
        *_beside_approximate(found),
        needs=[
            at_least("kinds of models", len({(row.near, row.amount) for row in found}), 4),
            at_least("lengths N", len({row.length for row in found}), 4),
            at_least("sizes k, D", len({(row.types, row.max_depth) for row in found}), 2),
        ],
    )


def _short(row: Approximated) -> bool:
    return row.length <= 8 * row.max_depth


def _growing(rows: Sequence[Approximated], name: str) -> list[bool]:
    """For every step of N of the same model: whether the number grows in proportion to it."""
    series: dict[tuple[int, int, float], list[Approximated]] = {}
    for row in sorted(rows, key=lambda row: row.length):
        series.setdefault((row.types, row.max_depth, row.amount), []).append(row)
    return [
        getattr(later, name) >= GROWS * getattr(row, name) * later.length / row.length > 0
        for each in series.values()
        for row, later in pairwise(each)
    ]


def _beside_approximate(rows: Sequence[Approximated]) -> list[Check]:
    known = [row for row in rows if row.least is not None]
    if not rows:
        return []
    checks = [
        shown("largest share of the bound from γ and the errors", max(row.share for row in rows)),
        shown("largest share of the bound from the separation", max(row.measured for row in rows)),
        shown("largest ‖S‖ N / P", max(row.constant for row in rows)),
    ]
    if known:
        first = known[0]
        checks.append(shown(f"N = {first.length}: loss of the truth itself", first.least or 0.0))
        checks.append(
            shown(f"N = {first.length}: log10 of the loss that is asked for", first.log10_bound)
        )
    return checks


# ------------------------------------------------------------------ Corollary 2.2.2


def judge_decay(rows: Rows[Row]) -> Verdict:
    """What the proof uses, on points that weight decay reaches; and minimisers without decay."""
    found = rows.of(Decayed)
    near = rows.of(Approximated)
    exact = [row.excess for row in near if row.near == "balanced" and row.excess is not None]
    leaks = [row for row in near if row.near == "leak" and row.error <= EXACT]
    growing = _growing(leaks, "constant")
    return decide(
        exactly("the construction: excess loss, largest", largest(exact)),
        none(
            "points of lower penalised loss whose ‖S‖ N / P exceeds the bound",
            sum(not (row.share <= 1 and row.measured <= 1) for row in found),
            of=len(found),
        ),
        none(
            "points whose excess loss exceeds λ ‖θ*‖² / 2",
            sum(not row.excess <= row.decay * row.norm / 2 for row in found),
            of=len(found),
        ),
        none(
            "descents that did not lower the penalised loss",
            sum(not row.end < row.start for row in found),
            of=len(found),
        ),
        at_edge(
            NO_DECAY,
            none(
                "steps of N at which ‖S‖ N / P of an unbalanced minimiser grows with N",
                sum(growing),
                of=len(growing),
            ),
        ),
        *(shown(f"λ = {row.decay:g}: ‖S‖ N / P, N = {row.length}", row.constant) for row in found),
        *(
            shown(f"log10 of λ_N by the proof, N = {row.length}", row.lambda_needed)
            for row in found[:1]
        ),
        needs=[
            at_least("values of λ", len({row.decay for row in found}), 3),
            at_least("unbalanced minimisers", len(leaks), 4),
        ],
    )


# ------------------------------------------------------------------ pruning


def judge_pruning(rows: Rows[Row]) -> Verdict:
    """A wider random transformer comes exponentially nearer to the target."""
    found = rows.of(Pruned)
    curves = _curves(found)
    slopes = [_slope(curve) for curve in curves]
    widest = max((row.block for row in found), default=0)
    last = [row for row in found if row.block == widest]
    return decide(
        none(
            "networks with a weight that is neither the random one nor 0",
            sum(not row.is_pruning for row in found),
            of=len(found),
        ),
        *([below(SLOPE, mean(slopes), 0.0)] if slopes else []),
        none(
            "networks of the widest blocks that are off by more than 1 %",
            sum(not row.error <= CLOSE for row in last),
            of=len(last),
        ),
        *(
            shown(
                f"m = {row.width}, w = {row.hidden}, L = {row.layers}, {row.large_hidden} hidden "
                f"units: largest error",
                row.error,
            )
            for row in last
            if row.seed in (0, 99)
        ),
        needs=[
            at_least("curves of error against width", len(curves), 3),
            at_least("targets", len({(row.width, row.layers) for row in last}), 3),
        ],
    )


SLOPE = "log10 of the error for 10 more units a block, mean of all curves"


def _curves(rows: Sequence[Pruned]) -> list[list[Pruned]]:
    """Rows of one target and seed by growing block, where there are three or more."""
    series: dict[tuple[int, int, int], list[Pruned]] = {}
    for row in sorted(rows, key=lambda row: row.block):
        series.setdefault((row.width, row.layers, row.seed), []).append(row)
    return [each for each in series.values() if len(each) > 2]


def _slope(curve: Sequence[Pruned]) -> float:
    first, last = curve[0], curve[-1]
    return 10 * math.log10(last.error / first.error) / (last.block - first.block)


def judge_shared(rows: Rows[Row]) -> Verdict:
    """Two functions, one layer."""
    found = rows.of(Shared)
    return decide(
        none(
            "matrices of the chosen layer that differ between the two prunings",
            sum(row.differ for row in found),
            of=sum(row.matrices for row in found),
        ),
        none(
            "prunings that are off by more than a tenth of what is between the targets",
            sum(not error <= row.apart / 10 for row in found for error in _both(row)),
            of=2 * len(found),
        ),
        none("layers of which nothing is kept", sum(row.kept == 0 for row in found), of=len(found)),
        *(
            shown(f"layer {row.layer + 1}: larger error of the two", max(_both(row)))
            for row in found
        ),
        needs=[at_least("layers", len({row.layer for row in found}), 4)],
    )


def _both(row: Shared) -> tuple[float, float]:
    return row.first_error, row.second_error


def judge_silent(rows: Rows[Row]) -> Verdict:
    """Different patterns, the same constant output."""
    found = rows.of(Silenced)
    return decide(
        exactly(
            "outputs with a head of 0, largest", largest([row.largest_output for row in found])
        ),
        none(
            "pairs of networks whose patterns are the same",
            sum(not row.variation > EXACT for row in found),
            of=len(found),
        ),
        needs=[at_least("pairs of networks", len(found), 2)],
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

_NEAR = Approximated(
    seed=0,
    types=2,
    max_depth=2,
    length=17,
    near="balanced",
    amount=0.0,
    constant=0.0,
    share=0.0,
    measured=0.0,
    error=0.0,
    lipschitz=100.0,
    depth_zero=10.0,
    least=0.44,
    excess=0.0,
    log10_bound=-20.5,
)


def _lengths(row: Approximated) -> list[Approximated]:
    """The same model at four lengths."""
    return [
        replace(
            row,
            length=n,
            constant=row.constant * n / 17,
            depth_zero=row.depth_zero * n / 17,
        )
        for n in (17, 33, 65, 129)
    ]


_LEAK = replace(_NEAR, near="leak", amount=0.1, constant=1.2, share=0.01, measured=0.1)
APPROXIMATE_HELD = [
    *_lengths(_NEAR),
    *_lengths(_LEAK),
    *_lengths(replace(_LEAK, amount=1.0)),
    replace(_LEAK, near="noise", types=3, max_depth=3, length=34),
]
APPROXIMATE_REFUTED = [
    [*APPROXIMATE_HELD, replace(_LEAK, amount=2.0, share=2.0)],
    [*APPROXIMATE_HELD, replace(_LEAK, amount=2.0, measured=2.0)],
    [*APPROXIMATE_HELD, replace(_LEAK, amount=2.0, length=16)],
]

_DECAYED = Decayed(
    seed=0,
    length=17,
    decay=1e-6,
    norm=1e4,
    start=0.005,
    end=0.004,
    excess=1e-7,
    error=1e-3,
    constant=1e-6,
    share=0.0,
    measured=0.0,
    lambda_needed=-24.0,
)
DECAY_HELD = [
    *APPROXIMATE_HELD,
    *[replace(_DECAYED, decay=rate, start=1.0) for rate in (1e-4, 1e-5)],
    _DECAYED,
]
DECAY_REFUTED = [
    [replace(_NEAR, excess=0.1), *DECAY_HELD],
    [*DECAY_HELD, replace(_DECAYED, share=2.0)],
    [*DECAY_HELD, replace(_DECAYED, excess=1.0)],
    [*DECAY_HELD, replace(_DECAYED, end=0.1)],
]

_PRUNED = Pruned(0, 2, 4, 1, 48, 18, 384, True, 1e-4, 1e-5, 0.01)
PRUNING_HELD = [
    *[
        replace(_PRUNED, seed=seed, block=block, error=error)
        for seed in range(3)
        for block, error in ((8, 0.3), (24, 0.01 + 0.001 * seed), (48, 1e-4))
    ],
    replace(_PRUNED, width=3, seed=99),
    replace(_PRUNED, layers=2, seed=99),
]
PRUNING_REFUTED = [
    [*PRUNING_HELD, replace(_PRUNED, is_pruning=False)],
    [replace(row, error=0.005 if row.block == 48 else 0.001) for row in PRUNING_HELD],
    [*PRUNING_HELD, replace(_PRUNED, width=4, error=0.3)],
]

_SHARED = Shared(0, 2, 48, 1, 0.9, 1e-5, 1e-5, 7, 0, 900)
SHARED_HELD = [replace(_SHARED, layer=layer) for layer in range(4)]
SHARED_REFUTED = [
    [*SHARED_HELD, replace(_SHARED, differ=1)],
    [*SHARED_HELD, replace(_SHARED, second_error=0.5)],
    [*SHARED_HELD, replace(_SHARED, kept=0)],
]

_SILENCED = Silenced(0, 2, 3, 0.0, 5.0)
SILENCED_HELD = [_SILENCED, replace(_SILENCED, types=3)]
SILENCED_REFUTED = [
    [*SILENCED_HELD, replace(_SILENCED, largest_output=0.1)],
    [*SILENCED_HELD, replace(_SILENCED, variation=0.0)],
]

CLAIMS = [
    Claim("li.thm-2.2.1-sufficient", judge_sufficient, SUFFICIENT_REFUTED, SUFFICIENT_HELD),
    Claim("li.thm-2.2.1-necessary", judge_necessary, NECESSARY_REFUTED, NECESSARY_HELD),
    Claim("li.cor-2.2.1", judge_uniform, UNIFORM_REFUTED, UNIFORM_HELD),
    Claim("li.thm-2.2.2", judge_approximate, APPROXIMATE_REFUTED, APPROXIMATE_HELD),
    Claim("li.cor-2.2.2", judge_decay, DECAY_REFUTED, DECAY_HELD),
    Claim("li.thm-2.2.3", judge_pruning, PRUNING_REFUTED, PRUNING_HELD),
    Claim("li.cor-2.2.3", judge_shared, SHARED_REFUTED, SHARED_HELD),
    Claim("li.prop-2.2.1", judge_silent, SILENCED_REFUTED, SILENCED_HELD),
]
