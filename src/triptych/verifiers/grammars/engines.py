"""Engines by name and version, and what one must answer about a text that grows token by token."""

import importlib.metadata
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np
from jaxtyping import Bool

from triptych.core.validation import UserError, shown

Engine = Literal["llguidance", "xgrammar", "triptych"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


@runtime_checkable
class Matcher(Protocol):
    """Where a grammar stands after some tokens; it never changes, `after` gives another one."""

    def mask(self) -> Bool[np.ndarray, " vocab"]:
        """Tokens after which the text can still become right; end tokens are not among them."""
        ...

    def allows(self, token: int) -> bool:
        """What `mask` says of one token."""
        ...

    def after(self, token: int) -> "Matcher":
        """Where the grammar stands after one more token, which `allows` allowed."""
        ...

    def accepts(self) -> bool:
        """The text is right as it stands."""
        ...


class Compiled(NamedTuple):
    """A grammar that an engine has read: where it stands before the first token, and what the
    engine said to it."""

    start: Matcher
    warnings: tuple[str, ...] = ()


def as_engine(engine: Any) -> Engine:
    """One of the engines."""
    if isinstance(engine, str) and engine in ENGINES:
        return engine
    raise UserError(
        f"engine is {shown(engine)}; it must be one of {', '.join(ENGINES)}", parameter="engine"
    )


def engine_version(engine: Engine) -> str | None:
    """The version of an engine that is installed, or None."""
    name = as_engine(engine)
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if name != "triptych":
            return None
        from triptych import __version__

        return __version__


def not_installed(engine: Engine) -> UserError:
    """What is said where an engine is asked for and not there."""
    return UserError(
        f"the engine {engine} is not installed: pip install 'triptych[grammars]', or take another "
        f"one of {', '.join(ENGINES)}",
        parameter="engine",
    )
