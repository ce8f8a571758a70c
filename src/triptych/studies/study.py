"""Studies whose rows are dictionaries: the form that typed rows replace, study by study."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triptych.studies.api import study as api
from triptych.studies.api.decide import Verdict
from triptych.studies.api.figures import Figure
from triptych.studies.api.study import Bench, Claim, Scale, Settings, override

__all__ = [
    "Bench",
    "Claim",
    "Row",
    "Rows",
    "Scale",
    "Settings",
    "Study",
    "Unit",
    "Verdict",
    "override",
]

Row = dict[str, Any]  # JSON values only
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Unit:
    """An independent piece of work: its parameters and its seed name it."""

    parameters: Mapping[str, Any]
    seed: int

    @property
    def key(self) -> str:
        text = json.dumps({"parameters": dict(self.parameters), "seed": self.seed}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Study(api.Study[Any, Any, Any]):
    """A study with rows that are dictionaries."""

    def __init__(
        self,
        name: str,
        about: str,
        settings: Mapping[Scale, Any],
        units: Callable[[Any], Sequence[Any]],
        run: Callable[[Any, Bench], Iterable[Row]],
        claims: Sequence[Any] = (),
        figures: Sequence[Callable[[Any], Figure]] = (),
        needs: Sequence[str] = (),
    ) -> None:
        super().__init__(name, about, settings, units, run, (), claims, figures, 1, needs)

    def parameters(self, unit: Any) -> dict[str, Any]:
        return dict(unit.parameters)

    def key(self, unit: Any, revision: int | None = None) -> str:
        return unit.key

    def row_to_json(self, row: Any, number: int) -> dict[str, Any]:
        if not isinstance(row, dict):
            raise TypeError(f"row {number} is a {type(row).__name__}: a study yields dictionaries")
        return row

    def row_from_json(self, values: Mapping[str, Any]) -> Any:
        return dict(values)
