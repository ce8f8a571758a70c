"""Imports point one way. The table in ARCHITECTURE.md is the architecture; this keeps it true."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "triptych"


def import_table():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.split("## Who may import whom")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| ?(.*?) ?\|$", section, re.MULTILINE)
    return {
        name: {other.strip() for other in others.split(",") if other.strip()}
        for name, others in rows
        if name != "package"
    }


TABLE = import_table()
PACKAGES = sorted(path.name for path in SRC.iterdir() if (path / "__init__.py").is_file())


@functools.cache
def parsed(file):
    """The syntax tree of a file, parsed once for all tests."""
    return ast.parse(file.read_text())


@functools.cache
def imported_modules(file):
    """The modules of Triptych that a file imports, as ("theory", "masking", "families")."""
    found = set()
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {tuple(name.split(".")[1:]) for name in names if name.startswith("triptych.")}
    return found


def imported_packages(file):
    return {name[0] for name in imported_modules(file)} & set(TABLE)


def test_the_table_names_every_package():
    assert set(PACKAGES) <= set(TABLE)
    assert TABLE["core"] == set()
    assert all("lab" not in allowed for allowed in TABLE.values())


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package):
    for file in (SRC / package).rglob("*.py"):
        extra = imported_packages(file) - TABLE[package] - {package}
        assert not extra, f"{file.relative_to(SRC)} imports {sorted(extra)}"


SHARED_BY_CHAPTERS = {"theory": {"numerics", "conditions"}, "studies": {"api"}}
"""What the chapters of a package share; besides, a chapter imports itself alone."""


def chapters(package):
    inside = (path for path in (SRC / package).iterdir() if (path / "__init__.py").is_file())
    return sorted(path.name for path in inside if path.name not in SHARED_BY_CHAPTERS[package])


def imports_of_other_chapters(package, chapter):
    allowed = {chapter, *SHARED_BY_CHAPTERS[package]}
    return [
        f"{file.relative_to(SRC)} imports {'.'.join(name)}"
        for file in sorted((SRC / package / chapter).rglob("*.py"))
        for name in sorted(imported_modules(file))
        if name[0] == package and name[1] not in allowed
    ]


@pytest.mark.parametrize(
    ("package", "chapter"),
    [(package, chapter) for package in SHARED_BY_CHAPTERS for chapter in chapters(package)],
)
def test_a_chapter_imports_no_other_chapter(package, chapter):
    assert imports_of_other_chapters(package, chapter) == []


@pytest.mark.parametrize("package", SHARED_BY_CHAPTERS)
def test_what_chapters_share_imports_no_chapter(package):
    for shared in SHARED_BY_CHAPTERS[package]:
        place = SRC / package / shared
        for file in place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]:
            inside = {name[1] for name in imported_modules(file) if name[0] == package}
            assert inside <= SHARED_BY_CHAPTERS[package], file


def test_a_study_imports_what_its_chapter_shares_and_no_other_study():
    found = []
    for chapter in chapters("studies"):
        for file in sorted((SRC / "studies" / chapter).rglob("*.py")):
            own = file.relative_to(SRC / "studies" / chapter).parts[0].removesuffix(".py")
            for name in sorted(imported_modules(file)):
                if name[:2] == ("studies", chapter) and name[2] not in {own, "shared"}:
                    found.append(f"{file.relative_to(SRC)} imports {'.'.join(name)}")
    assert found == []


WITHOUT = """
import importlib, pkgutil, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"typer", "rich", "matplotlib", "jinja2", "transformers"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for package in sys.argv[1:]:
    module = importlib.import_module(f"triptych.{package}")
    for info in pkgutil.walk_packages(module.__path__, f"triptych.{package}."):
        if not info.name.endswith("_kernels"):  # programs for a GPU alone, in Triton
            importlib.import_module(info.name)
        print(info.name)
if sys.argv[1] != "lab":
    from triptych.studies.api.figures import Figure, Panel, Series
    page = Figure("f", "t", [Panel([Series("s", "ours", [1, 2], [1, 2])], "x", "y")])._repr_html_()
    print("a page of a figure:", "<svg" in page)
"""


def imported_without_the_labs_libraries(*packages):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT, *packages], capture_output=True, text=True
    )


def test_the_library_needs_none_of_the_labs_libraries():
    """Every module of these packages is imported where typer, rich, ... are not installed.

    Nor transformers, which a wrapper imports when it is used; and a figure is drawn in a notebook.
    """
    packages = ["core", "structures", "models", "inference", "verifiers"]
    done = imported_without_the_labs_libraries(*packages)
    assert done.returncode == 0, done.stderr
    files = [file for package in packages for file in (SRC / package).rglob("*.py")]
    *names, page = done.stdout.splitlines()
    assert len(names) == len(files) - len(packages), "each module but the roots"
    assert {f"triptych.models.pretrained.{name}" for name in ("causal", "masked")} <= set(names)
    assert page == "a page of a figure: True"


@pytest.mark.slow
def test_the_blocked_libraries_are_missed_by_the_lab():
    done = imported_without_the_labs_libraries("lab")
    assert "No module named 'rich'" in done.stderr


FILES = sorted(SRC.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SRC)))
def test_every_file_is_one_readable_thing(file):
    text = file.read_text()
    assert ast.get_docstring(parsed(file)), "a module says what it is in its docstring"
    assert len(text.splitlines()) <= 600, "a file of more than 400 lines may be two things"
    assert file.stem not in {"utils", "common", "helpers", "misc", "base", "registry"}
    assert "from __future__ import annotations" not in text, "it switches the shape checks off"
    assert not re.search(r"\bimport pickle|(?<![.\w])eval\(", text)
    loads = re.findall(r"torch\.load\(.*", text)
    assert all("weights_only=True" in load for load in loads), "it would run code of the file"


def test_public_functions_have_docstrings_or_speak_for_themselves():
    """A public function with arguments beyond self and more than ten lines explains itself."""
    silent = []
    for file in FILES:
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith(("_", "judge_")):
                long = (node.end_lineno or 0) - node.lineno > 15
                protocol = node.name in {
                    "log_prob",
                    "sample",
                    "masked_log_probs",
                    "next_token_log_probs",
                    "categorical",
                }
                if long and not protocol and not ast.get_docstring(node):
                    silent.append(f"{file.name}:{node.name}")
    assert not silent
