"""Verdicts as a person reads them on a terminal, and as JSON for a script."""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from triptych.core.status import Status
from triptych.lab.plain_text import escape, standard_output
from triptych.lab.results.changes import Change
from triptych.lab.results.ledger import SCOPES
from triptych.lab.results.ranking import STATUSES, ClaimFinding, Judged, fails, scale_name
from triptych.lab.running.expected_costs import expected_costs
from triptych.studies.api.records import to_json
from triptych.studies.api.verdicts import Check

if TYPE_CHECKING:
    from triptych.lab.results.gathering import Results

AS_PUBLISHED = "as published"
SENTENCE_WIDTH = 34
"""The sentence of a check has so much room next to its numbers, or they go below it."""
_INDENT = 6  # of checks
_STYLE = {"holds": "green", "fails": "bold red", "undecided": "yellow", "not run yet": "dim"}
_MARK = {Status.HOLDS: "✓", Status.FAILS: "✗", Status.UNDECIDED: "?", None: "·"}
_COLOUR = {Status.HOLDS: "green", Status.FAILS: "bold red", Status.UNDECIDED: "yellow"}


def print_results(
    results: "Results", *, ids: set[str] | None = None, everything: bool, total: bool = True
) -> None:
    """Every claim with a line per check.

    ids
        These claims alone.
    everything
        Claims that were not run yet too.
    total
        The score of all claims at the end.
    """
    with standard_output() as console:
        for title, lines in _groups(results):
            chosen = [
                line
                for line in lines
                if (ids is None or line.id in ids) and (everything or line.findings)
            ]
            if chosen and title:
                console.print(f"\n[bold]{escape(title)}[/bold]")
            for line in chosen:
                _print_claim(console, line)
        if total:
            console.print("\n" + score(results))


def print_summary(results: "Results", chosen: Sequence[Judged] | None = None) -> None:
    """A screen: the counts, then a line for each claim that fails or is undecided, and old rows.

    chosen
        These claims, whatever their status; a line for each.
    """
    with standard_output() as console:
        _summary(console, results, chosen)


def _summary(console: Console, results: "Results", chosen: Sequence[Judged] | None) -> None:
    room = max(16, console.height - 8) if sys.stdout.isatty() else 32
    console.print(score(results))
    lines = results.judged if chosen is None else chosen
    if chosen is None:
        lines = [line for line in lines if line.status in STATUSES[1:3]]
    for words, found in by_words(lines):
        style = _STYLE[found[0].status]
        console.print(f"\n[{style}]{words.capitalize()}[/{style}] ({_with_those_beyond(found)})")
        most = len(found) if chosen is not None else max(6, room)
        room -= min(len(found), most) + 2
        width = max(len(line.id) for line in found[:most])
        for line in found[:most]:
            text = f"  {escape(line.id):{width}}  {escape(line.entry.title)}"
            console.print(text, no_wrap=True, overflow="ellipsis")
        if len(found) > most:
            status = found[0].status
            option = f'--status "{status}"' if " " in status else f"--status {status}"
            console.print(f"  [dim]and {len(found) - most} more: triptych claims {option}[/dim]")
    judged = results.judged if chosen is None else chosen
    edited = sorted({each.study for line in judged for each in line.findings if each.edited})
    if edited:
        said = f"Edited since their rows were made: {', '.join(edited)} (triptych seal says what)."
        console.print(f"\n[yellow]{escape(said)}[/yellow]", soft_wrap=True)
    console.print("\n[dim]triptych claims ID prints every check of a claim.[/dim]")


def by_words(lines: Sequence[Judged]) -> list[tuple[str, list[Judged]]]:
    """The lines by verdict with its scope; what holds first, and as published first."""
    found: dict[str, list[Judged]] = {}
    for line in sorted(lines, key=lambda line: (STATUSES.index(line.status), _place(line.scope))):
        found.setdefault(line.words, []).append(line)
    return list(found.items())


def _place(scope: str) -> int:
    return list(SCOPES).index(scope) if scope in SCOPES else 0


def _with_those_beyond(found: Sequence[Judged]) -> str:
    """As "19", or "19, and 1 beyond the published results"."""
    beyond = sum(line.entry.extension for line in found)
    return (
        str(len(found))
        if not beyond
        else (f"{len(found) - beyond}, and {beyond} beyond the published results")
    )


