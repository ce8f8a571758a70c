"""The pytest plug-in, in a pytest of its own: its fixtures, its level, what it costs."""

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]

SUITE = """
import random

def test_right(assert_law):
    assert_law(lambda: random.choice("ab"), {"a": 0.5, "b": 0.5})

def test_wrong(assert_law):
    assert_law(lambda: random.choice("ab"), {"a": 0.4, "b": 0.6})

def test_chain(assert_invariant):
    assert_invariant(lambda x: random.randrange(2), {0: 0.5, 1: 0.5})

def test_by_draws(certify_by_draws, request):
    rng = random.Random(0)
    found = certify_by_draws(lambda: rng.choice("ab"), {"a": 0.5, "b": 0.5}, distance=0.2)
    assert found.level == 0.01 / 2 / 2  # half of the suite's level, and the first of this test

def test_by_draws_wrong(certify_by_draws):
    certify_by_draws(lambda: "a", {"a": 0.5, "b": 0.5})
"""


def run_pytest(folder, *options):
    installed = any(each.name == "triptych" for each in entry_points(group="pytest11"))
    named = [] if installed else ["-p", "triptych_pytest"]  # an older installation does not name it
    command = [sys.executable, "-m", "pytest", "-q", *named, "-p", "no:benchmark", "-W", "error"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *options, str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
    )


def test_a_suite(tmp_path):
    (tmp_path / "test_it.py").write_text(SUITE)
    done = run_pytest(tmp_path, "--law-level", "0.01")
    assert "2 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    assert "test_it.py:8" in done.stdout, "the line of the draw"
    assert "is refuted at level" in done.stdout


def test_it_is_inert(tmp_path):
    """Without its fixtures neither torch nor triptych is loaded."""
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_it():\n    assert not {'torch', 'triptych'} & set(sys.modules)\n"
    )
    done = run_pytest(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_entry_point_names_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (module,) = project["project"]["entry-points"]["pytest11"].values()
    assert (ROOT / "src" / f"{module}.py").is_file()
    assert (
        f"src/{module}.py" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    )
