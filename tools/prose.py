"""Plain English, kept: what readers stumble over in pages, docstrings, comments, help and messages.

    python tools/prose.py [path ...]

Each finding is one line, `file:line: what is wrong`; the exit code is 1 if there is one. Checked:

- words to avoid, with what to write instead, in every page and in strings and comments of code;
- help texts and docstrings that begin with "Of";
- pages whose sentences have more than 25 words on average, and sentences of more than 45.

Code, links, formulas and tables of a page are no sentences, and those of the log are not measured.
The words themselves may stand in the list below, and where a line ends with `prose: said`.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/*.md", "docs/*/*.md", ".github/**/*.md")
CODE = ("src/**/*.py", "tools/*.py", "benchmarks/*.py", "samplers/*.py")
OTHER = ("src/**/*.toml", "src/**/*.html", "src/**/*.j2")

AVERAGE, LONGEST = 25, 45  # words of a sentence
FEWEST = 8  # sentences from which a page has an average
UNMEASURED = ROOT / "docs" / "log"  # entries of their day, whose words are checked and not lengths
SAID = "prose: said"  # a line that quotes a word

INSTEAD = {
    r"in place of": "instead of",
    r"beside": "next to, along with",
    r"anew": "again",
    r"for ever": "forever",
    r"shipped|ships with": "bundled",
    r"goes on from|go on from": "continues from",
    r"so many": "the number itself",
    r"may as well": "can",
    r"whilst": "while",
    r"utili[sz]e[sd]?": "use",
}
_WORDS = [
    (re.compile(rf"\b(?:{said})\b", re.IGNORECASE), better) for said, better in INSTEAD.items()
]


class Finding(NamedTuple):
    path: Path
    line: int
    what: str

    def __str__(self) -> str:
        place = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{place}:{self.line}: {self.what}"


# ------------------------------------------------------------------ sentences of a page


def prose(page: str) -> str:
    """The sentences of a Markdown page, without code, tables, formulas, pictures and addresses."""

    def blank(found: re.Match[str]) -> str:  # lines keep their numbers
        return "\n" * found.group().count("\n")

    page = re.sub(r"^(```|~~~).*?^\1", blank, page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"<!--.*?-->", blank, page, flags=re.DOTALL)
    page = re.sub(r"^\s*\|.*$", "", page, flags=re.MULTILINE)
    page = re.sub(r"\$\$.*?\$\$", blank, page, flags=re.DOTALL)
    page = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", page)
    page = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page)
    page = re.sub(r"``?[^`\n]+``?|\$[^$\n]+\$", "code", page)
    return re.sub(r"^([ \t]*)(?:[-*+]|\d+\.)\s", "\\1\f", page, flags=re.MULTILINE)  # an item


def sentences(page: str) -> Iterator[tuple[int, list[str]]]:
    """The first line and the words of each sentence.

    Worked value: of "One two. Three\\nfour five!\\n\\n# Six" they are (1, [One, two.]),
    (1, [Three, four, five!]) and (4, [Six]).
    """
    line = 1
    for block in re.split(r"(\n\s*\n|\n(?=\s*#)|\f)", page):
        text = re.sub(r"^\s*#+\s*", lambda found: "\n" * found.group().count("\n"), block)
        for sentence in re.split(r"(?<=[.!?])(?=\s)", text):
            begins = line + sentence[: len(sentence) - len(sentence.lstrip())].count("\n")
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if words:
                yield begins, words
            line += sentence.count("\n")


def long_sentences(path: Path, page: str) -> Iterator[Finding]:
    """A page whose sentences are too long on average, and each sentence that is too long."""
    found = list(sentences(prose(page)))
    for line, words in found:
        if len(words) > LONGEST:
            said = " ".join(words[:6])
            yield Finding(path, line, f"a sentence of {len(words)} words: {said} …")
    if len(found) >= FEWEST:
        average = sum(len(words) for _, words in found) / len(found)
        if average > AVERAGE:
            yield Finding(path, 1, f"{average:.1f} words a sentence; at most {AVERAGE} on average")


# ------------------------------------------------------------------ words


def words_to_avoid(path: Path, line: int, text: str) -> Iterator[Finding]:
    for more, said in enumerate(text.splitlines()):
        if SAID in said:
            continue
        for pattern, better in _WORDS:
            for found in pattern.finditer(said):
                yield Finding(path, line + more, f"“{found.group()}”: write {better}")


def of_code(path: Path, source: str) -> Iterator[Finding]:
    """Words to avoid in strings and comments, and docstrings and help texts that begin with Of."""
    kinds = {
        tokenize.STRING,
        tokenize.COMMENT,
        getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING),
    }
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in kinds and SAID not in token.line:
            said = re.sub(r"\{[^{}\n]*\}", "{}", token.string)  # names of an f-string are code
            yield from words_to_avoid(path, token.start[0], said)
    for node in ast.walk(ast.parse(source)):
        kinds_with = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        said = ast.get_docstring(node) if isinstance(node, kinds_with) else None
        if said and said.startswith("Of "):
            line = getattr(node, "lineno", 1)
            yield Finding(path, line, "a docstring that begins with Of: say what it is")
        if isinstance(node, ast.keyword) and node.arg == "help":
            value = node.value
            if isinstance(value, ast.Constant) and str(value.value).startswith("Of "):
                yield Finding(path, value.lineno, "a help text that begins with Of: say what it is")


def findings(paths: list[Path]) -> Iterator[Finding]:
    for path in paths:
        yield from findings_of(path, path.read_text("utf-8"))


def findings_of(path: Path, text: str) -> Iterator[Finding]:
    """What is wrong in one file."""
    if path.suffix == ".py":
        yield from of_code(path, text)
        return
    yield from words_to_avoid(path, 1, text)
    if path.suffix == ".md" and not path.is_relative_to(UNMEASURED):
        yield from long_sentences(path, text)


def files() -> list[Path]:
    """All that is checked."""
    found = {path for some in (*PAGES, *CODE, *OTHER) for path in ROOT.glob(some)}
    found -= set((ROOT / "docs" / "generated").glob("*"))  # made of docstrings by `make docs`
    return sorted(found - {Path(__file__).resolve()})


def main(given: list[str]) -> int:
    paths = [Path(path).resolve() for path in given] or files()
    found = list(findings(paths))
    for one in found:
        print(one)
    print(f"{len(found)} findings in {len(paths)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
