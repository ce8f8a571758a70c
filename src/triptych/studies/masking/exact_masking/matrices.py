"""`exact_masking` without samples: matrices of masked estimators, convexity, conditioning on K."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.studies.api.decide import largest
from triptych.studies.masking.exact_masking.rows import (
    Curvature,
    Example,
    Forgetting,
    MaskedTraining,
    PairKernel,
    Step,
)
from triptych.studies.masking.shared.models import efficiency, family_named, ising_named, law_named
from triptych.theory.masking import estimators, information
from triptych.theory.masking.blocks import pairs
from triptych.theory.masking.blocks.dynamics import (
    BlockDynamics,
    dirichlet_form,
    dirichlet_form_of_moves,
    poincare_constant,
)
from triptych.theory.masking.families import Family, IsingFamily, LogLinear

_PAIRS = 600  # pairs (K, x) up to which their kernel is built


# ------------------------------------------------------------------ matrices


def trained_under_masks(
    model: str, seed: int, adaptive: Sequence[str]
) -> Iterator[MaskedTraining | Step]:
    """One row per mask law, and one per k for blocks of k and k + 1."""
    family = family_named(model, seed)
    length = family.length
    names = [f"size {k}" for k in range(1, length + 1)]
    names += ["spans 2", "independent 0.3", *adaptive]
    fisher = information.fisher(family)
    spectrum = torch.linalg.eigvalsh(fisher)
    condition = float(spectrum[-1] / spectrum[0])
    covariances = {}
    for law in names:
        masks = law_named(law, length)
        dynamics = BlockDynamics(family.table, masks)
        hessian, noise = (
            information.loss_hessian(family, masks),
            information.score_covariance(family, masks),
        )
        gamma = information.asymptotic_covariance(family, masks)
        every = information.asymptotic_covariance(family, masks, masks_per_sample=None)
        covariances[law] = gamma, every
        constant = poincare_constant(dynamics)
        worst, share = efficiency(fisher, gamma)
        yield MaskedTraining(
            model=model,
            seed=seed,
            condition=condition,
            law=law,
            adaptive=masks.adaptive,
            blocks=len(masks.blocks),
            poincare=constant,
            information_error=_relative(hessian, noise),
            gradient_error=float(information.loss_gradient(family, masks).abs().max()),
            worst_ratio=worst,
            trace_ratio=share,
            dirichlet_error=_dirichlet_error(dynamics, seed),
            pairs=_pairs(dynamics, family, fisher, noise),
        )
    for k in range(1, length):
        (less, less_all), (more, more_all) = covariances[f"size {k}"], covariances[f"size {k + 1}"]
        yield Step(
            model=model,
            seed=seed,
            condition=condition,
            k=k,
            most_kept=efficiency(torch.linalg.inv(less), more)[0],
            least_kept=1 / efficiency(torch.linalg.inv(more), less)[0],
            all_masks_kept=efficiency(torch.linalg.inv(less_all), more_all)[0],
        )


def _relative(first: Tensor, second: Tensor) -> float:
    return float((first - second).abs().max() / second.abs().max())


def _dirichlet_error(dynamics: BlockDynamics, seed: int) -> float:
    """The largest difference of two ways to the Dirichlet form on x, for random functions."""
    generator = torch.Generator().manual_seed(seed)
    count = len(dynamics.stationary)
    f, g = torch.randn(2, count, 3, generator=generator, dtype=torch.float64)
    return _relative(dirichlet_form(dynamics, f, g), dirichlet_form_of_moves(dynamics, f, g))


def _pairs(
    dynamics: BlockDynamics,
    family: Family,
    fisher: Float[Tensor, "d d"],
    noise: Float[Tensor, "d d"],
) -> PairKernel | None:
    """The kernel on pairs that keeps K; None where it would be too large."""
    blocks, count = len(dynamics.blocks), len(dynamics.stationary)
    if blocks * count > _PAIRS:
        return None
    kernel, law = pairs.pair_transition(dynamics), pairs.pair_stationary(dynamics)
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
    return PairKernel(
        form_error=abs(pairs.pair_dirichlet_form(dynamics, f, g) - wanted) / scale,
        balance_error=float((flow - flow.T).abs().max()),
        gap=1 / pairs.pair_poincare_constant(dynamics),
        score_share=float(torch.linalg.eigvalsh(chol.T @ spread @ chol)[0]),
        score_error=_relative(spread, noise),
    )


# ------------------------------------------------------------------ convexity


def curvatures(model: str, seed: int, points: int) -> Iterator[Curvature]:
    """Hessians of the masked loss at random parameters, under three mask laws."""
    family = family_named(model, seed)
    generator = torch.Generator().manual_seed(seed)
    for law in ("size 1", "independent 0.3", "ones 1.5"):
        masks = law_named(law, family.length)
        seen = (family.table.log_probs + masks.log_prob(family.table.sequences).T).exp()
        least, formula, chord = [], [], []
        for _ in range(points):
            a, b = 2 * torch.randn(2, len(family.names), generator=generator, dtype=torch.float64)
            hessian = information.loss_hessian(family, masks, a)
            values = torch.linalg.eigvalsh(hessian)
            least.append(float(values[0] / values.abs().max()))
            ends = [
                float(information.population_loss(family, masks, t)) for t in (a, b, (a + b) / 2)
            ]
            chord.append((ends[0] + ends[1]) / 2 - ends[2])
            if isinstance(family, LogLinear):
                covariances = estimators.hessian_at(family, masks, seen[None], a[None])[0]
                formula.append(_relative(hessian, covariances))
        yield Curvature(
            model=model,
            ising=isinstance(family, IsingFamily),
            law=law,
            adaptive=masks.adaptive,
            points=points,
            least_eigenvalue=-largest([-value for value in least]),
            least_chord=-largest([-value for value in chord]),
            formula_error=largest(formula) if formula else None,
        )


# ------------------------------------------------------------------ conditioning on the block


def conditioning(strengths: Sequence[float]) -> Iterator[Example | Forgetting]:
    """Lemma 4.3.1's example in three readings; and where training goes that forgets the block."""
    law = torch.tensor([1 / 2, 1 / 3, 1 / 6, 0.0], dtype=torch.float64)
    first = torch.tensor([1 / 2, 1 / 3, 1 / 4, 1 / 2], dtype=torch.float64)
    chances = torch.stack([first, 1 - first], 1)
    masks = MaskLaw.looking(
        2, [[0], [1]], lambda tokens: chances.log()[tokens[:, 0] * 2 + tokens[:, 1]]
    )
    given = information.block_log_conditionals(law.log(), masks, 2).exp()[:, 0]
    joint = law * first
    readings = {
        "as printed": (joint[0] / (joint[0] + joint[1]), law[0] / (law[0] + law[1])),
        "K = {0}": (given[0], law[0] / (law[0] + law[2])),
        "K = {1}": (given[1], law[0] / (law[0] + law[1])),
    }
    for reading, (with_block, without) in readings.items():
        yield Example(reading, float(with_block), float(without))
    family = IsingFamily(ising_named("chain 3 0.4"))
    for strength in strengths:
        masks = law_named(f"ones {strength}", family.length)
        gradient = information.loss_gradient(family, masks)
        step = torch.linalg.solve(information.loss_hessian(family, masks), gradient)
        # the loss given K is convex, and this flat at the truth
        given_bias, given_distance = _astray(family, family.theta - step)
        bias, distance = _astray(family, information.forgetful_minimiser(family, masks))
        yield Forgetting(
            strength=strength,
            bias=bias,
            distance=distance,
            given_bias=given_bias,
            given_distance=given_distance,
            gradient_error=float(gradient.abs().max()),
        )


def _astray(family: Family, theta: Float[Tensor, " d"]) -> tuple[float, float]:
    """How far θ is from the truth, in its largest entry and in total variation."""
    apart = family.table_log_probs(theta).exp() - family.table.log_probs.exp()
    bias = float((theta - family.theta).abs().max())
    return bias, 0.5 * float(apart.abs().sum())
