"""Plain text as documents and paragraphs: a file, a folder, a fetched corpus, or docstrings.

    read_documents("notes/")        a folder: every .txt file is a document
    read_documents("book.txt")      one file: articles under "= Title =" lines, or else paragraphs
    read_documents("wikitext2")     a corpus that `triptych fetch wikitext2` brought
    read_documents("docstrings")    docstrings of Python and of the packages that Triptych needs
    read_documents("python-help")   the topics of Python's help, a small part of them

A document is a list of paragraphs. Docstrings are text that every machine with Triptych has: those
of the standard library, numpy, scipy and torch, with the topics of Python's own help.
"""

import functools
import importlib
import importlib.metadata
import inspect
import platform
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from triptych.core.validation import UserError, shown
from triptych.models.pretrained.fetching import CATALOGUE, fetched

Document = list[str]
"""The paragraphs of a document."""

DOCSTRINGS, PYTHON_HELP = "docstrings", "python-help"
STANDARD_LIBRARY = [
    "argparse",
    "asyncio",
    "collections",
    "concurrent.futures",
    "configparser",
    "csv",
    "ctypes",
    "datetime",
    "decimal",
    "difflib",
    "email",
    "fractions",
    "functools",
    "http",
    "itertools",
    "json",
    "logging",
    "math",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "re",
    "shutil",
    "socket",
    "sqlite3",
    "ssl",
    "statistics",
    "string",
    "subprocess",
    "tarfile",
    "tempfile",
    "threading",
    "time",
    "tkinter",
    "tokenize",
    "turtle",
    "typing",
    "unittest",
    "urllib.request",
    "xml.etree.ElementTree",
    "zipfile",
]
PACKAGES = {
    "numpy": "numpy numpy.fft numpy.linalg numpy.ma numpy.polynomial numpy.random numpy.testing",
    "scipy": "scipy.cluster.hierarchy scipy.cluster.vq scipy.fft scipy.integrate scipy.interpolate "
    "scipy.io scipy.linalg scipy.ndimage scipy.optimize scipy.signal scipy.sparse "
    "scipy.sparse.csgraph scipy.sparse.linalg scipy.spatial scipy.special scipy.stats",
    "torch": "torch torch.distributions torch.fft torch.linalg torch.nn torch.nn.functional "
    "torch.nn.init torch.optim torch.optim.lr_scheduler torch.special torch.utils.data",
}
_LEAST_DOCSTRING = 200  # characters; shorter ones are no documents
_ARTICLE = re.compile(r"^ ?= [^=].*[^=] = ?$")
_HEADING = re.compile(r"^ ?=( =)+ .* =( =)+ ?$")
_SPACED = re.compile(r" ?@([-,.])@ ?")  # WikiText writes 1,000 as "1 @,@ 000"


def read_documents(where: str | Path) -> list[Document]:
    """The documents at a place, each with a paragraph or more."""
    if not isinstance(where, str | Path) or not str(where):
        raise UserError(f"the corpus is {shown(where)}; it must be a file, a folder or a name")
    path = Path(where)
    if path.is_dir():
        found = _of_folder(path)
    elif path.is_file():
        found = split_articles(_text(path))
    elif str(where) == DOCSTRINGS:
        found = docstrings()
    elif str(where) == PYTHON_HELP:
        found = python_help()
    elif str(where) in _fetched_texts():
        place = fetched(str(where))
        files = [place] if place.is_file() else sorted(place.glob("*.txt"))
        found = [document for file in files for document in split_articles(_text(file))]
    else:
        names = _fetched_texts()
        raise UserError(
            f"there is no corpus {str(where)!r}; give a folder with .txt files, one text file, or "
            f"one of {', '.join([*names, DOCSTRINGS, PYTHON_HELP])}"
        )
    if not found:
        raise UserError(f"the corpus {str(where)!r} has no text: all of it is empty")
    return found


def _fetched_texts() -> list[str]:
    """Names of corpora in plain files; pairs of sentences are none."""
    return [
        name
        for name, entry in CATALOGUE.items()
        if entry.kind == "corpus" and all(file.path.endswith(".txt") for file in entry.files)
    ]


