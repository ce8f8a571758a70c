"""Ready-made tasks for a replay: a model, a verifier, and what is right, exactly.

Every task has a model p, a set A of right strings with its process verifier, and the value
V*(x_≤t) = P(x in A | x_≤t) under p, in closed form.

    dyck        brackets by a writer who counts them but mistakes their type; A is the balanced ones
    zeros       uniform bits; A = {0^D}
    parity      the hidden string of Theorem 3.1.1; A is the even ones, of which one has mass
    some-zero   uniform bits; A is the strings with a 0
    attention   brackets by the transformer of [li, Corollary 2.2.1]; A is the closed ones
"""

import difflib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import NextToken, Value
from triptych.core.streams import RowStreams
from triptych.core.validation import UserError, check_count, check_probability
from triptych.inference.guided.algorithm import AnyAlgorithm, algorithm_of, algorithms
from triptych.inference.guided.generation import Result
from triptych.models.constructions.balanced import uniform
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.brackets.faulty import CarelessBrackets
from triptych.structures.constraints import AllZeros, EvenParity, SomeZero
from triptych.structures.parity import HiddenParity
from triptych.structures.uniform import Uniform
from triptych.verifiers.exact import Rule
from triptych.verifiers.noisy import Flipped, WithinFactor

_DEPTH = 3  # of the brackets of `attention`
SLIP = 0.25  # how often the writer of `dyck` mistakes the type of a closing bracket


class Demonstration(NamedTuple):
    """A task of one length.

    names      how each token is written
    verifier   hard: whether a prefix can be completed to a right string
    value      V*, the probability that the model completes it to one
    """

    model: NextToken
    verifier: Value
    value: Value
    names: Sequence[str]
    length: int
    title: str
    about: str

    def correct(self, result: Result) -> list[bool]:
        """Whether each row is finished and in A."""
        rows = zip(result.tokens, result.lengths.tolist(), result.complete.tolist(), strict=True)
        return [
            complete and bool(self.verifier.log_value(tokens[None, :end]) == 0)
            for tokens, end, complete in rows
        ]

    def text(self, tokens: Sequence[int]) -> str:
        return "".join(self.names[token] for token in tokens)


def _brackets(length: int, seed: int) -> Demonstration:
    types = torch.tensor([0.2, 0.8], dtype=torch.float64)
    dyck = Dyck.fixed_length(length, type_probs=types, q=0.5)

    def value(prefix: list[int]) -> float:
        possible = bool(dyck.completable(torch.tensor([prefix]).long().reshape(1, -1)))
        closed = sum(token % 2 for token in prefix)
        return (1 - SLIP) ** (length // 2 - closed) if possible else 0.0

    return Demonstration(
        CarelessBrackets(dyck, SLIP),
        dyck,
        Rule(value),
        list("[]()"),
        length,
        "balanced brackets",
        f"The model writes {length} brackets. It knows how many are open, but closes one with the "
        f"wrong type {SLIP:.0%} of the time. Balanced strings are right.",
    )


def _zeros(length: int, seed: int) -> Demonstration:
    return _bits(
        length,
        Uniform(2, length),
        AllZeros(length),
        lambda x: 0.5 ** (length - len(x)) if sum(x) == 0 else 0.0,
        "a string of zeros",
        f"The model tosses {length} fair coins. Only the string of zeros is right.",
    )


def _some_zero(length: int, seed: int) -> Demonstration:
    return _bits(
        length,
        Uniform(2, length),
        SomeZero(length),
        lambda x: 1.0 if 0 in x else 1 - 0.5 ** (length - len(x)),
        "strings with a 0",
        f"The model tosses {length} fair coins. A string with at least one 0 is right.",
    )


def _parity(length: int, seed: int) -> Demonstration:
    model = HiddenParity.random(length, seed=seed)
    secret = model.secret.tolist()

    def value(x: list[int]) -> float:
        if len(x) == length:
            return float(sum(x) % 2 == 0)
        return 0.5 ** (length - 1 - len(x)) if x == secret[: len(x)] else 0.0

    return _bits(
        length,
        model,
        EvenParity(length),
        value,
        "the hidden parity",
        f"The model tosses {length - 1} fair coins, then makes the sum odd; even only after one "
        "hidden string. Strings of even sum are right, and nothing tells before the last bit.",
    )


def _bits(
    length: int,
    model: NextToken,
    verifier: Value,
    value: Callable[[list[int]], float],
    title: str,
    about: str,
) -> Demonstration:
    return Demonstration(model, verifier, Rule(value), list("01"), length, title, about)


def _attention(length: int, seed: int) -> Demonstration:
    if length % 2:
        raise UserError(
            f"length is {length}; all brackets are closed after an even number only",
            parameter="length",
        )
    model, depths = uniform(2, _DEPTH, length, q=0.5), _DEPTH + 1
    dyck = Dyck.prefixes(2, _DEPTH, length, q=0.5)
    closed = torch.zeros(length + 1, depths, dtype=torch.float64)  # P(closed at the end | t, depth)
    closed[length, 0] = 1.0
    for t in range(length - 1, -1, -1):
        opens, closes = dyck.moves[t, :, 0], dyck.moves[t, :, 1]
        closed[t, :-1] += opens[:-1] * closed[t + 1, 1:]
        closed[t, 1:] += closes[1:] * closed[t + 1, :-1]

    def value(prefix: list[int]) -> float:
        possible = bool(dyck.completable(torch.tensor([prefix]).long().reshape(1, -1)))
        depth = sum(1 - 2 * (token % 2) for token in prefix)
        return float(closed[len(prefix), depth]) if possible else 0.0

    return Demonstration(
        model,
        Rule(lambda prefix: float(value(prefix) > 0)),
        Rule(value),
        list("[]()"),
        length,
        "brackets by uniform attention",
        f"The model is a transformer of two layers whose attention weights are all equal. It never "
        f"mistakes a bracket. Of its strings of {length} tokens those are right that leave none "
        "open.",
    )


class _MadeTask(NamedTuple):
    make: Callable[[int, int], Demonstration]
    length: int


TASKS: Mapping[str, _MadeTask] = {
    "dyck": _MadeTask(_brackets, 16),
    "zeros": _MadeTask(_zeros, 8),
    "parity": _MadeTask(_parity, 6),
    "some-zero": _MadeTask(_some_zero, 8),
    "attention": _MadeTask(_attention, 16),
}


def find_algorithm(name: str) -> type[AnyAlgorithm]:
    """An algorithm of this library or an installed package, or of a file, `my_algorithm.py`."""
    if name.endswith(".py"):
        return _own_algorithm(Path(name))
    known = algorithms()
    return known[named("algorithm", name, known)]


def _own_algorithm(path: Path) -> type[AnyAlgorithm]:
    if not path.is_file():
        raise UserError(f"there is no file {path}", parameter="path")
    module_name = f"own_algorithm_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    found = algorithm_of(module)
    if found is None:
        raise UserError(
            f"{path} has no algorithm; it needs a class of Algorithm, as `triptych new algorithm` "
            "writes",
            parameter="path",
        )
    found.options()  # refuses what is no dataclass
    return found


def named(what: str, name: str, known: Iterable[str]) -> str:
    """The known thing of this name; else a sentence with the nearest one."""
    names = list(known)
    found = {each.replace("_", "-"): each for each in names}.get(name.lower().replace("_", "-"))
    if found:
        return found
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"there is no {what} {name!r}{hint} ({what}s: {', '.join(names)})")


