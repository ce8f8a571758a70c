"""The judges of attention weights: Theorems 2.1.3 and 2.1.5, Figures 2.7 and 2.8."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from triptych.studies.api.decide import (
    Check,
    Need,
    Verdict,
    at_least,
    decide,
    none,
    shown,
)
from triptych.studies.api.study import Claim, Rows
from triptych.studies.topics.topic_theory.rows import Landscape, Row, ValueName, Weights
from triptych.studies.topics.topic_theory.weights import HIGHEST, LOWEST

LARGE = 100_000  # topics: a statement about T → ∞ is read off at these and above
LEAST_FAMILIES = 4  # of growing (T, τ), two v and two rates
LANDSCAPES = 4  # values of τ
TIGHTEST = 0  # the number of the smallest share of the range of the loss: where it is lowest


# ------------------------------------------------------------------ Theorems 2.1.3 and 2.1.5


def judge_blocks(rows: Rows[Row]) -> Verdict:
    """λ₁ (τ - 1) < γ < λ₂ T for uniform blocks."""
    found = rows.of(Weights)
    large = _limits(found)
    return decide(
        none(
            "settings whose best γ = (v-1)/v α + β/v at their largest T is not above λ₁ (τ - 1)",
            sum(not row.gamma_low < row.gamma for row in large),
            of=len(large),
        ),
        none(
            "settings whose best γ = (v-1)/v α + β/v at their largest T is not below λ₂ T",
            sum(not row.gamma < row.gamma_high for row in large),
            of=len(large),
        ),
        *_beside(found, "γ", _gamma, lambda row: row.gamma_low < row.gamma < row.gamma_high),
        needs=_enough(found, lambda row: row.gamma / row.drawn),
    )


def judge_diagonal(rows: Rows[Row]) -> Verdict:
    """λ₃ τ < β < λ₄ T and α < λ₅ β for the diagonal."""
    found = rows.of(Weights)
    large = _limits(found)
    return decide(
        none(
            "settings whose best β at their largest T is not above λ₃ τ",
            sum(not row.beta_low < row.beta for row in large),
            of=len(large),
        ),
        none(
            "settings whose best β at their largest T is not below λ₄ T",
            sum(not row.beta < row.beta_high for row in large),
            of=len(large),
        ),
        none(
            "settings whose best α at their largest T is not below λ₅ β",
            sum(not row.alpha < row.ratio * row.beta for row in large),
            of=len(large),
        ),
        *_beside(
            found,
            "β",
            _beta,
            lambda row: (
                row.beta_low < row.beta < row.beta_high and row.alpha < row.ratio * row.beta
            ),
        ),
        needs=_enough(found, lambda row: row.beta / (row.words * row.drawn)),
    )


def _gamma(row: Weights) -> float:
    return row.gamma


def _beta(row: Weights) -> float:
    return row.beta


def _large(rows: Sequence[Weights]) -> list[Weights]:
    """What the theorems speak of: τ = o(T) within the assumptions, and T large."""
    return [row for row in rows if row.assumed and row.sparse and row.topics >= LARGE]


def _families(rows: Sequence[Weights]) -> list[list[Weights]]:
    """Rows of one v, masking, rate and reading within the assumptions, by growing T."""
    found: dict[tuple[int, str, float, str], list[Weights]] = {}
    for row in sorted(rows, key=lambda row: row.topics):
        if row.assumed and row.sparse:
            found.setdefault((row.words, row.masking, row.rate, row.reading), []).append(row)
    return list(found.values())


def _limits(rows: Sequence[Weights]) -> list[Weights]:
    """The point of every family with the largest T, where T is large.

    From which T on the bounds hold depends on v and on the rate: β is about c v τ, and that is
    below λ₄ T once T / τ is large enough.
    """
    return [family[-1] for family in _families(rows) if family[-1].topics >= LARGE]


def _enough(rows: Sequence[Weights], per_topic: Callable[[Weights], float]) -> list[Need]:
    """Several families, each nearer to its limit at its last large T than at its first.

    The theorems are about T → ∞: a finite T says something once the best weights settle.
    """
    families = _families(rows)
    large = [_large(family) for family in families]
    away = [[abs(per_topic(row) / row.limit - 1) for row in family] for family in large]
    settling = [values for values in away if len(values) >= 2 and values[-1] < values[0]]
    return [
        at_least("families of growing T and τ", len(families), LEAST_FAMILIES),
        at_least("numbers of words v", len({family[0].words for family in families}), 2),
        at_least("rates a of τ = T^a", len({family[0].rate for family in families}), 2),
        at_least(
            "families that come closer to the exact limit at T of at least 100,000",
            len(settling),
            max(1, len(families)),
        ),
    ]


def _beside(
    rows: Sequence[Weights],
    symbol: str,
    weight: Callable[[Weights], float],
    inside: Callable[[Weights], bool],
) -> list[Check]:
    """How the best weight grows, and where the theorem promises nothing."""
    growth = exponents(rows, weight)
    if growth is None:
        return []
    last = _limits(rows)
    elsewhere = {
        "T of at least 100,000, not the largest": [r for r in _large(rows) if r not in last],
        "T below 100,000": [r for r in rows if r.assumed and r.sparse and r.topics < LARGE],
        "τ a fixed share of T": [r for r in rows if r.assumed and not r.sparse],
        "v or masking outside the assumptions": [r for r in rows if not r.assumed],
    }
    return [
        shown(f"best {symbol} grows like a power of τ: the exponent", growth[0]),
        shown(f"best {symbol} grows like a power of T: the exponent", growth[1]),
        *[
            shown(f"{where}: share of points outside the bounds", _share(found, inside))
            for where, found in elsewhere.items()
            if found
        ],
    ]


def _share(rows: Sequence[Weights], inside: Callable[[Weights], bool]) -> float:
    return sum(not inside(row) for row in rows) / len(rows)


def exponents(
    rows: Sequence[Weights], weight: Callable[[Weights], float]
) -> tuple[float, float] | None:
    """(p, q) of the least-squares fit log(weight) = p log τ + q log T + a constant for each v.

    On the sparse rows within the assumptions that have at least `LARGE` topics; None without two T
    and two τ. Worked value: weights equal to 3 τ give (1, 0), √(τ T) gives (½, ½).
    """
    large = _large(rows)
    if len({row.topics for row in large}) < 2 or len({row.rate for row in large}) < 2:
        return None
    kinds = sorted({(row.words, row.masking, row.reading) for row in large})
    table = [
        [math.log(row.drawn), math.log(row.topics)]
        + [float((row.words, row.masking, row.reading) == kind) for kind in kinds]
        for row in large
    ]
    wanted = [math.log(weight(row)) for row in large]
    p, q = np.linalg.lstsq(np.array(table), np.array(wanted), rcond=None)[0][:2]
    return float(p), float(q)


# ------------------------------------------------------------------ Figures 2.7 and 2.8


def judge_diagonal_picture(rows: Rows[Row]) -> Verdict:
    """β in an interval whose lower edge grows with τ; the best α less than λ₅ times β."""
    found = _pictures(rows.of(Landscape), "diagonal")
    every = [row for series in found.values() for row in series]
    return decide(
        none(
            "pictures whose loss is not lowest for β in an interval within the grid",
            sum(row.gaps[TIGHTEST] > 0 or not _within_grid(row.edges[TIGHTEST]) for row in every),
            of=len(every),
        ),
        _growing_edges("β", found),
        none(
            "pictures whose best α is not below λ₅ β",
            sum(not row.alpha < row.ratio * row.beta for row in every),
            of=len(every),
        ),
        *_summary("β", found),
        *_beside_picture(every),
        needs=_all_pictures(found),
    )


def judge_blocks_picture(rows: Rows[Row]) -> Verdict:
    """A corner: all pairs with γ in an interval and no others, whose lower edge grows with τ."""
    found = _pictures(rows.of(Landscape), "blocks")
    every = [row for series in found.values() for row in series]
    regions = [edges for row in every for edges in row.edges]
    return decide(
        none(
            "pictures whose region of low loss is not all (α, β) with γ = (v-1)/v α + β/v in "
            "an interval",
            sum(row.strays > 0 for row in every),
            of=len(every),
        ),
        none(
            "intervals of γ that are not within the grid",
            sum(not _within_grid(edges) for edges in regions),
            of=len(regions),
        ),
        none(
            "pictures whose region of low loss lacks an arm of the corner",
            sum(not row.arms for row in every),
            of=len(every),
        ),
        _growing_edges("γ", found),
        *_summary("γ", found),
        needs=_all_pictures(found),
    )


Pictures = dict[str, list[Landscape]]  # of every reading, by growing τ


def _pictures(rows: Sequence[Landscape], name: ValueName) -> Pictures:
    found: Pictures = {}
    for row in sorted(rows, key=lambda row: row.drawn):
        if row.value == name:
            found.setdefault(row.reading, []).append(row)
    return found


def _within_grid(edges: tuple[float, float]) -> bool:
    """Away from the ends of the grid, whose steps are 1.2 %."""
    return edges[0] > 1.005 * 10.0**LOWEST and 1.005 * edges[1] < 10.0**HIGHEST


def _growing_edges(symbol: str, found: Pictures) -> Check:
    """For every reading, share of the range and step of τ."""
    steps = [
        (edges[0], larger[0])
        for series in found.values()
        for row, later in pairwise(series)
        for edges, larger in zip(row.edges, later.edges, strict=True)
    ]
    return none(
        f"steps of τ at which the lower edge of {symbol} does not grow",
        sum(not larger > edge for edge, larger in steps),
        of=len(steps),
    )


def _summary(symbol: str, found: Pictures) -> list[Check]:
    """Where the loss is lowest, with the formulas of the source."""
    checks = []
    for row in found.get("printed", []):
        where = f"τ = {row.drawn}, loss within {row.shares[TIGHTEST]:.0%} of its range"
        low, high = row.edges[TIGHTEST]
        checks.append(shown(f"{where}: lower edge of {symbol}", low))
        checks.append(shown(f"{where}: upper edge of {symbol}", high))
    return checks


def _beside_picture(rows: Sequence[Landscape]) -> list[Check]:
    wider = [edges for row in rows for edges in row.edges[TIGHTEST + 1 :]]
    if not wider:
        return []
    unbounded = sum(not _within_grid(edges) for edges in wider) / len(wider)
    return [shown("regions of wider shares that reach the end of the grid, share", unbounded)]


def _all_pictures(found: Pictures) -> list[Need]:
    return [
        at_least(
            "values of τ with the formulas of the source", len(found.get("printed", [])), LANDSCAPES
        ),
        at_least(
            "values of τ in every reading of the masks",
            min((len(series) for series in found.values()), default=0),
            LANDSCAPES,
        ),
    ]


# ------------------------------------------------------------------ rows that hold and refute

_WEIGHTS = Weights(
    seed=0,
    masking="m",
    words=10,
    topics=LARGE,
    drawn=100,
    sparse=True,
    rate=0.4,
    reading="shared",
    assumed=True,
    gamma=693.0,
    gamma_low=57.0,
    gamma_proved=40.0,
    gamma_high=1e8,
    alpha=1.0,
    beta=6930.0,
    beta_low=9.0,
    beta_high=1e8,
    ratio=0.1,
    limit=7.0,
)


def _family(words: int, rate: float, power: int) -> list[Weights]:
    """A T and ten times as many, where τ is `power` times as large."""
    first = replace(_WEIGHTS, words=words, rate=rate, beta=693.0 * words)
    return [
        first,
        replace(
            first,
            topics=10 * LARGE,
            drawn=100 * power,
            gamma=699.0 * power,
            beta=699.0 * words * power,
        ),
    ]


WEIGHTS_HELD = [
    row for v in (10, 20) for rate, power in ((0.4, 3), (0.5, 4)) for row in _family(v, rate, power)
]
_FIRST, _LAST = WEIGHTS_HELD[:-1], WEIGHTS_HELD[-1]
_UNIFORM = [replace(row, alpha=1.0, beta=1.0, gamma=1.0) for row in WEIGHTS_HELD]  # no effect
BLOCKS_REFUTED = [
    [*_FIRST, replace(_LAST, gamma=20.0)],
    [*_FIRST, replace(_LAST, gamma=1e9)],
    _UNIFORM,
]
DIAGONAL_REFUTED = [
    [*_FIRST, replace(_LAST, beta=1.0, alpha=0.0)],
    [*_FIRST, replace(_LAST, beta=1e9)],
    [*_FIRST, replace(_LAST, alpha=_LAST.beta)],
    _UNIFORM,
]


def _pictured(name: ValueName) -> list[Landscape]:
    return [
        Landscape(
            seed=0,
            value=name,
            drawn=tau,
            reading="printed",
            alpha=0.1,
            beta=300.0,
            gamma=300.0,
            ratio=0.1,
            shares=(0.01, 0.05),
            edges=((2.0 * tau, 900.0), (1.0 * tau, 1000.0)),
            gaps=(0, 0),
            steepest=(0.001, 0.002),
            strays=0,
            arms=True,
            least=0.1,
            most=1.0,
            picture=None,
        )
        for tau in (20, 40, 60, 80)
    ]


DIAGONAL_PICTURE_HELD = _pictured("diagonal")
BLOCKS_PICTURE_HELD = _pictured("blocks")
_FLAT = ((40.0, 900.0), (20.0, 1000.0))  # edges that do not depend on τ
_SHRINKING = ((60.0, 900.0), (30.0, 1000.0))
_OPEN = ((160.0, 1e7), (80.0, 1e7))
*_DIAGONALS, _DIAGONAL = DIAGONAL_PICTURE_HELD
*_CORNERS, _CORNER = BLOCKS_PICTURE_HELD
DIAGONAL_PICTURE_REFUTED = [
    [*_DIAGONALS, replace(_DIAGONAL, gaps=(20, 0))],
    [*_DIAGONALS, replace(_DIAGONAL, edges=_OPEN)],
    [*_DIAGONALS, replace(_DIAGONAL, edges=_SHRINKING)],
    [replace(row, edges=_FLAT) for row in DIAGONAL_PICTURE_HELD],
    [*_DIAGONALS, replace(_DIAGONAL, alpha=300.0)],
]
BLOCKS_PICTURE_REFUTED = [
    [*_CORNERS, replace(_CORNER, strays=300)],
    [*_CORNERS, replace(_CORNER, edges=_OPEN)],
    [*_CORNERS, replace(_CORNER, arms=False)],
    [*_CORNERS, replace(_CORNER, edges=_SHRINKING)],
    [replace(row, edges=_FLAT) for row in BLOCKS_PICTURE_HELD],
]

WEIGHT_CLAIMS = [
    Claim("li.thm-2.1.3", judge_blocks, BLOCKS_REFUTED, WEIGHTS_HELD),
    Claim("li.thm-2.1.5", judge_diagonal, DIAGONAL_REFUTED, WEIGHTS_HELD),
    Claim("li.fig-2.7", judge_diagonal_picture, DIAGONAL_PICTURE_REFUTED, DIAGONAL_PICTURE_HELD),
    Claim("li.fig-2.8", judge_blocks_picture, BLOCKS_PICTURE_REFUTED, BLOCKS_PICTURE_HELD),
]
