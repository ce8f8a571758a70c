"""Figure 4.3: steps from the small mode to the large one, by exact chains and on the spins."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.protocols import Rng
from triptych.core.table import Table, all_sequences
from triptych.inference.chains import gibbs
from triptych.inference.chains.parallel import independent_step
from triptych.studies.api.study import Unit
from triptych.studies.masking.reaching_the_mode.rows import Drawn, Lumping, SpinRun, Steps
from triptych.theory.masking import ferromagnet, parallel
from triptych.theory.masking.blocks.dynamics import BlockDynamics
from triptych.theory.masking.ferromagnet import CliqueChain, Ferromagnet
from triptych.theory.numerics.hitting import Hitting, simulate

SPINS, CLIQUE, FIELD, BUDGET, REPEATS = 10, 4, 5.0, 1000, 10
FIGURE, BOUNDS = "figure", "bounds"  # settings of the runs on the spins
BOUNDS_COUPLING = 0.42  # with the fields below J_0 = 0.1
_FIELDS = {FIGURE: (FIELD, FIELD), BOUNDS: (0.05, 0.02)}  # of the clique, of the free spins
_LUMPED_COUPLING = 2.5
_QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99, 0.999)  # of T, where shares are compared
_SPIN_STEPS = 30  # of the samplers on the spins


@dataclass(frozen=True)
class CountSteps(Unit):
    """Every sampler at one J of Figure 4.3."""

    coupling: float
    runs: int


@dataclass(frozen=True)
class CompareLumping(Unit):
    """The chains of the count against those of all states."""

    blocks: tuple[int, ...]


@dataclass(frozen=True)
class RunOnSpins(Unit):
    """The samplers on the spins themselves."""

    setting: str
    coupling: float
    blocks: tuple[int, ...]
    runs: int


def _chain(model: Ferromagnet, k: int) -> CliqueChain:
    """k-Gibbs, or independent parallel for k = 0."""
    return ferromagnet.gibbs_chain(model, k) if k else ferromagnet.parallel_chain(model)


def compared(hitting: Hitting, drawn: Int[Tensor, " runs"], most: int) -> Drawn:
    """Drawn T next to their exact law, at quantiles t of T up to `most`.

    Worked value: T geometric with ½, most 2, drawn 1, 2, 3: of three runs 1 and 2 are there by
    t = 1 and t = 2, where ½ and ¾ are expected.
    """
    alive = hitting.survival(most, 0)
    times = sorted({most, *(min(most, int((alive > 1 - q).sum())) for q in _QUANTILES)})
    return Drawn(
        times=tuple(times),
        exact_shares=tuple(float(hitting.within(t)[0][0].exp()) for t in times),
        counts=tuple(int((drawn <= t).sum()) for t in times),
        runs=len(drawn),
    )


def count_steps(unit: CountSteps, rng: Rng) -> Iterable[Steps]:
    """T from R_-1 to R_1: every k, and independent parallel as k = 0."""
    model = Ferromagnet.equal(SPINS, CLIQUE, unit.coupling, FIELD, FIELD)
    for k in range(SPINS + 1):
        chain = _chain(model, k)
        hitting = Hitting(chain.log_matrix, chain.large)
        drawn = simulate(hitting, torch.zeros(unit.runs, dtype=torch.long), BUDGET, rng)
        shares = compared(hitting, drawn, BUDGET)
        yield Steps(
            times=shares.times,
            exact_shares=shares.exact_shares,
            counts=shares.counts,
            runs=shares.runs,
            coupling=unit.coupling,
            k=k,
            capped_mean=hitting.capped_mean(BUDGET, 0)[0],
            log_mean=float(hitting.log_mean()[0]),
            log_reached=max(float(hitting.within(BUDGET)[0][0]), -1e6),
            repeats=tuple(drawn[:REPEATS].clamp(max=BUDGET).double().tolist()),
        )


def compare_lumping(unit: CompareLumping) -> Iterable[Lumping]:
    """The chain of the count against all 2^10 states of the same setting."""
    model = Ferromagnet.equal(SPINS, CLIQUE, _LUMPED_COUPLING, FIELD, FIELD)
    table = Table.of(model.ising())
    up = all_sequences(2, SPINS)[:, :CLIQUE].sum(-1)
    onto = torch.nn.functional.one_hot(up, CLIQUE + 1).double()
    for k in unit.blocks:
        if k:
            full = BlockDynamics(table, MaskLaw.of_size(SPINS, k)).transition()
        else:
            full = parallel.product_chain(parallel.independent_parallel_laws(table))
        off = (full @ onto - _chain(model, k).log_matrix.exp()[up]).abs().max()
        yield Lumping(k=k, lumping_error=float(off))


def run_on_spins(unit: RunOnSpins, rng: Rng) -> Iterable[SpinRun]:
    """k-Gibbs and independent parallel (k = 0) on ten spins, next to the chain of the count.

    They run until the clique is all up; independent parallel in the setting of the bounds until its
    magnetisation exceeds -2, which is what Proposition 4.1.5 speaks of.
    """
    model = Ferromagnet.equal(SPINS, CLIQUE, unit.coupling, *_FIELDS[unit.setting])
    for k in unit.blocks:
        chain = _chain(model, k)
        stuck = k == 0 and unit.setting == BOUNDS
        hitting = Hitting(chain.log_matrix, chain.freed if stuck else chain.large)
        shares = compared(hitting, _times(model, k, hitting, unit.runs, rng), _SPIN_STEPS)
        yield SpinRun(
            times=shares.times,
            exact_shares=shares.exact_shares,
            counts=shares.counts,
            runs=shares.runs,
            setting=unit.setting,
            coupling=unit.coupling,
            k=k,
        )


def _times(
    model: Ferromagnet, k: int, hitting: Hitting, runs: int, rng: Rng
) -> Int[Tensor, " runs"]:
    """T of the sampler from all spins down; one more than the steps tried where it is later."""
    ising, tokens = model.ising(), torch.zeros((runs, model.spins), dtype=torch.long)
    masks = MaskLaw.of_size(model.spins, max(k, 1))
    found, running = torch.full((runs,), _SPIN_STEPS + 1), torch.arange(runs)
    for step in range(1, _SPIN_STEPS + 1):
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
