"""What a run of a study consists of: its units with their names, planned once and handed on."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from triptych.core.errors import UserError
from triptych.studies.api.study import (
    AnyStudy,
    Scale,
    Settings,
    Unit,
    override,
    unit_key,
    unit_text,
)


class PlannedUnit(NamedTuple):
    """A unit as data: its name, its fields without the seed, its seed."""

    key: str
    parameters: dict[str, Any]
    seed: int

    def __str__(self) -> str:
        return unit_text(self.parameters, self.seed)


class Plan(NamedTuple):
    """A study at one scale with its settings, and the units that these ask for.

    units
        As data, in the order of the study.
    by_key
        The same units as the study made them, by name.
    """

    study: AnyStudy
    scale: Scale
    settings: Settings
    units: tuple[PlannedUnit, ...]
    by_key: Mapping[str, Unit]

    @classmethod
    def of(
        cls,
        study: AnyStudy,
        scale: Scale,
        overrides: Mapping[str, str] = {},
        seeds: int | None = None,
    ) -> "Plan":
        """The plan of a study at a scale, with changes of its settings."""
        if scale not in study.settings:
            known = ", ".join(known.value for known in study.settings)
            raise UserError(
                f"study {study.name} has no scale {scale.value} (it has: {known})",
                parameter="study",
            )
        settings = override(study.settings[scale], overrides)
        if seeds is not None:
            settings = dataclasses.replace(settings, seeds=seeds)
        if settings.seeds < 1:
            raise UserError(
                f"seeds = {settings.seeds}: a study needs at least 1", parameter="seeds"
            )
        return cls.under(study, scale, settings)

    @classmethod
    def under(cls, study: AnyStudy, scale: Scale, settings: Settings) -> "Plan":
        """The plan of a study under these settings."""
        made = study.units(settings)
        parameters = [study.parameters(unit) for unit in made]
        units = tuple(
            PlannedUnit(unit_key(fields, unit.seed, study.revision), fields, unit.seed)
            for unit, fields in zip(made, parameters, strict=True)
        )
        by_key = {unit.key: own for unit, own in zip(units, made, strict=True)}
        return cls(study, scale, settings, units, by_key)

    def keys(self, revision: int) -> list[str]:
        """The names that these units have in a revision of the study."""
        if revision == self.study.revision:
            return [unit.key for unit in self.units]
        return [unit_key(unit.parameters, unit.seed, revision) for unit in self.units]
