"""What rows about nearly balanced models decide: Theorem 2.2.2 and Corollary 2.2.2."""

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
    Row,
    TrainedConstant,
)

GROWS = 0.9  # of proportional growth: leaks that also add to P grow a little less

DEPTH_ZERO = "d = 1, where nothing is left open"
NO_DECAY = "λ = 0"


# ------------------------------------------------------------------ Theorem 2.2.2


def judge_approximate(rows: Rows[Row]) -> Verdict:
    """‖S‖ N / P stays below the bound that the proof gives when it is written out."""
    found = rows.of(Approximated)
    optimal = [row for row in found if row.near == "balanced"]
    growing = _growing(optimal, "depth_zero")
    return decide(
        none(
            "models whose ‖S‖ N / P is above the proof's bound, with γ and the errors of the model",
            sum(not row.share <= 1 for row in found),
            of=len(found),
        ),
        none(
            "models whose ‖S‖ N / P is above the proof's bound, with the measured distance of "
            "layer norms",
            sum(not row.measured <= 1 for row in found),
            of=len(found),
        ),
        none(
            "models that are too short for the theorem, N ≤ 8 D",
            sum(_short(row) for row in found),
            of=len(found),
        ),
        at_edge(
            DEPTH_ZERO,
            none(
                "steps to a larger N at which ‖S‖ N / ‖Q‖ of an optimal model grows as N",
                sum(growing),
                of=len(growing),
            ),
        ),
        *_beside_approximate(found),
        *_trained([row for row in rows.of(TrainedConstant) if row.decay == 0]),
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
        shown(
            "largest ‖S‖ N / P, divided by the bound with γ and the errors",
            max(row.share for row in rows),
        ),
        shown(
            "largest ‖S‖ N / P, divided by the bound with the measured distance",
            max(row.measured for row in rows),
        ),
        shown("largest ‖S‖ N / P", max(row.constant for row in rows)),
    ]
    if known:
        first = known[0]
        checks.append(
            shown(f"N = {first.length}: squared loss of the truth itself", first.least or 0.0)
        )
        checks.append(
            shown(
                f"N = {first.length}: log10 of the loss that the theorem asks for",
                first.log10_bound,
            )
        )
    return checks


def _trained(rows: Sequence[TrainedConstant]) -> list[Check]:
    """Numbers of trained networks: far from the loss that is asked for, so they decide nothing.

    For each λ and N the mean of ‖S‖ N / P, and by how many powers of ten the loss is missed.
    """
    groups: dict[tuple[float, int], list[TrainedConstant]] = {}
    for row in rows:
        groups.setdefault((row.decay, row.length), []).append(row)
    checks = []
    for (decay, length), found in sorted(groups.items()):
        label = f"trained, λ = {decay:g}, N = {length}"
        checks += [
            shown(
                f"{label}: largest ‖S‖ N / P, mean of networks", mean([r.constant for r in found])
            ),
            shown(
                f"{label}: powers of ten by which the loss that is asked for is missed",
                mean([r.log10_missed for r in found]),
            ),
        ]
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
        exactly("the construction: largest loss above that of the truth", largest(exact)),
        none(
            "parameters of lower penalised loss whose ‖S‖ N / P is above the bound",
            sum(not (row.share <= 1 and row.measured <= 1) for row in found),
            of=len(found),
        ),
        none(
            "parameters whose loss above the truth's exceeds λ ‖θ*‖² / 2, θ* the construction",
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
                "steps to a larger N at which ‖S‖ N / P of an unbalanced minimiser grows as N",
                sum(growing),
                of=len(growing),
            ),
        ),
        *(shown(f"λ = {row.decay:g}: ‖S‖ N / P, N = {row.length}", row.constant) for row in found),
        *(
            shown(f"log10 of the λ that the proof asks for, N = {row.length}", row.lambda_needed)
            for row in found[:1]
        ),
        *_trained([row for row in rows.of(TrainedConstant) if row.decay > 0]),
        needs=[
            at_least("values of λ", len({row.decay for row in found}), 3),
            at_least("unbalanced minimisers", len(leaks), 4),
        ],
    )


# ------------------------------------------------------------------ rows that hold and refute


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

NEAR_CLAIMS = [
    Claim("li.thm-2.2.2", judge_approximate, APPROXIMATE_REFUTED, APPROXIMATE_HELD),
    Claim("li.cor-2.2.2", judge_decay, DECAY_REFUTED, DECAY_HELD),
]
