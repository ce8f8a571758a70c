"""Check the axioms of examples, with progress, and show what came out."""

import functools
import inspect
import math
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.table import Table
from rich.text import Text

from triptych.core.axioms import Finding, check_sampler, check_structure
from triptych.core.samplers import Chain, OneShot
from triptych.core.validation import UserError, as_device
from triptych.lab.axioms.discovery import Example, file_examples, offered_examples, package_examples
from triptych.lab.axioms.study_form import form_of
from triptych.lab.plain_text import escape, plain, standard_output
from triptych.lab.running.sources import Source, is_installed
from triptych.studies.api.refutation import Demand, demands
from triptych.studies.api.study import Claim, Study

PACKAGES = ("triptych.structures", "triptych.inference", "triptych.diffusion")


class AxiomFinding(NamedTuple):
    """One axiom on one example; where it fails, what was asked, and the file and line."""

    module: str
    example: str
    axiom: str
    error: float
    tolerance: float
    holds: bool
    seconds: float
    asked: str = ""
    expected: str = ""
    got: str = ""
    place: str = ""


def check_examples(file: Path | None, device: str) -> list[AxiomFinding]:
    """The axioms of every built-in example and of plug-ins, or of a user's file and its claims."""
    torch.set_num_threads(1)  # tiny tensors: threads cost more than they give
    as_device(device, name="--device")
    examples = (
        [
            *(example for package in PACKAGES for example in package_examples(package)),
            *offered_examples(),
        ]
        if file is None
        else file_examples(file)
    )
    findings: list[AxiomFinding] = []
    for number, example in enumerate(examples, 1):
        if sys.stderr.isatty():
            print(f"\r\033[K[{number}/{len(examples)}] {example.label}", end="", file=sys.stderr)
        findings += _check(example, device)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return findings


def _check(example: Example, device: str) -> list[AxiomFinding]:
    """Every axiom of one example; one that cannot be checked is a finding that does not hold."""
    started = time.perf_counter()
    raised = ""
    try:
        if isinstance(example.value, OneShot | Chain):
            findings = check_sampler(example.value)
        elif isinstance(example.value, UserError):  # a plug-in that cannot be loaded
            raise example.value
        elif isinstance(example.value, Claim):
            place = defined_at(example.value.judge)
            return _of_demands(example, demands(example.value), place, started)
        elif isinstance(example.value, Study):
            place = defined_at(example.value.units)
            return _of_demands(example, form_of(example.value), place, started)
        else:
            value = example.value
            if device != "cpu":
                if not hasattr(value, "to"):
                    raise TypeError(f"{type(value).__name__} has no method to(device)")
                value = value.to(device)
            findings = check_structure(value, device=device)
    except Exception as error:  # a user's code may raise anything; the others are still checked
        what = f"could not be checked: {type(error).__name__}: {error}"
        findings, raised = [Finding(what, math.inf, 0.0)], _raised_at(error)
    seconds = (time.perf_counter() - started) / max(1, len(findings))
    rows = []
    for axiom, off, tolerance, case in findings:
        holds = Finding(axiom, off, tolerance).holds
        row = AxiomFinding(example.module, example.name, axiom, off, tolerance, holds, seconds)
        if case is not None:
            place = defined_at(getattr(example.value, case.method, None))
            row = row._replace(asked=case.asked, expected=case.expected, got=case.got, place=place)
        rows.append(row._replace(place=raised) if raised else row)
    return rows


def _of_demands(
    example: Example, found: Sequence[Demand], place: str, started: float
) -> list[AxiomFinding]:
    """What a claim or a study must show of itself; what it does not show is off by 1."""
    seconds = (time.perf_counter() - started) / len(found)
    return [
        AxiomFinding(
            example.module,
            example.name,
            demand.rule,
            float(not demand.met),
            0.0,
            demand.met,
            seconds,
            *(("", "", "", "") if demand.met else (demand.asked, demand.wanted, demand.got, place)),
        )
        for demand in found
    ]


def defined_at(function: Any) -> str:
    """File and line of a function or method, as "my_structure.py:12"; empty where there is none."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function) if callable(function) else function
    try:
        file = inspect.getsourcefile(function)
        return f"{_near(file)}:{inspect.getsourcelines(function)[1]}" if file else ""
    except (TypeError, OSError):
        return ""


def _raised_at(error: BaseException) -> str:
    """The innermost line outside of Triptych's checks and of installed packages."""
    frames = [
        (file, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if (file := Path(frame.f_code.co_filename)).is_file()
        and not is_installed(Source(frame.f_globals.get("__name__", ""), file.resolve()))
        and file.name not in ("axioms.py", "findings.py")
    ]
    return f"{_near(str(frames[-1][0]))}:{frames[-1][1]}" if frames else ""


def _near(file: str) -> str:
    """The path from the working folder, if the file is in it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def as_json(findings: list[AxiomFinding]) -> list[dict[str, Any]]:
    """Plain dictionaries; an infinite error, which JSON has no number for, is null."""
    return [
        finding._asdict() | {"error": finding.error if math.isfinite(finding.error) else None}
        for finding in findings
    ]


def print_findings(findings: list[AxiomFinding]) -> None:
    """One line per example, then every failing axiom with the case in which it is furthest off."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("structure", "example", "axioms", "largest error", "seconds"):
        table.add_column(title, justify="right" if title in ("axioms", "seconds") else "left")
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
    with standard_output(highlight=True) as console:
        console.print(table)
        for finding in findings:
            if not finding.holds:
                console.print(Text(plain(_counterexample(finding)), "red"), soft_wrap=True)
        held = sum(finding.holds for finding in findings)
        console.print(f"\n{held} of {len(findings)} axioms hold.", highlight=False)


def _counterexample(finding: AxiomFinding) -> str:
    lines = ["", f"FAILS: {finding.axiom}  ({finding.module}: {finding.example})"]
    if finding.asked:
        lines += [
            f"  asked     {finding.asked}",
            f"  expected  {finding.expected}",
            f"  got       {finding.got}",
        ]
    return "\n".join([*lines, *([f"  in        {finding.place}"] if finding.place else [])])


def describe_structures() -> list[dict[str, Any]]:
    """Name, first line of the documentation and examples of every structure."""
    rows: dict[str, dict[str, Any]] = {}
    for package in PACKAGES[:1]:
        for example in package_examples(package):
            row = rows.setdefault(
                example.module,
                {"structure": example.module, "about": example.about, "examples": []},
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
    with standard_output(highlight=True) as console:
        console.print(table)
