"""BibTeX of a claim's verdict, with a digest of the rows that it rests on.

A verdict is cited as what it is: these rows, judged by this version. Who has the rows can make the
same digest, with the command that the entry names, and see that they are the cited ones.
"""

import hashlib
import json
import re
import textwrap
from pathlib import Path

from triptych import __version__
from triptych.core.errors import UserError
from triptych.lab.results import evidence
from triptych.lab.results.packed import called, read
from triptych.lab.results.ranking import ClaimFinding, Judged, scale_name
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale

_SPECIAL = {c: f"\\{c}" for c in "&%$#_"} | {
    "{": r"\{",
    "}": r"\}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_WIDTH = 88


def bibtex(line: Judged, folder: Path) -> str:
    """The entry of a claim; one without a verdict has no evidence that could be cited.

    folder
        The run folder, for a verdict of one's own run.
    """
    finding = line.headline
    if finding is None:
        raise UserError(
            f"{line.id} has no verdict yet, so there is nothing to cite: "
            f"`triptych claims {line.id}` says what to run",
            parameter="ids",
        )
    digest, command = _digest(finding, folder)
    checks = [
        f"{check.sentence}: {check.value:.6g} (wanted {check.wanted})"
        for check in finding.checks
        if check.outcome is not None
    ]
    where = f"{finding.words}, {scale_name(finding.scale)}"
    note = [
        f"Verdict: {where}{'; ' + finding.differs if finding.differs else ''}",
        f"Result: {line.id} ({line.entry.source})" if line.entry.source else f"Result: {line.id}",
        *checks,
        f"Rows made {finding.made}" if finding.made else "",
        f"SHA-256 of the rows, by {command}: {digest}",
    ]
    year = re.search(r"\d{4}", finding.made)
    fields = {
        "title": f"{{{_escaped(line.entry.title or line.id)}}}",
        **({"author": "{The Triptych developers}"} if finding.bundled else {}),
        **({"year": year[0]} if year else {}),
        "howpublished": _escaped(f"Triptych {__version__}, study {finding.study}"),
        "note": _escaped(". ".join(part.rstrip(".") for part in note if part)),
    }
    lines = [f"  {name:<12} = {{{_wrapped(text)}}}," for name, text in fields.items()]
    return "\n".join([f"@misc{{triptych:{line.id},", *lines, "}"])


def _digest(finding: ClaimFinding, folder: Path) -> tuple[str, str]:
    """SHA-256 of the rows behind a finding, and the command that prints what was summed."""
    if finding.bundled:
        label = f".{finding.label}" if finding.label else ""
        name = f"{finding.study.replace('/', '.')}{label}.{finding.scale}"
        path = next(p for p in evidence.files(evidence.folder()) if called(p) == f"{name}.json")
        return _sum(read(path)), f"triptych evidence {name}"
    with Store.read(folder) as store:
        records = store.records(finding.study, Scale(finding.scale))
    text = "".join(f"{json.dumps(record)}\n" for record in records)
    return _sum(text), f"triptych rows {finding.study} --scale {finding.scale}"


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(char, char) for char in " ".join(text.split()))


def _wrapped(text: str) -> str:
    indent = " " * 18
    lines = textwrap.wrap(text, _WIDTH - 18, break_long_words=False, break_on_hyphens=False)
    return f"\n{indent}".join(lines)
