"""A panel is drawn once; what decides the picture decides its name."""

import dataclasses

import pytest

from triptych.lab.results import kept_drawings, plots
from triptych.lab.results.drawing import USUAL, Size
from triptych.lab.results.kept_drawings import Drawing, kept_or_drawn
from triptych.studies.api.figures import Figure, Heatmap, Panel, Series

PANEL = Panel([Series("a", "ours", [0.0, 1.0], [0.25, 0.5])], "x", "y")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path))
    return tmp_path / "drawings"


def test_a_panel_is_drawn_once(folder):
    drawn = []

    def draw():
        drawn.append(1)
        return Drawing("<path/>", 3.0, 4.0)

    assert (
        kept_or_drawn(PANEL, USUAL, draw)
        == kept_or_drawn(PANEL, USUAL, draw)
        == ("<path/>", 3.0, 4.0)
    )
    assert len(drawn) == 1
    moved = Series("a", "ours", [0.0, 1.0], [0.25, 0.5 + 2**-50])
    for other in (
        dataclasses.replace(PANEL, title="t"),
        dataclasses.replace(PANEL, series=[moved]),
        Heatmap([[0.25]]),
    ):
        before = len(drawn)
        kept_or_drawn(other, USUAL, draw)
        assert len(drawn) == before + 1
    kept_or_drawn(PANEL, Size(panel=300.0), draw)  # another size is another drawing
    assert len(drawn) == 5


def test_other_code_draws_anew(folder, monkeypatch):
    kept_or_drawn(PANEL, USUAL, lambda: Drawing("old", 1.0, 1.0))
    monkeypatch.setattr(kept_drawings, "_code", lambda: "another version")
    assert kept_or_drawn(PANEL, USUAL, lambda: Drawing("new", 1.0, 1.0)).body == "new"


def test_what_is_damaged_is_drawn_anew(folder):
    kept_or_drawn(PANEL, USUAL, lambda: Drawing("good", 1.0, 1.0))
    (path,) = folder.iterdir()
    for text in ("", "[1, 2]", '{"body": "b"}'):
        path.write_text(text)
        assert kept_or_drawn(PANEL, USUAL, lambda: Drawing("again", 1.0, 1.0)).body == "again"


def test_without_a_folder_everything_is_drawn(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path / "file"))
    for body in ("one", "two"):
        assert kept_or_drawn(PANEL, USUAL, lambda body=body: Drawing(body, 1.0, 1.0)).body == body


def test_drawings_that_nobody_uses_go(folder, monkeypatch):
    monkeypatch.setattr(kept_drawings, "MOST", 4)
    for number in range(5):
        panel = dataclasses.replace(PANEL, title=str(number))
        kept_or_drawn(panel, USUAL, lambda: Drawing("", 1.0, 1.0))
    assert len(list(folder.iterdir())) == 3


def test_a_kept_drawing_is_the_drawing(folder):
    figure = Figure("f", "A title.", [PANEL, Heatmap([[1.0]]), PANEL])
    first = plots.to_svg(figure, prefix="p")
    assert len(list(folder.iterdir())) == 2  # the two panels are one drawing
    assert plots.to_svg(figure, prefix="p") == first
    other = plots.to_svg(figure, prefix="page")
    assert (
        other.replace("page-0", "p-0")
        .replace("page-1", "p-1")
        .replace("page-2", "p-2")
        .replace("page-t", "p-t")
        == first
    )
