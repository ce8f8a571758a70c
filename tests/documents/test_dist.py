"""What `make dist` checks before a release: the contents of a wheel, and the wheel at work."""

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("check_dist", ROOT / "tools" / "check_dist.py")
check_dist = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_dist)

INFO = "triptych-0.1.0.dist-info"


@pytest.fixture
def clone(tmp_path):
    """A clone with two sources and one file of evidence, and the names of its wheel."""
    files = ["src/triptych/__init__.py", "src/triptych/py.typed", "evidence/a.paper.json.xz"]
    files += ["src/triptych/__pycache__/x.pyc"]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    names = ["triptych/__init__.py", "triptych/py.typed", "triptych/evidence/a.paper.json.xz"]
    return tmp_path, [*names, f"{INFO}/METADATA", f"{INFO}/licenses/LICENSE"]


def test_a_right_wheel_has_no_problem(clone):
    root, names = clone
    assert check_dist.wheel_problems(names, 1000, root) == []


@pytest.mark.parametrize("number", [0, 1, 2, 4])
def test_a_wheel_that_lacks_a_file_is_refused(clone, number):
    root, names = clone
    lacking = [name for place, name in enumerate(names) if place != number]
    assert check_dist.wheel_problems(lacking, 1000, root)


@pytest.mark.parametrize(
    "name", ["tests/conftest.py", "triptych/__pycache__/x.pyc", "triptych/old.py", "runs/x"]
)
def test_a_wheel_with_junk_is_refused(clone, name):
    root, names = clone
    assert check_dist.wheel_problems([*names, name], 1000, root)


def test_a_large_wheel_is_refused(clone):
    root, names = clone
    assert check_dist.MOST_BYTES == 12_000_000
    assert check_dist.wheel_problems(names, 12_000_001, root)


def test_an_sdist_has_what_a_wheel_is_built_from():
    wanted = ["pyproject.toml", "README.md", "LICENSE", "Makefile", "constraints.txt"]
    wanted += ["src/triptych/py.typed", "tests/conftest.py", "tools/install.py", "evidence/a"]
    names = [f"triptych-0.1.0/{name}" for name in wanted]
    assert check_dist.sdist_problems(names) == []
    assert len(check_dist.sdist_problems(names[:-1])) == 1
    assert check_dist.sdist_problems([*names, "triptych-0.1.0/.venv/x"])


def test_the_example_of_the_readme_is_found():
    assert "import" in check_dist.first_lines_of_readme((ROOT / "README.md").read_text())
    with pytest.raises(SystemExit):
        check_dist.first_lines_of_readme("```sh\nmake\n```\n")


@pytest.mark.slow
def test_a_wheel_works_outside_the_clone(tmp_path):
    """pip builds it from a copy of the tracked files; torch comes from this environment."""
    sources = tmp_path / "sources"
    sources.mkdir()
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z"], check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            (sources / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path]
    subprocess.run([*pip, sources], check=True)
    wheel = check_dist.the_one(tmp_path, "*.whl")
    with zipfile.ZipFile(wheel) as opened:
        assert check_dist.wheel_problems(opened.namelist(), wheel.stat().st_size) == []
    empty = tmp_path / "empty"
    empty.mkdir()
    python = check_dist.environment(tmp_path / "venv", wheel, fresh=False)
    check_dist.try_out(python, empty, wheel.name.split("-")[1])
