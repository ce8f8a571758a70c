"""Who wins when: every guided algorithm on one exact task, for verifiers with 0 to 30 % errors.

Task. The model writes brackets and leaks: p(y | x) = (1 - leak) dyck(y | x) + leak / 4 while x can
be completed, and 1/4 for every token after an error. Strings are wanted from p restricted to the
balanced ones, a law known by enumeration.

Verifier. A process verifier ("can this prefix be completed?") whose answer at a prefix is wrong
with probability e, always in the same way (`Flipped`). Full strings are judged by it too: nobody
here knows the exact outcome. Algorithms that need a yes or no get one. A walk must be able to come
back from a wrong no, so VGB, and sequential Monte Carlo a second time, get the probability of a
good prefix given the answer, at even odds before it: 1 - e after yes and e after no.

Controls. Algorithm 1 redoes erased tokens by argmax and does not verify them; "drawn" is the same
without the redo. Greedy decoding always returns one string, a right one here: it bounds what
argmax alone buys, and as no sampler it is shown and not ranked.

What is measured. A row that is given up counts as a wrong string. The distance to the target is
that of the empirical law of all rows, so whatever is not balanced counts in full; `floor` is what
as many draws of the target itself show on average. `skew` is the distance of the balanced strings
alone. Calls are means per row asked for.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder
from triptych.core.divergences import expected_distance
from triptych.core.logspace import log_normalise
from triptych.core.protocols import Decoder, NextToken, Rng, Value
from triptych.core.table import all_sequences, places
from triptych.core.validation import (
    UserError,
    check_count,
)
from triptych.inference.guided import (
    ancestral,
    backtracking,
    best_of_n,
    blocks,
    particles,
    rejection,
    tokenwise,
    vgb,
)
from triptych.inference.guided.generation import Result
from triptych.inference.guided.transforms import argmax
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.brackets.faulty import LeakyBrackets
from triptych.studies.api.study import Bench, Scale, Settings, Study, Unit
from triptych.studies.generation.who_wins.figures import (
    accuracy_figure,
    law_figure,
    winners_figure,
)
from triptych.studies.generation.who_wins.rows import Measured
from triptych.verifiers.noisy import Flipped

TYPES, OPEN = (0.2, 0.8), 0.5  # of the brackets, as in the thesis
WALK = 1  # VGB returns a node after 1..WALK · length² steps, alike


@dataclass(frozen=True)
class WhoWins(Settings):
    """Sizes.

    length   tokens of a string; 4^length prefixes are tabulated
    leak     of the model, to tokens at random
    errors   rates e of wrong answers, as many false accepts as false rejects
    strings  drawn with every algorithm at every setting, for each seed of the verifier's noise
    points   settings of every algorithm that are run, from the cheapest
    """

    seeds: int = 5
    length: int = 8
    leak: float = 0.3
    errors: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.3)
    strings: int = 1000
    points: int = 99


# ------------------------------------------------------------------ the model and its target


class Target(NamedTuple):
    """p restricted to the balanced strings: each of them with its log-probability."""

    strings: Int[Tensor, "count length"]
    log_probs: Float[Tensor, " count"]


def target_of(model: LeakyBrackets) -> Target:
    """By enumeration. Worked value: one type, length 2: all mass on "[]"."""
    every = all_sequences(model.vocab_size, model.length)
    strings = every[model.dyck.completable(every)]
    return Target(strings, log_normalise(model.log_prob(strings)[None])[0])


class Answers(NamedTuple):
    """A model's or a verifier's answer to every prefix, looked up: answers[t][rank of x_≤t]."""

    vocab_size: int
    answers: tuple[Tensor, ...]

    def next_token_log_probs(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, "batch vocab"]:
        return self._found(prefix)

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]:
        return self._found(prefix)

    def _found(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        t = prefix.shape[1]
        return self.answers[t][(prefix * places(self.vocab_size, t, prefix.device)).sum(-1)]


def tabulated(model: NextToken, length: int) -> Answers:
    """The same model, every law computed once."""
    k = model.vocab_size
    laws = (model.next_token_log_probs(all_sequences(k, t)) for t in range(length))
    return Answers(k, tuple(laws))


def tabulated_value(value: Value, vocab_size: int, length: int) -> Answers:
    """The same verifier, every value computed once."""
    values = (value.log_value(all_sequences(vocab_size, t)) for t in range(length + 1))
    return Answers(vocab_size, tuple(values))


class _Setting(NamedTuple):
    dyck: Dyck
    model: Answers
    target: Target


@lru_cache(maxsize=2)
def _setting(length: int, leak: float) -> _Setting:
    types = torch.tensor(TYPES, dtype=torch.float64)
    dyck = Dyck.fixed_length(length, type_probs=types, q=OPEN)
    model = LeakyBrackets(dyck, leak)
    return _Setting(dyck, tabulated(model, length), target_of(model))


# ------------------------------------------------------------------ the algorithms


class Algorithm(NamedTuple):
    """How to run one with a knob, what values it has, and whether it is given soft answers."""

    run: Callable[[Decoder, Value, int, int, Rng], Result]
    knobs: tuple[int, ...]
    soft: bool = False


def _ancestral(decoder: Decoder, value: Value, length: int, knob: int, rng: Rng) -> Result:
    return ancestral.sample(decoder, value, length=length, rng=rng)


def _greedy(decoder: Decoder, value: Value, length: int, knob: int, rng: Rng) -> Result:
    return ancestral.sample(decoder, value, length=length, transform=argmax, rng=rng)


def _rejection(decoder: Decoder, value: Value, length: int, knob: int, rng: Rng) -> Result:
    return rejection.sample(decoder, value, length=length, attempts=knob, rng=rng)


def _tokenwise(decoder: Decoder, value: Value, length: int, knob: int, rng: Rng) -> Result:
    return tokenwise.sample(decoder, value, length=length, tries=knob, rng=rng)


def _backtracking(
    stride: int, *, redo: bool = True
) -> Callable[[Decoder, Value, int, int, Rng], Result]:
    return lambda decoder, value, length, knob, rng: backtracking.sample(
        decoder, value, length=length, quota=knob, stride=stride, redo_argmax=redo, rng=rng
    )


def _best(decoder: Decoder, value: Value, length: int, knob: int, rng: Rng) -> Result:
    return best_of_n.sample(decoder, value, length=length, n=knob, rng=rng)


def _blocks(block: int) -> Callable[[Decoder, Value, int, int, Rng], Result]:
    return lambda decoder, value, length, knob, rng: blocks.sample(
        decoder, value, length=length, block=block, n=knob, rng=rng
    )


def _particles(decoder: Decoder, value: Value, length: int, knob: int, rng: Rng) -> Result:
    return particles.sample(decoder, value, length=length, n=knob, rng=rng)


def _first_leaf(decoder: Decoder, value: Value, length: int, knob: int, rng: Rng) -> Result:
    return vgb.sample(decoder, value, length=length, steps=knob, lazy=False, rng=rng)


def _uniform_node(decoder: Decoder, value: Value, length: int, knob: int, rng: Rng) -> Result:
    return vgb.sample(
        decoder,
        value,
        length=length,
        steps=WALK * length**2,
        returns="uniform",
        restarts=knob - 1,
        lazy=False,
        rng=rng,
    )


# Knobs: attempts, candidates n, tries of a token, the quota Q, particles; steps of the walk to its
# first leaf, and walks until a uniform node of one is a leaf. Walks are not lazy: to stay costs no
# call, and changes neither the first leaf nor the walk's law averaged over time.
_DOUBLING = (1, 2, 4, 8, 16, 32)
ALGORITHMS: dict[str, Algorithm] = {
    "ancestral": Algorithm(_ancestral, (1,)),
    "greedy": Algorithm(_greedy, (1,)),
    "rejection": Algorithm(_rejection, _DOUBLING),
    "best of n": Algorithm(_best, _DOUBLING),
    "blocks of 2": Algorithm(_blocks(2), _DOUBLING),
    "blocks of 4": Algorithm(_blocks(4), _DOUBLING),
    "tokenwise": Algorithm(_tokenwise, _DOUBLING),
    "Alg. 1, B = 2": Algorithm(_backtracking(2), _DOUBLING),
    "Alg. 1, B = 4": Algorithm(_backtracking(4), _DOUBLING),
    "Alg. 1, drawn": Algorithm(_backtracking(4, redo=False), _DOUBLING),
    "SMC, yes/no": Algorithm(_particles, _DOUBLING),
    "SMC, soft": Algorithm(_particles, _DOUBLING, soft=True),
    "VGB, leaf": Algorithm(_first_leaf, (16, 32, 64, 128, 256, 512, 1024), soft=True),
    "VGB, node": Algorithm(_uniform_node, (1, 4, 16, 64), soft=True),
}


@dataclass(frozen=True)
class RunAlgorithm(Unit):
    """One algorithm at one error rate, with its knob turned up."""

    algorithm: str
    error: float
    knobs: tuple[int, ...]
    length: int
    leak: float
    strings: int


def units(settings: WhoWins) -> Sequence[RunAlgorithm]:
    """One per algorithm, error rate and seed of the verifier's noise."""
    check_count("points", settings.points, at_least=1)
    if settings.length % 2 or not 2 <= settings.length <= 10:
        raise UserError(f"length is {settings.length}; it must be even, and from 2 to 10")
    if not all(0 <= e < 0.5 for e in settings.errors):
        raise UserError(f"errors are {settings.errors}; rates lie between 0 and ½")
    return [
        RunAlgorithm.of(
            settings,
            algorithm=name,
            error=error,
            knobs=algorithm.knobs[: settings.points],
            seed=seed,
        )
        for name, algorithm in ALGORITHMS.items()
        for error in settings.errors
        for seed in range(settings.seeds)
    ]


