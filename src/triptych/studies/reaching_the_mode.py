"""Who reaches the large mode: blocks redrawn jointly, or all positions at once [li, 4.1.4, 4.2]?

A clique of strongly coupled spins starts in the smaller of its two modes. k-Gibbs and the
independent parallel sampler are followed exactly, by the chain of the number of up spins, in the
setting of figure 4.3 and over a grid for Propositions 4.3.3, 4.1.4, 4.1.5 and Corollary 4.1.1; in a
few cells they are run on the spins themselves. Propositions 4.1.2 and 4.1.3 say which chains
parallel decoding can make: networks written down by hand, networks with random weights, and the
samplers as matrices. Figure 4.3 and the pictures are in `mode_figures`, the last two propositions
in `mode_decoders`, the other judges in `mode_judges`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.protocols import Rng
from triptych.core.randomness import TorchRng
from triptych.core.table import all_sequences
from triptych.inference import gibbs
from triptych.inference.parallel import independent_step
from triptych.studies import mode_decoders, mode_figures
from triptych.studies import mode_judges as judges
from triptych.studies.mode_figures import CLIQUE, FIELD, SPINS
from triptych.studies.study import Bench, Claim, Row, Scale, Settings, Study, Unit
from triptych.theory import ferromagnet
from triptych.theory.ferromagnet import Ferromagnet
from triptych.theory.hitting import Hitting, simulate

_MOST_DRAWN = 300  # steps; where a bound is longer the exact law stands alone
_SAMPLER_STEPS = 30  # of the samplers on the spins
_FIELDS = {"figure": (FIELD, FIELD), "bounds": (0.05, 0.02)}  # of the clique, of the free spins
_BOUNDS_COUPLING = 0.42  # with these fields J_0 = 0.1


@dataclass(frozen=True)
class ReachingTheMode(Settings):
    """Sizes.

    couplings   J of figure 4.3, whose grid is not published
    runs        draws of every chain; the first ten are the figure's repetitions
    sampled     J at which the samplers run on the spins of figure 4.3
    blocks      their k, 0 for independent parallel
    lumped      block sizes whose chain of the count is compared with all 2^10 states
    models      random models for Proposition 4.3.3, for each seed
    cliques     |C| for the bounds
    deltas      failure probabilities δ
    horizons    M of Corollary 4.1.1
    maps        V^N, the states of the deterministic chains
    """

    seeds: int = 3
    couplings: tuple[float, ...] = (
        *(1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0),
        *(6.5, 7.0, 8.0, 9.0, 10.0),
    )
    runs: int = 2000
    sampled: tuple[float, ...] = (1.5, 2.5, 3.5)
    blocks: tuple[int, ...] = (0, 1, 2, 4, 8, 10)
    lumped: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    models: int = 40
    cliques: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16, 24)
    deltas: tuple[float, ...] = (0.9, 0.5, 0.1, 0.01)
    horizons: tuple[int, ...] = (1, 10, 1000)
    maps: tuple[str, ...] = ("2^3", "3^2", "2^4", "4^2", "3^3")


def units(settings: ReachingTheMode) -> Sequence[Unit]:
    """One per coupling of the figure, per clique for the bounds, per horizon, per seed."""
    runs = {"runs": settings.runs}
    deltas = {"deltas": settings.deltas}
    found = [Unit({"kind": "figure", "coupling": j, **runs}, 0) for j in settings.couplings]
    found.append(Unit({"kind": "lumping", "blocks": settings.lumped}, 0))
    places = [("figure", j) for j in settings.sampled] + [("bounds", _BOUNDS_COUPLING)]
    for setting, j in places:
        cell = {"setting": setting, "coupling": j, "blocks": settings.blocks}
        found.append(Unit({"kind": "sampler", **cell, **runs}, 0))
    for clique in settings.cliques:
        found.append(Unit({"kind": "reach", "clique": clique, **deltas, **runs}, 0))
        found.append(Unit({"kind": "stuck", "clique": clique, **deltas, **runs}, 0))
    found += [
        Unit({"kind": "corollary", "horizon": m, **deltas, **runs}, 0) for m in settings.horizons
    ]
    for seed in range(settings.seeds):
        found.append(Unit({"kind": "modes", "models": settings.models}, seed))
        found.append(Unit({"kind": "decoders", "maps": settings.maps}, seed))
    return found


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """Dispatch on the statement; every row carries its kind and the seed."""
    gather: dict[str, Callable[[Unit, TorchRng], Iterable[Row]]] = {
        "figure": mode_figures.figure_rows,
        "lumping": mode_figures.lumping_rows,
        "sampler": _samplers,
        "reach": _reach,
        "stuck": _stuck,
        "corollary": _corollary,
        "modes": _modes,
        "decoders": mode_decoders.gather,
    }
    kind, rng = unit.parameters["kind"], TorchRng(bench.rng(str(unit)).seed)
    for row in gather[kind](unit, rng):
        yield {"kind": kind, "seed": unit.seed, **row}


# ------------------------------------------------------------------ the samplers themselves


def _samplers(unit: Unit, rng: TorchRng) -> Iterable[Row]:
    """k-Gibbs and independent parallel (k = 0) run on ten spins, beside the chain of the count.

    They run until the clique is all up; independent parallel in the setting of the bounds until its
    magnetisation exceeds -2, which is what Proposition 4.1.5 speaks of.
    """
    setting, coupling, runs = (unit.parameters[key] for key in ("setting", "coupling", "runs"))
    model = Ferromagnet.equal(SPINS, CLIQUE, coupling, *_FIELDS[setting])
    for k in unit.parameters["blocks"]:
        chain = ferromagnet.gibbs_chain(model, k) if k else ferromagnet.parallel_chain(model)
        stuck = k == 0 and setting == "bounds"
        hitting = Hitting(chain.log_matrix, chain.freed if stuck else chain.large)
        drawn = _run_on_spins(model, k, hitting, runs, rng)
        row = mode_figures.compared(hitting, drawn, _SAMPLER_STEPS)
        yield {"setting": setting, "coupling": coupling, "k": k, **row}


def _run_on_spins(
    model: Ferromagnet, k: int, hitting: Hitting, runs: int, rng: TorchRng
) -> Int[Tensor, " runs"]:
    """T of the sampler from all spins down; one more than the steps tried where it is later."""
    ising, tokens = model.ising(), torch.zeros((runs, model.spins), dtype=torch.long)
    masks = MaskLaw.of_size(model.spins, max(k, 1))
    found, running = torch.full((runs,), _SAMPLER_STEPS + 1), torch.arange(runs)
    for step in range(1, _SAMPLER_STEPS + 1):
        if len(running) == 0:
            break
        if k:
            tokens = gibbs.step(ising, tokens, masks, rng)
        else:
            tokens = independent_step(ising, tokens, rng)
        there = hitting.target[tokens[:, : model.clique].sum(-1)]  # state n has n spins up
        found[running[there]] = step
        running, tokens = running[~there], tokens[~there]
    return found


# ------------------------------------------------------------------ Proposition 4.3.3


def _modes(unit: Unit, rng: TorchRng) -> Iterable[Row]:
    """Random models within Assumption 4.1.5, the edge of its statement, and large cliques."""
    named = [
        Ferromagnet(3.0, (1.0, 0.0)),
        Ferromagnet(3.0, (1.0, 0.0), (0.5,)),
        Ferromagnet(3.0, (1.0, 0.25)),
        Ferromagnet(3.0, (1.0, 0.0, 0.0)),
        Ferromagnet.with_margin(300, 100, margin=0.5, clique_field=0.01, free_field=0.002),
    ]
    for model in [*named, *(_random_model(rng) for _ in range(unit.parameters["models"]))]:
        ratios = ferromagnet.mode_ratios(model)
        yield {
            "spins": model.spins,
            "clique": model.clique,
            "coupling": model.coupling,
            "clique_fields": list(model.clique_fields[:4]),
            "violated": len(model.violations),
            "twice_margin": 2 * model.margin,
            "twice_clique_sum": 2 * model.clique_sum,
            **ratios._asdict(),
            "enumeration_error": _enumerated(model, ratios) if model.spins <= 10 else None,
        }


def _random_model(rng: Rng) -> Ferromagnet:
    """Fields in steps of 1/16, clique fields of both signs, J_0 above 0."""

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


def _enumerated(model: Ferromagnet, ratios: ferromagnet.ModeRatios) -> float:
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


# ------------------------------------------------------------------ Propositions 4.1.4 and 4.1.5


def _reach(unit: Unit, rng: TorchRng) -> Iterable[Row]:
    """The bound on k-Gibbs beside the exact law of its time, for several N, k, J_0 and h_G."""
    clique, runs = unit.parameters["clique"], unit.parameters["runs"]
    for extra, margin, field in product((0, 2, 3 * clique), (0.01, 0.5, 2.0), (0.02, 1.0)):
        spins = clique + extra
        free = field / 2 / extra if extra else 0.0
        model = Ferromagnet.with_margin(
            spins, clique, margin=margin, clique_field=field / clique, free_field=free
        )
        for k in sorted({clique, clique + extra // 2, spins}):
            chain = ferromagnet.gibbs_chain(model, k)
            hitting = Hitting(chain.log_matrix, chain.large)
            promised = {
                delta: ferromagnet.reaching_steps(model, k, delta)
                for delta in unit.parameters["deltas"]
            }
            longest = max((t for t in promised.values() if t <= _MOST_DRAWN), default=1)
            times = simulate(hitting, _down(runs), longest, rng)
            for delta, steps in promised.items():
                missed = hitting.within(steps)[1]
                short = steps <= _MOST_DRAWN
                yield {
                    "spins": spins,
                    "clique": clique,
                    "block": k,
                    "delta": delta,
                    "margin": margin,
                    "clique_sum": field,
                    "violated": len(model.violations),
                    "steps": steps,
                    "missed": float(missed.exp().max()),
                    "exact_steps": hitting.quantile(1 - delta),
                    "log_step": float(hitting.within(1)[0].min()),
                    "log_step_bound": ferromagnet.log_reaching(model, k),
                    "missed_from_small": float(missed[0].exp()),
                    "drawn_missed": int((times > steps).sum()) if short else None,
                    "runs": runs,
                }


def _stuck(unit: Unit, rng: TorchRng) -> Iterable[Row]:
    """The printed bound beside the exact chance that the magnetisation stays at most -2."""
    clique, runs, deltas = (unit.parameters[name] for name in ("clique", "runs", "deltas"))
    cases = [(margin, delta, 0.01) for margin in (0.05, 0.3, 1.0, 3.0) for delta in deltas]
    if clique == 2:  # where the printed bound and its proof part
        for margin in (0.0005, 0.001, 0.005, 0.01):
            first = ferromagnet.stuck_gap(margin)[0] + 1e-6  # from here on a step is promised
            edge = [first, *(0.7 + 0.005 * i for i in range(21))]
            cases += [(margin, delta, 1e-6) for delta in edge]
    for margin, delta, field in cases:
        fields = (field,) + (0.0,) * (clique - 1) if clique <= 4 else (field / clique,) * clique
        model = Ferromagnet(margin + field, fields)
        steps = ferromagnet.stuck_steps(clique, model.margin, delta)
        chain = ferromagnet.parallel_chain(model)
        hitting = Hitting(chain.log_matrix, chain.freed)
        left, stayed = hitting.within(steps)
        times = simulate(hitting, _down(runs), max(1, steps), rng) if 1 <= steps <= 500 else None
        yield {
            "clique": clique,
            "margin": margin,
            "field": field,
            "delta": delta,
            "violated": len(model.violations),
            "radius": ferromagnet.stuck_radius(clique, model.margin),
            "exponent": ferromagnet.stuck_exponent(clique, model.margin),
            "steps": steps,
            "stayed": float(stayed[~chain.freed].exp().min()),
            "log_left": max(float(left[~chain.freed].max()), -1e6),
            "log_mean": float(hitting.log_mean()[0]),
            "stayed_from_small": float(stayed[0].exp()),
            "drawn_stayed": None if times is None else int((times > steps).sum()),
            "runs": runs,
        }


def _down(runs: int) -> Int[Tensor, " runs"]:
    """Chains in R_-1, state 0 of every chain."""
    return torch.zeros(runs, dtype=torch.long)


# ------------------------------------------------------------------ Corollary 4.1.1


def _corollary(unit: Unit, rng: TorchRng) -> Iterable[Row]:
    """The smallest clique, field and margin that are allowed; k = N and the least k allowed."""
    horizon, runs = unit.parameters["horizon"], unit.parameters["runs"]
    for delta in unit.parameters["deltas"]:
        clique = ferromagnet.smallest_clique(delta, horizon)
        spins = math.ceil(2.2 * (4 - delta) * clique / delta)  # then two spins may be left out
        spins = spins if spins <= 4000 else clique
        model = Ferromagnet.with_margin(
            spins,
            clique,
            margin=ferromagnet.least_margin(clique) + 1e-9,
            clique_field=(ferromagnet.least_field(delta) + 1e-9) / clique,
        )
        unmet = model.violations + ferromagnet.interaction_violations(model, delta, horizon)
        for k in sorted({ferromagnet.smallest_block(spins, clique, delta), spins}):
            found = ferromagnet.separation(model, k, horizon)
            chain = ferromagnet.gibbs_chain(model, k)
            hitting = Hitting(chain.log_matrix, chain.large)
            times = simulate(hitting, _down(runs), 1, rng)
            yield {
                "horizon": horizon,
                "delta": delta,
                "clique": clique,
                "spins": spins,
                "block": k,
                "violated": len(unmet),
                "radius": ferromagnet.stuck_radius(clique, model.margin),
                "log_gibbs_missed": found.gibbs,
                "log_parallel_reached": max(found.parallel, -1e6),
                "failure": found.failure,
                "missed_from_small": float(hitting.within(1)[1][0].exp()),
                "drawn_missed": int((times > 1).sum()),
                "runs": runs,
            }


STUDY = Study(
    name="reaching_the_mode",
    about="Who reaches the large mode: blocks redrawn jointly, or all positions at once?",
    settings={
        Scale.SMOKE: ReachingTheMode(
            seeds=1,
            couplings=(2.0, 10.0),
            runs=400,
            sampled=(2.5,),
            blocks=(0, 10),
            lumped=(0, 4),
            models=10,
            cliques=(2, 8),
            deltas=(0.9, 0.1),
            horizons=(1,),
            maps=("2^3", "3^2"),
        ),
        Scale.LAPTOP: ReachingTheMode(),
        Scale.PAPER: ReachingTheMode(
            seeds=10,
            couplings=tuple(0.5 + 0.25 * i for i in range(39)),
            runs=20_000,
            models=200,
            cliques=(2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32),
            deltas=(0.9, 0.5, 0.2, 0.1, 0.05, 0.01),
            horizons=(1, 10, 100, 1000, 10_000),
            maps=("2^3", "3^2", "2^4", "4^2", "3^3", "2^6", "5^2"),
        ),
    },
    units=units,
    run=run,
    claims=[
        Claim(
            "li.fig-4.3",
            mode_figures.judge_figure,
            mode_figures.FIGURE_REFUTED,
            mode_figures.FIGURE_HELD,
        ),
        Claim("li.prop-4.3.3", judges.judge_modes, judges.MODES_REFUTED, judges.MODES_HELD),
        Claim("li.prop-4.1.4", judges.judge_reach, judges.REACH_REFUTED, judges.REACH_HELD),
        Claim("li.prop-4.1.5", judges.judge_stuck, judges.STUCK_REFUTED, judges.STUCK_HELD),
        Claim(
            "li.cor-4.1.1", judges.judge_corollary, judges.COROLLARY_REFUTED, judges.COROLLARY_HELD
        ),
        Claim(
            "li.prop-4.1.2",
            mode_decoders.judge_decoders,
            mode_decoders.REFUTED,
            mode_decoders.HELD,
        ),
    ],
    figures=[
        mode_figures.steps_figure,
        mode_figures.reach_figure,
        mode_figures.stuck_figure,
        mode_decoders.decoder_figure,
    ],
)
