"""Which studies and settings a command line names."""

import difflib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from triptych.core.errors import UserError
from triptych.core.plugins import Plugin, plugins
from triptych.lab.results.ledger import Entry, load_ledger, own_entries
from triptych.lab.running.discovery import find_studies, load_study
from triptych.lab.running.expected_costs import expected_seconds
from triptych.lab.running.plan import Plan
from triptych.studies.api.study import AnyStudy, Study


class ChosenStudy(NamedTuple):
    """A study; for a user's own its file and the entries of its claims."""

    study: AnyStudy
    file: Path | None = None
    entries: tuple[Entry, ...] = ()


def choose_studies(names: Sequence[str]) -> list[ChosenStudy]:
    """Studies by name, those of plug-ins too, a user's own by file; all of ours by default."""
    known, offered = find_studies(), plugins("studies")
    if not names:
        return [ChosenStudy(study) for study in known.values()]
    chosen = []
    for name in names:
        if name in known:
            chosen.append(ChosenStudy(known[name]))
        elif name in offered:
            chosen.append(_offered_study(offered[name], known))
        elif ".py" in name:
            chosen.append(_own_study(name, known))
        else:
            near = difflib.get_close_matches(name, [*known, *offered], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            names = ", ".join([*known, *offered])
            raise UserError(
                f"there is no study {name!r}{hint} (studies: {names})", parameter="names"
            )
    return chosen


def published_studies(*, beyond: bool = False) -> tuple[list[ChosenStudy], list[str]]:
    """Our studies that decide published results, and names of the others.

    beyond
        The others too; then no names are left.
    """
    studies = find_studies()
    claims = _published_claims(studies.values())
    chosen = [ChosenStudy(study) for study in studies.values() if beyond or claims[study.name]]
    return chosen, sorted(studies.keys() - {each.study.name for each in chosen})


def early_verdicts_first(
    chosen: Sequence[ChosenStudy], plans: Mapping[str, Plan]
) -> list[ChosenStudy]:
    """In the order of what a published claim costs, so that many verdicts fall early.

    Then those that decide none, the cheapest first. What nobody has timed comes last.

    plans
        By the name of the study.
    """
    claims = _published_claims(each.study for each in chosen)

    def cost(each: ChosenStudy) -> tuple[bool, float, float]:
        count, seconds = claims[each.study.name], expected_seconds(plans[each.study.name])
        seconds = math.inf if seconds is None else seconds
        return not count, seconds / max(count, 1), seconds

    return sorted(chosen, key=cost)


def _published_claims(studies: Iterable[AnyStudy]) -> dict[str, int]:
    """How many published results each study decides, by its name."""
    published = {entry.id for entry in load_ledger() if not entry.extension}
    return {study.name: sum(claim.id in published for claim in study.claims) for study in studies}


def _own_study(name: str, known: Mapping[str, AnyStudy]) -> ChosenStudy:
    study, file = load_study(name), Path(name.rpartition(".py")[0] + ".py").resolve()
    if study.name in known:
        raise UserError(
            f"{file.name} calls its study {study.name}, which is a study of Triptych: "
            "give yours another name"
        )
    return ChosenStudy(study, file, tuple(own_entries(study, file)))


def load_offered(plugin: Plugin) -> AnyStudy:
    """The study that an installed package offers, under the name that it offers it by."""
    study = plugin.load()
    if not isinstance(study, Study):
        raise UserError(
            f"the package {plugin.package} offers {plugin.place} as a study, and it is a "
            f"{type(study).__name__}: it must be a Study(...)",
            parameter="plugin",
        )
    if study.name != plugin.name:
        raise UserError(
            f"the package {plugin.package} offers the study {study.name!r} under the name "
            f"{plugin.name!r}: the names must be the same",
            parameter="plugin",
        )
    return study


def _offered_study(plugin: Plugin, known: Mapping[str, AnyStudy]) -> ChosenStudy:
    study = load_offered(plugin)
    if study.name in known:
        raise UserError(
            f"{plugin.package} and Triptych both have a study {study.name}", parameter="plugin"
        )
    file = Path(str(sys.modules[plugin.module].__file__)).resolve()
    return ChosenStudy(study, file, tuple(own_entries(study, file)))


def parse_assignments(assignments: Sequence[str]) -> dict[str, str]:
    """FIELD=VALUE texts as a dictionary."""
    pairs = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        if not sign:
            raise UserError(f"--set {text!r} needs the form FIELD=VALUE")
        pairs[name.strip()] = value.strip()
    return pairs
