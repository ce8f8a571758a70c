"""Figures as files: whole, alike in every program, and the same bytes for the same figure."""

import io
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from triptych.lab.results.figure_files import write_figure, write_figures
from triptych.lab.results.ranking import StudyRun
from triptych.lab.results.report_studies import anchors
from triptych.lab.results.series_looks import THEMES
from triptych.studies.api.figures import Figure, Heatmap, Panel, Series

PANEL = Panel(
    [
        Series("measured", "ours", [1, 2, 3], [1, 2, 4], [0, 1, 3], [2, 3, 5]),
        Series("a control", "control", [1, 2, 3], [4, 2, 1]),
        Series("exact", "truth", [1, 2, 3], [3, 3, 3]),
    ],
    "x λ",
    "y",
    "a panel",
)
FIGURE = Figure("toy", "What the figure shows", [PANEL, Heatmap([[0, 1], [2, -1]], "a matrix")])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    stem = tmp_path_factory.mktemp("figures") / "toy"
    written = write_figure(FIGURE, stem, formats=["svg", "png", "pdf"], themes=["light", "dark"])
    return {path.name: path for path in written}


def test_every_format_and_theme_is_written(files, tmp_path):
    ends = [f"{theme}.{kind}" for theme in ("", "-dark") for kind in ("svg", "png", "pdf")]
    assert sorted(files) == sorted(f"toy{end}" for end in ends)
    again = write_figure(FIGURE, tmp_path / "toy", formats=["svg", "pdf"], themes=["light"])
    assert all(path.read_bytes() == files[path.name].read_bytes() for path in again)


def test_files_of_one_study_have_names_of_their_own(tmp_path):
    """A run of one's own, the bundled rows of the plan, and bundled rows with a label."""
    run = StudyRun("a/b", "?", "paper", {}, [], [], figures=(FIGURE,))
    bundled = replace(run, bundled=True, file="a.b.paper.json")
    labelled = replace(run, bundled=True, file="a.b.full-steps.paper.json")
    written = write_figures([run, bundled, labelled], tmp_path)
    assert [path.stem for path in written] == [
        "a.b-paper-toy",
        "a.b-paper-bundled-toy",
        "a.b-paper-bundled-full-steps-toy",
    ]
    assert len(anchors([run, bundled, labelled])) == len({*anchors([run, bundled, labelled])})


def test_an_svg_has_plain_colours_and_no_text_that_needs_a_font(files):
    for name, theme in (("toy.svg", "light"), ("toy-dark.svg", "dark")):
        svg = files[name].read_text()
        assert "var(" not in svg
        assert "<text" not in svg
        for colour in ("paper", "ours", "control", "truth"):
            assert THEMES[theme][colour] in svg
        assert not re.search(r'(href|src)="(?!#|data:)', svg)


def test_a_pdf_carries_its_fonts(files):
    pdf = files["toy.pdf"].read_bytes()
    assert b"/FontFile2" in pdf
    assert b"CreationDate" not in pdf


def colours(image):
    """How often each colour of a theme is in a picture, as a share."""
    pixels = np.asarray(image.convert("RGB")).reshape(-1, 3).astype(int)
    shares = {}
    for theme, named in THEMES.items():
        for name in ("paper", "ours", "truth"):
            wanted = [int(named[name][i : i + 2], 16) for i in (1, 3, 5)]
            shares[theme, name] = float((abs(pixels - wanted).max(1) <= 6).mean())
    return shares


def test_a_png_has_the_colours_of_its_theme(files):
    for name, theme, other in (("toy.png", "light", "dark"), ("toy-dark.png", "dark", "light")):
        found = colours(Image.open(files[name]))
        assert found[theme, "paper"] > 0.5
        assert found[theme, "ours"] > 0.0005
        assert found[other, "ours"] == 0


def rsvg(svg):
    program = shutil.which("rsvg-convert") or pytest.skip("there is no rsvg-convert here")
    return subprocess.run([program, str(svg)], capture_output=True, check=True).stdout


def cairo(svg):
    return pytest.importorskip("cairosvg").svg2png(url=str(svg))


def chromium(svg):
    program = shutil.which("chromium") or pytest.skip("there is no Chromium here")
    picture = svg.with_suffix(".chromium.png")
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1100,500"]
    command = [program, *options, f"--screenshot={picture}", f"file://{svg}"]
    subprocess.run(command, capture_output=True, check=True)
    return picture.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("draw", [rsvg, cairo, chromium])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_program_draws_the_same(files, draw, theme):
    svg = files["toy.svg" if theme == "light" else "toy-dark.svg"]
    found = colours(Image.open(io.BytesIO(draw(svg))))
    wanted = colours(Image.open(svg.with_suffix(".png")))
    for name in ("ours", "truth"):
        assert found[theme, name] > 0.2 * wanted[theme, name]
    assert found[theme, "paper"] > 0.5
