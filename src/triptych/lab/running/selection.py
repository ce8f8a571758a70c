"""Which studies and settings a command line names."""

import difflib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from triptych.core.validation import UserError
from triptych.lab.results.ledger import Entry, load_ledger, own_entries
from triptych.lab.running.discovery import find_studies, load_study
from triptych.lab.running.expected_costs import cheapest_first, expected_seconds
from triptych.studies.api.study import AnyStudy, Scale


class Chosen(NamedTuple):
    """A study; for a user's own its file and the entries of its claims."""

    study: AnyStudy
    file: Path | None = None
    entries: tuple[Entry, ...] = ()


def choose_studies(names: Sequence[str]) -> list[Chosen]:
    """Studies by name, a user's own by file; all of ours when none is named."""
    known = find_studies()
    if not names:
        return [Chosen(study) for study in known.values()]
    chosen = []
    for name in names:
        if name in known:
            chosen.append(Chosen(known[name]))
        elif ".py" in name:
            chosen.append(_own_study(name, known))
        else:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UserError(f"there is no study {name!r}{hint} (studies: {', '.join(known)})")
    return chosen


def published_studies(scale: Scale, *, beyond: bool = False) -> tuple[list[Chosen], list[str]]:
    """Our studies that decide published results, and names of the others.

    Those that cost least for each claim come first, so that many verdicts fall early.

    beyond
        The others too, after them; then no names are left.
    """
    ledger = {entry.id for entry in load_ledger() if not entry.extension}
    studies = cheapest_first(list(find_studies().values()), scale)
    claims = {s.name: sum(claim.id in ledger for claim in s.claims) for s in studies}
    deciding = [study for study in studies if claims[study.name]]

    def cost_of_a_claim(study: AnyStudy) -> float:
        units = len(study.units(study.settings[scale])) if scale in study.settings else 0
        seconds = expected_seconds(study, scale, units)
        return math.inf if seconds is None else seconds / claims[study.name]

    deciding.sort(key=cost_of_a_claim)
    others = [study for study in studies if study not in deciding]
    if beyond:
        return [Chosen(study) for study in [*deciding, *others]], []
    return [Chosen(study) for study in deciding], sorted(study.name for study in others)


def _own_study(name: str, known: dict[str, AnyStudy]) -> Chosen:
    study, file = load_study(name), Path(name.rpartition(".py")[0] + ".py").resolve()
    if study.name in known:
        raise UserError(
            f"{file.name} calls its study {study.name}, which is a study of Triptych: "
            "give yours another name"
        )
    return Chosen(study, file, tuple(own_entries(study, file)))


def parse_assignments(assignments: Sequence[str]) -> dict[str, str]:
    """FIELD=VALUE texts as a dictionary."""
    pairs = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        if not sign:
            raise UserError(f"--set {text!r} needs the form FIELD=VALUE")
        pairs[name.strip()] = value.strip()
    return pairs
