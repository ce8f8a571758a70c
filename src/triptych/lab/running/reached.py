"""Which of our sources a module hangs on: those that it imports, and those that these import.

They are found in the texts, so that nothing is imported and the answer takes a tenth of a second. A
module that a text only mentions counts too: rather too many than too few.
"""

import functools
import hashlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from triptych.lab.running.sources import PACKAGE

_MENTIONED = re.compile(r"\btriptych(?:\.\w+)+")
_NAMES = re.compile(
    r"^\s*from\s+(triptych(?:\.\w+)*)\s+import\s+(\((?:.|\n)*?\n\s*\)|[^\n]*)", re.MULTILINE
)
_BEGAN = time.time()
_FRONT_DOOR = (
    "__init__.py"  # it names everything and imports it when asked; nothing here imports it
)


class _Text(NamedTuple):
    digest: str
    files: tuple[str, ...]


def reached(modules: Iterable[str]) -> dict[str, str]:
    """File, from the package's folder -> digest: of these modules and of all that they reach."""
    found: dict[str, str] = {}
    waiting = [file for module in modules for file in _files_of(module)]
    while waiting:
        file = waiting.pop()
        if file not in found:
            text = _read(file)
            found[file] = text.digest
            waiting.extend(text.files)
    return dict(sorted(found.items()))


def digest_reached(modules: Iterable[str]) -> str:
    """Digest of the sources of these modules and of all that they reach."""
    texts = [f"{file} {digest}" for file, digest in reached(modules).items()]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def edited(modules: Iterable[str]) -> bool:
    """Whether one of these sources was edited since this process began: it may run older ones."""
    return any((PACKAGE / file).stat().st_mtime > _BEGAN for file in reached(modules))


def modules_of(text: str) -> set[str]:
    """The modules of ours that a text imports or mentions; names in modules are among them."""
    found = set(_MENTIONED.findall(text))
    for module, names in _NAMES.findall(text):
        found |= {f"{module}.{name}" for name in re.findall(r"\w+", names)}
    return found


@functools.lru_cache(maxsize=65536)
def _files_of(name: str) -> tuple[str, ...]:
    """The file of a module, or of the module that has this name; and of the packages around it."""
    parts = name.split(".")[1:]
    files = ["/".join([*parts[:depth], _FRONT_DOOR]) for depth in range(len(parts) + 1)]
    files += ["/".join(parts[:depth]) + ".py" for depth in range(1, len(parts) + 1)]
    return tuple(file for file in files if (PACKAGE / file).is_file())


def _read(file: str) -> _Text:
    path = f"{PACKAGE}/{file}"
    return _scanned(path, os.stat(path).st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _scanned(path: str, changed: int) -> _Text:
    content = Path(path).read_bytes()
    front = path == f"{PACKAGE}/{_FRONT_DOOR}"
    modules = set() if front else modules_of(content.decode("utf-8"))
    files = {file for module in modules for file in _files_of(module)}
    return _Text(hashlib.sha256(content).hexdigest(), tuple(sorted(files)))
