"""What a study, its units, its rows and its claims are.

Everything has a type. Settings, units and rows are frozen dataclasses: `run` yields rows, judges
and figures read them by attribute, and a misspelt column is a type error. JSON exists in the store
and in evidence files only.

A study gathers rows and knows no threshold. A claim's judge is pure and instant and holds every
threshold; `refuted_by` are rows on which it must say FAILS. Figures are pure functions of rows.
This package imports only the standard library and `core`, so that units run on any machine; this
module imports no torch, so that what is kept of a study is read at once.
"""

import dataclasses
import difflib
import functools
import hashlib
import html
import json
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload, runtime_checkable

from triptych.core.errors import UserError
from triptych.core.status import Status
from triptych.studies.api.figures import Figure
from triptych.studies.api.names import check_name
from triptych.studies.api.records import fields_of, from_json, has_nan, to_json
from triptych.studies.api.verdicts import Verdict

if TYPE_CHECKING:
    from triptych.core.randomness import TorchRng

KIND = "kind"  # names a row's class in JSON
_ROWS_SHOWN, _COLUMNS_SHOWN, _KINDS_SHOWN = 8, 10, 3  # in a notebook


class Scale(Enum):
    """smoke: seconds, shows that the code runs. laptop: minutes on 2 cores. paper: as published."""

    SMOKE = "smoke"
    LAPTOP = "laptop"
    PAPER = "paper"


