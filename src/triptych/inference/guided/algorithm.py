"""A guided algorithm as a value: a frozen dataclass of its options, with `run`.

    @dataclass(frozen=True)
    class Rejection(Algorithm[Info]):
        title = "Rejection sampling"
        promise = "an accepted string has the law p(x | accepted), exactly"

        attempts: int = option(100, "strings drawn for a row at most", at_least=1)

        def run(self, run: Generation) -> Info: ...

`algorithms()` finds the classes of this package, and those that installed packages name in the
entry point group `triptych.algorithms`. Commands, replays, hooks and tests read the fields. A new
algorithm is a new file here, or one of your own.
"""

import functools
import inspect
import pkgutil
import re
import typing
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType, NoneType
from typing import Any, ClassVar, Generic, Literal, NotRequired, TypedDict, TypeVar

from triptych.core.display import name_of
from triptych.core.protocols import Decoder, Draws, Ends, OfModel, VerifierLike
from triptych.core.randomness import RngLike
from triptych.core.validation import (
    EndTokens,
    UserError,
    as_flag,
    as_list,
    as_number,
    as_probability,
    as_text,
    set_fields,
    shown,
)
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import Lengths, as_limit, check_choice
from triptych.inference.guided.result import Event, InfoT, Result
from triptych.inference.guided.transforms import Transform

AlgorithmT = TypeVar("AlgorithmT", bound="Algorithm[Any]")
Needs = Literal["draws", "log_probs", "top_laws", "laws"]
"""What an algorithm asks a model for: `laws` are whole laws of the next token, the others are what
a model that answers draws may give (`core.protocols.Gives`)."""
_NEEDED: Mapping[str, str] = {
    "draws": "draws",
    "log_probs": "the log-probabilities of what is drawn",
    "top_laws": "the likeliest tokens of a law with their log-probabilities",
    "laws": "whole laws of the next token",
}
Setting = int | float | bool | str | None
GROUP = "triptych.algorithms"
"""Of entry points, by which an installed package brings algorithms."""
_OPTION = "triptych option"
_WORDS: Mapping[type, str] = {int: "a whole number", float: "a number", str: "a word"}
_TRUE, _FALSE, _NONE = ("true", "yes", "1"), ("false", "no", "0"), ("none", "all")


