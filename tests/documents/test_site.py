"""The documentation site: every page is in its contents, and what is generated is whole."""

import ast
import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

from triptych.lab.results.ledger import load_ledger
from triptych.models.pretrained.fetching import CATALOGUE

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = (DOCS / "index.md").read_text("utf-8")


@pytest.fixture(scope="module")
def generated():
    spec = importlib.util.spec_from_file_location("generated_pages", DOCS / "generated_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entries():
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```$", INDEX, re.M | re.S)
    lines = [line.strip() for tree in trees for line in tree.splitlines()]
    return [line for line in lines if line and not line.startswith(":")]


def test_every_page_is_in_the_table_of_contents(generated, tmp_path):
    """Those that index.md does not name are on a page of their own, made by the build."""
    pages = [page.stem for page in DOCS.glob("*.md") if page.stem != "index"]
    listed, others = entries(), generated.unlisted(DOCS)
    assert sorted(pages) == sorted([*(page for page in pages if page in listed), *others])
    assert "generated/[gm]*" in listed  # glossary, and more where it exists
    named = [entry for entry in listed if "*" not in entry and not entry.startswith("generated/")]
    assert [name for name in named if not (DOCS / f"{name}.md").exists()] == []
    (tmp_path / "index.md").write_text("```{toctree}\n:hidden:\nfirst\n```\n")
    for name in ("first", "second"):
        (tmp_path / f"{name}.md").write_text("# A page\n")
    assert generated.unlisted(tmp_path) == ["second"]
    assert "../second\n" in generated.more_page(["second"])


def test_every_package_has_an_api_page(generated):
    wanted = [f"generated/api-{name.replace('.', '-')}" for name in generated.PACKAGES]
    assert [entry for entry in entries() if entry.startswith("generated/api-")] == wanted


def test_every_notebook_is_listed():
    assert "notebooks/*" in entries()


def test_pages_load_nothing_from_elsewhere():
    for page in DOCS.glob("*.md"):
        assert not re.search(r"!\[[^]]*\]\(https?:|<(script|img|link)\b", page.read_text("utf-8"))


def test_pictures_have_plain_colours_and_a_background():
    """They read alike in every program, and on a dark page too."""
    for picture in (DOCS / "pictures").glob("*.svg"):
        svg = picture.read_text("utf-8")
        assert "var(" not in svg, picture.name
        assert "#ffffff" in svg, picture.name


def test_the_ledger_page_has_every_claim_and_remark(generated):
    page = generated.ledger_page()
    for entry in load_ledger():
        assert f'<p id="{entry.id}">' in page
    remarks = sum(bool(entry.remark) for entry in load_ledger())
    assert page.count("<em>Remark.</em>") == remarks
    assert "beyond the published results" in page


def test_the_glossary_page_is_sorted(generated):
    page = generated.glossary_page()
    words = re.findall(r"^([^\n:]+)\n: \S", page, re.M)
    assert len(words) > 15
    assert words == sorted(words, key=str.lower)


def test_the_page_of_licences_has_everything_that_is_fetched(generated):
    page = generated.licences_page()
    rows = dict(re.findall(r"^\| `([^`]+)` \| [^|]+ \| ([^|]+) \|", page, re.M))
    assert rows == {name: entry.licence for name, entry in CATALOGUE.items()}
    assert all(rows.values())


def test_the_api_pages_name_modules(generated):
    page = generated.api_page("verifiers")
    assert ".. automodule:: triptych.verifiers.exact" in page
    lines = ["x |a| *b", "", "  more"]
    generated.plain_docstring(None, "function", "f", None, None, lines)
    assert lines == [".. code-block:: text", "", "   x |a| *b", "   ", "     more", ""]


def test_modules_that_a_plain_machine_cannot_import_are_replaced_for_the_site():
    """The site has a page for every module; those for a GPU need a package that is not there."""
    source, config = ROOT / "src" / "triptych", ast.parse((DOCS / "conf.py").read_text("utf-8"))
    (replaced,) = (
        ast.literal_eval(line.value)
        for line in config.body
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "autodoc_mock_imports"
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    installed = {re.split(r"[\[<>=]", needed)[0] for needed in project["dependencies"]}
    installed |= {"markupsafe", "triptych"}  # jinja2 brings markupsafe
    found = {
        name.split(".")[0]
        for path in source.rglob("*.py")
        for line in ast.parse(path.read_text("utf-8")).body
        for name in _imported(line)
    }
    assert found - installed - set(sys.stdlib_module_names) == set(replaced)


def _imported(line: ast.stmt) -> list[str]:
    if isinstance(line, ast.ImportFrom):
        return [line.module or ""]
    return [each.name for each in line.names] if isinstance(line, ast.Import) else []
