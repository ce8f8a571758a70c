"""What an algorithm says about itself: one record, read by commands, replays, studies and tests.

A file of an algorithm has a function `sample` and a record of it:

    ALGORITHM = Algorithm(
        "rejection",
        "Rejection sampling",
        sample,
        options=(Option("attempts", int, 100, "strings drawn for a row at most"),),
        promise="an accepted string has the law p(x | accepted), exactly",
    )

`algorithms()` finds the records of this package. A new algorithm is a new file here.
"""

import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from triptych.core.validation import UserError, as_flag, as_list, as_text, check_callable, shown

Setting = int | float | bool | str

SHARED = (
    "decoder",
    "verifier",
    "length",
    "end_token",
    "transform",
    "record",
    "budget",
    "rng",
)
"""Parameters that `sample` has in every algorithm; the others are options of its own."""

_WORDS: Mapping[type, str] = {int: "a whole number", float: "a number", str: "a word"}
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")


@dataclass(frozen=True)
class Option:
    """A parameter of `sample` that is a number, a word, or True or False.

    default   its value in a demonstration, which may differ from the default of `sample`
    meaning   half a sentence for help texts
    choices   the words that it takes, where it takes only some
    """

    name: str
    type: type[int] | type[float] | type[bool] | type[str]
    default: Setting
    meaning: str
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        as_text("name", self.name)
        as_text("meaning", self.meaning)
        if not isinstance(self.type, type) or self.type not in (int, float, bool, str):
            raise UserError(
                f"the type of option {self.name} is {shown(self.type)}; it must be int, float, "
                "bool or str"
            )
        fits = isinstance(self.choices, tuple) and all(isinstance(c, str) for c in self.choices)
        if not fits or (self.choices and self.type is not str):
            raise UserError(
                f"the choices of option {self.name} are {shown(self.choices)}; they must be a "
                "tuple of words, for an option of type str"
            )
        if type(self.default) is not self.type or (
            self.choices and self.default not in self.choices
        ):
            raise UserError(
                f"the default of option {self.name} is {shown(self.default)}; it must be "
                f"{self.wanted}"
            )

    @property
    def flag(self) -> str:
        """How it is written on a command line: --into-prompt."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def wanted(self) -> str:
        """What it must be, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        return _WORDS.get(self.type, "True or False")

    def parse(self, text: str) -> Setting:
        """The value that a user wrote, of this option's type."""
        given = as_text(f"the text of {self.name}", text).strip()
        if self.type is bool and given.lower() in (*_TRUE, *_FALSE):
            return given.lower() in _TRUE
        if self.type is str and (not self.choices or given in self.choices):
            return given
        if self.type in (int, float):
            try:
                return self.type(given)
            except ValueError:
                pass
        raise UserError(f"{self.name} is {text!r}; it must be {self.wanted}")


@dataclass(frozen=True)
class Algorithm:
    """A guided algorithm.

    name      of its module: "best_of_n"
    title     for headings: "Best of n"
    sample    sample(decoder, verifier, *, length, ..., rng) -> Result
    options   the parameters of `sample` that only this algorithm has
    soft      it uses values V between 0 and 1; the others need a yes or a no
    promise   one sentence: the law of what comes out, or what is guaranteed
    """

    name: str
    title: str
    sample: Callable[..., Any]
    options: tuple[Option, ...] = ()
    soft: bool = False
    promise: str = ""

    def __post_init__(self) -> None:
        for field in ("name", "title", "promise"):
            as_text(field, getattr(self, field))
        as_flag("soft", self.soft)
        check_callable("sample", self.sample, "sample(decoder, verifier, *, length, ..., rng)")
        if not isinstance(self.options, tuple) or not all(
            isinstance(option, Option) for option in self.options
        ):
            raise UserError(f"the options of {self.name} are no tuple of Option(...)")
        known = inspect.signature(self.sample).parameters
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
        for option in self.options:
            if option.name not in known and not takes_any:
                raise UserError(
                    f"{self.name} has an option {option.name}, and its `sample` has no parameter "
                    "of that name"
                )

    def __repr__(self) -> str:
        names = ", ".join(option.name for option in self.options)
        return f"Algorithm({self.name}: {names or 'no options of its own'})"

    def settings(self, given: Mapping[str, Setting] | None = None) -> dict[str, Setting]:
        """All options with their values: those that are given, and else the demonstration's."""
        if given is not None and not isinstance(given, Mapping):
            raise UserError(f"given is {shown(given)}; it must be a dict from options to values")
        found = {option.name: option.default for option in self.options}
        for name, value in (given or {}).items():
            if name not in found:
                takes = ", ".join(option.flag for option in self.options)
                raise UserError(
                    f"{self.name} has no --{str(name).replace('_', '-')}; it takes "
                    f"{takes or 'no option of its own'} (given: {', '.join(map(str, given or ()))})"
                )
            found[name] = value
        return found

    def parse(self, changes: Sequence[str]) -> dict[str, Setting]:
        """The options that a user wrote as quota=4, with values of their types."""
        options = {option.name: option for option in self.options}
        found: dict[str, Setting] = {}
        for change in as_list("changes", changes, "changes"):
            name, equals, text = as_text("a change", change).partition("=")
            if not equals:
                raise UserError(f"{change!r} sets no option; it must be OPTION=VALUE, as quota=4")
            name = name.strip().replace("-", "_")
            self.settings({name: text})  # refuses a name that is not there
            found[name] = options[name].parse(text)
        return found


def algorithms() -> dict[str, Algorithm]:
    """The record of every algorithm of this package, by name."""
    package = import_module(__package__ or "triptych.inference.guided")
    found: dict[str, Algorithm] = {}
    for module in pkgutil.iter_modules(package.__path__):
        record = getattr(import_module(f"{package.__name__}.{module.name}"), "ALGORITHM", None)
        if isinstance(record, Algorithm):
            found[record.name] = record
    return found