def demonstration(task: str, *, length: int | None = None, seed: int = 0) -> Demonstration:
    """The task of this name, at its own length or another."""
    chosen = TASKS[named("task", task, TASKS)]
    length = chosen.length if length is None else length
    check_count("length", length, at_least=1)
    return chosen.make(length, seed)


def noisy(demo: Demonstration, *, soft: bool, noise: float, seed: int) -> tuple[Value, str]:
    """The verifier with errors before the end of a string, and a sentence about it.

    A hard one gives the wrong answer at a prefix with probability `noise`; V* is off by a factor
    between 1 / (1 + noise) and 1 + noise.
    """
    if soft:
        told = "The verifier says with what probability the model completes a prefix rightly"
        if noise == 0:
            return demo.value, f"{told}."
        value = WithinFactor(demo.value, noise, seed, length=demo.length)
        return value, f"{told}, and is off by a factor of up to {1 + noise:g}."
    told = "The verifier says whether a prefix can be completed rightly"
    if noise == 0:
        return demo.verifier, f"{told}."
    check_probability("noise", noise)
    flipped = Flipped(demo.verifier, noise, noise, seed, length=demo.length)
    return flipped, f"{told}, and is wrong {noise:.0%} of the time before the last token."


def generate(
    algorithm: AnyAlgorithm | str,
    demo: Demonstration,
    verifier: Value,
    *,
    prompt: str = "",
    rows: int = 1,
    seed: int = 0,
) -> Result:
    """A recorded run of an algorithm, or of one by its name with the defaults of its options."""
    chosen = find_algorithm(algorithm)() if isinstance(algorithm, str) else algorithm
    decoder = RecomputingDecoder(demo.model, rows)
    decoder.extend(_prompt(prompt, demo.names).expand(rows, -1))
    return chosen.sample(
        decoder,
        verifier,
        length=demo.length,
        record=True,
        rng=RowStreams(seed, torch.arange(rows)),
    )


def _prompt(text: str, names: Sequence[str]) -> Int[Tensor, "1 t"]:
    for letter in text:
        if letter not in names:
            raise UserError(
                f"the prompt has {letter!r}; this task is written in {' '.join(names)}",
                parameter="names",
            )
    return torch.tensor([[names.index(letter) for letter in text]], dtype=torch.long)


def summary(demo: Demonstration, result: Result, correct: Sequence[bool]) -> list[str]:
    """A line for each row: what came out, whether it is right, and what it cost."""
    costs, lines = result.costs, []
    for row, right in enumerate(correct):
        text = demo.text(result.tokens[row, : int(result.lengths[row])].tolist()) or "nothing"
        verdict = "correct" if right else "not correct"
        if not result.complete[row]:
            verdict = f"not finished ({result.reasons[row]})"
        lines.append(
            f"{text}  {verdict}; {int(costs.generator_calls[row])} generator calls, "
            f"{int(costs.verifier_calls[row])} verifier calls, "
            f"{int(costs.generated[row])} tokens generated, {int(costs.erased[row])} erased"
        )
    return lines
