"""Propositions 4.3.3, 4.1.4, 4.1.5 and Corollary 4.1.1: both sides of each, exactly."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.protocols import Rng
from triptych.core.table import all_sequences
from triptych.studies.api.study import Unit
from triptych.studies.masking.reaching_the_mode.rows import Modes, Reached, Separated, Stuck
from triptych.theory.masking import ferromagnet
from triptych.theory.masking.ferromagnet import Ferromagnet
from triptych.theory.numerics.hitting import Hitting, simulate

_MOST_DRAWN = 300  # steps; where a bound is longer the exact law stands alone
_MOST_STUCK = 500  # the same for Proposition 4.1.5
_MOST_ENUMERATED = 10  # spins
_TINY = 1e-6  # fields this small are as bad as none: see `stuck_gap`


@dataclass(frozen=True)
class CompareModes(Unit):
    """Random models for Proposition 4.3.3."""

    models: int


@dataclass(frozen=True)
class BoundReaching(Unit):
    """Proposition 4.1.4 for one |C|."""

    clique: int
    deltas: tuple[float, ...]
    runs: int


@dataclass(frozen=True)
class BoundStuck(Unit):
    """Proposition 4.1.5 for one |C|."""

    clique: int
    deltas: tuple[float, ...]
    runs: int


@dataclass(frozen=True)
class Separate(Unit):
    """Corollary 4.1.1 for one M."""

    horizon: int
    deltas: tuple[float, ...]
    runs: int


# ------------------------------------------------------------------ Proposition 4.3.3


def compare_modes(unit: CompareModes, rng: Rng) -> Iterable[Modes]:
    """Random models within Assumption 4.1.5, the edge of its statement, and large cliques."""
    named = [
        Ferromagnet(3.0, (1.0, 0.0)),
        Ferromagnet(3.0, (1.0, 0.0), (0.5,)),
        Ferromagnet(3.0, (1.0, 0.25)),
        Ferromagnet(3.0, (1.0, 0.0, 0.0)),
        Ferromagnet.with_margin(300, 100, margin=0.5, clique_field=0.01, free_field=0.002),
    ]
    for model in [*named, *(random_model(rng) for _ in range(unit.models))]:
        ratios = ferromagnet.mode_ratios(model)
        small = model.spins <= _MOST_ENUMERATED
        yield Modes(
            seed=unit.seed,
            spins=model.spins,
            clique=model.clique,
            coupling=model.coupling,
            clique_fields=model.clique_fields[:4],
            violated=len(model.violations),
            twice_margin=2 * model.margin,
            twice_clique_sum=2 * model.clique_sum,
            large_over_small=ratios.large_over_small,
            small_over_rest=ratios.small_over_rest,
            flipped=ratios.flipped,
            enumeration_error=enumeration_error(model, ratios) if small else None,
        )


def random_model(rng: Rng) -> Ferromagnet:
    """Fields in steps of 1/16, clique fields of both signs, J_0 above 0.

    In these steps sums are without rounding, so that an equality is one.
    """

    def whole(below: int, n: int) -> list[int]:
        uniform = torch.full((1, below), 1 / below, dtype=torch.float64).log()
        return rng.categorical(uniform, torch.zeros(n, dtype=torch.long)).tolist()

    clique, free = whole(5, 1)[0] + 2, whole(4, 1)[0]
    fields = [(value - 4) / 16 for value in whole(16, clique)]
    outside = [(value - 8) / 16 for value in whole(17, free)]
    lacking = math.fsum(map(abs, outside)) + 1 / 16 - math.fsum(fields)
    fields[0] += max(0.0, lacking)
    norm = math.fsum(map(abs, fields + outside))
    return Ferromagnet(norm + (whole(32, 1)[0] + 1) / 16, tuple(fields), tuple(outside))


def enumeration_error(model: Ferromagnet, ratios: ferromagnet.ModeRatios) -> float:
    """Largest difference from the log-ratios over all 2^N states."""
    states = all_sequences(2, model.spins)
    weight, up = model.ising().log_weight(states), states[:, : model.clique].sum(-1)
    large, small = up == model.clique, up == 0
    rest = weight[~large & ~small]
    found = [
        weight[large].min() - weight[small].max() - ratios.large_over_small,
        weight[small].min() - rest.max() - ratios.small_over_rest,
        (weight[large] - weight[small] - ratios.flipped).abs().max(),
    ]
    return max(abs(float(value)) for value in found)


# ------------------------------------------------------------------ Proposition 4.1.4


def bound_reaching(unit: BoundReaching, rng: Rng) -> Iterable[Reached]:
    """The bound on k-Gibbs next to the exact law of its time, for several N, k, J_0 and h_G."""
    clique = unit.clique
    for extra, margin, field in product((0, 2, 3 * clique), (0.01, 0.5, 2.0), (0.02, 1.0)):
        spins = clique + extra
        free = field / 2 / extra if extra else 0.0
        model = Ferromagnet.with_margin(
            spins, clique, margin=margin, clique_field=field / clique, free_field=free
        )
        for k in sorted({clique, clique + extra // 2, spins}):
            chain = ferromagnet.gibbs_chain(model, k)
            hitting = Hitting(chain.log_matrix, chain.large)
            promised = {delta: ferromagnet.reaching_steps(model, k, delta) for delta in unit.deltas}
            longest = max((t for t in promised.values() if t <= _MOST_DRAWN), default=1)
            times = simulate(hitting, _down(unit.runs), longest, rng)
            for delta, steps in promised.items():
                missed = hitting.within(steps)[1]
                short = steps <= _MOST_DRAWN
                yield Reached(
                    spins=spins,
                    clique=clique,
                    block=k,
                    delta=delta,
                    margin=margin,
                    clique_sum=field,
                    violated=len(model.violations),
                    steps=steps,
                    missed=float(missed.exp().max()),
                    exact_steps=hitting.quantile(1 - delta),
                    log_step=float(hitting.within(1)[0].min()),
                    log_step_bound=ferromagnet.log_reaching(model, k),
                    missed_from_small=float(missed[0].exp()),
                    drawn_missed=int((times > steps).sum()) if short else None,
                    runs=unit.runs,
                )


def _down(runs: int) -> Int[Tensor, " runs"]:
    """Chains in R_-1, state 0 of every chain."""
    return torch.zeros(runs, dtype=torch.long)


# ------------------------------------------------------------------ Proposition 4.1.5


def bound_stuck(unit: BoundStuck, rng: Rng) -> Iterable[Stuck]:
    """The printed bound next to the exact chance that the magnetisation stays at most -2."""
    clique = unit.clique
    for margin, delta, field in _stuck_cases(clique, unit.deltas):
        fields = (field,) + (0.0,) * (clique - 1) if clique <= 4 else (field / clique,) * clique
        model = Ferromagnet(margin + field, fields)
        steps = ferromagnet.stuck_steps(clique, model.margin, delta)
        chain = ferromagnet.parallel_chain(model)
        hitting = Hitting(chain.log_matrix, chain.freed)
        stayed = hitting.within(steps)[1]
        drawn = None
        if 1 <= steps <= _MOST_STUCK:
            drawn = int((simulate(hitting, _down(unit.runs), steps, rng) > steps).sum())
        yield Stuck(
            clique=clique,
            margin=margin,
            field=field,
            delta=delta,
            violated=len(model.violations),
            radius=ferromagnet.stuck_radius(clique, model.margin),
            exponent=ferromagnet.stuck_exponent(clique, model.margin),
            steps=steps,
            stayed=float(stayed[~chain.freed].exp().min()),
            log_mean=float(hitting.log_mean()[0]),
            stayed_from_small=float(stayed[0].exp()),
            drawn_stayed=drawn,
            runs=unit.runs,
        )


def _stuck_cases(clique: int, deltas: tuple[float, ...]) -> Iterator[tuple[float, float, float]]:
    """(J_0, δ, h_G): a grid, and for each |C| the δ at which the bound promises the most.

    The promise grows by a step at δ = 2 T exp(-c_stuck), and just there it is hardest to keep. A
    pair of spins has small J_0 besides, on both sides of 0.0072 (see `ferromagnet`); a larger
    clique has the least J_0 at which it is promised a step at all, if there is one.
    """
    margins = (0.05, 0.3, 1.0, 3.0)
    yield from ((margin, delta, 0.01) for margin in margins for delta in deltas)
    if clique == 2:
        for margin in (0.0005, 0.001, 0.005, 0.01, 0.007, 0.0072, 0.0075):
            first = ferromagnet.stuck_gap(margin)[0] + _TINY
            yield from ((margin, delta, _TINY) for delta in _around(first))
        return
    tanh = 2 * (1 + math.sqrt(clique * math.log(2.02) / 2)) / clique  # then c_stuck = log 2.02
    least = [math.atanh(tanh)] if tanh < 1 else []
    for margin, steps in product((*least, *margins), (1, 2, 10)):
        delta = 2 * steps * math.exp(-ferromagnet.stuck_exponent(clique, margin)) * (1 + _TINY)
        if 0 < delta < 1:
            yield margin, delta, _TINY


def _around(first: float) -> list[float]:
    """δ near the one from which a pair of spins is promised a step."""
    return [first, *(0.7 + 0.005 * i for i in range(21))]


# ------------------------------------------------------------------ Corollary 4.1.1


def separate(unit: Separate, rng: Rng) -> Iterable[Separated]:
    """The smallest clique, field and margin that are allowed; k = N and the least k allowed."""
    for delta in unit.deltas:
        clique = ferromagnet.smallest_clique(delta, unit.horizon)
        spins = math.ceil(2.2 * (4 - delta) * clique / delta)  # then two spins may be left out
        spins = spins if spins <= 4000 else clique
        model = Ferromagnet.with_margin(
            spins,
            clique,
            margin=ferromagnet.least_margin(clique) + 1e-9,
            clique_field=(ferromagnet.least_field(delta) + 1e-9) / clique,
        )
        unmet = model.violations + ferromagnet.interaction_violations(model, delta, unit.horizon)
        for k in sorted({ferromagnet.smallest_block(spins, clique, delta), spins}):
            found = ferromagnet.separation(model, k, unit.horizon)
            chain = ferromagnet.gibbs_chain(model, k)
            hitting = Hitting(chain.log_matrix, chain.large)
            times = simulate(hitting, _down(unit.runs), 1, rng)
            yield Separated(
                horizon=unit.horizon,
                delta=delta,
                clique=clique,
                spins=spins,
                block=k,
                violated=len(unmet),
                radius=ferromagnet.stuck_radius(clique, model.margin),
                log_gibbs_missed=found.gibbs,
                log_parallel_reached=max(found.parallel, -1e6),
                failure=found.failure,
                missed_from_small=float(hitting.within(1)[1][0].exp()),
                drawn_missed=int((times > 1).sum()),
                runs=unit.runs,
            )
