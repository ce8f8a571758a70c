"""Run the laws on examples, with progress, and show what came out."""

import importlib
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from triptych.core.laws import Finding, check_sampler, check_structure
from triptych.core.samplers import Chain, OneShot
from triptych.core.validation import UserError
from triptych.lab.discovery import Example, file_examples, package_examples

PACKAGES = ("triptych.structures", "triptych.inference")


class LawFinding(NamedTuple):
    """One law on one example."""

    module: str
    example: str
    law: str
    error: float
    tolerance: float
    holds: bool
    seconds: float


def verify_examples(file: Path | None, device: str) -> list[LawFinding]:
    """The laws of every built-in example, or of those in a user's file."""
    torch.set_num_threads(1)  # tiny tensors: threads cost more than they give
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device {device} was asked for, but torch sees no GPU here")
    examples = (
        [example for package in PACKAGES for example in package_examples(package)]
        if file is None
        else file_examples(file)
    )
    findings: list[LawFinding] = []
    for number, example in enumerate(examples, 1):
        if sys.stderr.isatty():
            print(f"\r\033[K[{number}/{len(examples)}] {example.label}", end="", file=sys.stderr)
        findings += _verify(example, device)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return findings


def _verify(example: Example, device: str) -> list[LawFinding]:
    """Every law of one example; one that cannot be checked is a finding that does not hold."""
    started = time.perf_counter()
    try:
        if isinstance(example.value, OneShot | Chain):
            findings = check_sampler(example.value)
        else:
            value = example.value
            if device != "cpu":
                if not hasattr(value, "to"):
                    raise TypeError(f"{type(value).__name__} has no method to(device)")
                value = value.to(device)
            findings = check_structure(value, device=device)
    except (
        Exception
    ) as error:  # a user's structure may raise anything; the others are still checked
        what = f"could not be checked: {type(error).__name__}: {error}"
        findings = [Finding(what, math.inf, 0.0)]
    seconds = (time.perf_counter() - started) / max(1, len(findings))
    return [
        LawFinding(example.module, example.name, *finding, finding.holds, seconds)
        for finding in findings
    ]


def as_json(findings: list[LawFinding]) -> list[dict[str, Any]]:
    """Plain dictionaries; an infinite error, which JSON has no number for, is null."""
    return [
        finding._asdict() | {"error": finding.error if math.isfinite(finding.error) else None}
        for finding in findings
    ]


def print_findings(findings: list[LawFinding]) -> None:
    """One line per example; a failing law gets its own line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("structure", "example", "laws", "largest error", "seconds"):
        table.add_column(title, justify="right" if title in ("laws", "seconds") else "left")
    for module, name in dict.fromkeys((f.module, f.example) for f in findings):
        mine = [f for f in findings if (f.module, f.example) == (module, name)]
        held = sum(f.holds for f in mine)
        exact = [f.error for f in mine if f.tolerance < 1e-3]
        table.add_row(
            module,
            name,
            f"{held}/{len(mine)}",
            f"{max(exact, default=0.0):.1e}",
            f"{sum(f.seconds for f in mine):.1f}",
            style=None if held == len(mine) else "bold red",
        )
        for finding in mine:
            if not finding.holds:
                law = escape(f"FAILS: {finding.law}")
                table.add_row("", law, "", f"{finding.error:.1e}", "", style="bold red")
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(table)
    held = sum(finding.holds for finding in findings)
    console.print(f"\n{held} of {len(findings)} laws hold.", highlight=False)


def describe_structures() -> list[dict[str, Any]]:
    """Name, first line of the documentation and examples of every structure."""
    rows: dict[str, dict[str, Any]] = {}
    for package in PACKAGES[:1]:
        for example in package_examples(package):
            module = importlib.import_module(f"{package}.{example.module}")
            about = (module.__doc__ or "").strip().splitlines()[0]
            row = rows.setdefault(
                example.module, {"structure": example.module, "about": about, "examples": []}
            )
            row["examples"].append(example.name)
    return [row | {"examples": ", ".join(row["examples"])} for row in rows.values()]


def print_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """The columns of the rows under their titles."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in columns.values():
        table.add_column(title)
    for row in rows:
        table.add_row(*(escape(str(row[key])) for key in columns))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
