"""Which sources a module hangs on: no import is overlooked."""

import ast
import importlib.util

import pytest

from triptych.lab.running import reached
from triptych.lab.running.sources import PACKAGE

SOURCES = sorted(PACKAGE.rglob("*.py"))


def imports_in(path):
    """The modules of ours that a file imports, and the names it takes from them, by its syntax."""
    module = ".".join(["triptych", *path.relative_to(PACKAGE).with_suffix("").parts])
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.removesuffix(".__init__") if path.stem == "__init__" else module
            level = "." * node.level
            whole = importlib.util.resolve_name(f"{level}{node.module or ''}", package)
            yield whole
            yield from (f"{whole}.{alias.name}" for alias in node.names)


def test_every_import_is_found():
    for path in SOURCES:
        found = reached.modules_of(path.read_text("utf-8"))
        ours = {name for name in imports_in(path) if f"{name}.".startswith("triptych.")}
        unseen = {name for name in ours - {"triptych"} if name not in found}
        assert all(any(f"{other}.".startswith(f"{name}.") for other in found) for name in unseen)


def test_a_study_reaches_its_judge_and_what_that_uses():
    found = reached.reached(["triptych.studies.masking.reaching_the_mode.study"])
    assert {
        "studies/masking/reaching_the_mode/judge.py",
        "studies/masking/reaching_the_mode/figures.py",
        "studies/api/decide.py",
        "core/estimates.py",
        "__init__.py",
    } <= set(found)
    assert not [file for file in found if file.startswith(("studies/tuning", "guidance", "lab"))]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small package in the place of ours."""
    texts = {
        "__init__.py": "NAMES = {'far': 'triptych.far'}\n",
        "one/__init__.py": "",
        "one/start.py": "from triptych.one import (\n    near,  # (a remark)\n    other,\n)\n",
        "one/near.py": "def f():\n    from triptych.two import THING\n",
        "one/other.py": "LIKE = 'triptych.by_name:STUDY'\n",
        "one/unused.py": "",
        "two.py": "THING = 1\n",
        "by_name.py": "",
        "far.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(reached, "PACKAGE", tmp_path)
    reached._files_of.cache_clear()
    yield tmp_path
    reached._files_of.cache_clear()


def test_what_a_small_package_reaches(package):
    """Imports in functions and in lines that are wrapped, names in texts; not the front door's."""
    start = "triptych.one.start"
    assert list(reached.reached([start])) == [
        "__init__.py",
        "by_name.py",
        "one/__init__.py",
        "one/near.py",
        "one/other.py",
        "one/start.py",
        "two.py",
    ]
    before = reached.digest_reached([start])
    (package / "one" / "unused.py").write_text("x = 1\n")
    assert reached.digest_reached([start]) == before
    (package / "two.py").write_text("THING = 20\n")
    assert reached.digest_reached([start]) != before


def test_an_edit_while_a_process_runs_is_noticed(package, monkeypatch):
    last = max(path.stat().st_mtime for path in package.rglob("*.py"))
    monkeypatch.setattr(reached, "_BEGAN", last)
    assert not reached.edited(["triptych.one.start"])
    monkeypatch.setattr(reached, "_BEGAN", last - 10)
    assert reached.edited(["triptych.one.start"])
