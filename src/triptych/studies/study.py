"""What a study, a unit of work, a claim and a verdict are.

A study gathers rows and knows no threshold. A claim's `judge` is pure and instant and holds every
threshold; `refuted_by` are rows on which it must say FAILS. Figures are pure functions of rows.
This module imports only the standard library and `core`, so that units run on any machine.
"""

import dataclasses
import difflib
import hashlib
import json
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from triptych.core.estimates import Outcome
from triptych.core.randomness import TorchRng
from triptych.studies.figures import Figure

Row = dict[str, Any]  # JSON values only
Rows = Sequence[Mapping[str, Any]]
Made = TypeVar("Made")


class Scale(Enum):
    """smoke: seconds, run by the tests. laptop: minutes on 2 cores. paper: the source's setting."""

    SMOKE = "smoke"
    LAPTOP = "laptop"
    PAPER = "paper"


@dataclass(frozen=True)
class Settings:
    """Base of every study's settings: a frozen dataclass of JSON values. `seeds` is common."""

    seeds: int = 1


SettingsT = TypeVar("SettingsT", bound=Settings)


@dataclass(frozen=True)
class Unit:
    """An independent piece of work: its parameters and its seed name it."""

    parameters: Mapping[str, Any]
    seed: int

    @property
    def key(self) -> str:
        """A stable name: equal parameters and seed give equal keys on every machine."""
        text = json.dumps({"parameters": dict(self.parameters), "seed": self.seed}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return ", ".join([*(f"{k}={v}" for k, v in self.parameters.items()), f"seed={self.seed}"])


def short_labels(units: Sequence[Unit]) -> dict[str, str]:
    """Key -> a label with the seed and the parameters in which the units differ."""
    names = dict.fromkeys(name for unit in units for name in unit.parameters)
    values = {name: {repr(unit.parameters.get(name)) for unit in units} for name in names}
    telling = [name for name in names if len(values[name]) > 1]
    return {
        unit.key: ", ".join(
            [
                *(f"{name} {unit.parameters[name]}" for name in telling if name in unit.parameters),
                f"seed {unit.seed}",
            ]
        )
        for unit in units
    }


@runtime_checkable
class Bench(Protocol):
    """What a running unit is given: where to compute, its randomness, and a cache on disk."""

    @property
    def device(self) -> str: ...

    def rng(self, purpose: str = "") -> TorchRng:
        """A generator that depends on the unit's seed and the purpose alone."""
        ...

    def tensors(
        self, key: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Named tensors made once and kept on disk (safetensors), keyed by all that made them."""
        ...


class Verdict(NamedTuple):
    """outcome, one sentence why, and the numbers behind it (JSON values)."""

    outcome: Outcome
    because: str
    measured: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Claim:
    """An entry of the ledger with its judge.

    id
        As in the ledger; the title, source and published values are there.
    judge
        rows of the study -> Verdict. Rows of failed units are not among them.
    refuted_by
        Sets of rows, on each of which the judge must say FAILS: one for every condition the claim
        makes, broken alone. A claim that nothing could refute says nothing.
    held_by
        Rows on which it must say HOLDS, for a claim that the smallest scale leaves undecided.
    """

    id: str
    judge: Callable[[Rows], Verdict]
    refuted_by: Sequence[Rows]
    held_by: Rows = ()


@dataclass(frozen=True)
class Study:
    """A question, how to gather evidence for it, and what the evidence decides."""

    name: str  # "hmm/exact_gap"
    about: str  # one sentence
    settings: Mapping[Scale, Settings]
    units: Callable[[Any], Sequence[Unit]]  # settings -> independent units
    run: Callable[[Unit, Bench], Iterable[Row]]  # may take hours; knows no threshold
    claims: Sequence[Claim] = ()
    figures: Sequence[Callable[[Rows], Figure]] = ()
    needs: Sequence[str] = field(default=())  # modules beyond the core dependencies


def override(settings: SettingsT, assignments: Mapping[str, str]) -> SettingsT:
    """`settings` with `field=value` texts applied; an unknown field or a wrong type explodes."""
    types = typing.get_type_hints(type(settings))
    changes: dict[str, Any] = {}
    for name, text in assignments.items():
        if name not in types:
            near = difflib.get_close_matches(name, types, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"{type(settings).__name__} has no field {name!r}{hint} "
                f"(fields: {', '.join(sorted(types))})"
            )
        changes[name] = _parsed(name, text, types[name])
    return dataclasses.replace(settings, **changes)


def _parsed(name: str, text: str, wanted: Any) -> Any:
    """`text` as JSON, or as it stands for a string; checked against the field's type."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    origin = typing.get_origin(wanted)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if wanted is str and not isinstance(value, str):
        value = text
    if origin is tuple:
        item = typing.get_args(wanted)[0]
        values = value if isinstance(value, list) else [value]
        if all(_fits(v, item) for v in values):
            return tuple(values)
    elif _fits(value, wanted):
        return value
    raise ValueError(f"{name} = {text!r} is not of type {getattr(wanted, '__name__', wanted)}")


def _fits(value: Any, wanted: Any) -> bool:
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, wanted)
