"""Figures, rows, studies and verdicts in a notebook: plain SVG and tables."""

import math
import re
from dataclasses import dataclass
from xml.etree import ElementTree

import pytest

from triptych.core.estimates import Estimate, Status
from triptych.lab.results.plots import to_svg
from triptych.lab.running.discovery import find_studies
from triptych.studies.api.decide import Verdict, above, at_least, decide
from triptych.studies.api.figures import Figure, Heatmap, Panel, Series
from triptych.studies.api.pictures import HEIGHT, panel_svg, to_html
from triptych.studies.api.study import Rows

STUDIES = find_studies()


def one(series, **options):
    return Panel([series], "x label", "y label", **options)


def test_points_stand_where_they_should():
    """y from 0 to 10 has limits -0.6 and 10.6: 0 stands at 0.6 / 11.2 of the height."""
    svg = panel_svg(one(Series("line", "ours", [0, 1, 2], [0, 10, 5])))
    ElementTree.fromstring(svg)
    points = re.search(r'<polyline points="([^"]+)"', svg)[1].split()
    y = [float(point.split(",")[1]) for point in points]
    assert y[0] - y[1] == pytest.approx(HEIGHT * 10 / 11.2, abs=0.2)
    assert y[0] - y[2] == pytest.approx(HEIGHT * 5 / 11.2, abs=0.2)
    x = [float(point.split(",")[0]) for point in points]
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.2)


def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios():
    svg = panel_svg(one(Series("s", "ours", [1, 10, 100], [1, 10, 100]), x_log=True, y_log=True))
    points = [p.split(",") for p in re.search(r'<polyline points="([^"]+)"', svg)[1].split()]
    for axis in (0, 1):
        at = [float(point[axis]) for point in points]
        assert at[1] - at[0] == pytest.approx(at[2] - at[1], abs=0.2)
    assert re.findall(r">([\d.]+)</text>", svg)[:3] == ["1", "10", "100"]


def test_intervals_are_drawn():
    band = panel_svg(one(Series("s", "ours", [0, 1], [1, 2], [0.5, 1.5], [1.5, 2.5])))
    assert "<polygon" in band
    bars = panel_svg(one(Series("s", "control", [0, 1], [1, 2], [0, 1], [2, 3], line=False)))
    assert "<polyline" not in bars
    assert bars.count('stroke-width="1.6"') == 2


@pytest.mark.parametrize(
    "values",
    [[], [1.0], [0.0, 0.0], [math.inf, 1.0], [math.nan, 1.0], [-1.0, 0.0], [1e-300, 1e300]],
)
@pytest.mark.parametrize("log", [False, True])
def test_odd_values_are_drawn_all_the_same(values, log):
    x = list(range(len(values)))
    low, high = [v - 1 for v in values], [math.inf for _ in values]
    for series in (Series("s", "ours", x, values), Series("s", "ours", x, values, low, high)):
        svg = panel_svg(one(series, y_log=log, x_log=log))
        ElementTree.fromstring(svg)
        assert "nan" not in svg
        assert "inf" not in svg
    assert ("nothing to draw yet" in svg) == (not values)


def test_names_are_escaped():
    panel = one(Series("<b>", "truth", [0], [1]), title="a < b & c")
    figure = Figure("f", "<script>", [panel, Heatmap([[1.0, 2.0]], "<i>", "<x>", "<y>")], "<u>")
    page = figure._repr_html_()
    ElementTree.fromstring(f"<div>{page}</div>")
    for tag in ("<b>", "<script>", "<i>", "<x>", "<y>", "<u>"):
        assert tag not in page
        assert tag.replace("<", "&lt;").replace(">", "&gt;") in page


def test_a_long_series_is_thinned_and_a_large_heat_map_cut():
    many = list(range(5000))
    page = to_html(Figure("f", "t", [one(Series("s", "ours", many, many))]))
    assert len(page) < 20_000
    wide = Heatmap([[float(i * j) for i in range(100)] for j in range(100)])
    page = to_html(Figure("f", "t", [wide]))
    assert "the first 64 x 64 of 100 x 100" in page
    assert len(page) < 80_000
    assert "nothing to draw" in to_html(Figure("f", "t", [Heatmap([])]))


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_figure_of_every_study_can_be_shown(name):
    study = STUDIES[name]
    assert repr(study).startswith(f"Study({name!r}, ")
    ElementTree.fromstring(study._repr_html_())
    for claim in study.claims:
        rows = Rows(claim.held_by)
        assert "\n" not in repr(rows)
        ElementTree.fromstring(f"<div>{rows._repr_html_()}</div>")
        for figure in study.figures:
            page = figure(rows)._repr_html_()
            ElementTree.fromstring(f"<div>{page}</div>")
            assert len(page) < 200_000


@dataclass(frozen=True)
class Toss:
    bias: float
    text: str


def test_rows_show_the_first_of_every_kind():
    rows = Rows([Toss(0.125, f"<{k}>") for k in range(20)])
    assert repr(rows) == "Rows(20 Toss)"
    assert repr(Rows()) == "Rows(none)"
    page = rows._repr_html_()
    assert page.count("0.125") == 8
    assert "and 12 more rows" in page
    assert "&lt;7&gt;" in page
    assert "<7>" not in page


def test_a_verdict_is_a_table_of_its_checks():
    said = decide(
        above("gain, <points>", Estimate(10.0, 7.0, 13.0, 4), 0.0),
        needs=[at_least("trials", 2, 3)],
    )
    page = said._repr_html_()
    assert "UNDECIDED" in page
    assert "gain, &lt;points&gt;" in page
    assert "7 to 13" in page
    assert "&gt; 0" in page
    assert "trials: 2 of 3" in page
    assert "HOLDS" in Verdict(Status.HOLDS)._repr_html_()


def test_a_heat_map_with_words():
    table = [[1.0, 0.2], [0.2, 1.0]]
    named = Figure("f", "t", [Heatmap(table, "cosines", names=("frog", "mozart"))])
    assert "frog, mozart" in to_html(named)
    assert "mozart" in to_svg(named)
    with pytest.raises(ValueError, match="2 values along x and 3 names"):
        Heatmap(table, "cosines", names=("a", "b", "c"))
