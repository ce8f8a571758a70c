"""What a hands-on page may ask: named values, each checked by the page's own answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from triptych.core.validation import UserError, shown

Question = Mapping[str, Any]


def check_names(question: Question, names: Sequence[str]) -> None:
    """The question has exactly these names."""
    if not isinstance(question, Mapping):
        raise UserError(
            f"the question is {shown(question)}; it must be an object with names",
            parameter="question",
        )
    for name in question:
        if name not in names:
            raise UserError(
                f"the question has {name!r}; it may have {', '.join(names)}", parameter="question"
            )
    for name in names:
        if name not in question:
            raise UserError(
                f"the question lacks {name!r}; it needs {', '.join(names)}", parameter="question"
            )


def as_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in choices:
        raise UserError(
            f"{name} is {shown(value)}; it must be one of {', '.join(choices)}", parameter=name
        )
    return value
