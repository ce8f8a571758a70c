"""Which studies and settings a command line names."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from triptych.lab.ledger import load_ledger
from triptych.lab.runner import find_studies, load_study
from triptych.studies.study import Study


def chosen(names: Sequence[str]) -> list[Study]:
    """Studies by name, a user's own by file; all of ours when none is named."""
    known = find_studies()
    if not names:
        return list(known.values())
    found = []
    for name in names:
        if name in known:
            found.append(known[name])
        elif name.endswith(".py"):
            found.append(load_study(Path(name)))
        else:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"there is no study {name!r}{hint} (studies: {', '.join(known)})")
    ids = {entry.id for entry in load_ledger()}
    for study in found:
        for claim in study.claims:
            if claim.id not in ids:
                raise ValueError(
                    f"study {study.name} has a claim {claim.id!r} that is not in the ledger; "
                    "`triptych claims` lists the ids (a study may also have no claims)"
                )
    return found


def assigned(assignments: Sequence[str]) -> dict[str, str]:
    """FIELD=VALUE texts as a dictionary."""
    pairs = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        if not sign:
            raise ValueError(f"--set {text!r} needs the form FIELD=VALUE")
        pairs[name.strip()] = value.strip()
    return pairs