def closing(
    changed: Sequence[Change] | None, page: Path | None, judged: Sequence[Judged]
) -> list[str]:
    """The last lines after a run: what changed, where the page is if any, what to try next."""
    if changed is None:
        known = sum(line.status in STATUSES[:3] for line in judged)
        news = f"Changed: this is the first run here; {known} claims have a verdict."
    elif not changed:
        news = "Changed: no verdict since the run before."
    else:
        first = ", ".join(f"{change.id} {change.now}" for change in changed[:4])
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        news = f"Changed: {first}{more}."
    return [news, *([f"Open {page}"] if page else []), f"Next: {_next(judged)}"]


def _next(judged: Sequence[Judged]) -> str:
    wrong = [line.id for line in judged if line.status == "fails"]
    if wrong:
        return f"`triptych claims {wrong[0]}` shows why {wrong[0]} fails."
    open_ones = [line for line in judged if line.status == "not run yet" and line.findings]
    if open_ones:
        return f"`triptych run {open_ones[0].study} --scale laptop` gives a verdict."
    known = [line.id for line in judged if line.headline]
    if known:
        return f"`triptych report --lecture {known[0]}` makes a page of one claim."
    return "`triptych new study my_study` writes the start of a study of your own."


def _groups(results: "Results") -> list[tuple[str, list[Judged]]]:
    own = [(f"Your own study {name}", lines) for name, lines in results.own.items()]
    return [("", results.published), *own]


def _print_claim(console: Console, line: Judged) -> None:
    shown = line.words.upper() if line.words == "fails" else line.words
    except_at = f" except {'; '.join(line.exceptions)}" if line.exceptions else ""
    beyond = " (beyond the published results)" if line.entry.extension else ""
    style = _STYLE[line.status]
    console.print(
        f"[{style}]{shown}{escape(except_at)}[/{style}]  [bold]{escape(line.id)}[/bold]  "
        f"{escape(line.entry.title)}{beyond}"
    )
    if not line.findings:
        console.print(Padding(f"[dim]{escape(to_run(line))}[/dim]", (0, 0, 0, 4)))
    for finding in line.findings:
        _print_finding(console, finding)
    if line.entry.remark:
        console.print(Padding(f"[dim]Remark: {escape(line.entry.remark)}[/dim]", (0, 0, 0, 4)))


def to_run(line: Judged) -> str:
    """What makes rows for a claim without any: the command and the machine; "" where there are."""
    if line.findings:
        return ""
    if line.study is None:
        return "There is no study for it yet."
    cost = expected_costs().get(line.study)
    if cost is None:
        return f"`triptych run {line.study}` makes its rows."
    if cost.paper_device == "cpu":
        return f"`triptych run {line.study} --scale paper` makes its rows, on a CPU."
    command = f"triptych run {line.study} --scale paper --device cuda"
    return f"`{command}` makes its rows, on a machine with a GPU."


def _print_finding(console: Console, finding: ClaimFinding) -> None:
    console.print(Padding(f"[dim]{escape(source(finding))}[/dim]", (0, 0, 0, 4)))
    if finding.differs:
        differs = f"[dim]differs from the source: {escape(finding.differs)}[/dim]"
        console.print(Padding(differs, (0, 0, 0, 6)))
    _print_checks(console, finding.checks)
    for missing in finding.missing:
        console.print(f"      [yellow]missing {escape(missing)}[/yellow]")
    if finding.printed:
        console.print(f"      [dim]as printed in the text: {finding.printed.outcome.value}[/dim]")
        _print_checks(console, finding.printed.checks)


def _print_checks(console: Console, checks: Sequence[Check]) -> None:
    """A row for each check; where its numbers leave little room, they have lines of their own."""
    rows = [_numbers(check) for check in checks]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    beside = console.width - _INDENT - 2 - sum(width + 2 for width in widths) >= SENTENCE_WIDTH
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(width=1)
    table.add_column()
    for width in widths if beside else ():
        table.add_column(min_width=width, no_wrap=True)
    for check, numbers in zip(checks, rows, strict=True):
        style = _COLOUR.get(check.outcome) if check.outcome else "dim"
        sentence = f"{check.sentence} (an edge: {check.edge})" if check.edge else check.sentence
        cells = [escape(sentence), *map(escape, numbers)]
        if not beside:
            cells = ["\n".join([cells[0], *_in_lines(numbers, console.width - _INDENT - 3)])]
        table.add_row(_MARK[check.outcome], *cells, style=style)
    if checks:
        console.print(Padding(table, (0, 0, 0, _INDENT)))


def _numbers(check: Check) -> tuple[str, str, str]:
    """What was found, the limit, and the published value."""
    published = "" if check.published is None else f"published {number(check.published)}"
    return found(check), check.wanted, published


