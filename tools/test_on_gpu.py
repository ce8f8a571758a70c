"""Run the test suite on a machine that has a GPU and torch, where nothing can be installed.

    python tools/test_on_gpu.py wheels FOLDER              # where packages can be had
    python tools/test_on_gpu.py run FOLDER --log LOG       # on the machine with the GPU
    python tools/test_on_gpu.py run FOLDER --log LOG -- -x tests/core      # for pytest, after --

`wheels` collects what the tests import next to torch, numpy, scipy and transformers, as files for
the Python of that machine. `run` unpacks them into a temporary folder, copies the sources into
another, makes a repository of the copy (some tests ask git) and runs the tests in as many
processes as there are cores. The machine stays as it was. Where packages can be installed,
`make test-gpu` does the same in the usual environment.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = """
pytest pytest-xdist execnet iniconfig pluggy Pygments hypothesis sortedcontainers beartype
jaxtyping wadler-lindig typer rich markdown-it-py mdurl shellingham click annotated-doc
Jinja2 MarkupSafe latex2mathml networkx matplotlib contourpy cycler fonttools kiwisolver
pyparsing python-dateutil six pillow packaging scikit-learn joblib threadpoolctl narwhals
safetensors jsonschema attrs referencing rpds-py jsonschema-specifications hmmlearn
sacrebleu portalocker tabulate colorama gguf
pydantic pydantic-core annotated-types typing-inspection typing-extensions
"""
TOO_MANY = 12  # processes: tests that start workers of their own need cores too


def wheels(folder: Path, python: str) -> None:
    """Download every needed wheel in the tested version."""
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
    by_name = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    for name in NEEDED.split():
        version = by_name.get(name.lower())
        wanted = f"{name}=={version}" if version else name
        only = ["--only-binary", ":all:", "--no-deps", "--python-version", python]
        command = [sys.executable, "-m", "pip", "download", "--quiet", *only, "-d", folder, wanted]
        subprocess.run(command, check=True)
    total = sum(path.stat().st_size for path in folder.glob("*.whl"))
    print(f"{len(list(folder.glob('*.whl')))} wheels, {total / 1e6:.0f} MB, in {folder}")


def run(folder: Path, log: Path, asked: list[str]) -> int:
    """The exit code of the tests; their output goes to `log` and to the terminal."""
    with tempfile.TemporaryDirectory() as place:
        site, tree = Path(place, "site"), Path(place, "tree")
        files = sorted(map(str, folder.glob("*.whl")))
        install = ["install", "--quiet", "--no-index", "--no-deps", "--target", str(site), *files]
        subprocess.run([sys.executable, "-m", "pip", *install], check=True)
        left_out = shutil.ignore_patterns(".git", ".venv", "device-data", "runs", "__pycache__")
        shutil.copytree(ROOT, tree, ignore=left_out)
        names = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
        for command in (["init", "-q"], ["add", "-A"], [*names, "commit", "-qm", "The sources"]):
            subprocess.run(["git", *command], cwd=tree, check=True)
        paths = os.pathsep.join(map(str, (tree / "src", site)))
        processes = str(min(os.cpu_count() or 1, TOO_MANY))
        quick = ["-n", processes, "--dist", "loadfile", "-m", "not slow", "-p", "no:benchmark"]
        command = [sys.executable, "-m", "pytest", *quick, *asked]
        environment = os.environ | {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}
        with log.open("w") as file:
            process = subprocess.Popen(
                command,
                cwd=tree,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert process.stdout is not None
            for line in process.stdout:
                file.write(line)
                print(line, end="", flush=True)
        return process.wait()


def main(given: list[str]) -> None:
    cut = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    get = commands.add_parser("wheels")
    get.add_argument("folder", type=Path)
    get.add_argument("--python", default="3.12", help="version of the machine with the GPU")
    test = commands.add_parser("run")
    test.add_argument("folder", type=Path)
    test.add_argument("--log", type=Path, required=True)
    chosen = parser.parse_args(given[:cut])
    if chosen.command == "wheels":
        wheels(chosen.folder, chosen.python)
    else:
        sys.exit(run(chosen.folder, chosen.log, given[cut + 1 :]))


if __name__ == "__main__":
    main(sys.argv[1:])
