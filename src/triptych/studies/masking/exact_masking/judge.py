"""The judges of `exact_masking`, with rows that hold and rows that refute.

Statements are judged, in the scope in which they are made: the lemmas on Definition 4.1.2 under
masks that do not look at the sequence. What the rows say beyond is shown.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from triptych.studies.api.decide import (
    Check,
    Need,
    Verdict,
    at_least,
    decide,
    exactly,
    largest,
    none,
    shown,
)
from triptych.studies.api.study import Claim, Rows
from triptych.studies.masking.exact_masking.beside import models_needed, most_beside
from triptych.studies.masking.exact_masking.judge_samples import SAMPLE_CLAIMS
from triptych.studies.masking.exact_masking.rows import (
    Curvature,
    Example,
    MaskedTraining,
    PairKernel,
    Row,
    Step,
)

SAME = 1e-10  # agreement of two ways to a matrix, relative
CONVEX = 1e-9  # how far below 0 rounding may bring the least eigenvalue of a Hessian, relative
WHITENED = 1e-6  # by which a ratio of variances may exceed its bound, in any direction
CONDITION = 1e6  # of the information; beyond, whitened matrices lose too many digits to be judged
DIFFERENT = 1e-3  # probabilities that are said to differ do so by this much


def _models(
    rows: Sequence[MaskedTraining] | Sequence[Step] | Sequence[Curvature], what: str = "models"
) -> Need:
    return models_needed([row.model for row in rows], what)


# ------------------------------------------------------------------ matrices


def judge_information(rows: Rows[Row]) -> Verdict:
    every = rows.of(MaskedTraining)
    laws, looking = _split(every)
    return decide(
        exactly(
            "Hessian of the loss at the truth against covariance of its gradient: largest "
            "relative difference",
            largest([row.information_error for row in laws]),
            below=SAME,
        ),
        *most_beside(
            "Hessian against covariance, masks that look at the sequence (Lemma 4.3.3): largest "
            "relative difference",
            [row.information_error for row in looking],
        ),
        *most_beside(
            "gradient of the loss at the truth, largest entry",
            [row.gradient_error for row in every],
        ),
        needs=[_models(laws)],
    )


def judge_adaptive_information(rows: Rows[Row]) -> Verdict:
    """Lemma 4.3.3: the equality under masks that look at the sequence."""
    _, looking = _split(rows.of(MaskedTraining))
    return decide(
        exactly(
            "Hessian of the loss at the truth against covariance of its gradient, masks that look "
            "at the sequence: largest relative difference",
            largest([row.information_error for row in looking]),
            below=SAME,
        ),
        *most_beside(
            "gradient of the loss at the truth, largest entry",
            [row.gradient_error for row in looking],
        ),
        needs=[_models(looking, "models with masks that look at the sequence")],
    )


def _split(rows: Sequence[MaskedTraining]) -> tuple[list[MaskedTraining], list[MaskedTraining]]:
    """Masks that do not look at the sequence, and masks that do."""
    return [row for row in rows if not row.adaptive], [row for row in rows if row.adaptive]


def judge_order(rows: Rows[Row]) -> Verdict:
    every = rows.of(Step)
    steps = [row for row in every if row.condition <= CONDITION]
    return decide(
        exactly(
            "share of its variance that a direction keeps from blocks of k to blocks of k + 1: "
            "largest excess over 1",
            largest([row.most_kept for row in steps]) - 1,
            below=WHITENED,
        ),
        *most_beside(
            "share of its variance that some direction saves, largest",
            [1 - r.least_kept for r in steps],
        ),
        *most_beside(
            "every sequence seen under all its masks, outside of the theorem: largest excess "
            "over 1",
            [row.all_masks_kept - 1 for row in steps],
        ),
        *_left_out(every),
        needs=[_models(steps, "models with a well-conditioned information")],
    )


def _left_out(rows: Sequence[MaskedTraining] | Sequence[Step]) -> list[Check]:
    """Models whose whitened matrices have too few digits left."""
    left = {(row.model, row.seed) for row in rows if not row.condition <= CONDITION}
    sentence = (
        f"models left out because their information is too ill-conditioned, above {CONDITION:g}"
    )
    return [shown(sentence, float(len(left)))] if left else []


def judge_bound(rows: Rows[Row]) -> Verdict:
    laws, _ = _split(rows.of(MaskedTraining))
    return decide(
        *_bound(laws),
        needs=[_models(_judged(laws), "models with a finite constant")],
    )


def judge_adaptive_bound(rows: Rows[Row]) -> Verdict:
    _, looking = _split(rows.of(MaskedTraining))
    pairs = [row.pairs for row in looking if row.pairs is not None and row.blocks > 1]
    return decide(
        *_bound(looking),
        *most_beside(
            "spectral gap of the kernel (4.26), which never changes the block",
            [pair.gap for pair in pairs],
        ),
        needs=[_models(_judged(looking), "models with a finite constant")],
    )


def _judged(rows: Sequence[MaskedTraining]) -> list[MaskedTraining]:
    """Well conditioned, and with a constant under which the bound says something."""
    return [row for row in rows if row.condition <= CONDITION and row.poincare < math.inf]


def _bound(rows: Sequence[MaskedTraining]) -> list[Check]:
    """Γ ⪯ C I⁻¹: the largest eigenvalue of I^½ Γ I^½ is at most C (1 + 1e-6)."""
    judged = _judged(rows)
    used = [row.worst_ratio / row.poincare for row in judged]
    tables = [u for u, row in zip(used, judged, strict=True) if row.model.startswith("table")]
    checks = [
        exactly(
            "variance of masked training, divided by C times that of maximum likelihood, in the "
            "worst direction: largest excess over 1",
            largest(used) - 1,
            below=WHITENED,
        ),
        *most_beside("largest Poincaré constant C", [row.poincare for row in judged]),
    ]
    if tables:
        sentence = (
            "where every string has a parameter of its own: share of the bound that is "
            "reached, smallest"
        )
        checks.append(shown(sentence, -largest([-value for value in tables])))
    return checks + _left_out(rows)


def judge_dirichlet(rows: Rows[Row]) -> Verdict:
    _, looking = _split(rows.of(MaskedTraining))
    known = [row for row in looking if row.pairs is not None]
    pairs = [row.pairs for row in looking if row.pairs is not None]
    return decide(
        exactly(
            "functions of sequence and block, kernel (4.26): Dirichlet form against its formula, "
            "largest relative difference",
            largest([pair.form_error for pair in pairs]),
            below=SAME,
        ),
        exactly(
            "functions of the sequence alone, chain on sequences: Dirichlet form against its "
            "formula, largest relative difference",
            largest([row.dirichlet_error for row in looking]),
            below=SAME,
        ),
        *most_beside(
            "detailed balance of the kernel, largest error", [p.balance_error for p in pairs]
        ),
        needs=[_models(known, "models with masks that look at the sequence")],
    )


# ------------------------------------------------------------------ conditioning, convexity


def judge_conditioning(rows: Rows[Row]) -> Verdict:
    """One law with two different conditionals is enough; "as printed" does not condition x_K."""
    every = rows.of(Example)
    proper = [row for row in every if row.reading != "as printed"]
    gaps = [abs(row.with_block - row.without) for row in proper]
    known = bool(gaps) and not math.isnan(largest(gaps))
    printed = [row for row in every if row.reading == "as printed"]
    measured = {}
    if printed:
        measured = {"with_block": printed[0].with_block, "without": printed[0].without}
    return decide(
        none(
            "laws on two bits whose conditionals do not change when the block is given",
            int(known and max(gaps) <= DIFFERENT),
            of=int(known),
        ),
        *[
            shown(
                f"p(x_K | x_-K, K) minus p(x_K | x_-K), {row.reading}", row.with_block - row.without
            )
            for row in proper
        ],
        needs=[at_least("readings of the example", len(proper), 1)],
        measured=measured,
    )


def judge_convexity(rows: Rows[Row]) -> Verdict:
    every = rows.of(Curvature)
    ising = [row for row in every if row.ising]
    blind = [row for row in ising if not row.adaptive]
    formulas = [row.formula_error for row in ising if row.formula_error is not None]
    return decide(
        exactly(
            "how far the smallest eigenvalue of the Hessian is below 0, as a share of the largest",
            largest([-row.least_eigenvalue for row in blind]),
            below=CONVEX,
        ),
        exactly(
            "loss midway between two parameters minus the mean of their losses: largest",
            largest([-row.least_chord for row in blind]),
            below=CONVEX,
        ),
        *most_beside(
            "how far the smallest eigenvalue is below 0, under masks that look at the sequence",
            [-row.least_eigenvalue for row in ising if row.adaptive],
        ),
        *most_beside(
            "how far the smallest eigenvalue is below 0, in a family that is not log-linear",
            [-row.least_eigenvalue for row in every if not row.ising],
        ),
        *most_beside(
            "Hessian against a mean of conditional covariances: largest relative difference",
            formulas,
        ),
        needs=[_models(blind, "Ising models")],
    )


# ------------------------------------------------------------------ rows made by hand

_PAIR = PairKernel(1e-14, 1e-16, 0.0, 0.5, 1e-14)
_LAW = MaskedTraining(
    model="chain 3 0.5",
    seed=0,
    condition=10.0,
    law="size 1",
    adaptive=False,
    blocks=5,
    poincare=4.0,
    information_error=1e-14,
    gradient_error=1e-14,
    worst_ratio=3.0,
    trace_ratio=2.0,
    dirichlet_error=1e-14,
    pairs=_PAIR,
)
_LOOKING = replace(_LAW, law="ones 1.5", adaptive=True)
_LAWS: list[Row] = [
    replace(row, model=model) for model in ("chain 3 0.5", "hmm 3") for row in (_LAW, _LOOKING)
]
_STEP = Step("chain 3 0.5", 0, 10.0, 1, 0.99, 0.7, 1.0)
_STEPS: list[Row] = [_STEP, replace(_STEP, model="hmm 3")]
_PRINTED = Example("as printed", 9 / 13, 3 / 5)
_FIRST, _SECOND = Example("K = {0}", 6 / 7, 3 / 4), Example("K = {1}", 9 / 17, 3 / 5)
_CURVED = Curvature("chain 3 0.5", True, "size 1", False, 9, 0.01, 0.1, 1e-12)
_CURVES: list[Row] = [_CURVED, replace(_CURVED, model="clique 4 0.3")]

CLAIMS: list[Claim[Row]] = [
    Claim(
        "li.lem-4.1.2",
        judge_information,
        refuted_by=[[*_LAWS, replace(_LAW, information_error=0.1)]],
        held_by=_LAWS,
    ),
    Claim(
        "li.lem-4.3.3",
        judge_adaptive_information,
        refuted_by=[[*_LAWS, replace(_LOOKING, information_error=0.1)]],
        held_by=_LAWS,
    ),
    Claim(
        "li.thm-4.1.1",
        judge_order,
        refuted_by=[
            [*_STEPS, replace(_STEP, most_kept=1.1)],
            [*_STEPS, replace(_STEP, model="hmm 3", most_kept=1.00001)],
        ],
        held_by=_STEPS,
    ),
    Claim(
        "li.thm-4.1.2",
        judge_bound,
        refuted_by=[
            [*_LAWS, replace(_LAW, worst_ratio=8.0)],
            [*_LAWS, replace(_LAW, model="hmm 3", worst_ratio=4.0001)],
        ],
        held_by=_LAWS,
    ),
    Claim(
        "li.thm-4.1.3",
        judge_adaptive_bound,
        refuted_by=[
            [*_LAWS, replace(_LOOKING, worst_ratio=8.0)],
            [*_LAWS, replace(_LOOKING, model="hmm 3", worst_ratio=4.0001)],
        ],
        held_by=_LAWS,
    ),
    Claim(
        "li.prop-4.1.1",
        judge_dirichlet,
        refuted_by=[
            [*_LAWS, replace(_LOOKING, dirichlet_error=0.1)],
            [*_LAWS, replace(_LOOKING, pairs=replace(_PAIR, form_error=0.1))],
        ],
        held_by=_LAWS,
    ),
    Claim(
        "li.lem-4.3.1",
        judge_conditioning,
        refuted_by=[
            [_PRINTED, replace(_FIRST, with_block=3 / 4), replace(_SECOND, with_block=3 / 5)]
        ],
        held_by=[_PRINTED, _FIRST, _SECOND],
    ),
    Claim(
        "li.prop-4.3.6",
        judge_convexity,
        refuted_by=[
            [*_CURVES, replace(_CURVED, least_eigenvalue=-0.1)],
            [*_CURVES, replace(_CURVED, least_chord=-0.1)],
        ],
        held_by=_CURVES,
    ),
    *SAMPLE_CLAIMS,
]
