"""Imports point one way. The table in ARCHITECTURE.md is the architecture; this keeps it true."""

import ast
import re
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


def imported_packages(file):
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            names = [node.module or ""]
            if node.module == "triptych":
                names = [f"triptych.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("triptych.")}
    return found & set(TABLE)


def test_the_table_names_every_package():
    assert set(PACKAGES) <= set(TABLE)
    assert TABLE["core"] == set()
    assert all("lab" not in allowed for allowed in TABLE.values())


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package):
    for file in (SRC / package).rglob("*.py"):
        extra = imported_packages(file) - TABLE[package] - {package}
        assert not extra, f"{file.relative_to(SRC)} imports {sorted(extra)}"


FILES = sorted(SRC.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SRC)))
def test_every_file_is_one_readable_thing(file):
    text = file.read_text()
    assert ast.get_docstring(ast.parse(text)), "a module says what it is in its docstring"
    assert len(text.splitlines()) <= 600, "a file of more than 400 lines may be two things"
    assert file.stem not in {"utils", "common", "helpers", "misc", "base", "registry"}
    assert "from __future__ import annotations" not in text, "it switches the shape checks off"
    assert not re.search(r"\bimport pickle|torch\.load\b|(?<![.\w])eval\(", text)


def test_public_functions_have_docstrings_or_speak_for_themselves():
    """A public function with arguments beyond self and more than ten lines explains itself."""
    silent = []
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
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
