"""The verdicts on samplers of released libraries, as `make laws` recorded them.

The file has a row for each sampler: its release, the promise in the words of its documents, what
was run, and the distance of its law from the promise. It is read and never judged again here.
"""

import difflib
import importlib.metadata
import json
from collections import Counter
from pathlib import Path
from typing import Any

from triptych.core.display import counted
from triptych.core.errors import UserError

RECORDED = Path(__file__).with_name("released.json")
PAGE = "docs/samplers.md"
_OF_SEVERAL = {
    "keeps its promise": "keep their promise",
    "breaks it": "break it",
    "not entered": "not entered",
}


def rows(wanted: str | None = None) -> list[dict[str, Any]]:
    """The rows whose library, or library and sampler, has the words `wanted`; all without."""
    recorded = json.loads(RECORDED.read_text("utf-8"))["rows"]
    words = (wanted or "").casefold().replace("_", "-").split()
    found = [row for row in recorded if all(word in _named(row) for word in words)]
    if not found:
        libraries = list(dict.fromkeys(row["package"] for row in recorded))
        near = difflib.get_close_matches(wanted or "", libraries, n=1)
        hint = f"; the nearest is {near[0]!r}" if near else f": {', '.join(libraries)}"
        raise UserError(
            f"no sampler that was held to its promise has the words {wanted!r} in its name; the "
            f"libraries are known by name{hint}",
            parameter="sampler",
        )
    return [{**row, "installed": _installed(row["package"])} for row in found]


def listed(found: list[dict[str, Any]]) -> str:
    """A line for each sampler, all that is known where few were asked for, and the sum."""
    shown = _whole if len(found) <= 3 else _line
    verdicts = Counter(row["verdict"] for row in found)
    told = ", ".join(
        f"{n} {verdict if n == 1 else _OF_SEVERAL[verdict]}"
        for verdict, n in verdicts.most_common()
    )
    lines = [shown(row) for row in found]
    lines.append(f"{counted(len(found), 'sampler')}: {told}. {PAGE} says how it was found.")
    others = {
        f"{row['package']} {row['installed']}"
        for row in found
        if row["installed"] not in ("", row["version"])
    }
    if others:
        lines.append(f"You have other releases, which were not judged: {', '.join(sorted(others))}")
    return "\n".join(lines)


def _named(row: dict[str, Any]) -> str:
    return f"{row['package']} {row['name']}".casefold().replace("_", "-")


def _installed(package: str) -> str:
    """The release that is installed here; empty where there is none, and for Python itself."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _line(row: dict[str, Any]) -> str:
    return f"{row['verdict']:<17}  {row['package']} {row['version']}, {row['name']}{_measured(row)}"


def _measured(row: dict[str, Any]) -> str:
    if row["distance"] is not None:
        return f"  ({row['distance']:.4g} away)"
    draws = row["draws"]
    return f"  ({draws['number']:,} draws)" if draws else ""


def _whole(row: dict[str, Any]) -> str:
    lines = [
        _line(row),
        f"  promise: “{row['promise']}” ({row['source']})",
        f"  run: {row['note']}",
    ]
    if row["verdict"] == "breaks it" and row["worst"]:
        worst = row["worst"]
        lines.append(
            f"  outcome {worst['outcome']} has probability {worst['found']:.6g}, and "
            f"{worst['promised']:.6g} is promised"
        )
    if row["issue"]:
        lines.append(f"  draft of an issue: docs/sampler-issues/{row['issue']}")
    return "\n".join(lines)
