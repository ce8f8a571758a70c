"""What an exercise is, and `check`, which a notebook calls.

An exercise never has its answer as a number: its judge computes with the library what is right, or
holds the answer to what the question asks for. So another right answer is right, too.
"""

import html
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from triptych.core.validation import UserError, as_count, as_number

CHAPTERS = ("tuning", "topics", "brackets", "generation", "masking", "refinement")


class Exercise(NamedTuple):
    """A judge of answers, and a hint for one that is not right.

    judge
        Says what is wrong with an answer in a sentence, and "" where it is right.
    """

    judge: Callable[[Any], str]
    hint: str


class Checked(NamedTuple):
    """What a check says: status is "right", "not right" or "not yet"."""

    status: str
    sentence: str = ""
    hint: str = ""

    def __repr__(self) -> str:
        parts = [f"{self.status.capitalize()}."]
        if self.sentence:
            parts.append(self.sentence)
        if self.hint:
            parts.append(f"Hint: {self.hint}")
        return " ".join(parts)

    def _repr_html_(self) -> str:
        """What a notebook shows: the mark, the word, and what follows it."""
        mark = {"right": "✓", "not right": "✕", "not yet": "○"}[self.status]
        first = f"<strong>{mark} {html.escape(self.status.capitalize())}.</strong>"
        hint = f"<br><em>Hint:</em> {html.escape(self.hint)}" if self.hint else ""
        return f"<p>{first} {html.escape(self.sentence)}{hint}</p>"


def check(chapter: str, number: int, answer: Any = ...) -> Checked:
    """Whether an answer to an exercise is right; `...` and None are no answer yet.

    Worked value: check("masking", 1, ...) is "not yet", and a wrong number is "not right" with a
    hint.
    """
    exercises = exercises_of(chapter)
    number = as_count("number", number, at_least=1, at_most=len(exercises))
    exercise = exercises[number - 1]
    if answer is None or answer is ...:
        return Checked("not yet", "Replace the three dots by your answer, and run both cells.")
    try:
        wrong = exercise.judge(answer)
    except Exception as error:  # an answer may be anything, a function of one's own among it
        wrong = f"{type(error).__name__}: {error}"
    return Checked("not right", wrong, exercise.hint) if wrong else Checked("right")


def exercises_of(chapter: str) -> tuple[Exercise, ...]:
    """The exercises of a chapter, in the order of its notebook."""
    if chapter not in CHAPTERS:
        raise UserError(
            f"chapter is {chapter!r}; it must be one of {', '.join(CHAPTERS)}", parameter="chapter"
        )
    module = importlib.import_module(f"triptych.lab.exercises.{chapter}")
    return module.EXERCISES


def near(answer: Any, right: float, *, within: float = 5e-3) -> str:
    """ "" where a number is right, up to this share of it or this much near 0."""
    number = as_number("the answer", _plain(answer))
    if abs(number - right) <= within * max(abs(right), 1e-2):
        return ""
    return f"{number:g} is too {'large' if number > right else 'small'}."


def numbers_near(answer: Any, right: torch.Tensor, *, within: float = 5e-3) -> str:
    """ "" where all numbers are right, in their order."""
    given = torch.as_tensor(answer, dtype=torch.float64)
    if given.shape != right.shape:
        return f"The answer has the shape {list(given.shape)}; it needs {list(right.shape)}."
    off = (given - right).abs()
    if bool((off <= within).all()):
        return ""
    place = [int(i) for i in torch.unravel_index(off.argmax(), off.shape)]
    where = place[0] if len(place) == 1 else place
    return f"The number at place {where} (from 0) is off by {float(off.max()):.3g}."


def matrix(answer: Any, *shape: int) -> torch.Tensor:
    """The answer as a tensor of float64 of this shape."""
    given = torch.as_tensor(answer, dtype=torch.float64)
    if list(given.shape) != list(shape):
        raise UserError(
            f"the answer has the shape {list(given.shape)}; it needs {list(shape)}",
            parameter="answer",
        )
    if not bool(torch.isfinite(given).all()):
        raise UserError("the answer has a number that is not finite", parameter="answer")
    return given


def _plain(answer: Any) -> Any:
    return answer.item() if isinstance(answer, torch.Tensor) and answer.numel() == 1 else answer
