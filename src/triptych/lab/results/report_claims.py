"""The claims as the report shows them: the ledger in groups, and the chosen ones at large."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from triptych.lab.results import ledger
from triptych.lab.results.chosen import ChosenClaim, figure_of
from triptych.lab.results.ledger import SCOPES
from triptych.lab.results.ranking import STATUSES, VERDICTS, ClaimFinding, Judged, RunName, StudyRun
from triptych.lab.results.report_text import number, words
from triptych.lab.results.typesetting import title_html

MOST_CHECKS = 6  # of a chosen claim, before the rest is folded

Links = Mapping[RunName, str]
"""The anchor of the section of a run."""


class Comparison(NamedTuple):
    """One quantity: what the source printed, what was measured here, what bundled rows have."""

    name: str
    published: str
    measured: str
    bundled: str


def score(judged: Sequence[Judged]) -> list[tuple[str, str, int]]:
    """(the verdict with its scope, its status, how many); the four statuses even where none has it.

    Worked: [("holds", "holds", 2), ("holds at a smaller scale", "holds", 1), ("fails", "fails", 0),
    ("undecided", "undecided", 0), ("not run yet", "not run yet", 0)].
    """
    counts = Counter((line.words, line.status) for line in judged)
    return [
        (words, status, counts[words, status])
        for status in STATUSES
        for words in (status, *(VERDICTS[status, s] for s in SCOPES if (status, s) in VERDICTS))
        if words == status or counts[words, status]
    ]


def groups(
    judged: Sequence[Judged], own: Mapping[str, Sequence[Judged]], links: Links
) -> list[dict[str, Any]]:
    """The ledger cut into neighbours from one shelf: Wei et al., the thesis by part, your own."""

    def shelf(line: Judged) -> str:
        part = ledger.part(line.entry.source)
        return "wei" if part.startswith("wei:") else part

    found = []
    for name, group in groupby(judged, shelf):
        work = ledger.WORKS[ledger.work(name)]
        title = "head and prompt tuning" if name == "wei" else ledger.PARTS[name]
        section = "" if name == "wei" else f", {name.partition(':')[2]}"
        found.append(_group(f"{work}{section}", title, list(group), links))
    found += [_group("Your own", name, lines, links, own=True) for name, lines in own.items()]
    return found


def _group(
    work: str, title: str, lines: Sequence[Judged], links: Links, *, own: bool = False
) -> dict[str, Any]:
    shown = [claim_view(line, links, own=own, near=f"{work} {title}") for line in lines]
    return {"work": work, "title": title, "lines": shown, "score": score(lines)}


def claim_view(line: Judged, links: Links, *, own: bool = False, near: str = "") -> dict[str, Any]:
    """A claim with all that the page says about it.

    near
        More words under which a search finds it.
    """
    entry = line.entry
    sought = (
        line.id,
        entry.title,
        entry.source,
        entry.kind,
        line.status,
        line.words,
        line.study or "",
        near,
    )
    return {
        "judged": line,
        "entry": entry,
        "title": title_html("" if own else line.id, entry.title),
        "work": "own" if own else ledger.work(entry.source),
        "part": "own" if own else ledger.part(entry.source),
        "search": " ".join((*sought, *line.exceptions)).lower(),
        "comparisons": _comparisons(line),
        "from_figure": (entry.published or {}).get("read") == "figure",
        "findings": [(finding, links.get(finding.run_name)) for finding in line.findings],
    }


def chosen_views(
    chosen: Sequence[ChosenClaim], judged: Sequence[Judged], runs: Sequence[StudyRun], links: Links
) -> list[dict[str, Any]]:
    """The claims to show large, each with its figure and the checks that decide."""
    by_id = {line.id: line for line in judged}
    views = []
    for each in chosen:
        if each.id not in by_id:
            continue
        line = by_id[each.id]
        first = line.findings[0] if line.findings else None
        # a run that drew its figure comes before one that decides and drew none
        place = next(
            (at for finding in line.findings if (at := figure_of(each, finding, runs))), None
        )
        checks = [check for check in first.checks if check.outcome] if first else []
        views.append(
            claim_view(line, links)
            | {
                "why": each.why,
                "first": first,
                "checks": checks[:MOST_CHECKS],
                "more_checks": max(0, len(checks) - MOST_CHECKS),
                "place": place,
            }
        )
    return views


def parts(judged: Sequence[Judged]) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(work, its name, [(part, label), ...]) of the parts that the ledger has."""
    present = {ledger.part(line.entry.source) for line in judged}
    return [
        (
            work,
            name,
            [
                (part, f"{part.partition(':')[2]} {title}")
                for part, title in ledger.PARTS.items()
                if ledger.work(part) == work and part in present
            ],
        )
        for work, name in ledger.WORKS.items()
    ]


def _comparisons(line: Judged) -> list[Comparison]:
    given = line.entry.published or {}
    published = {name: value for name, value in given.items() if name != "read"}
    measured = _measured(line.findings, bundled=False)
    bundled = _measured(line.findings, bundled=True)
    columns = (published, measured, bundled)
    names = dict.fromkeys(name for column in columns for name in column)
    return [
        Comparison(
            words(name), *(number(column[name]) if name in column else "" for column in columns)
        )
        for name in names
    ]


def _measured(findings: Sequence[ClaimFinding], *, bundled: bool) -> Mapping[str, Any]:
    """The numbers of the strongest finding of a kind; those of a smoke run say nothing."""
    return next((f.measured for f in findings if f.bundled is bundled and f.status in STATUSES), {})
