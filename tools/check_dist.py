"""Check a wheel and an sdist: their contents, and the wheel in an environment outside the clone.

    python tools/check_dist.py [dist] [--fresh]

Without `--fresh` the new environment borrows torch and the other dependencies from the environment
that runs this file. With it, pip installs everything, torch first.
A release says its tag in the environment variable RELEASE_TAG, which must be the version.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 12_000_000  # of a wheel
JUNK = re.compile(
    r"(^|/)(__pycache__|[^/]*\.egg-info|\.venv|\.git|runs|dist|\.pytest_cache|\.ruff_cache)(/|$)|\.pyc$"
)
README_LINES = 10


def the_one(folder: Path, pattern: str) -> Path:
    """The only file of this name; any other number of them ends the check."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{folder} has {len(found)} files {pattern}; there must be one: make dist")
    return found[0]


def wheel_problems(names: list[str], size: int, root: Path = ROOT) -> list[str]:
    """What is wrong with the files of a wheel."""
    inside = set(names)
    sources = [path for path in (root / "src").rglob("*") if path.is_file()]
    wanted = {
        path.relative_to(root / "src").as_posix()
        for path in sources
        if not JUNK.search(path.as_posix())
    }
    wanted |= {f"triptych/evidence/{path.name}" for path in (root / "evidence").iterdir()}
    found = [f"it lacks {name}" for name in sorted(wanted - inside)]
    unknown = {name for name in inside - wanted if ".dist-info/" not in name}
    found += [f"it has {name}, which is not of src or evidence" for name in sorted(unknown)]
    if "triptych/py.typed" not in inside:
        found.append("it has no py.typed, so that its types are not seen")
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        found.append("it has no licence")
    if size > MOST_BYTES:
        found.append(f"it has {size:,} bytes; {MOST_BYTES:,} is the limit")
    return found


def sdist_problems(names: list[str]) -> list[str]:
    """What is wrong with the files of an sdist: a wheel is built from it, and tests run in it."""
    inside = {name.partition("/")[2] for name in names}
    wanted = ["pyproject.toml", "README.md", "LICENSE", "Makefile", "constraints.txt"]
    wanted += ["src/triptych/py.typed", "tests/conftest.py", "tools/install.py"]
    found = [f"it lacks {name}" for name in wanted if name not in inside]
    if not any(name.startswith("evidence/") for name in inside):
        found.append("it has no evidence")
    return found + [f"it has {name}" for name in sorted(inside) if JUNK.search(name)]


def first_lines_of_readme(text: str) -> str:
    """The first example in Python of the README, about ten lines."""
    found = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    if not found or len(found[0].splitlines()) < README_LINES // 2:
        sys.exit("README.md begins with no example in Python")
    return found[0]


def environment(folder: Path, wheel: Path, *, fresh: bool) -> Path:
    """The Python of a new environment that has the wheel."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    windows = sys.platform == "win32"
    python = folder / ("Scripts" if windows else "bin") / ("python.exe" if windows else "python")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if fresh:
        pins = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([*pip, *pins, "torch"], check=True)
        subprocess.run([*pip, *pins, str(wheel)], check=True)
    else:
        where = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
        borrowed = [path for path in sys.path if path.endswith("site-packages")]
        (Path(where) / "borrowed.pth").write_text("\n".join(borrowed) + "\n", "utf-8")
        subprocess.run([*pip, "--no-deps", "--ignore-installed", str(wheel)], check=True)
    return python


def try_out(python: Path, empty: Path, version: str) -> None:
    """The command line, the bundled verdicts and the README, where no clone is."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    own |= {"TRIPTYCH_CACHE": str(empty / "cache"), "OMP_NUM_THREADS": "1"}

    def said(*command: str) -> str:
        done = subprocess.run(
            [str(python), *command], cwd=empty, env=own, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)[:80]} ends with {done.returncode}:\n{done.stderr}")
        return done.stdout

    place = said("-c", "import triptych; print(triptych.__file__)").strip()
    if not Path(place).is_relative_to(python.parents[1]):
        sys.exit(f"the wheel was not tried: triptych is {place}")
    shown = said("-m", "triptych", "--version").strip()
    if shown != version:
        sys.exit(f"triptych --version says {shown!r}, and the wheel is {version}")
    verdicts = json.loads(said("-m", "triptych", "claims", "--json"))
    bundled = [each for each in verdicts if any(found["bundled"] for found in each["findings"])]
    if not any(each["status"] == "holds" for each in bundled):
        sys.exit(f"triptych claims has no verdict on bundled rows ({len(verdicts)} results)")
    said("-m", "triptych", "list")
    said("-W", "error", "-c", first_lines_of_readme((ROOT / "README.md").read_text("utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    parser.add_argument("--fresh", action="store_true", help="pip installs all dependencies")
    given = parser.parse_args()
    wheel, sdist = the_one(given.folder, "*.whl"), the_one(given.folder, "*.tar.gz")
    version = wheel.name.split("-")[1]
    tag = os.environ.get("RELEASE_TAG", f"v{version}")
    if tag != f"v{version}":
        sys.exit(f"the tag is {tag}, and the wheel is version {version}")
    if sdist.name != f"triptych-{version}.tar.gz":
        sys.exit(f"{sdist.name} and {wheel.name} are not of one version")
    with zipfile.ZipFile(wheel) as opened:
        problems = wheel_problems(opened.namelist(), wheel.stat().st_size)
    with tarfile.open(sdist) as opened:
        names = [member.name for member in opened if member.isfile()]
    problems += [f"of the sdist: {each}" for each in sdist_problems(names)]
    if problems:
        sys.exit("\n".join(problems))
    subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)], check=True
    )
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty"
        empty.mkdir()
        python = environment(Path(folder) / "venv", wheel.resolve(), fresh=given.fresh)
        try_out(python, empty, version)
    for file in (wheel, sdist):
        print(f"{file.name}: {file.stat().st_size:,} bytes; its contents are right")
    print("the wheel works outside the clone: command line, bundled verdicts, README")


if __name__ == "__main__":
    main()
