"""docs/samplers.md and the lines of a terminal, from rows."""

import collections
import re
from pathlib import Path

from samplers.judging import ABSENT, BREAKS, KEEPS, NOT_ENTERED, Row

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "samplers.md"
MARKED = re.compile(r"(<!-- samplers -->\n).*?(<!-- /samplers -->)", re.DOTALL)
ISSUES = "sampler-issues"


def number(value: float) -> str:
    """Four digits for a distance that matters, a power for one that is rounding."""
    return f"{value:.4f}" if value >= 5e-4 else "0" if value == 0 else f"{value:.0e}"


def measured(row: Row) -> str:
    """What was found: a distance, or draws."""
    if row.distance is not None:
        return number(row.distance)
    if row.draws is None:
        return ""
    if row.draws.agree:
        return f"{row.draws.number:,} draws agree; {row.draws.detects:.2f} would have shown"
    return f"refuted by {row.draws.number:,} draws"


def verdict(row: Row) -> str:
    """In bold where a promise breaks."""
    return f"**{row.verdict}**" if row.verdict == BREAKS else row.verdict


def counts(rows: list[Row]) -> str:
    """How many of each verdict."""
    found = collections.Counter(row.verdict for row in rows)
    words = {
        KEEPS: "keep their promise",
        BREAKS: "break it",
        NOT_ENTERED: "were not entered",
        ABSENT: "are not installed",
    }
    said = [f"{found[v]} {text}" for v, text in words.items() if found[v]]
    return f"{len(rows)} samplers of {len({row.package for row in rows})} libraries: " + ", ".join(
        said
    )


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")


def markdown(rows: list[Row]) -> str:
    """The table, and below it a paragraph for every broken promise."""
    lines = [
        f"{counts(rows)}.",
        "",
        "| library | sampler | its promise | distance | verdict | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            f"{row.package} {row.version}",
            _cell(row.name),
            f"“{_cell(row.promise)}” ({_cell(row.source)})",
            measured(row),
            verdict(row),
            f"{row.seconds:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "### Where a promise breaks", ""]
    for row in rows:
        if row.verdict == BREAKS:
            lines += [*_broken(row), ""]
    lines += ["### What was run", ""]
    lines += [f"- **{row.package}, {_cell(row.name)}**: {_cell(row.note)}." for row in rows]
    return "\n".join(lines) + "\n"


def _broken(row: Row) -> list[str]:
    note = _cell(row.note)
    found = [f"**{row.package} {row.version}, {_cell(row.name)}.** {note[:1].upper()}{note[1:]}."]
    if row.worst is not None:
        found.append(
            f"The worst outcome is `{row.worst.outcome}`: {row.worst.found:.4f} where "
            f"{row.worst.promised:.4f} is promised."
        )
    if row.long_run is not None:
        found.append(f"A chain of such steps ends in a law {row.long_run:.4f} away.")
    if row.draws is not None and row.draws.against == "promise":
        found.append(
            f"Of {row.draws.number:,} draws a share of {row.draws.share:.4f} was `{row.draws.outcome}`; "
            f"{row.draws.expected:.4f} is promised."
        )
    elif row.draws is not None:
        relation = "agree with" if row.draws.agree else "do not agree with"
        found.append(
            f"{row.draws.number:,} draws with the library's own generator {relation} the law that was "
            f"enumerated (a distance of {row.draws.detects:.2f} would have shown)."
        )
    if row.issue:
        found.append(f"[Draft of an issue]({ISSUES}/{row.issue}).")
    return [" ".join(found)]


def with_table(page: str, rows: list[Row]) -> str:
    """The page with what stands between its markers made again."""
    assert MARKED.search(page), "docs/samplers.md has no markers"
    return MARKED.sub(lambda m: m[1] + markdown(rows) + m[2], page)


def line(row: Row) -> str:
    """For a terminal."""
    what = f"{row.package} {row.version}, {row.name}"
    said = " · ".join(filter(None, [row.verdict, measured(row), f"{row.seconds:.2f} s"]))
    return f"{what}: {said}" + (f" ({row.refusal})" if row.refusal and row.how != "draws" else "")
