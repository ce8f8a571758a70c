"""Whether the words of a promise stand in the installed package, as they are quoted."""

import functools
import re
import sysconfig
from importlib import metadata
from pathlib import Path

from samplers.record import Sampler

PYTHON = Path(sysconfig.get_path("stdlib")) / "random.py"
READ = (".py", ".pyi", ".so", "METADATA")  # compiled code holds its docstrings in plain text


def plain(text: str) -> str:
    """Without line ends, marks of comments and the marks around code, which a quotation may drop."""
    return re.sub(r"[\s#`$*\\\"]+", " ", text).casefold().strip()


@functools.cache
def words_of(package: str) -> str:
    """All that the files of a package say."""
    if package == "python":
        return plain(PYTHON.read_text())
    files = metadata.files(package) or []
    found = []
    for file in files:
        if file.name.endswith(READ) and "/tests/" not in str(file):
            path = Path(str(file.locate()))
            if path.is_file() and path.stat().st_size < 20_000_000:
                found.append(
                    path.read_bytes().decode(
                        "latin-1" if path.suffix == ".so" else "utf-8", "replace"
                    )
                )
    return plain("\n".join(found))


def missing(sampler: Sampler) -> list[str]:
    """Parts of the promise that are not found; parts are divided by " ... "."""
    words = words_of(sampler.package)
    return [part for part in sampler.promise.split(" ... ") if plain(part) not in words]