def _in_lines(numbers: Sequence[str], width: int) -> list[str]:
    """The numbers in lines of this width at most; a number is not broken.

    Worked value: 6.8 [3, 10], > 5 and published 7 in a width of 24 are "6.8 [3, 10], asked > 5,"
    and "published 7".
    """
    given, wanted, published = numbers
    lines = [""]
    for part in filter(None, (given, wanted and f"asked {wanted}", published)):
        longer = f"{lines[-1]}, {part}" if lines[-1] else part
        if lines[-1] and len(longer) > width - 1:  # room for a comma at the end
            lines[-1] += ","
            lines.append(part)
        else:
            lines[-1] = longer
    return [f"[bold]{escape(line)}[/bold]" for line in lines]


def source(finding: ClaimFinding) -> str:
    """Where a finding is from: "largest run, bundled, NVIDIA H200: fails (5 of 8 units)"."""
    parts = [scale_name(finding.scale)]
    if finding.bundled:
        parts += filter(None, ["bundled", finding.label, finding.device])
    notes = f" ({'; '.join(finding.notes)})" if finding.notes else ""
    return f"{', '.join(parts)}: {finding.words}{notes}"


def found(check: Check) -> str:
    """The number of a check with its interval, as "6.8 [3.4, 10.3]"."""
    if check.low is None or check.high is None or not check.has_interval:
        return number(check.value)
    return f"{number(check.value)} [{number(check.low)}, {number(check.high)}]"


def number(value: float) -> str:
    """Four digits: 0.3347, 99.7, 1.2e-12; a dash for a number that does not exist."""
    if math.isnan(value):
        return "–"
    whole = math.isfinite(value) and value == round(value) and abs(value) < 1e6
    return f"{value:.0f}" if whole else f"{value:.4g}"


def score(results: "Results") -> str:
    """The counts, each scope apart, as "48 hold, 6 fail; at a smaller scale 4 hold ..."."""
    counted = [line for line in results.published if not line.entry.extension]
    text = f"Of {len(counted)} published results, {score_of(counted)}."
    bundled = sum(bool(line.headline and line.headline.bundled) for line in counted)
    if bundled:
        text += (
            f" {bundled} of these verdicts {'rests' if bundled == 1 else 'rest'} on bundled rows."
        )
    own = [line for lines in results.own.values() for line in lines]
    if own:
        mine = {status: sum(line.status == status for line in own) for status in STATUSES[:3]}
        said = [f"{n} {_verb(name, n)}" for name, n in mine.items()]
        text += f" Your own claims: {', '.join(said)}."
    return text


def score_of(lines: Sequence[Judged]) -> str:
    """What they say in each scope, one scope after the other.

    Worked: "5 hold (1 with an exception) and 1 fails as published; at a smaller scale 2 hold and 1
    is not reproduced; 3 are undecided".
    """
    parts = []
    for scope, place in (
        (AS_PUBLISHED, "as published"),
        ("scaled down", "at a smaller scale"),
        ("transferred", "on another model or other data"),
    ):
        held = [line for line in lines if (line.scope, line.status) == (scope, "holds")]
        failed = sum((line.scope, line.status) == (scope, "fails") for line in lines)
        excepted = sum(bool(line.exceptions) for line in held)
        hold = f"{len(held)} {_verb('holds', len(held))}"
        hold += f" ({excepted} with an exception)" if excepted else ""
        if scope == AS_PUBLISHED:
            parts.append(f"{hold} and {failed} {_verb('fails', failed)} as published")
        elif held or failed:
            parts.append(f"{place} {hold} and {failed} {_are(failed)} not reproduced")
    for status in STATUSES[2:]:
        count = sum(line.status == status for line in lines)
        if count or status == "undecided":
            parts.append(f"{count} {_are(count)} {status}")
    return "; ".join(parts)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _verb(status: str, count: int) -> str:
    """1 holds and 2 hold; "undecided" is the same of any number."""
    return status.removesuffix("s") if count != 1 and status in ("holds", "fails") else status


def failing(judged: Sequence[Judged]) -> bool:
    """Whether a claim fails in a run of this folder; bundled evidence never counts."""
    return any(fails(finding) for line in judged for finding in line.findings)


def as_json(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """The verdicts as plain dictionaries; what JSON has no number for (inf, nan) is null."""
    return [
        _finite(
            to_json(line.entry)
            | {
                "status": line.status,
                "verdict": line.words,
                "stands": line.scope,
                "exceptions": list(line.exceptions),
                "study": line.study,
                "to_run": to_run(line),
                "findings": [to_json(finding) for finding in line.findings],
            }
        )
        for line in judged
    ]


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
