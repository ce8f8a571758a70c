"""`triptych seal` and `triptych verify-rows`: bundled rows and the code that made them."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from triptych.lab.cli.options import Json

if TYPE_CHECKING:
    from triptych.lab.results.seal import Definition, SealedFile
    from triptych.lab.results.verification import Verified

Folder = Annotated[
    Path | None, typer.Option(help="Folder of the files; by default those that came with Triptych.")
]


def seal(
    studies: Annotated[
        list[str] | None, typer.Argument(help="Studies whose sealed code is listed too.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Mark code that differs from this commit, by default the last."),
    ] = None,
    evidence: Folder = None,
    json: Json = False,
) -> None:
    """Show which code is under seal, and what your edits break.

    Bundled rows are held by digests of the code that made them. Renaming locals, arguments and
    private functions, moving code, annotations and docstrings break no seal. Other edits of what a
    study's `run`, `units` and rows reach do. `triptych verify-rows` turns a broken seal.

    Example: triptych seal vgb_walk
    """
    from triptych.lab.results.seal import definitions, sealed_files
    from triptych.lab.running.discovery import find_studies

    known, asked = find_studies(), list[str](studies or [])
    files = sealed_files(known, asked, evidence)
    broken = sorted({each.study for each in files if each.broken})
    wanted = [*asked, *(name for name in broken if name not in asked)]
    listed = {name: definitions(known[name], against) for name in wanted}
    if json:
        _print_json(files, listed)
        return
    for line in table(files):
        typer.echo(line)
    for name, found in listed.items():
        chosen = found if name in asked else [each for each in found if each.edited]
        if chosen:
            typer.echo("\n" + "\n".join(definition_lines(name, chosen)))
    typer.echo("\n" + summary(files))


def verify_rows(
    study: Annotated[str, typer.Argument(help="Name of a study with bundled rows.")],
    sample: Annotated[int, typer.Option(help="Units of each file to make again.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    rounding: Annotated[
        float, typer.Option(help="Largest relative difference of two numbers that agree.")
    ] = 1e-9,
    limit: Annotated[
        float, typer.Option(help="Leave out units that took longer, in seconds.")
    ] = 300.0,
    workers: Annotated[int, typer.Option(help="Processes to use.")] = 1,
    record: Annotated[
        bool, typer.Option(help="Write into the file that today's code makes these rows.")
    ] = True,
    evidence: Folder = None,
) -> None:
    """Make some bundled units again and compare their rows.

    Units that were made on a GPU need one. If all of the sample agree, the file records the digest
    of today's code, and the units count as whole again. The rows stay as they are.

    Exit code 1 means that rows do not agree.

    Example: triptych verify-rows vgb_walk --sample 5
    """
    from triptych.core.validation import UserError, as_count
    from triptych.lab.results.verification import evidence_of, verify
    from triptych.lab.running.discovery import find_studies
    from triptych.lab.running.interrupts import explain_stop
    from triptych.lab.running.progress import progress_on

    known = find_studies()
    if study not in known:
        raise UserError(
            f"there is no study {study!r} (studies: {', '.join(known)})", parameter="study"
        )
    wanted = as_count("workers", workers, at_least=1)
    found = []
    with explain_stop(), progress_on(sys.stderr) as show:
        for path in evidence_of(known[study], evidence):
            found.append(
                verify(
                    path,
                    known[study],
                    sample=sample,
                    seed=seed,
                    rounding=rounding,
                    limit_s=limit,
                    workers=wanted,
                    record=record,
                    progress=show,
                )
            )
    for each in found:
        typer.echo("\n".join(verified_lines(each)))
    if not any(each.compared for each in found):
        raise UserError(
            f"no bundled unit of {study} can be made again on this machine", parameter="study"
        )
    if any(compared.reason for each in found for compared in each.compared):
        raise typer.Exit(1)


def table(files: "Sequence[SealedFile]") -> list[str]:
    """A line for each file: its units, what they cost, and what is broken."""
    width = max((len(each.name) for each in files), default=0)
    lines = [f"{'file':{width}}  units  unit-hours  seal"]
    for each in files:
        state = "whole" if each.whole else "none"
        if each.broken:
            state = f"BROKEN for {each.broken} units, {each.broken_hours:.2f} unit-hours"
        if each.older:
            state += f" ({each.older} older units are not under seal)"
        lines.append(
            f"{each.name:{width}}  {each.whole + each.broken:5}  {each.hours:10.2f}  {state}"
        )
    return lines


def summary(files: "Sequence[SealedFile]") -> str:
    """The last line: what is under seal, and what is broken."""
    units = sum(each.whole + each.broken for each in files)
    hours = sum(each.hours for each in files)
    broken = [each for each in files if each.broken]
    said = f"{units} units are under seal, {hours:.1f} unit-hours. "
    if not broken:
        return said + "Today's code makes all of them: no seal is broken."
    names = list(dict.fromkeys(each.study for each in broken))
    count, lost = sum(e.broken for e in broken), sum(e.broken_hours for e in broken)
    return (
        f"{said}Edits break the seal of {count} units, {lost:.1f} unit-hours, of "
        f"{', '.join(names)}: `triptych verify-rows {names[0]}` makes some of them again."
    )


def definition_lines(study: str, found: "Sequence[Definition]") -> list[str]:
    """The code under seal, by file; what was edited has a mark."""
    lines = [f"Under seal in {study}:"]
    file = ""
    for each in found:
        if each.file != file:
            file = each.file
            lines.append(f"  {file}")
        mark = "  <- edited" if each.edited else ""
        lines.append(f"    {each.first:4}-{each.last:<4} {each.name}{mark}")
    return lines


def verified_lines(found: "Verified") -> list[str]:
    """What was compared, what was left out, and what was recorded."""
    lines = [found.name]
    for each in found.compared:
        if each.reason:
            said = f"DIFFERS: {each.reason}"
        elif each.difference == 0:
            said = "the same bit for bit"
        else:
            said = f"the same up to rounding, {each.difference:.1g} at most"
        lines.append(f"  {each.label}: {said}")
    lines += [f"  {count} units left out: {why}" for why, count in found.skipped.items()]
    if found.recorded:
        lines.append(f"  recorded: today's code makes its units ({found.recorded} were in doubt)")
    elif found.agrees:
        lines.append("  no unit was in doubt, so nothing was recorded")
    return lines


def _print_json(files: "Sequence[SealedFile]", listed: "dict[str, list[Definition]]") -> None:
    import json

    content = {
        "files": [each._asdict() | {"scale": each.scale.value} for each in files],
        "definitions": {name: [e._asdict() for e in found] for name, found in listed.items()},
    }
    typer.echo(json.dumps(content, indent=1))
