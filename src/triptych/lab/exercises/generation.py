"""Exercises on guided generation: what a sampler costs, what law it has, what helps it."""

import itertools
from collections.abc import Callable
from typing import Any

from triptych.core.table import Table
from triptych.inference.guided import tokenwise
from triptych.inference.guided.backtracking import Backtracking
from triptych.lab.exercises.checking import Exercise, near, numbers_near
from triptych.lab.replay import demonstrations
from triptych.structures.constraints import AllZeros, SomeZero
from triptych.structures.uniform import Uniform
from triptych.theory.generation.queries import rejection_calls

LENGTH = 6
ROWS, RIGHT, CALLS = 100, 0.95, 20.0


def _rejected(answer: Any) -> str:
    calls = rejection_calls(Table.of(Uniform(2, 8)), AllZeros(8))
    return near(answer, calls / 8)  # strings of 8 tokens


def _tokenwise(answer: Any) -> str:
    law = tokenwise.law(Table.of(Uniform(2, 2)), SomeZero(2))
    return numbers_near(answer, law.log_probs.exp())


def _distance(answer: Any) -> str:
    law = tokenwise.law(Table.of(Uniform(2, 2)), SomeZero(2)).log_probs.exp()
    wanted = (SomeZero(2).log_value(Table.of(Uniform(2, 2)).sequences) == 0).double()
    wanted = wanted / wanted.sum()
    return near(answer, 0.5 * float((law - wanted).abs().sum()))


def _verifier(answer: Any) -> str:
    """A rule on prefixes of bits: can they still become right?"""
    if not isinstance(answer, Callable):
        return "The answer is a function of a list of bits that says True or False."
    ends = [list(bits) for bits in itertools.product((0, 1), repeat=LENGTH) if _is_right(bits)]
    for t in range(LENGTH + 1):
        for bits in itertools.product((0, 1), repeat=t):
            possible = any(end[:t] == list(bits) for end in ends)
            if bool(answer(list(bits))) != possible:
                says = "can" if possible else "cannot"
                return f"{list(bits)} {says} become right, and your function says otherwise."
    return ""


def _is_right(bits: tuple[int, ...]) -> bool:
    """An even number of ones, no two of them next to each other."""
    return sum(bits) % 2 == 0 and (1, 1) not in itertools.pairwise(bits)


def _options(answer: Any) -> str:
    """(quota, stride) with which Algorithm 1 is right and cheap on brackets."""
    quota, stride = (int(value) for value in answer)
    demo = demonstrations.demonstration("dyck")
    chosen = Backtracking(quota=quota, stride=stride)
    result = demonstrations.generate(chosen, demo, demo.verifier, rows=ROWS, seed=1)
    right = sum(demo.correct(result)) / ROWS
    calls = float(result.costs.generator_calls.double().mean())
    if right < RIGHT:
        return f"{right:.1%} of the strings are right; it must be {RIGHT:.0%}."
    return f"A string costs {calls:.1f} questions; at most {CALLS:g}." if calls > CALLS else ""


EXERCISES = (
    Exercise(_rejected, "A string is right with probability 2^-8; how long until the first one?"),
    Exercise(
        _tokenwise,
        "The first bit is fair, because each of its values can become right. After a 1 the second "
        "bit must be 0. The order is 00, 01, 10, 11.",
    ),
    Exercise(
        _distance,
        "The target has 1/3 on each of the three right strings. Total variation is half the sum of "
        "the absolute differences.",
    ),
    Exercise(
        _verifier,
        "Two neighbouring ones are never mended. An even number of ones can be reached as long as "
        "there is room for one more 1 that has no 1 next to it.",
    ),
    Exercise(
        _options,
        "A quota of few backtracks runs out. A long stride erases tokens that were right. Draw a "
        "table over quotas 2, 4, 6, 8 and strides 1 to 4.",
    ),
)
