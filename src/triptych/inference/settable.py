"""A value whose fields are options: commands, replays, hooks and tests read them.

    @dataclass(frozen=True)
    class Confidence(Settable):
        title = "Most confident first"
        promise = "..."

        steps: int = option(8, "rounds", at_least=1)

`Confidence.options()` says what there is to set, `Confidence.parse(["steps=4"])` reads what a user
wrote, and a value is checked when it is made.
"""

import functools
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any, ClassVar, Literal, TypeVar

from triptych.core.validation import (
    UserError,
    as_flag,
    as_list,
    as_number,
    as_probability,
    as_text,
    set_fields,
    shown,
)
from triptych.inference.guided.options import as_limit, check_choice

SettableT = TypeVar("SettableT", bound="Settable")
Setting = int | float | bool | str | None
_OPTION = "triptych option"
_WORDS: Mapping[type, str] = {int: "a whole number", float: "a number", str: "a word"}
_TRUE, _FALSE, _NONE = ("true", "yes", "1"), ("false", "no", "0"), ("none", "all")


class _Bounds(typing.NamedTuple):
    meaning: str
    at_least: int | float | None
    at_most: int | float | None


def option(
    default: Any,
    meaning: str,
    *,
    at_least: int | float | None = None,
    at_most: int | float | None = None,
) -> Any:
    """A field of an algorithm: a number, a word of some (a Literal type), or True or False.

    meaning    half a sentence for help texts
    """
    return field(default=default, metadata={_OPTION: _Bounds(meaning, at_least, at_most)})


@dataclass(frozen=True)
class Option:
    """What a field made by `option` is: read by commands, and checked when a value is made.

    choices   the words that it takes, where it takes only some
    none      None is one of its values
    """

    name: str
    type: type[int] | type[float] | type[bool] | type[str]
    default: Setting
    meaning: str
    choices: tuple[str, ...] = ()
    at_least: int | float | None = None
    at_most: int | float | None = None
    none: bool = False

    def __repr__(self) -> str:
        return f"Option({self.name}: {self.type.__name__} = {self.default!r})"

    def __post_init__(self) -> None:
        as_text("name", self.name)
        as_text("meaning", self.meaning)
        if not isinstance(self.type, type) or self.type not in (int, float, bool, str):
            raise UserError(
                f"the type of option {self.name} is {shown(self.type)}; it must be int, float, "
                "bool or str",
                parameter="type",
            )
        fits = isinstance(self.choices, tuple) and all(isinstance(c, str) for c in self.choices)
        if not fits or (self.choices and self.type is not str):
            raise UserError(
                f"the choices of option {self.name} are {shown(self.choices)}; they must be a "
                "tuple of words, for an option of type str",
                parameter="choices",
            )
        as_flag("none", self.none)
        for bound in ("at_least", "at_most"):
            if (value := getattr(self, bound)) is not None:
                as_number(bound, value)
        right = (self.none and self.default is None) or type(self.default) is self.type
        if not right or (self.choices and self.default not in self.choices):
            raise UserError(
                f"the default of option {self.name} is {shown(self.default)}; it must be "
                f"{self.wanted}",
                parameter="default",
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
        if self.none and given.lower() in _NONE:
            return None
        if self.type is bool and given.lower() in (*_TRUE, *_FALSE):
            return given.lower() in _TRUE
        if self.type is str and (not self.choices or given in self.choices):
            return given
        if self.type in (int, float):
            try:
                return self.type(given)
            except ValueError:
                pass
        raise UserError(f"{self.name} is {text!r}; it must be {self.wanted}", parameter="name")

    def clean(self, value: Any) -> Setting:
        """The value as a plain number, word or flag, within the bounds."""
        if self.none and value is None:
            return None
        if self.type is bool:
            return as_flag(self.name, value)
        if self.type is int:
            least = 0 if self.at_least is None else int(self.at_least)
            return as_limit(self.name, value, at_least=least)
        if self.type is float:
            if (self.at_least, self.at_most) == (0, 1):
                return as_probability(self.name, value)
            return as_number(self.name, value, at_least=self.at_least, at_most=self.at_most)
        if self.choices:
            check_choice(self.name, value, self.choices)
        return as_text(self.name, value)


@dataclass(frozen=True)
class Settable:
    """Something with options, a title and a promise.

    name      "best_of_n" of a class BestOfN, where it gives itself no other
    title     for headings: "Best of n"
    promise   one sentence: the law of what comes out, or what is guaranteed
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    promise: ClassVar[str] = ""

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    def __post_init__(self) -> None:
        for each in self.options():
            set_fields(self, **{each.name: each.clean(getattr(self, each.name))})

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """The fields made by `option`, in their order."""
        return _options_of(cls)

    def settings(self) -> dict[str, Setting]:
        """The values of all options."""
        return {each.name: getattr(self, each.name) for each in self.options()}

    @classmethod
    def of(cls: type[SettableT], given: Mapping[str, Any]) -> SettableT:
        """The value with these options; a name that is not there is refused."""
        if not isinstance(given, Mapping):
            raise UserError(
                f"given is {shown(given)}; it must be a dict from options to values",
                parameter="given",
            )
        cls._check_names(given)
        return cls(**given)

    @classmethod
    def parse(cls: type[SettableT], changes: Sequence[str]) -> SettableT:
        """The value with the options that a user wrote as quota=4."""
        options = {each.name: each for each in cls.options()}
        found: dict[str, Setting] = {}
        for change in as_list("changes", changes, "changes"):
            name, equals, text = as_text("a change", change).partition("=")
            if not equals:
                raise UserError(f"{change!r} sets no option; it must be OPTION=VALUE, as quota=4")
            name = name.strip().replace("-", "_")
            cls._check_names([name])
            found[name] = options[name].parse(text)
        return cls(**found)

    @classmethod
    def _check_names(cls, names: Any) -> None:
        known = [each.name for each in fields(cls) if each.init]
        for name in names:
            if name not in known:
                takes = ", ".join(each.flag for each in cls.options())
                raise UserError(
                    f"{cls.name} has no --{str(name).replace('_', '-')}; it takes "
                    f"{takes or 'no option of its own'} (given: {', '.join(map(str, names))})",
                    parameter="names",
                )


@functools.cache
def _options_of(cls: type[Settable]) -> tuple[Option, ...]:
    if "__dataclass_fields__" not in vars(cls):
        raise UserError(f"{cls.__name__} is no dataclass; write @dataclass(frozen=True) above it")
    hints, found = typing.get_type_hints(cls), []
    for each in fields(cls):
        bounds = each.metadata.get(_OPTION)
        if isinstance(bounds, _Bounds):
            kind, choices, none = _kind_of(hints[each.name])
            default: Any = each.default
            found.append(
                Option(each.name, kind, default, bounds.meaning, choices, *bounds[1:], none)
            )
    return tuple(found)


def _kind_of(hint: Any) -> tuple[Any, tuple[str, ...], bool]:
    """The type of a field, its words, and whether it may be None."""
    parts = [part for part in typing.get_args(hint) if part is not NoneType]
    if typing.get_origin(hint) is Literal:
        return str, tuple(parts), False
    none = NoneType in typing.get_args(hint)
    return (parts[0], (), True) if none and len(parts) == 1 else (hint, (), False)
