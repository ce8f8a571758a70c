"""`exact_masking` on finite samples: the bound of Theorem 4.1.4, the loss that bounds the joint law
[li, Prop. 4.3.1], the law of the estimate [li, Lemma 4.1.1], and the decay of entropy."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.studies.api.decide import largest
from triptych.studies.api.study import Bench
from triptych.studies.masking.exact_masking.rows import (
    READINGS,
    Bounded,
    EntropyRate,
    Estimates,
    OneParameter,
    Tensorised,
)
from triptych.studies.masking.shared.models import family_named, ising_named, law_named
from triptych.theory.masking import estimators, finite_sample, information, normality, tensorisation
from triptych.theory.masking.blocks.dynamics import BlockDynamics, poincare_constant
from triptych.theory.masking.families import Family, IsingFamily, LogLinear

DELTAS = (0.1, 0.5)
SPREAD = 0.7  # of random parameters around the truth, standard deviation
_FITS = 4096  # data sets that are fitted at once


def entropy_rates() -> Iterator[EntropyRate]:
    """One bit redrawn whole, C_AT = 1: entropy in continuous time against two rates."""
    times = torch.tensor([0.1, 0.5, 1.0, 2.0], dtype=torch.float64)
    for chance in (0.5, 0.1, 0.01):
        table = Table(2, 1, torch.tensor([1 - chance, chance], dtype=torch.float64).log())
        dynamics = BlockDynamics(table, MaskLaw.of_size(1, 1))
        even = torch.tensor([0.4, 0.6], dtype=torch.float64)
        start = tensorisation.both_sides(dynamics, even)[0]
        left = tensorisation.continuous_decay(dynamics, even, times) / start
        yield EntropyRate(
            chance=chance,
            over_printed=float((left / (-2 * times).exp()).max()),
            over_proved=float((left / (-times).exp()).max()),
        )


# ------------------------------------------------------------------ Theorem 4.1.4


@dataclass(frozen=True)
class Box:
    """The parameters that are allowed, and what the right side is evaluated with.

    radius    |θ_a| is at most this
    masks     m, drawn for every sequence: with few the bound says nothing
    epsilon   of the covering number
    """

    radius: float
    masks: int
    epsilon: float


WIDE = Box(1.0, 10**9, 0.01)
NARROW = Box(0.3, 10**12, 0.1)  # so small that even the largest right side can be below 1


def bounded_samples(
    bench: Bench, model: str, law: str, n: int, repeats: int, box: Box
) -> Iterator[Bounded]:
    """Both sides of Theorem 4.1.4 for samples of one size, in both readings of the loss.

    The samples are the same for both readings and all δ, and others for every model, law and n.
    """
    family = IsingFamily(ising_named(model))
    masks = law_named(law, family.length)
    margin = finite_sample.support_margin(family, masks, box.radius)
    cover = finite_sample.covering_number(len(family.names), box.radius, box.epsilon)
    samples = [
        finite_sample.draw_sample(
            family.table, masks, n, box.masks, bench.rng(f"{model}, {law}, {n}, {repeat}").seed
        )
        for repeat in range(repeats)
    ]
    for reading in READINGS:
        divergence = reading == "divergence"
        fits = [
            finite_sample.fitted(family, masks, sample, box.radius, divergence=divergence)
            for sample in samples
        ]
        distances = [fit.distance for fit in fits]
        for delta in DELTAS:
            common = {
                "margin": margin,
                "delta": delta,
                "length": family.length,
                "vocab_size": 2,
                "n": n,
                "m": float(box.masks),
            }
            smallest, most = (
                [
                    finite_sample.right_side(
                        constant=constant, loss=fit.loss, cover=cells, epsilon=epsilon, **common
                    )
                    for constant, fit in zip(constants, fits, strict=True)
                ]
                for constants, cells, epsilon in (
                    ([fit.lower for fit in fits], 1.0, 0.0),
                    ([fit.upper for fit in fits], cover, box.epsilon),
                )
            )
            yield Bounded(
                model=model,
                law=law,
                n=n,
                radius=box.radius,
                reading=reading,
                delta=delta,
                repeats=len(fits),
                held=_below(distances, smallest),
                held_largest=_below(distances, most),
                distance=sum(distances) / len(fits),
                smallest=sum(smallest) / len(fits),
                largest=sum(most) / len(fits),
                below_one=_below(smallest, [1.0] * len(fits)),
                largest_below_one=_below(most, [1.0] * len(fits)),
                closest=largest([d / r for d, r in zip(distances, smallest, strict=True)]),
            )


def _below(first: Sequence[float], second: Sequence[float]) -> int:
    return sum(a < b for a, b in zip(first, second, strict=True))


# ------------------------------------------------------------------ Proposition 4.3.1


def tensorised_losses(
    bench: Bench, model: str, law: str, seed: int, points: int, sequences: Sequence[int]
) -> Iterator[Tensorised]:
    """KL(p, p_θ) against C_AT(p_θ) times the masked loss, for the truth p and for empirical laws.

    At random θ. C_AT lies between what a law attains (one near p_θ, a point mass, or where these
    are not enough what a search finds) and a proved bound.
    """
    family = family_named(model, seed)
    masks = law_named(law, family.length)
    generator = torch.Generator().manual_seed(bench.rng(f"{model}, {law}, parameters").seed)
    ratios: dict[tuple[int | None, str], list[tuple[float, float]]] = {}
    for point in range(points):
        away = torch.randn(len(family.names), generator=generator, dtype=torch.float64)
        learned = family.table_log_probs(family.theta + SPREAD * away)
        dynamics = BlockDynamics(Table(family.vocab_size, family.length, learned), masks)
        constant = poincare_constant(dynamics)
        probs = dynamics.stationary
        upper = constant * tensorisation.comparison(float(probs[probs > 0].min()))
        lower = max(constant, float(tensorisation.point_mass_ratios(dynamics).max()))
        laws: dict[int | None, Tensor] = {None: family.table.log_probs.exp()}
        for n in sequences:
            drawn = bench.rng(f"{model}, {law}, {n}, {point}").seed
            laws[n] = finite_sample.draw_sample(family.table, masks, n, 1, drawn).law
        for n, p in laws.items():
            apart, within = tensorisation.both_sides(dynamics, p)
            if apart > lower * within:
                lower = max(lower, tensorisation.tensorisation(dynamics).lower)
            losses = {
                "cross-entropy": _cross_entropy(family, masks, learned, p),
                "divergence": within,
            }
            for reading in READINGS:
                loss = losses[reading]
                found = ratios.setdefault((n, reading), [])
                found.append((apart / (upper * loss), apart / (lower * loss)))
    for (n, reading), found in ratios.items():
        yield Tensorised(
            model=model,
            law=law,
            sequences=n,
            reading=reading,
            points=points,
            over_largest=largest([most for most, _ in found]),
            over_smallest=largest([least for _, least in found]),
        )


def _cross_entropy(
    family: Family,
    masks: MaskLaw,
    log_probs: Float[Tensor, " count"],
    law: Float[Tensor, " count"],
) -> float:
    """E[-log p_θ(x_K | x_-K, K)] for x from `law`: the loss as defined."""
    logs = information.block_log_conditionals(log_probs, masks, family.vocab_size)
    weights = law * masks.log_prob(family.table.sequences).exp().T
    return -float((weights * torch.where(weights > 0, logs, 0.0)).sum())


# ------------------------------------------------------------------ Lemma 4.1.1


def one_parameter(model: str, law: str, sizes: Sequence[int]) -> Iterator[OneParameter]:
    """Every parameter of the model free alone: the law of its estimate, bounded for every n."""
    family = _log_linear(model)
    masks = law_named(law, family.length)
    for number, direction in enumerate(torch.eye(len(family.names), dtype=torch.float64)):
        alone = normality.along(family, direction)
        for n in sizes:
            distance = normality.normal_distance(alone, masks, n)
            yield OneParameter(
                model=model,
                law=law,
                adaptive=masks.adaptive,
                direction=number,
                n=n,
                at_least=distance.low,
                at_most=distance.high,
            )


def estimates(
    bench: Bench, model: str, law: str, seed: int, n: int, repeats: int
) -> Iterator[Estimates]:
    """All parameters free: drawn estimates against N(0, Γ)."""
    family = _log_linear(model)
    masks = law_named(law, family.length)
    drawn = bench.rng(f"estimates, {model}, {law}, {n}").seed
    counts = normality.draw_counts(family.table, masks, n, repeats, drawn)
    fits = [estimators.fit(family, masks, part) for part in counts.split(_FITS)]
    errors = math.sqrt(n) * (torch.cat([fit.theta for fit in fits]) - family.theta)
    exists = torch.cat([fit.exists for fit in fits])
    gamma = information.asymptotic_covariance(family, masks)
    distances = normality.sampled_distances(errors, gamma)
    known = errors[exists]
    lengths = (known * torch.linalg.solve(gamma, known.T).T).sum(1)
    yield Estimates(
        model=model,
        law=law,
        adaptive=masks.adaptive,
        seed=seed,
        n=n,
        repeats=repeats,
        parameters=len(family.names),
        comparisons=len(distances),
        without_estimate=int((~exists).sum()),
        distance=float(distances.max()),
        scale=float(lengths.mean()) / len(family.names) if len(known) else None,
    )


def _log_linear(model: str) -> LogLinear:
    """A model whose masked loss is convex."""
    family = family_named(model)
    if not isinstance(family, LogLinear):
        raise UserError(f"{model!r} is not log-linear: use a chain, grid, clique, random or table")
    return family
