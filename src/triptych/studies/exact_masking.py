"""Masked training on enumerable models, exactly: information, order, bounds [li, 4.1].

Lemma 4.1.2 and Theorems 4.1.1 to 4.1.3: the matrices of masked estimators, under many mask laws.
Proposition 4.1.1: the Dirichlet form, on sequences and on pairs with their block. Lemma 4.3.1: what
conditioning on the block is for. Proposition 4.3.6: convexity. Theorem 4.1.4: both sides of the
finite-sample bound. Judges and figures are in files of their own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.studies import exact_masking_figures as figures
from triptych.studies import exact_masking_judges as judges
from triptych.studies.exact_masking_finite import (
    FINITE_REFUTED,
    finite_rows,
    judge_finite,
    rate_rows,
)
from triptych.studies.masking_models import (
    DRAWN,
    efficiency,
    family_named,
    ising_named,
    law_named,
)
from triptych.studies.study import Bench, Claim, Row, Scale, Settings, Study, Unit
from triptych.theory import block_pairs, estimators, masking
from triptych.theory.block_dynamics import (
    BlockDynamics,
    dirichlet_form,
    dirichlet_form_of_moves,
    poincare_constant,
)
from triptych.theory.families import Family, IsingFamily, LogLinear

_PAIRS = 600  # pairs (K, x) up to which their kernel is built


@dataclass(frozen=True)
class ExactMasking(Settings):
    """Sizes.

    models      "chain 4 0.3": spins and coupling; "grid 2 3 0.4"; "clique 4 0.3"; "random 4 0.8";
                "hmm 3": two states, three letters, length 3; "table 2 3": a law on 2^3 strings
    adaptive    mask laws that look at x: "ones 1.5" prefers blocks with ones, "changes 1.5" pairs
                of unlike neighbours; the number is how strongly
    strengths   of "ones" on which forgetting the block is measured
    points      parameters at which convexity is measured
    samples     models of the finite-sample bound
    sizes       n
    repeats     samples of each size
    """

    models: tuple[str, ...] = (
        "chain 3 0.5",
        "chain 5 0.2",
        "chain 5 1.0",
        "grid 2 3 0.4",
        "clique 4 0.05",
        "clique 4 0.3",
        "clique 5 0.8",
        "random 4 0.8",
        "hmm 2",
        "hmm 3",
        "table 2 3",
        "table 3 2",
    )
    adaptive: tuple[str, ...] = ("ones 1.5", "changes 1.5")
    strengths: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
    points: int = 20
    samples: tuple[str, ...] = ("chain 2 0.4", "chain 3 0.4")
    sizes: tuple[int, ...] = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
    repeats: int = 60


def units(settings: ExactMasking) -> Sequence[Unit]:
    """One per model and statement."""
    found = [
        Unit({"kind": "laws", "model": model, "adaptive": settings.adaptive}, seed)
        for model in settings.models
        for seed in range(settings.seeds if model.split()[0] in DRAWN else 1)
    ]
    found += [
        Unit({"kind": "convexity", "model": model, "points": settings.points}, 0)
        for model in settings.models
        if not model.startswith("table")
    ]
    found += [Unit({"kind": "conditioning", "strengths": settings.strengths}, 0)]
    found += [Unit({"kind": "rate"}, 0)]
    for model in settings.samples:
        for law in ("size 1", *settings.adaptive[:1]):
            found += [
                Unit(
                    {
                        "kind": "finite",
                        "model": model,
                        "law": law,
                        "n": n,
                        "repeats": settings.repeats,
                    },
                    0,
                )
                for n in settings.sizes
            ]
    return found


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    match unit.parameters["kind"]:
        case "laws":
            return _laws(unit)
        case "convexity":
            return _convexity(unit)
        case "conditioning":
            return _conditioning(unit.parameters["strengths"])
        case "rate":
            return rate_rows()
        case _:
            return finite_rows(unit, bench)


# ------------------------------------------------------------------ matrices


def _laws(unit: Unit) -> Iterator[Row]:
    """One row per mask law, and one per k for blocks of k and k + 1.

    Matrices are compared in whitened form: worst_ratio is the largest eigenvalue of I^½ Γ I^½, and
    most_kept and least_kept are the ends of the spectrum of Γ_k^-½ Γ_{k+1} Γ_k^-½, what the next
    k leaves of the variance. `condition`, of I, says how many digits that may cost.
    """
    name = unit.parameters["model"]
    family = family_named(name, unit.seed)
    length = family.length
    names = [f"size {k}" for k in range(1, length + 1)]
    names += ["spans 2", "independent 0.3", *unit.parameters["adaptive"]]
    fisher = masking.fisher(family)
    spectrum = torch.linalg.eigvalsh(fisher)
    common = {
        "model": name,
        "seed": unit.seed,
        "condition": float(spectrum[-1] / spectrum[0]),
    }
    covariances = {}
    for law in names:
        masks = law_named(law, length)
        dynamics = BlockDynamics(family.table, masks)
        hessian, noise = (
            masking.loss_hessian(family, masks),
            masking.score_covariance(family, masks),
        )
        gamma = masking.asymptotic_covariance(family, masks)
        every = masking.asymptotic_covariance(family, masks, masks_per_sample=None)
        covariances[law] = gamma, every
        constant = poincare_constant(dynamics)
        worst, share = efficiency(fisher, gamma)
        yield {
            "kind": "law",
            **common,
            "law": law,
            "adaptive": masks.adaptive,
            "blocks": len(masks.blocks),
            "poincare": constant,
            "information_error": _relative(hessian, noise),
            "gradient_error": float(masking.loss_gradient(family, masks).abs().max()),
            "worst_ratio": worst,
            "trace_ratio": share,
            **_dirichlet(dynamics, unit.seed),
            **_pairs(dynamics, family, fisher, noise),
        }
    for k in range(1, length):
        (less, less_all), (more, more_all) = covariances[f"size {k}"], covariances[f"size {k + 1}"]
        yield {
            "kind": "order",
            **common,
            "k": k,
            "most_kept": efficiency(torch.linalg.inv(less), more)[0],
            "least_kept": 1 / efficiency(torch.linalg.inv(more), less)[0],
            "all_masks_kept": efficiency(torch.linalg.inv(less_all), more_all)[0],
        }


def _relative(first: Tensor, second: Tensor) -> float:
    return float((first - second).abs().max() / second.abs().max())


def _dirichlet(dynamics: BlockDynamics, seed: int) -> Row:
    """Two ways to the Dirichlet form on x, for random functions."""
    generator = torch.Generator().manual_seed(seed)
    count = len(dynamics.stationary)
    f, g = torch.randn(2, count, 3, generator=generator, dtype=torch.float64)
    return {
        "dirichlet_error": _relative(
            dirichlet_form(dynamics, f, g), dirichlet_form_of_moves(dynamics, f, g)
        )
    }


def _pairs(
    dynamics: BlockDynamics,
    family: Family,
    fisher: Float[Tensor, "d d"],
    noise: Float[Tensor, "d d"],
) -> Row:
    """The kernel on pairs that keeps K; None where it would be too large.

    score_share is the least vᵀ Cov v / vᵀ I v: the variance on pairs of the conditional score, in
    units of what it is taken for in the proof of Theorem 4.1.3.
    """
    columns = ("pair_error", "pair_balance_error", "pair_gap", "score_share", "score_error")
    blocks, count = len(dynamics.blocks), len(dynamics.stationary)
    if blocks * count > _PAIRS:
        return dict.fromkeys(columns)
    kernel, law = block_pairs.pair_transition(dynamics), block_pairs.pair_stationary(dynamics)
    generator = torch.Generator().manual_seed(blocks)
    f, g = torch.randn(2, blocks, count, generator=generator, dtype=torch.float64)
    moved = [(h.reshape(-1)[:, None] - h.reshape(-1)) for h in (f, g)]
    flow = law[:, None] * kernel
    wanted = 0.5 * float((flow * moved[0] * moved[1]).sum())
    scale = 0.5 * float((flow * moved[0] ** 2).sum() + (flow * moved[1] ** 2).sum())
    scores = family.scores()
    local = torch.stack(
        [scores - dynamics.conditional_mean(scores, m) for m in range(blocks)]
    ).reshape(blocks * count, -1)
    spread = (law[:, None] * local).T @ local - (law @ local)[:, None] * (law @ local)
    chol = torch.linalg.cholesky(torch.linalg.inv(fisher))
    return {
        "pair_error": abs(block_pairs.pair_dirichlet_form(dynamics, f, g) - wanted) / scale,
        "pair_balance_error": float((flow - flow.T).abs().max()),
        "pair_gap": 1 / block_pairs.pair_poincare_constant(dynamics),
        "score_share": float(torch.linalg.eigvalsh(chol.T @ spread @ chol)[0]),
        "score_error": _relative(spread, noise),
    }


# ------------------------------------------------------------------ convexity


def _convexity(unit: Unit) -> Iterator[Row]:
    """Hessians of the masked loss at random parameters, under three mask laws."""
    name = unit.parameters["model"]
    family = family_named(name, unit.seed)
    generator = torch.Generator().manual_seed(unit.seed)
    convex = isinstance(family, LogLinear)
    for law in ("size 1", "independent 0.3", "ones 1.5"):
        masks = law_named(law, family.length)
        seen = (family.table.log_probs + masks.log_prob(family.table.sequences).T).exp()
        least, formula, chord = [], [], []
        for _ in range(unit.parameters["points"]):
            a, b = 2 * torch.randn(2, len(family.names), generator=generator, dtype=torch.float64)
            hessian = masking.loss_hessian(family, masks, a)
            values = torch.linalg.eigvalsh(hessian)
            least.append(float(values[0] / values.abs().max()))
            ends = [float(masking.population_loss(family, masks, t)) for t in (a, b, (a + b) / 2)]
            chord.append((ends[0] + ends[1]) / 2 - ends[2])
            if isinstance(family, LogLinear):
                covariances = estimators.hessian_at(family, masks, seen[None], a[None])[0]
                formula.append(_relative(hessian, covariances))
        yield {
            "kind": "convexity",
            "model": name,
            "ising": convex,
            "law": law,
            "points": unit.parameters["points"],
            "least_eigenvalue": min(least),
            "least_chord": min(chord),
            "formula_error": max(formula) if formula else None,
        }


# ------------------------------------------------------------------ conditioning on the block


def _conditioning(strengths: Sequence[float]) -> Iterator[Row]:
    """Lemma 4.3.1's example in three readings; and where training goes that forgets the block."""
    law = torch.tensor([1 / 2, 1 / 3, 1 / 6, 0.0], dtype=torch.float64)
    first = torch.tensor([1 / 2, 1 / 3, 1 / 4, 1 / 2], dtype=torch.float64)
    chances = torch.stack([first, 1 - first], 1)
    masks = MaskLaw.looking(
        2, [[0], [1]], lambda tokens: chances.log()[tokens[:, 0] * 2 + tokens[:, 1]]
    )
    given = masking.block_log_conditionals(law.log(), masks, 2).exp()[:, 0]
    joint = law * first
    readings = {
        "as printed": (joint[0] / (joint[0] + joint[1]), law[0] / (law[0] + law[1])),
        "K = {0}": (given[0], law[0] / (law[0] + law[2])),
        "K = {1}": (given[1], law[0] / (law[0] + law[1])),
    }
    for reading, (with_block, without) in readings.items():
        values = {"with_block": float(with_block), "without": float(without)}
        yield {"kind": "example", "reading": reading, **values}
    family = IsingFamily(ising_named("chain 3 0.4"))
    for strength in strengths:
        masks = law_named(f"ones {strength}", family.length)
        gradient = masking.loss_gradient(family, masks)
        step = torch.linalg.solve(masking.loss_hessian(family, masks), gradient)
        given = family.theta - step  # the loss given K is convex, and this flat at the truth
        found = masking.forgetful_minimiser(family, masks)
        yield {
            "kind": "forgetting",
            "strength": strength,
            **_astray(family, found),
            **{f"given_{name}": value for name, value in _astray(family, given).items()},
            "gradient_error": float(gradient.abs().max()),
        }


