"""The notebooks run from the first cell to the last, and their objects show themselves."""

from pathlib import Path

import pytest
from tests.support.notebooks import cells, run_cell, stored

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_these():
    assert {path.stem for path in NOTEBOOKS} == {
        "guide_a_model",
        "hmm_and_masked_lm",
        "is_your_sampler_right",
        "masks_and_mixing",
    }


@each_notebook
def test_cells_run_in_order(path, unchecked_shapes):
    namespace = {"__name__": path.stem}
    shown = [run_cell(source, namespace) for source in cells(path, "code")]
    pages = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert len(pages) >= 2
    assert all("<script" not in page for page in pages)


@each_notebook
def test_a_notebook_is_short_and_explains_itself(path):
    code, text = cells(path, "code"), cells(path, "markdown")
    assert 5 <= len(code) <= 10
    assert len(text) >= 5
    assert text[0].startswith("# ")
    assert not any(cell.get("outputs") for cell in stored(path)), "outputs are made by `make docs`"


@pytest.mark.slow
@each_notebook
def test_in_a_kernel(path):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    done = nbclient.NotebookClient(nbformat.read(path, as_version=4), timeout=600).execute()
    shown = [out for cell in done.cells for out in cell.get("outputs", []) if "data" in out]
    assert any("text/html" in out["data"] for out in shown)