class Shared(TypedDict):
    """What `sample` takes in every algorithm."""

    length: Lengths
    rng: RngLike
    end_token: NotRequired[EndTokens | None]
    transform: NotRequired[Transform | None]
    record: NotRequired[bool]
    budget: NotRequired[Budget | None]
    ends: NotRequired[Ends | None]
    listen: NotRequired[Callable[[Event], None] | None]


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
class Algorithm(Generic[InfoT]):
    """A guided algorithm with its options.

    name         "best_of_n" of a class BestOfN, where it gives itself no other
    title        for headings: "Best of n"
    promise      one sentence: the law of what comes out, or what is guaranteed
    soft         it uses values V between 0 and 1; the others need a yes or a no
    probability  the verifier must answer probabilities, log V ≤ 0
    needs_verifier   it makes no sense without one
    needs        what it asks a model for; a model in this process gives everything
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    promise: ClassVar[str] = ""
    soft: ClassVar[bool] = False
    probability: ClassVar[bool] = True
    needs_verifier: ClassVar[bool] = True
    needs: ClassVar[Needs] = "laws"

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    def __post_init__(self) -> None:
        for each in self.options():
            set_fields(self, **{each.name: each.clean(getattr(self, each.name))})

    @abstractmethod
    def run(self, run: Generation) -> InfoT:
        """Complete the rows of a generation, and say what there is to say besides."""
        raise NotImplementedError

    @property
    def smallest(self) -> float | None:
        """log V from which a finished row is accepted; None accepts every V > 0."""
        return None

    def sample(
        self,
        decoder: Decoder | Draws,
        verifier: VerifierLike | None = None,
        *,
        length: Lengths,
        end_token: EndTokens | None = None,
        transform: Transform | None = None,
        record: bool = False,
        budget: Budget | None = None,
        ends: Ends | None = None,
        listen: Callable[[Event], None] | None = None,
        rng: RngLike,
    ) -> Result[InfoT]:
        """Complete every row of the decoder.

        length      tokens of a full row, prompt included; or a number for each row
        end_token   a row that draws it, or one of them, is finished
        transform   of the model's laws; None leaves them
        record      keep a trace of all that happens
        budget      what a row may cost; None is no limit
        ends        what says which rows are over, as stop strings do
        listen      is told every event as it happens
        rng         a seed, or where the draws come from
        """
        run = Generation(
            decoder,
            verifier,
            rng,
            length,
            end_token,
            transform,
            record,
            probability=self.probability,
            smallest=self.smallest,
            budget=budget,
            ends=ends,
            listen=listen,
        )
        if run.draws:
            self._check_gives(run.drawing())
            run.weigh = self.needs == "log_probs"
        return run.result(self.run(run))

    def _check_gives(self, draws: Draws) -> None:
        """A model that answers draws gives what this algorithm asks for; a `UserError` if not."""
        if self.needs in draws.gives:
            return
        lm = draws.lm if isinstance(draws, OfModel) else draws
        others = [name for name, each in algorithms().items() if each.needs in draws.gives]
        raise UserError(
            f"{self.name} needs {_NEEDED[self.needs]}; {name_of(lm)}, as it is asked here, gives "
            f"{' and '.join(_NEEDED[each] for each in sorted(draws.gives))} alone, with which "
            f"{', '.join(others)} run",
            parameter="decoder",
        )

    def of_text(self: AlgorithmT, decode: Callable[[Sequence[int]], str]) -> AlgorithmT:
        """The same where tokens are text: an algorithm that reads completions overrides it."""
        return self

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """The fields made by `option`, in their order."""
        return _options_of(cls)

    def settings(self) -> dict[str, Setting]:
        """The values of all options."""
        return {each.name: getattr(self, each.name) for each in self.options()}

    @classmethod
    def of(cls: type[AlgorithmT], given: Mapping[str, Any]) -> AlgorithmT:
        """The algorithm with these options; a name that is not there is refused."""
        if not isinstance(given, Mapping):
            raise UserError(
                f"given is {shown(given)}; it must be a dict from options to values",
                parameter="given",
            )
        cls._check_names(given)
        return cls(**given)

    @classmethod
    def parse(cls: type[AlgorithmT], changes: Sequence[str]) -> AlgorithmT:
        """The algorithm with the options that a user wrote as quota=4."""
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
def _options_of(cls: type[Algorithm[Any]]) -> tuple[Option, ...]:
    if "__dataclass_fields__" not in vars(cls):
        raise UserError(
            f"the algorithm {cls.__name__} is no dataclass; write @dataclass(frozen=True) above it"
        )
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


AnyAlgorithm = Algorithm[Any]


def algorithm_of(module: ModuleType) -> type[AnyAlgorithm] | None:
    """The algorithm that a module defines, if it does."""
    found = [
        each
        for each in vars(module).values()
        if inspect.isclass(each)
        and issubclass(each, Algorithm)
        and each.__module__ == module.__name__
        and each is not Algorithm
    ]
    if len(found) > 1:
        names = " and ".join(each.__name__ for each in found)
        raise UserError(
            f"{module.__name__} has the algorithms {names}; a file has one", parameter="module"
        )
    return found[0] if found else None


@functools.cache
def algorithms() -> dict[str, type[AnyAlgorithm]]:
    """Every algorithm by its name: those of this package, then those of installed packages.

    One that cannot be loaded, or has a name that is taken, is left out with a warning.
    """
    package = import_module(__package__ or "triptych.inference.guided")
    found: dict[str, type[AnyAlgorithm]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        own = algorithm_of(import_module(f"{package.__name__}.{module.name}"))
        if own is not None:
            found[own.name] = own
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            loaded = entry.load()
            if not (inspect.isclass(loaded) and issubclass(loaded, Algorithm)):
                raise UserError("it is no class of Algorithm")
            loaded.options()
        except Exception as error:
            _leave_out(entry.value, f"it cannot be loaded: {type(error).__name__}: {error}")
            continue
        if loaded.name in found:
            _leave_out(entry.value, f"there is an algorithm {loaded.name} already")
        else:
            found[loaded.name] = loaded
    return found


def _leave_out(value: str, why: str) -> None:
    warnings.warn(f"the algorithm {value} of an installed package: {why}", stacklevel=3)
