"""Gibbs sampling next to parallel decoding, on spins of a grid, with the same number of questions.

Both chains start with the same random spins and ask the exact conditionals. A round is N questions,
one for each spin:

    Gibbs      N times one spin, drawn given all others: N passes
    parallel   all spins at once, each given the old others: one pass
    blocks     N times a square of spins, each drawn from its marginal given the rest: N passes

Gibbs sampling keeps the law of the model. The other two do not.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.counting import Counted
from triptych.core.mask_laws import MaskLaw
from triptych.core.protocols import Masked, Rng
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError, as_count, as_number, as_seed
from triptych.inference.chains import gibbs, parallel
from triptych.inference.guided.algorithm import Option, Setting
from triptych.lab.replay.demonstrations import named
from triptych.lab.replay.ising_laws import (
    AtOnce,
    Expectations,
    HiddenBlocks,
    Mover,
    distances,
    expectations,
)
from triptych.structures.ising import Ising

OPTIONS = (
    Option("size", int, 4, "rows and columns of the grid"),
    Option("coupling", float, 0.4, "J between neighbours; positive wants them equal"),
    Option("field", float, 0.0, "h that pulls every spin up"),
    Option("rounds", int, 30, "rounds of one question for each spin"),
    Option("width", int, 2, "rows and columns of a block, against blocks"),
)
AGAINST = ("parallel", "blocks")
MAX_SIZE = 12
MAX_ENUMERATED = 16  # spins whose law is known at every round
MAX_ROUNDS = 200
MAX_WIDTH = 3
MAX_PULL = 2.0  # of |J| and |h|


class Side(NamedTuple):
    """One sampler, recorded after every round; round 0 is the start.

    states      the spins from the top left, 0 down and 1 up
    questions   asked so far; passes are those that wait for one another
    distance    between the law of the chain and that of the model; None on large grids
    """

    title: str
    states: list[list[int]]
    questions: list[int]
    passes: list[int]
    magnetisation: list[float]
    energy: list[float]
    distance: list[float] | None


class SpinReplay(NamedTuple):
    """Two samplers of one grid; magnetisations and energies are per spin."""

    size: int
    coupling: float
    field: float
    sides: tuple[Side, Side]
    exact: Expectations

    def lines(self) -> list[str]:
        """What a terminal shows: costs, means over the rounds, and the exact means."""
        found = []
        for side in self.sides:
            apart = (
                "" if side.distance is None else f"; distance {side.distance[-1]:.3f} at the end"
            )
            found.append(
                f"{side.title}: {side.questions[-1]} questions in {side.passes[-1]} passes; mean "
                f"energy {mean(side.energy[1:]):.3f}, mean magnetisation "
                f"{mean(side.magnetisation[1:]):.3f}{apart}"
            )
        exact = f"mean energy {self.exact.energy:.3f}, mean magnetisation "
        return [*found, f"Exact: {exact}{self.exact.magnetisation:.3f}"]


def replayed(
    against: str = "parallel", *, seed: int = 0, settings: Mapping[str, Setting] | None = None
) -> SpinReplay:
    """Run both samplers; `settings` are values of OPTIONS, those left out have their defaults."""
    against = named("sampler", against, dict.fromkeys(AGAINST))
    given: dict[str, Any] = {option.name: option.default for option in OPTIONS}
    given |= settings or {}
    size = as_count("size", given.pop("size"), at_least=2, at_most=MAX_SIZE)
    coupling = as_number("coupling", given.pop("coupling"), at_least=-MAX_PULL, at_most=MAX_PULL)
    field = as_number("field", given.pop("field"), at_least=-MAX_PULL, at_most=MAX_PULL)
    rounds = as_count("rounds", given.pop("rounds"), at_least=1, at_most=MAX_ROUNDS)
    width = as_count("width", given.pop("width"), at_least=2, at_most=min(size, MAX_WIDTH))
    seed = as_seed(seed)
    if given:
        raise UserError(f"ising has no option {next(iter(given))!r}; it has {option_names()}")
    ising = Ising.grid(size, size, coupling, field)
    fair = torch.full((1, size * size, 2), 0.5, dtype=torch.float64).log()
    start = TorchRng(seed).categorical(fair)
    samplers = _samplers(ising, size, width)
    left, right = (
        _recorded(samplers[name], ising, start, rounds=rounds, seed=seed + 1)
        for name in ("gibbs", against)
    )
    exact = expectations(size, size, coupling, field)
    return SpinReplay(size, coupling, field, (left, right), exact)


class _Sampler(NamedTuple):
    """How to step, how its law moves, and how many steps are a round."""

    title: str
    step: Callable[[Masked, Int[Tensor, "chains length"], Rng], Int[Tensor, "chains length"]]
    mover: Callable[[], Mover]
    steps_in_round: int


def _samplers(ising: Ising, size: int, width: int) -> dict[str, _Sampler]:
    spins, squares = size * size, _squares(size, width)
    single, square = MaskLaw.of_size(spins, 1), MaskLaw.weighted(spins, squares)
    return {
        "gibbs": _Sampler(
            "Gibbs: one spin at a time",
            lambda oracle, tokens, rng: gibbs.step(oracle, tokens, single, rng, draw="in turn"),
            lambda: HiddenBlocks(ising, [[i] for i in range(spins)]),
            spins,
        ),
        "parallel": _Sampler(
            "Parallel: all spins at once", parallel.independent_step, lambda: AtOnce(ising), 1
        ),
        "blocks": _Sampler(
            f"Blocks: {width} × {width} spins at once",
            lambda oracle, tokens, rng: parallel.block_step(oracle, tokens, square, rng),
            lambda: HiddenBlocks(ising, squares),
            spins,
        ),
    }


def _recorded(
    sampler: _Sampler, ising: Ising, start: Int[Tensor, "1 spins"], *, rounds: int, seed: int
) -> Side:
    """Run one chain, and move its law next to it where that can be enumerated."""
    counted, every = Counted(ising), sampler.steps_in_round
    traces = gibbs.run(
        lambda tokens, rng: sampler.step(counted, tokens, rng),
        start,
        rounds * every,
        TorchRng(seed),
        record={"state": lambda tokens: tokens[0], "log weight": ising.log_weight},
        every=every,
        counted=counted,
    )
    known = None
    if ising.length <= MAX_ENUMERATED:
        first = start[0].tolist()
        known = distances(ising, sampler.mover(), first, records=rounds, every=every)
    states = traces.values["state"]
    return Side(
        sampler.title,
        states.tolist(),
        traces.queries,
        traces.passes,
        (2.0 * states - 1).mean(-1).tolist(),
        (-traces.values["log weight"][:, 0] / ising.length).tolist(),
        known,
    )


def parse(changes: Sequence[str]) -> dict[str, Setting]:
    """The options that a user wrote as size=6, with values of their types.

    Worked value: ["size=6", "coupling=0.4"] are {"size": 6, "coupling": 0.4}.
    """
    options = {option.name: option for option in OPTIONS}
    found: dict[str, Setting] = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals:
            raise UserError(f"--set {change}: write it as OPTION=VALUE, as size=6")
        if name not in options:
            raise UserError(f"ising has no option {name!r}; it has {option_names()}")
        found[name] = options[name].parse(text)
    return found


def option_names() -> str:
    return ", ".join(option.flag for option in OPTIONS)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _squares(size: int, width: int) -> list[list[int]]:
    """The spins of every square of this width.

    Worked value: squares of width 2 on a grid of 3: [0, 1, 3, 4], [1, 2, 4, 5], ...
    """
    places = range(size - width + 1)
    within = [row * size + column for row in range(width) for column in range(width)]
    return [[row * size + column + i for i in within] for row in places for column in places]