def run(unit: RunAlgorithm, bench: Bench) -> Iterable[Measured]:
    """One row for every value of the knob."""
    setting, algorithm = _setting(unit.length, unit.leak), ALGORITHMS[unit.algorithm]
    soft = unit.error if algorithm.soft else 0.0
    noisy = Flipped(setting.dyck, unit.error, unit.error, unit.seed, soft=soft)
    value = tabulated_value(noisy, setting.dyck.vocab_size, unit.length)
    for knob in unit.knobs:
        rng = bench.rng(f"{unit.algorithm} {knob}")
        decoder = RecomputingDecoder(setting.model, unit.strings)
        result = algorithm.run(decoder, value, unit.length, knob, rng)
        yield measured(result, setting.target, unit, knob)


# ------------------------------------------------------------------ what is measured


def measured(result: Result, target: Target, unit: RunAlgorithm, knob: int) -> Measured:
    """Accuracy, distances and distinct balanced strings of a batch.

    Worked value: of two strings that should be alike, rows that are the first, the first, nothing
    and nothing have accuracy ½, distance ½ (½ is missing on the second), and skew ½.
    """
    index = {tuple(x): i for i, x in enumerate(target.strings.tolist())}
    rows = zip(result.completions(), result.complete.tolist(), strict=True)
    found = torch.tensor([index.get(x, -1) if whole else -1 for x, whole in rows])
    balanced = found[found >= 0]
    counts = torch.bincount(balanced, minlength=len(index)).double()
    probs, n, good = target.log_probs.exp(), len(found), len(balanced)
    outside = (n - good) / n
    costs = result.costs
    return Measured(
        algorithm=unit.algorithm,
        error=unit.error,
        knob=knob,
        seed=unit.seed,
        length=unit.length,
        strings=unit.strings,
        returned=int(result.complete.sum()),
        accuracy=good / n,
        distance=float(0.5 * ((counts / n - probs).abs().sum() + outside)),
        floor=expected_distance(probs, n),
        skew=float(0.5 * (counts / good - probs).abs().sum()) if good else None,
        skew_floor=expected_distance(probs, good) if good else None,
        distinct=int((counts > 0).sum()),
        generator_calls=float(costs.generator_calls.double().mean()),
        verifier_calls=float(costs.verifier_calls.double().mean()),
        seconds=costs.seconds,
    )


STUDY = Study(
    name="who_wins",
    question="Which guided algorithm wins, at which errors of its verifier and budget of calls?",
    settings={
        Scale.SMOKE: WhoWins(seeds=1, length=4, errors=(0.0, 0.2), strings=40, points=2),
        Scale.LAPTOP: WhoWins(),
        Scale.PAPER: WhoWins(seeds=30, strings=10_000),
    },
    units=units,
    run=run,
    rows=(Measured,),
    figures=[winners_figure, accuracy_figure, law_figure],
)
