"""Who reaches the large mode: blocks redrawn jointly, or all positions at once [li, 4.1.4, 4.2]?

A clique of strongly coupled spins starts in the smaller of its two modes. k-Gibbs and the
independent parallel sampler are followed exactly, by the chain of the number of up spins, in the
setting of Figure 4.3 (`steps`) and over a grid for Propositions 4.3.3, 4.1.4, 4.1.5 and Corollary
4.1.1 (`bounds`); in a few cells they are run on the spins themselves. Propositions 4.1.2 and 4.1.3
say which chains parallel decoding can make (`decoders`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import get_args

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.studies.api.study import Bench, Scale, Settings, Study
from triptych.studies.masking.reaching_the_mode.bounds import (
    BoundReaching,
    BoundStuck,
    CompareModes,
    Separate,
    bound_reaching,
    bound_stuck,
    compare_modes,
    separate,
)
from triptych.studies.masking.reaching_the_mode.claims import CLAIMS
from triptych.studies.masking.reaching_the_mode.decoders import (
    WriteDecoders,
    sizes_of,
    write_decoders,
)
from triptych.studies.masking.reaching_the_mode.figures import FIGURES
from triptych.studies.masking.reaching_the_mode.rows import Row
from triptych.studies.masking.reaching_the_mode.steps import (
    BOUNDS,
    BOUNDS_COUPLING,
    FIGURE,
    SPINS,
    CompareLumping,
    CountSteps,
    RunOnSpins,
    compare_lumping,
    count_steps,
    run_on_spins,
)

_MOST_STATES = 4096  # V^N of a map; the network has a unit for each of them and position


@dataclass(frozen=True)
class ReachingTheMode(Settings):
    """Sizes.

    couplings   J of Figure 4.3, whose grid is not published
    runs        draws of every chain; the first ten are the figure's repetitions
    sampled     J at which the samplers run on the spins of Figure 4.3
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


ModeUnit = (
    CountSteps
    | CompareLumping
    | RunOnSpins
    | BoundReaching
    | BoundStuck
    | Separate
    | CompareModes
    | WriteDecoders
)

_STREAMS: dict[type, str] = {
    CountSteps: "figure",
    CompareLumping: "lumping",
    RunOnSpins: "sampler",
    BoundReaching: "reach",
    BoundStuck: "stuck",
    Separate: "corollary",
    CompareModes: "modes",
    WriteDecoders: "decoders",
}


def units(settings: ReachingTheMode) -> Sequence[ModeUnit]:
    """One per coupling of the figure, per clique for the bounds, per horizon, per seed."""
    _check(settings)
    runs, deltas = settings.runs, settings.deltas
    found: list[ModeUnit] = [CountSteps(j, runs, seed=0) for j in settings.couplings]
    found.append(CompareLumping(settings.lumped, seed=0))
    places = [(FIGURE, j) for j in settings.sampled] + [(BOUNDS, BOUNDS_COUPLING)]
    found += [RunOnSpins(setting, j, settings.blocks, runs, seed=0) for setting, j in places]
    for clique in settings.cliques:
        found.append(BoundReaching(clique, deltas, runs, seed=0))
        found.append(BoundStuck(clique, deltas, runs, seed=0))
    found += [Separate(horizon, deltas, runs, seed=0) for horizon in settings.horizons]
    for seed in range(settings.seeds):
        found.append(CompareModes(settings.models, seed=seed))
        found.append(WriteDecoders(settings.maps, seed=seed))
    return found


def _check(settings: ReachingTheMode) -> None:
    if not all(0 <= k <= SPINS for k in (*settings.blocks, *settings.lumped)):
        raise UserError(f"blocks and lumped must be in 0..{SPINS}, the spins of Figure 4.3")
    if not all(j > 0 for j in (*settings.couplings, *settings.sampled)):
        raise UserError("couplings and sampled must be above 0: the model is a ferromagnet")
    if min(settings.cliques, default=2) < 2 or min(settings.horizons, default=1) < 1:
        raise UserError("cliques must be at least 2 and horizons at least 1")
    if not all(0 < delta < 1 for delta in settings.deltas):
        raise UserError(f"deltas are {settings.deltas}; they must lie strictly between 0 and 1")
    if settings.runs < 1 or settings.models < 0:
        raise UserError("runs must be at least 1 and models at least 0")
    for name in settings.maps:
        try:
            vocab, length = sizes_of(name)
        except ValueError:
            raise UserError(f"maps has {name!r}; it must be V^N, as '3^2'") from None
        if min(vocab, length) < 1 or vocab**length > _MOST_STATES:
            raise UserError(f"maps has {name!r}; there must be 1 to {_MOST_STATES} sequences")


def run(unit: ModeUnit, bench: Bench) -> Iterable[Row]:
    """What one unit says about its statement."""
    rng = TorchRng(bench.rng(_stream(unit)).seed)
    match unit:
        case CountSteps():
            yield from count_steps(unit, rng)
        case CompareLumping():
            yield from compare_lumping(unit)
        case RunOnSpins():
            yield from run_on_spins(unit, rng)
        case BoundReaching():
            yield from bound_reaching(unit, rng)
        case BoundStuck():
            yield from bound_stuck(unit, rng)
        case Separate():
            yield from separate(unit, rng)
        case CompareModes():
            yield from compare_modes(unit, rng)
        case WriteDecoders():
            yield from write_decoders(unit, rng)


def _stream(unit: ModeUnit) -> str:
    """Names the noise of a unit, as "kind=figure, coupling=2.0, runs=400, seed=0".

    The draws depend on every letter of it.
    """
    names = [field.name for field in fields(unit) if field.name != "seed"]
    parts = [f"{name}={getattr(unit, name)}" for name in (*names, "seed")]
    return ", ".join([f"kind={_STREAMS[type(unit)]}", *parts])


STUDY = Study(
    name="reaching_the_mode",
    question="Who reaches the large mode: blocks redrawn jointly, or all positions at once?",
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
    rows=get_args(Row),
    claims=CLAIMS,
    figures=FIGURES,
)