def _of_folder(folder: Path) -> list[Document]:
    files = sorted(folder.rglob("*.txt"))
    if not files:
        raise UserError(f"the folder {str(folder)!r} has no .txt files", parameter="folder")
    return [found for file in files if (found := paragraphs(_text(file)))]


def _text(file: Path) -> str:
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(_not_text(file)) from error
    except OSError as error:
        raise UserError(
            f"{str(file)!r} cannot be read: {error.strerror}", parameter="file"
        ) from error
    if "\0" in text:
        raise UserError(_not_text(file))
    return text


def _not_text(file: Path) -> str:
    return (
        f"{str(file)!r} is not plain text in UTF-8; save it as UTF-8, or take it out of the folder"
    )


def paragraphs(text: str) -> Document:
    """What blank lines separate, each on one line.

    Worked value: "a\\nb\\n\\nc" has the paragraphs "a b" and "c".
    """
    blocks = re.split(r"\n\s*\n", text)
    return [" ".join(block.split()) for block in blocks if block.strip()]


def split_articles(text: str) -> list[Document]:
    """Articles under " = Title = " lines, as in WikiText; without such lines, every paragraph.

    In articles every line is a paragraph, and the titles of sections are left out.
    """
    lines = text.splitlines()
    if not any(_ARTICLE.match(line) for line in lines):
        return [[each] for each in paragraphs(text)]
    found: list[Document] = [[]]
    for line in lines:
        if _ARTICLE.match(line):
            found.append([])
        elif line.strip() and not _HEADING.match(line):
            found[-1].append(_SPACED.sub(r"\1", line.strip()))
    return [document for document in found if document]


# ---------------------------------------------------------------------- docstrings


@functools.lru_cache(maxsize=1)
def docstrings() -> list[Document]:
    """Every docstring of 200 characters or more, once; the topics of Python's help come first.

    Examples, which are code, are cut away: lines from the first ">>>" of a paragraph on.
    """
    seen: dict[str, None] = {}
    modules = [*STANDARD_LIBRARY, *" ".join(PACKAGES.values()).split()]
    for name in modules:
        for text in _docstrings_of(name):
            seen.setdefault(text)
    found = [_prose(text) for text in seen if len(text) >= _LEAST_DOCSTRING]
    return [*python_help(), *(document for document in found if document)]


def python_help() -> list[Document]:
    """What `help("TOPIC")` of Python shows, for every topic."""
    from pydoc_data import topics

    return [document for text in topics.topics.values() if (document := _prose(text))]


def docstring_versions() -> dict[str, str]:
    """What the docstrings depend on: Python and the packages."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **versions}


def _docstrings_of(name: str) -> Iterator[str]:
    """The public functions and classes of a module, and the methods of these."""
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            module = sys.modules.get(name) or importlib.import_module(name)
    except ImportError:  # tkinter is missing from some Pythons
        return
    yield inspect.getdoc(module) or ""
    for attribute in sorted(vars(module)):
        value = vars(module)[attribute]
        if attribute.startswith("_") or inspect.ismodule(value):
            continue
        text = _own_docstring(value)
        if text:
            yield text
        if inspect.isclass(value):
            for method in sorted(vars(value)):
                if not method.startswith("_"):
                    yield _own_docstring(vars(value)[method]) or ""


def _own_docstring(value: object) -> str:
    if not (inspect.isclass(value) or callable(value)):
        return ""
    try:
        return inspect.getdoc(value) or ""
    except Exception:  # some lazy attributes raise when they are asked
        return ""


def _prose(text: str) -> Document:
    found = []
    for block in re.split(r"\n\s*\n", text):
        kept: list[str] = []
        for line in block.splitlines():
            if line.lstrip().startswith((">>>", "...")):
                break
            kept.append(line)
        words = " ".join(" ".join(kept).split())
        if re.search(r"[A-Za-z]{3}", words):
            found.append(words)
    return found
