"""Exercises on brackets: stacks, balanced attention, and what pairs do to a network without it."""

from typing import Any

import torch

from triptych.lab.exercises.checking import Exercise, matrix, near, numbers_near
from triptych.models.constructions.balanced import balanced
from triptych.structures.brackets.dyck import Dyck
from triptych.theory.brackets import pumping

TYPES, DEPTH, LENGTH = 2, 4, 16
FAR = 1e-3  # two outputs that are nearer are one


def _next_bracket(answer: Any) -> str:
    truth = Dyck.prefixes(types=TYPES, max_depth=DEPTH, length=LENGTH, q=0.5)
    return numbers_near(answer, truth.next_token_log_probs(truth.tokens("[(")).exp()[0])


def _stacks(answer: Any) -> str:
    return near(answer, float(sum(TYPES**depth for depth in range(DEPTH + 1))), within=1e-9)


def _string(answer: Any) -> str:
    text = str(answer)
    if len(text) != 8 or set(text) - set("[]()"):
        return "The answer is a text of 8 brackets, of [ ] ( )."
    stack, deepest = "", 0
    for bracket in text:
        if bracket in "[(":
            stack += bracket
        elif not stack or stack[-1] + bracket not in ("[]", "()"):
            return f"In {text} the bracket {bracket} closes nothing."
        else:
            stack = stack[:-1]
        deepest = max(deepest, len(stack))
    if stack:
        return f"{len(stack)} brackets stay open."
    if deepest != 3:
        return f"The depth is {deepest}; it must be 3."
    return "" if {"[", "("} <= set(text) else "There is one type only."


def _scores(answer: Any) -> str:
    """Attention scores, one for each key and query, that are not uniform and leave all exact."""
    kinds = 2 * TYPES * DEPTH + 1
    scores = matrix(answer, kinds, kinds)
    if float(scores.std()) < 0.1:
        return "These scores are nearly all alike: take others."
    truth = Dyck.prefixes(types=TYPES, max_depth=DEPTH, length=LENGTH, q=0.5)
    strings = truth.sample(20, rng=0)
    model = balanced(TYPES, DEPTH, LENGTH, q=0.5, scores=scores)
    wanted = truth.every_next_token_log_probs(strings).exp()
    error = float((model.outputs(strings)[:, :-1] - wanted).abs().max())
    return f"A probability of the next bracket is off by {error:.2g}." if error > 1e-9 else ""


def _pairs(answer: Any) -> str:
    """The smallest power of ten of inserted pairs at which two stacks look alike."""
    model = balanced(types=2, max_depth=3, length=40, q=0.5, leak=0.5)
    pump = pumping.Pump(pair_type=1, pair_level=2, query_type=0, query_level=3)
    stack, other = torch.tensor([1, 0]), torch.tensor([1, 1])
    first = next(
        10**k
        for k in range(12)
        if pumping.confusion(model, pump, stack, other, 10**k, q=0.5).apart < FAR
    )
    return near(answer, float(first), within=1e-9)


EXERCISES = (
    Exercise(
        _next_bracket,
        "The tokens are [ ] ( ). With q = ½ a bracket opens half of the time, of either type "
        "alike; a bracket that closes must have the type of the innermost open one.",
    ),
    Exercise(
        _stacks,
        "A stack of d open brackets has one of 2 types at each level. Add them up for d = 0 to 4.",
    ),
    Exercise(_string, "Open one, two, three; close them from the inside; one pair is left."),
    Exercise(
        _scores,
        "Take any matrix and make it balanced: `balanced_scores` adds what is missing. The scores "
        "of a pair of matching brackets must let what they add cancel (2.47).",
    ),
    Exercise(
        _pairs,
        "Try `pumping.confusion(...).apart` for 1, 10, 100, … pairs: it falls like one over their "
        "number.",
    ),
)
