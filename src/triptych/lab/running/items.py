"""What goes to a worker and what comes back: a unit as plain data, that it began, how it ended."""

from typing import Any, NamedTuple


class WorkItem(NamedTuple):
    """A unit to run, as plain data: a worker plans the study's units once, and looks up the key."""

    source: str
    key: str
    settings: str
    scale: str
    seed: int
    device: str
    cache: str


class Started(NamedTuple):
    """A unit began to run."""

    key: str


class Ended(NamedTuple):
    """How a unit ended: with rows, or with an error.

    nan
        The fields of its rows in which a nan stands, as "Tuned.head".
    core_seconds
        What it cost in processor time; 0 where nobody could measure it.
    device
        Where it computed; None where it did not say.
    """

    key: str
    rows: list[dict[str, Any]] | None
    error: str | None
    seconds: float
    nan: tuple[str, ...] = ()
    core_seconds: float = 0.0
    device: str | None = None


UnitEvent = Started | Ended