def _astray(family: Family, theta: Float[Tensor, " d"]) -> Row:
    """How far θ is from the truth, in its largest entry and in total variation."""
    apart = family.table_log_probs(theta).exp() - family.table.log_probs.exp()
    bias = float((theta - family.theta).abs().max())
    return {"bias": bias, "distance": 0.5 * float(apart.abs().sum())}


STUDY = Study(
    name="exact_masking",
    about="What masks cost a masked estimator, exactly: its variance, its bias, its finite samples",
    settings={
        Scale.SMOKE: ExactMasking(
            models=("chain 3 0.5", "clique 3 0.3", "hmm 2", "table 2 2"),
            strengths=(0.0, 1.0),
            points=3,
            samples=("chain 2 0.4",),
            sizes=(100, 10_000),
            repeats=8,
        ),
        Scale.LAPTOP: ExactMasking(),
        Scale.PAPER: ExactMasking(
            seeds=5,
            models=(*ExactMasking.models, "grid 2 3 1.0", "chain 6 0.6", "random 5 0.5", "hmm 4"),
            points=200,
            repeats=200,
        ),
    },
    units=units,
    run=run,
    claims=[
        Claim("li.lem-4.1.2", judges.judge_information, judges.INFORMATION_REFUTED, judges.HELD),
        Claim("li.thm-4.1.1", judges.judge_order, judges.ORDER_REFUTED, judges.HELD),
        Claim("li.thm-4.1.2", judges.judge_bound, judges.BOUND_REFUTED, judges.HELD),
        Claim("li.thm-4.1.3", judges.judge_adaptive_bound, judges.ADAPTIVE_REFUTED, judges.HELD),
        Claim("li.prop-4.1.1", judges.judge_dirichlet, judges.DIRICHLET_REFUTED, judges.HELD),
        Claim("li.lem-4.3.1", judges.judge_conditioning, judges.EXAMPLE_REFUTED, judges.HELD),
        Claim("li.prop-4.3.6", judges.judge_convexity, judges.CONVEXITY_REFUTED, judges.HELD),
        Claim("li.thm-4.1.4", judge_finite, FINITE_REFUTED, judges.HELD),
    ],
    figures=[figures.order_figure, figures.forgetting_figure, figures.finite_figure],
)
