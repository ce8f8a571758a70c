"""What other installed packages bring to Triptych: their entry points.

A package says in its pyproject.toml what it offers, by group and name:

    [project.entry-points."triptych.structures"]
    rain = "weather.rain"              a module with examples()

    [project.entry-points."triptych.algorithms"]
    umbrella = "weather.umbrella:ALGORITHM"

    [project.entry-points."triptych.verifiers"]
    dry = "weather.dry:dry"            a function of a text: True, False or a probability

    [project.entry-points."triptych.studies"]
    forecast = "weather.forecast:STUDY"

Nothing of the package is imported before it is asked for by name, or listed.
"""

import importlib
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from triptych.core.errors import UserError

GROUPS = ("structures", "algorithms", "verifiers", "studies")


class Plugin(NamedTuple):
    """Something that an installed package offers.

    module      "weather.forecast"
    attribute   a name in it, "STUDY"; "" is the module itself
    package     of whom, with its version: "weather 1.0"
    rivals      packages that offer something else by this name
    """

    group: str
    name: str
    module: str
    attribute: str
    package: str
    rivals: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Where it is, as the package wrote it: "weather.forecast:STUDY"."""
        return f"{self.module}:{self.attribute}" if self.attribute else self.module

    def load(self) -> Any:
        """The module or what it calls by this name; a package that fails is a `UserError`."""
        if self.rivals:
            raise UserError(
                f"the packages {', '.join([self.package, *self.rivals])} all offer {self.name} "
                f"among their {self.group}: leave one of them installed"
            )
        try:
            found: Any = importlib.import_module(self.module)
            for name in filter(None, self.attribute.split(".")):
                found = getattr(found, name)
        except Exception as error:  # the code of a stranger may raise anything
            raise UserError(
                f"the package {self.package} offers {self.name} among its {self.group}, and "
                f"{self.place} cannot be loaded: {type(error).__name__}: {error}",
                parameter="package",
            ) from error
        return found


def plugins(group: str) -> dict[str, Plugin]:
    """What installed packages offer in a group, by name and in the order of the names.

    Where two packages use one name, each is the other's rival, and it cannot be loaded.
    """
    if not isinstance(group, str) or group not in GROUPS:
        raise UserError(
            f"group is {str(group)[:80]!r}; it must be one of {', '.join(GROUPS)}",
            parameter="group",
        )
    found: dict[str, Plugin] = {}
    for point in entry_points(group=f"triptych.{group}"):
        offered = _plugin(group, point)
        first = found.setdefault(offered.name, offered)
        if first._replace(rivals=()) != offered:
            found[offered.name] = first._replace(rivals=(*first.rivals, offered.package))
    return dict(sorted(found.items()))


def _plugin(group: str, point: EntryPoint) -> Plugin:
    owner = point.dist
    package = f"{owner.name} {owner.version}" if owner else "without a name"
    module, _, attribute = point.value.partition("[")[0].partition(":")
    return Plugin(group, point.name, module.strip(), attribute.strip(), package)