@dataclass(frozen=True)
class Settings:
    """Base of every study's settings: a frozen dataclass of JSON values. `seeds` is common."""

    seeds: int = 1


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Base of every study's units: an independent piece of work, named by its fields.

    @dataclass(frozen=True)
    class Toss(Unit):
        bias: float

    Toss(0.7, seed=1)
    """

    seed: int

    @classmethod
    def of(cls: "type[UnitT]", settings: Settings, **own: Any) -> "UnitT":
        """A unit whose fields are `own`, and for the others those of the settings of that name."""
        given = {
            name: getattr(settings, name)
            for name in fields_of(cls)
            if name not in own and hasattr(settings, name)
        }
        return cls(**given, **own)


SettingsT = TypeVar("SettingsT", bound=Settings)
UnitT = TypeVar("UnitT", bound=Unit)
RowT = TypeVar("RowT")
KindT = TypeVar("KindT")


class Rows(Sequence[RowT], Generic[RowT]):
    """The rows of a study, of all kinds, in order; `of` picks one kind, typed.

    asked
        The kinds that were picked so far: what a judge looked at.
    """

    def __init__(self, rows: Iterable[RowT] = ()) -> None:
        self._rows = tuple(rows)
        self.asked: set[type] = set()

    @functools.cached_property
    def nan_counts(self) -> dict[type, dict[str, int]]:
        """In how many rows of each kind a field has a nan."""
        counts: dict[type, dict[str, int]] = {}
        for row in self._rows:
            own = counts.setdefault(type(row), {})
            for name in nan_fields(row):
                own[name] = own.get(name, 0) + 1
        return counts

    def of(self, kind: type[KindT]) -> list[KindT]:
        self.asked.add(kind)
        return [row for row in self._rows if isinstance(row, kind)]

    def __repr__(self) -> str:
        from triptych.core.display import cut

        kinds = Counter(type(row).__name__ for row in self._rows)
        each = ", ".join(f"{count} {name}" for name, count in kinds.items())
        return f"Rows({cut(each, 100) or 'none'})"

    def _repr_html_(self) -> str:
        """The first rows of every kind."""
        from triptych.core.display import card, counted, records_table

        tables = []
        for kind in dict.fromkeys(type(row) for row in self._rows):
            if not dataclasses.is_dataclass(kind):
                continue
            rows = [row for row in self._rows if isinstance(row, kind)]
            names = list(fields_of(kind))[:_COLUMNS_SHOWN]
            values = [[getattr(row, name) for name in names] for row in rows[:_ROWS_SHOWN]]
            more = len(rows) - len(values)
            note = f"and {counted(more, 'more row')}" if more else ""
            tables.append(f"<div>{html.escape(kind.__name__)}</div>")
            tables[-1] += records_table(names, values, note)
            if len(tables) == _KINDS_SHOWN:
                break
        return card(repr(self), *tables)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[RowT]:
        return iter(self._rows)

    @overload
    def __getitem__(self, index: int) -> RowT: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[RowT]: ...

    def __getitem__(self, index: int | slice) -> RowT | Sequence[RowT]:
        return self._rows[index]


@runtime_checkable
class Bench(Protocol):
    """What a running unit is given: where to compute, its randomness, and a cache on disk."""

    @property
    def device(self) -> str: ...

    def rng(self, purpose: str = "") -> "TorchRng":
        """A generator that depends on the unit's seed and the purpose alone."""
        ...

    def tensors(
        self, key: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Named tensors made once and kept on disk (safetensors), keyed by all that made them."""
        ...


@dataclass(frozen=True)
class Claim(Generic[RowT]):
    """A result and its judge.

    id
        As in the ledger of published results, where its title, source and values are; or a name of
        your own, with a title here or in a `claims.toml` next to the study's file.
    judge
        Rows of the study -> Verdict. Rows of failed units are not among them.
    refuted_by
        Sets of rows, on each of which the judge must say FAILS: one for every check, broken alone,
        and one without any effect. A claim that nothing could refute says nothing.
    held_by
        Rows on which it must say HOLDS.
    title, kind, source, published
        Of a claim of your own; see the ledger for what they mean.
    """

    id: str
    judge: Callable[[Rows[RowT]], Verdict]
    refuted_by: Sequence[Sequence[RowT]]
    held_by: Sequence[RowT] = ()
    title: str = ""
    kind: str = "direction"
    source: str = ""
    published: Mapping[str, Any] | None = None

    def verdict(self, rows: Iterable[RowT]) -> Verdict:
        """What the judge says. It never says HOLDS where a row that it looked at has a nan."""
        looked_at = rows if isinstance(rows, Rows) else Rows(rows)
        looked_at.asked.clear()
        try:
            said = self.judge(looked_at)
        except UserError:  # for instance the mean of values with a nan among them
            spoiled = _with_nan(looked_at)
            if not spoiled:
                raise
            return Verdict(Status.UNDECIDED, missing=tuple(spoiled))
        spoiled = _with_nan(looked_at)
        if said.outcome is Status.HOLDS and spoiled:
            return dataclasses.replace(said, outcome=Status.UNDECIDED, missing=tuple(spoiled))
        return said


def _with_nan(rows: Rows[Any]) -> list[str]:
    """ "numbers instead of nan: Tuned.head in 2 rows", for the kinds that were looked at."""
    return [
        f"numbers instead of nan: {name} in {n} rows"
        for kind, counts in rows.nan_counts.items()
        if kind in rows.asked
        for name, n in counts.items()
    ]


def nan_fields(row: Any) -> list[str]:
    """The fields of a row in which a nan stands, as "Tuned.head"."""
    kind = type(row)
    return [f"{kind.__name__}.{n}" for n in fields_of(kind) if has_nan(getattr(row, n))]


@dataclass(frozen=True)
class Study(Generic[SettingsT, UnitT, RowT]):
    """A question, how to gather evidence for it, and what the evidence decides.

    units
        Settings -> independent units. The same settings always give the same units.
    run
        May take hours; knows no threshold. What it yields depends on the unit alone.
    rows
        The classes of its rows.
    revision
        A part of every unit's name: raise it when the same unit would now give other rows, and rows
        made before count as those of another study.
    needs
        Modules beyond the core dependencies.
    """

    name: str
    question: str
    settings: Mapping[Scale, SettingsT]
    units: Callable[[SettingsT], Sequence[UnitT]]
    run: Callable[[UnitT, Bench], Iterable[RowT]]
    rows: tuple[type[RowT], ...]
    claims: Sequence[Claim[RowT]] = ()
    figures: Sequence[Callable[[Rows[RowT]], Figure]] = ()
    revision: int = 1
    needs: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_name("the name of a study", self.name, folders=True)
        for kind in self.rows:
            if KIND in fields_of(kind):
                raise UserError(
                    f"study {self.name}: rows of {kind.__name__} have a field {KIND!r}, which is "
                    "the name of the class in the store: call it otherwise"
                )
        names = [kind.__name__ for kind in self.rows]
        if len(set(names)) < len(names):
            raise UserError(f"study {self.name} has two kinds of rows with one name: {names}")

    def __repr__(self) -> str:
        from triptych.core.display import counted

        claims, figures = counted(len(self.claims), "claim"), counted(len(self.figures), "figure")
        return f"Study({self.name!r}, {claims}, {figures})"

    def _repr_html_(self) -> str:
        from triptych.core.display import card, facts_table

        facts = {
            "question": self.question,
            "scales": ", ".join(scale.value for scale in self.settings),
            "rows": ", ".join(kind.__name__ for kind in self.rows),
            "claims": ", ".join(claim.id for claim in self.claims) or "none",
            "revision": self.revision,
        }
        return card(f"Study {self.name}", facts_table(facts))

    def parameters(self, unit: UnitT) -> dict[str, Any]:
        """The fields of a unit as JSON, without its seed; the class is one of them."""
        fields = to_json(unit, where=f"unit {type(unit).__name__}")
        return {KIND: type(unit).__name__, **{k: v for k, v in fields.items() if k != "seed"}}

    def key(self, unit: UnitT, revision: int | None = None) -> str:
        """A stable name of a unit: equal fields and revision give equal keys on every machine."""
        revision = self.revision if revision is None else revision
        return unit_key(self.parameters(unit), unit.seed, revision)

    def row_to_json(self, row: RowT, number: int) -> dict[str, Any]:
        """A row as it is stored; what the study does not declare is refused."""
        if type(row) not in self.rows:
            known = ", ".join(kind.__name__ for kind in self.rows)
            raise UserError(
                f"row {number} is a {type(row).__name__}; study {self.name} has rows of: {known}"
            )
        name = type(row).__name__
        return {KIND: name, **to_json(row, where=f"row {number}, {name}")}

    def row_from_json(self, values: Mapping[str, Any]) -> RowT:
        """A stored row; one that fits no declared class is refused."""
        kinds = {kind.__name__: kind for kind in self.rows}
        name = values.get(KIND)
        if name not in kinds:
            raise UserError(f"study {self.name} has no rows of kind {name!r} (any more)")
        return from_json(kinds[name], {k: v for k, v in values.items() if k != KIND})


AnyStudy = Study[Any, Any, Any]


def unit_key(parameters: Mapping[str, Any], seed: int, revision: int) -> str:
    """The name under which the store and evidence files know a unit."""
    parts = {"parameters": dict(parameters), "seed": seed, "revision": revision}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def unit_text(parameters: Mapping[str, Any], seed: int) -> str:
    """A unit with all its fields, as "states=4, seed=1"."""
    named = {name: value for name, value in parameters.items() if name != KIND}
    return ", ".join(f"{name}={value}" for name, value in [*named.items(), ("seed", seed)])


def short_labels(units: Sequence[tuple[Mapping[str, Any], int]]) -> list[str]:
    """For every (parameters, seed) a label: the seed, and the parameters in which they differ."""
    names = dict.fromkeys(name for parameters, _ in units for name in parameters if name != KIND)
    values = {n: {repr(parameters.get(n)) for parameters, _ in units} for n in names}
    telling = [name for name in names if len(values[name]) > 1]
    return [
        ", ".join([*(f"{n} {parameters[n]}" for n in telling if n in parameters), f"seed {seed}"])
        for parameters, seed in units
    ]


def override(settings: SettingsT, assignments: Mapping[str, str]) -> SettingsT:
    """`settings` with `field=value` texts applied; an unknown field or a wrong type explodes."""
    types = fields_of(type(settings))
    changes: dict[str, Any] = {}
    for name, text in assignments.items():
        if name not in types:
            near = difflib.get_close_matches(name, types, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UserError(
                f"{type(settings).__name__} has no field {name!r}{hint} "
                f"(fields: {', '.join(sorted(types))})"
            )
        changes[name] = _parsed(text, types[name])
    try:
        current = to_json(settings)
        return from_json(type(settings), current | changes, where=type(settings).__name__)
    except TypeError as error:
        raise UserError(str(error)) from error


def _parsed(text: str, wanted: Any) -> Any:
    """`text` as JSON, or as it stands for a string; a tuple may be values with commas between.

    Worked values for a tuple: 4 is [4]; 4, 10 and [4, 10] are the same; a,b is ["a", "b"]; nothing is [].
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    if wanted is str and not isinstance(value, str):
        return text
    if typing.get_origin(wanted) is tuple and not isinstance(value, list):
        if not isinstance(value, str):
            return [value]
        return [_parsed(part.strip(), None) for part in value.split(",")] if value else []
    return value
