"""The documentation site: every page is in its contents, and what is generated is whole."""

import ast
import html
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from latex2mathml.converter import convert

import triptych
from triptych.lab.results.gathering import gather
from triptych.lab.results.ledger import load_ledger
from triptych.models.pretrained.fetching import CATALOGUE

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = (DOCS / "index.md").read_text("utf-8")


def part(name):
    """A module of the folder docs."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(DOCS))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(DOCS))
    return module


@pytest.fixture(scope="module")
def generated():
    return part("generated_pages")


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
    pages = ["names", *(name.replace(".", "-") for name in generated.PACKAGES)]
    wanted = [f"generated/api-{name}" for name in pages]
    assert [entry for entry in entries() if entry.startswith("generated/api-")] == wanted


def test_every_notebook_is_listed():
    assert {"notebooks/*", "exercises/*"} <= set(entries())


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
        assert f'<p class="claim" id="{entry.id}">' in page
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


def test_every_verdict_is_on_the_ledger_page_with_its_scope(generated):
    page = generated.ledger_page()
    lines = gather(None, shown=False).published
    for line in lines:
        shown = re.search(f'<p class="claim" id="{re.escape(line.id)}">(.*?)</p>', page)[1]
        assert f">{html.escape(line.words)}</strong>" in shown
        assert ("(as published)" in shown) == (line.scope == "as published")
        assert all(html.escape(where) in shown for where in line.exceptions)
    assert {"holds", "fails", "undecided"} <= set(re.findall(r'class="verdict (\w+)"', page))


def test_what_users_call_comes_first_and_constants_are_out(generated):
    pytest.importorskip("sphinx", reason="sphinx is not installed: make docs installs it")
    guidance = generated.api_page("guidance")
    first, *_ = re.findall(r"\.\. auto(?:function|class):: (\S+)", guidance)
    assert first == "triptych.guidance.guide.guide"
    everything = "".join(generated.api_page(name) for name in generated.PACKAGES)
    named = re.findall(r"\.\. auto(?:function|class):: \S+\.(\w+)", everything)
    assert {"HMM", "guide", "Recipe", "MaskLaw"} <= set(named)
    assert not [name for name in named if ("_" in name and name.isupper()) or name.startswith("_")]
    assert not {"THRESHOLD", "BATCH", "AHEAD"} & set(named)
    assert ":members:" not in re.search(r"automodule::.*?\n\n", everything)[0]


def test_fields_that_say_nothing_are_left_out(generated):
    class Pair(NamedTuple):
        first: int

        def total(self): ...

    skipped = generated.leave_out
    assert skipped(None, "class", "first", Pair.first, False, None) is True
    assert skipped(None, "class", "total", Pair.total, False, None) is None


def test_types_have_their_names_in_signatures(generated, monkeypatch):
    written = "(tokens: Int[Tensor, 'a'] | Foo, n: SupportsIndex)"
    monkeypatch.setattr(generated, "_named_types", lambda: [("Int[Tensor, 'a'] | Foo", "Tokens")])
    shown, _ = generated.shorten(None, "function", "f", None, None, written, None)
    assert shown == "(tokens: Tokens, n: SupportsIndex)"


AS_RST = {
    "x |a| *b and `f(x)`s": ["x \\|a\\| \\*b and ``f(x)``\\ s", ""],
    "Notation\n--------\nz    state": [
        ".. rubric:: Notation",
        "",
        ".. list-table::",
        "   :class: meanings",
        "   :widths: auto",
        "",
        "   * - z",
        "     - state",
        "",
    ],
    "z    state    A    matrix\nx    token": [
        ".. code-block:: text",
        "   :class: formula",
        "",
        "   z    state    A    matrix",
        "   x    token",
        "",
    ],
    "steps\n    How many\n    there are.": [
        ".. list-table::",
        "   :class: meanings",
        "   :widths: auto",
        "",
        "   * - ``steps``",
        "     - How many there are.",
        "",
    ],
    "    p(x) = Σ_z p(x, z)": [
        ".. code-block:: text",
        "   :class: formula",
        "",
        "   p(x) = Σ_z p(x, z)",
        "",
    ],
    "    f(x)\n    y = g(1)": [".. code-block:: python", "", "   f(x)", "   y = g(1)", ""],
    "as in a::": ["as in a:\\:", ""],
    "1. no list": ["\\1. no list", ""],
    "- a list\n- of_two": ["- a list", "- of\\_two", ""],
}


@pytest.mark.parametrize("docstring", AS_RST)
def test_docstrings_by_hand(docstring):
    assert part("docstrings").as_rst(docstring.split("\n")) == AS_RST[docstring]


def test_every_docstring_of_the_site_is_valid(generated):
    """Where docutils is installed, which comes with Sphinx."""
    core = pytest.importorskip("docutils.core", reason="docutils comes with `make docs`")
    found = [triptych.__doc__]
    for package in ("core", "structures", "verifiers", "guidance", "studies.api"):
        for name in generated.modules(f"triptych.{package}"):
            module = importlib.import_module(name)
            values = [module, *(getattr(module, each) for each in generated.members(module))]
            own = [
                vars(each).get("__doc__") if inspect.isclass(each) else each.__doc__
                for each in values
            ]
            found += [inspect.cleandoc(docstring or "") for docstring in own]
    text = "\n".join("\n".join(part("docstrings").as_rst(each.splitlines())) for each in found)
    settings = {"report_level": 2, "halt_level": 2, "_disable_config": True}
    core.publish_doctree(
        text.replace(".. code-block:: ", ".. code:: "), settings_overrides=settings
    )


def test_pictures_with_several_panels_are_cut_into_columns():
    """A worked value: two panels of 380 points, 16 between them and 12 around."""
    layout = part("panels").Layout(800.0, 400.0, "A title", 30.0)
    first, second = layout.frames()
    assert "aspect-ratio: 388 / 370; --wide: 206.186%; --left: -2.062%; --up: -7.732%" in first
    assert "--left: -104.124%" in second
    pictures = {path: part("panels").Layout.of(path) for path in DOCS.glob("pictures/*.svg")}
    wide = {path for path in pictures if 'width="404pt"' not in path.read_text("utf-8")[:500]}
    assert {path.name for path in wide if pictures[path] is None} <= {
        "exact_tuning-laptop-exact_tuning.svg"
    }
    assert all(layout.title and layout.columns > 1 for layout in pictures.values() if layout)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_formulas_can_be_drawn(page):
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text("utf-8"), flags=re.S)
    for shown, inline in re.findall(r"\$\$(.+?)\$\$|\$(?! )([^$\n]+)(?<! )\$(?!\d)", text, re.S):
        assert convert(shown or inline).startswith("<math")


def test_formulas_of_prose_are_typeset():
    """What was plain text in the pages on masking and parallel decoding."""
    for page, plain in (("masking", "Γ_{k+1}"), ("masking", "p(x_K | x_-K"), ("tuning", "P[H₀")):
        assert plain not in (DOCS / f"{page}.md").read_text("utf-8")


def test_the_build_says_where_the_site_is():
    done = subprocess.run(
        ["make", "-n", "docs"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert re.search(r"echo .*docs/_build/html/index\.html", done.stdout)
    assert (DOCS / "_static" / "logo.svg").exists()


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
