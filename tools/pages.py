"""Write the pages and tables that are made from the package.

    python tools/pages.py            # write them
    python tools/pages.py --check    # say which are not up to date; exit code 1 if one is

docs/results.md   what reproduces, by chapter, and each result that did not, with its numbers
docs/cli.md       every command with its options, from typer
docs/diffusion.md the table between the markers <!-- samplers --> and <!-- /samplers -->
README.md         the table between the markers <!-- results --> and <!-- /results -->

The verdicts are those of the bundled rows, whatever else was run on this machine.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from triptych.core.files import write_text
from triptych.diffusion import table as samplers
from triptych.lab.results import ledger, terminal
from triptych.lab.results.gathering import gather
from triptych.lab.results.ranking import Judged
from triptych.lab.results.terminal import AS_PUBLISHED
from triptych.studies.api.verdicts import Check

ROOT = Path(__file__).resolve().parents[1]
MOST_CHECKS = 4
_CHAPTERS = {
    "tuning": "Head and prompt tuning (Wei et al.)",
    "topics": "Topics (thesis, 2.1)",
    "brackets": "Brackets and attention (2.2)",
    "generation": "Verifier-guided generation (3)",
    "masking": "Masking (4.1, 4.2.1)",
    "refinement": "Parallel decoding (4.2.2)",
}
_SCOPES = (AS_PUBLISHED, "scaled down", "transferred")
_HEADER = (
    "| chapter | results | as published: hold | fail | smaller scale: hold | not reproduced "
    "| other model or data: hold | not reproduced | undecided or not run |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
)


def published() -> list[Judged]:
    """The published results, judged on bundled rows alone."""
    return [line for line in gather(None, shown=False).published if not line.entry.extension]


def table(lines: Sequence[Judged]) -> str:
    """Counts by chapter and scope, with a last row for all of them."""
    rows = [
        _row(title, [line for line in lines if ledger.chapter(line.entry.source) == chapter])
        for chapter, title in _CHAPTERS.items()
    ]
    return _HEADER + "".join([*rows, _row("**all**", lines)])


def _row(title: str, lines: Sequence[Judged]) -> str:
    cells = [str(len(lines))]
    for scope in _SCOPES:
        held = [line for line in lines if (line.scope, line.status) == (scope, "holds")]
        excepted = sum(bool(line.exceptions) for line in held)
        failed = sum((line.scope, line.status) == (scope, "fails") for line in lines)
        cells += [f"{len(held)}" + (f" ({excepted})" if excepted else ""), str(failed)]
    cells.append(str(sum(line.status not in ("holds", "fails") for line in lines)))
    return f"| {title} | " + " | ".join(cells) + " |\n"


# ------------------------------------------------------------------ docs/results.md


def results_page(lines: Sequence[Judged]) -> str:
    """What reproduces, and each result that did not, with the checks that say so."""
    failing = [line for line in lines if line.status == "fails"]
    parts = [
        "# Results\n",
        "This page is written by `python tools/pages.py` from the bundled rows. `triptych claims "
        "ID` prints every check of a result, and `triptych report` draws the figures.\n",
        "## What reproduces\n",
        f"Of {len(lines)} published results, {_sentences(terminal.score_of(lines))}.\n",
        table(lines),
        "In brackets: how many hold with an exception, which is a boundary case that the verdict "
        "names. *As published* means the data, model and training of the source. A *smaller scale* "
        "has fewer or shorter runs. *Other model or data* says nothing against the source.\n",
        "## Results that did not reproduce, as published\n",
        *[_section(line) for line in failing if line.scope == AS_PUBLISHED],
        "## Not reproduced at a smaller scale, or on another model\n",
        "These do not refute the source. What differs from it is said first.\n",
        *[_section(line) for line in failing if line.scope != AS_PUBLISHED],
        "## Undecided, and not run\n",
        "| result | verdict | what is missing or open |\n|---|---|---|\n"
        + "".join(_open(line) for line in lines if line.status not in ("holds", "fails")),
    ]
    return "\n".join(parts)


def _sentences(said: str) -> str:
    """A list whose parts end with semicolons, as sentences."""
    first, *others = said.split("; ")
    return ". ".join([first, *(part[:1].upper() + part[1:] for part in others)])


def _section(line: Judged) -> str:
    headline = line.headline
    assert headline is not None
    said = [f"### `{line.id}` {line.words}\n", f"{_plain(line.entry.title)}.\n"]
    if line.scope != AS_PUBLISHED and headline.differs:
        said.append(f"Differs from the source: {headline.differs}\n")
    failed = [check for check in headline.checks if _outcome(check) == "fails"]
    said.append("| check that fails | found | asked | published |\n|---|--:|--:|--:|\n")
    said[-1] += "".join(_check(check) for check in failed[:MOST_CHECKS])
    if len(failed) > MOST_CHECKS:
        said.append(f"and {len(failed) - MOST_CHECKS} more.\n")
    if line.entry.remark:
        said.append(f"{_plain(line.entry.remark)}\n")
    return "\n".join(said)


def _outcome(check: Check) -> str:
    return check.outcome.value if check.outcome else ""


def _check(check: Check) -> str:
    printed = "" if check.published is None else terminal.number(check.published)
    cells = (check.sentence, terminal.found(check), check.wanted, printed)
    return "| " + " | ".join(map(_cell, cells)) + " |\n"


def _open(line: Judged) -> str:
    headline = line.headline
    missing = "; ".join(str(one) for one in headline.missing) if headline else ""
    open_checks = (
        [c.sentence for c in headline.checks if _outcome(c) == "undecided"] if headline else []
    )
    why = missing or "; ".join(open_checks[:2]) or "its rows have not been made"
    return (
        "| " + " | ".join(map(_cell, (f"`{line.id}` {line.entry.title}", line.words, why))) + " |\n"
    )


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    """A text in which a string of brackets is code and no link."""
    return re.sub(r"[\[\](){}]{4,}", r"`\g<0>`", text)


# ------------------------------------------------------------------ docs/cli.md


def commands_page() -> str:
    """Every command with its options, as typer writes them."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "cli.md"
        command = [sys.executable, "-m", "typer", "triptych.lab.cli.app", "utils", "docs"]
        command += ["--name", "triptych", "--title", "The command line", "--output", str(page)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        return page.read_text("utf-8")


# ------------------------------------------------------------------ all of them


def pages() -> dict[Path, str]:
    """What each page must hold."""
    lines = published()
    readme, diffusion = ROOT / "README.md", ROOT / "docs" / "diffusion.md"
    return {
        ROOT / "docs" / "results.md": results_page(lines),
        ROOT / "docs" / "cli.md": commands_page(),
        diffusion: _filled(diffusion, "samplers", samplers.markdown(samplers.lines()) + "\n"),
        readme: _filled(readme, "results", table(lines)),
    }


def _filled(page: Path, name: str, made: str) -> str:
    """The page with this text between its markers."""
    marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    fill: Callable[[re.Match[str]], str] = lambda found: found[1] + made + found[2]  # noqa: E731
    return marked.sub(fill, page.read_text("utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    old = [p for p, text in pages().items() if not p.exists() or p.read_text("utf-8") != text]
    for path in old:
        print(f"{path.relative_to(ROOT)} {'is not up to date' if check else 'is written'}")
        if not check:
            write_text(path, pages()[path], durable=False)
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
