"""What the servers' protocols have in common: what is asked, what is answered, what a server says
it is.

A dialect is one file. It turns a `Wanted` into the body of a request and an answer into a `Said`,
and asks the server what it serves. Everything between, as faults, rows and laws, is the same for
all of them.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from triptych.core.validation import UserError
from triptych.models.served.connection import Connection, Json


@dataclass(frozen=True)
class Changed:
    """How a server is to change its model's laws; these are the model's own."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


OWN = Changed()


@dataclass(frozen=True)
class Wanted:
    """Tokens that are asked for after one prefix.

    prefix    the ids that stand there, BOS included
    count     tokens at most
    seed      of the server's draws
    top       how many of the likeliest tokens of each law are wanted
    banned    tokens that must not be drawn
    weigh     the log-probabilities of the drawn tokens are wanted
    """

    prefix: tuple[int, ...]
    count: int
    seed: int = 0
    changed: Changed = OWN
    top: int = 0
    banned: frozenset[int] = frozenset()
    weigh: bool = True


@dataclass(frozen=True)
class Said:
    """An answer: tokens in order, with the model's own log-probability of each if it was wanted,
    nan where the server left it out.

    tops      the likeliest tokens of each law, with their log-probabilities
    model     the name of the model that answered, where the server says it
    ended     the server stopped by a token that ends texts, and not because it had enough
    """

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    tops: tuple[tuple[tuple[int, float], ...], ...] = ()
    model: str | None = None
    ended: bool = False


@dataclass(frozen=True)
class Facts:
    """What a server says it serves.

    dialect, version   of the server's program
    model              the name by which it is asked
    length             tokens of prompt and answer together
    vocab_size         None where the server does not say it
    most_top           the most of `Wanted.top`
    details            whatever else tells this model from another
    """

    dialect: str
    version: str
    model: str
    length: int
    vocab_size: int | None = None
    most_top: int = 0
    details: Json = field(default_factory=dict)


class Unreadable(Exception):
    """An answer is not what the protocol promises; the sentence says how."""


class NoTop(Unreadable):
    """An answer drew a token for which the server states no law; another one may have it."""

    def __init__(self, token: int) -> None:
        super().__init__(f"no law is stated next to the token {token}")
        self.token = token


@runtime_checkable
class Dialect(Protocol):
    """One protocol.

    path   where tokens are asked for
    """

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def speaks(self, server: Connection) -> bool:
        """Whether the server answers as one of this protocol."""
        ...

    def facts(self, server: Connection, model: str | None) -> Facts:
        """What it serves; of several models that of this name."""
        ...

    def body(self, facts: Facts, wanted: Wanted) -> Json:
        """The request for some tokens, in which everything that changes the law is neutral."""
        ...

    def read(self, answer: Any, wanted: Wanted) -> Said:
        """The answer, or `Unreadable`."""
        ...

    def tokens_of(self, server: Connection, facts: Facts, text: str) -> list[int] | None:
        """A text as the server's tokens; None where it does not say."""
        ...


def chosen_model(names: list[str], model: str | None, url: str) -> str:
    """The model that is asked for, among those that a server has."""
    if not names:
        raise UserError(f"the server {url} names no model", parameter="model")
    if model is None and len(names) == 1:
        return names[0]
    if model is None:
        raise UserError(
            f"the server {url} has several models; pass model, one of {', '.join(names)}",
            parameter="model",
        )
    if model not in names:
        raise UserError(
            f"the server {url} has no model {model!r}; it has {', '.join(names)}",
            parameter="model",
        )
    return model


def part(answer: Any, *names: str | int) -> Any:
    """What an answer holds under some names, one in the other; `Unreadable` where it is not."""
    here, way = answer, []
    for name in names:
        way.append(str(name))
        try:
            here = here[name]
        except (KeyError, IndexError, TypeError):
            raise Unreadable(f"the answer has no {'.'.join(way)}") from None
    return here


def as_numbers(values: Any, what: str) -> tuple[float, ...]:
    """A list of numbers as floats."""
    fits = isinstance(values, list) and all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in values
    )
    if not fits:
        raise Unreadable(f"{what} are not numbers")
    return tuple(float(each) for each in values)


def as_ids(values: Any, what: str) -> tuple[int, ...]:
    """A list of token ids."""
    fits = isinstance(values, list) and all(type(each) is int and each >= 0 for each in values)
    if not fits:
        raise Unreadable(f"{what} are not token ids")
    return tuple(values)
