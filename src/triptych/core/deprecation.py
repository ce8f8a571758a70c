"""Names that were renamed: an old one works until the next minor version, and warns.

    @renamed(vocab="vocab_size")             parameters of a function
    @renamed_fields(model="lm")              fields of a dataclass, which are parameters too
    posterior = Renamed("log_posterior")     an attribute or a method, in the body of a class
    __getattr__ = renamed_names(__name__, Law="ExactLaw")     what a module defines

The `DeprecationWarning` has the new name and points at the line that uses the old one. `RENAMED`
lists the renamed parameters of each function, so that a test can compare them with documents.
"""

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, no_type_check

from triptych.core.errors import UserError

P = ParamSpec("P")
T = TypeVar("T")
ClassT = TypeVar("ClassT", bound=type)
RENAMED: dict[str, dict[str, str]] = {}
"""Function with its module -> {old name of a parameter: new name}."""


def renamed(**names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator that takes parameters under their old names too: `renamed(old="new")`.

    >>> @renamed(vocab="vocab_size")
    ... def half(vocab_size):
    ...     return vocab_size // 2
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     half(vocab=8)
    4
    >>> str(caught[0].message)
    'half(vocab=…) is called half(vocab_size=…) now; the old name goes in the next minor version'
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        """The function, under both names of its parameters."""
        RENAMED[f"{function.__module__}.{function.__qualname__}"] = names
        called = function.__qualname__.rpartition("<locals>.")[2].removesuffix(".__init__")

        @no_type_check  # a check of shapes would add a frame, and the warning its line
        @functools.wraps(function)
        def under_both(*args, **kwargs):
            for old, new in names.items():
                if old not in kwargs:
                    continue
                if new in kwargs:
                    raise UserError(
                        f"{called} got {new} and its old name, {old}; give {new} alone",
                        parameter=new,
                    )
                warnings.warn(
                    _sentence(f"{called}({old}=…)", f"{called}({new}=…)"),
                    DeprecationWarning,
                    stacklevel=2,
                )
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return under_both

    return decorate


def renamed_fields(**names: str) -> Callable[[ClassT], ClassT]:
    """A decorator above `@dataclass` that knows fields by their old names too."""

    def decorate(cls: ClassT) -> ClassT:
        """The class, with its fields under both names."""
        cls.__init__ = renamed(**names)(cls.__init__)
        for old, new in names.items():
            attribute = Renamed(new)
            setattr(cls, old, attribute)
            attribute.__set_name__(cls, old)
        return cls

    return decorate


@no_type_check
class Renamed:
    """The old name of an attribute or method; a class that is only looked at does not warn."""

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.old, self.owner = name, owner

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        warnings.warn(self._sentence(), DeprecationWarning, stacklevel=2)
        return getattr(instance, self.new)

    def __call__(self, instance: Any, *args: Any, **kwargs: Any) -> Any:
        """`HMM.posterior(hmm, tokens)`."""
        warnings.warn(self._sentence(), DeprecationWarning, stacklevel=2)
        return getattr(instance, self.new)(*args, **kwargs)

    def _sentence(self) -> str:
        name = self.owner.__name__
        return _sentence(f"{name}.{self.old}", f"{name}.{self.new}")


def renamed_names(module: str, **names: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose names were renamed: `renamed_names(__name__, Old="New")`.

    `from module import Old` warns too.
    """

    @no_type_check
    def looked_up(name):
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(
            _sentence(f"{module}.{name}", f"{module}.{names[name]}"),
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(sys.modules[module], names[name])

    return looked_up


def _sentence(old: str, new: str) -> str:
    return f"{old} is called {new} now; the old name goes in the next minor version"
