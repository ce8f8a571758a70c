"""Figures drawn by matplotlib: every series can be told apart, every panel has its place."""

import math
from dataclasses import replace

import matplotlib
import pytest
from tests.support.refusals import refused

from triptych.lab.results import evidence, gathering
from triptych.lab.results.drawing import LETTERS, POINTS_PER_CM, WIDTH, draw_figure, layout
from triptych.lab.results.plots import SENTINELS, panel_svgs, to_svg
from triptych.lab.results.series_looks import THEMES, look_numbers, series_look
from triptych.lab.results.shared_axes import comparable, one_legend
from triptych.studies.api.figures import Figure, Heatmap, Panel, Series

LINE = Series("a", "ours", [1, 2], [1, 2])
PANEL = Panel([LINE], "x", "y", "a panel")


def test_a_title_stays_inside_of_its_figure():
    """Letters have different widths: the same number of them may fit or not."""
    for title in (
        "An attention head on data with a memory, against a linear head",
        "W" * 20 + " " + "W" * 20,
    ):
        canvas = draw_figure(Figure("f", title, [PANEL]))
        box = canvas.texts[0].get_window_extent()
        assert box.x1 <= canvas.bbox.x1
        assert canvas.texts[0].get_text().split() == title.split()
    assert "\n" not in draw_figure(Figure("f", "i " * 30, [PANEL])).texts[0].get_text()


def test_series_are_told_apart_without_colour():
    looks = [
        series_look(Series(str(i), kind, [1], [1]), i, THEMES["light"])
        for kind in ("ours", "control")
        for i in range(40)
    ]
    seen = {
        (look["marker"], str(look["linestyle"]), "markerfacecolor" in look, look["linewidth"])
        for look in looks
    }
    assert len(seen) == len(looks)
    marks = [
        series_look(Series(str(i), "ours", [1], [1], line=False), i, SENTINELS) for i in (0, 7)
    ]
    assert marks[0]["marker"] != marks[1]["marker"]


def test_exact_series_are_told_apart():
    looks = [series_look(Series(str(i), "truth", [1], [1]), i, SENTINELS) for i in range(12)]
    assert len({(look["marker"], str(look["linestyle"])) for look in looks}) == len(looks)
    assert looks[0]["marker"] == " "


def test_panels_to_be_compared_have_one_range():
    """The same series by the same measure; but none is squeezed below a third."""

    def panel(*y: float, label: str = "a", measure: str = "loss", log: bool = False) -> Panel:
        series = Series(label, "ours", range(len(y)), y)
        return Panel([series], "x", measure, y_log=log)

    ranges = [tuple(each.y_range) for each in comparable([panel(0, 2), panel(1, 3, math.inf)])]
    assert ranges == [(0, 3), (0, 3)]
    for other in (panel(1, 3, label="b"), panel(1, 3, measure="gain"), panel(0, 7), panel()):
        assert all(each.y_range == () for each in comparable([panel(0, 2), other]))
    logs = [panel(1, 10, log=True), panel(0.1, 1, log=True)]
    assert [tuple(each.y_range) for each in comparable(logs)] == [(0.1, 10)] * 2
    drawn = draw_figure(Figure("f", "t", [panel(0, 2), panel(1, 3)]))
    assert drawn.axes[0].get_ylim() == drawn.axes[1].get_ylim()


def test_themes_have_the_same_colours_by_name():
    assert set(THEMES["light"]) == set(THEMES["dark"]) == set(SENTINELS)


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (2, 2), (3, 3), (4, 2), (5, 3)])
def test_panels_stand_in_rows(count, columns):
    before = dict(matplotlib.rcParams)
    canvas = draw_figure(Figure("f", "A title", [PANEL] * count), "dark")
    assert dict(matplotlib.rcParams) == before
    width, _ = canvas.get_size_inches() * 72
    assert width == pytest.approx(WIDTH * columns + 16 * (columns - 1) + 24)
    boxes = [axes.get_position() for axes in canvas.axes]
    assert len({round(box.x0, 3) for box in boxes}) == columns
    assert len({round(box.y0, 3) for box in boxes}) == -(-count // columns)
    assert all(0 < box.x0 < box.x1 <= 1 and 0 < box.y0 < box.y1 < 1 for box in boxes)
    assert canvas.texts[0].get_text() == "A title"
    assert matplotlib.colors.to_hex(canvas.get_facecolor()) == THEMES["dark"]["paper"]
    assert len(canvas.legends) == 1  # the panels show the same


def test_a_heat_map_has_its_bar_beside_it():
    heat, bar = draw_figure(Figure("f", "A title", [Heatmap([[0, 1]])])).axes
    assert heat.get_position().x1 < bar.get_position().x0 < 1
    assert heat.get_position().y0 == pytest.approx(bar.get_position().y0)


def test_an_unknown_theme_is_one_sentence():
    with refused("theme"):
        draw_figure(Figure("f", "A title", []), "grey")


def test_places_with_names_have_words_and_room_for_them():
    series = Series("a", "ours", [0, 1], [1, 2], line=False)
    numbers = draw_figure(Figure("f", "A title", [Panel([series], "", "y")]))
    short = draw_figure(Figure("f", "A title", [Panel([series], "", "y", x_names=("b", "c"))]))
    assert [tick.get_text() for tick in short.axes[0].get_xticklabels()] == ["b", "c"]
    assert short.axes[0].get_xlim() == (-0.5, 1.5)
    assert short.get_size_inches()[1] == numbers.get_size_inches()[1]
    long = ("a name that needs more than one line", "c")
    tall = draw_figure(Figure("f", "A title", [Panel([series], "", "y", x_names=long)]))
    assert "\n" in tall.axes[0].get_xticklabels()[0].get_text()
    assert tall.get_size_inches()[1] > short.get_size_inches()[1]
    with pytest.raises(ValueError, match="names for 1 places, and series 'a' stands at 0, 1"):
        Panel([series], "", "y", x_names=("b",))


@pytest.mark.parametrize(("second", "apart"), [([3.0, 2.0], 6.0), ([2.5, 3.0], 0.0)])
def test_marks_stand_side_by_side_only_where_they_share_a_place(second, apart):
    """In points: a mark of a scatter plot stands at its own x."""
    one = Series("one", "ours", [1.0, 2.0], [1.0, 1.0], line=False)
    other = Series("other", "control", second, [1.0, 1.0], line=False)
    canvas = draw_figure(Figure("f", "t", [Panel([one, other], "x", "y")]))
    axes = canvas.axes[0]
    drawn = {line.get_label(): line.get_transform().transform((2.0, 1.0))[0] for line in axes.lines}
    assert (drawn["other"] - drawn["one"]) * 72 / canvas.dpi == pytest.approx(apart)
    middle = axes.transData.transform((2.0, 1.0))[0]
    assert drawn["one"] + drawn["other"] == pytest.approx(2 * middle)


def test_panels_with_the_same_series_have_one_legend():
    """The first of them names the series; other series or a heat map between them end that."""
    a, b = Series("a", "ours", [1, 2], [1, 2]), Series("b", "truth", [1, 2], [2, 1])
    other = replace(a, label="other")
    moved = replace(a, y=[5, 6])
    panels = [Panel([a, b], "x", "y"), Panel([moved, b], "x", "y"), Panel([other, b], "x", "y")]
    assert [panel.legend for panel in one_legend(panels)] == [True, False, True]
    between = [panels[0], Heatmap([[1.0]]), panels[1]]
    assert [panel.legend for panel in one_legend(between)[::2]] == [True, True]
    assert [panel.legend for panel in one_legend([panels[0]] * 3)] == [True, False, False]
    figure = Figure("f", "F", panels)
    assert len(draw_figure(figure).legends) == 2
    assert [">b<" in svg for svg in panel_svgs(figure)] == [True, False, True]
    assert to_svg(figure).count(">b<") == 2


def test_a_figure_has_the_width_and_the_letters_that_are_asked_for():
    """16 cm at 12 points: every text is larger by 12 / 11.5, and two panels stand beneath."""
    figure = Figure("f", "A title", [PANEL, replace(PANEL, y_label="other")])
    usual, wide = draw_figure(figure), draw_figure(figure, width=16 * POINTS_PER_CM, font=12)
    assert wide.get_size_inches()[0] == pytest.approx(16 / 2.54)
    sizes = [[text.get_fontsize() for text in canvas.texts] for canvas in (usual, wide)]
    assert [b / a for a, b in zip(*sizes, strict=True)] == pytest.approx(
        [12 / 11.5] * len(sizes[0])
    )
    ticks = [canvas.axes[0].get_xticklabels()[0].get_fontsize() for canvas in (usual, wide)]
    assert ticks[1] / ticks[0] == pytest.approx(12 / 11.5)
    first, second = (axes.get_position() for axes in wide.axes)
    assert first.x0 == pytest.approx(second.x0)
    assert first.y0 > second.y1
    assert len({round(axes.get_position().y0, 6) for axes in usual.axes}) == 1
    small = draw_figure(figure, width=16 * POINTS_PER_CM, font=8)
    assert len({round(axes.get_position().y0, 6) for axes in small.axes}) == 1


@pytest.mark.parametrize(
    ("panels", "cm", "font", "columns"),
    [
        (1, 16, 12, 1),
        (2, 16, 12, 1),
        (2, 16, 8, 2),
        (3, 30, 11.5, 3),
        (3, 24, 12, 2),
        (5, 60, 9, 3),
    ],
)
def test_how_many_panels_stand_next_to_each_other(panels, cm, font, columns):
    size, found = layout(panels, cm * POINTS_PER_CM, font)
    assert found == columns
    assert size.unit == font / LETTERS
    total = (size.panel * found + 16 * (found - 1) + 24) * size.unit
    assert total == pytest.approx(cm * POINTS_PER_CM)
    assert layout(panels) == ((WIDTH, 200, 1), 2 if panels in (2, 4) else min(panels, 3))


def test_letters_that_do_not_fit_are_refused():
    with refused("width"):
        layout(1, 5 * POINTS_PER_CM, 30)


@pytest.fixture(scope="module")
def every_figure():
    """All figures of the bundled evidence."""
    runs, _ = gathering.bundled_runs(evidence.folder())
    found = [figure for run in runs for figure in run.figures]
    assert len(found) > 100
    return found


@pytest.mark.slow
def test_no_two_lines_of_a_figure_are_alike(every_figure):
    """Without colour, in every figure that is bundled; and one name has one look in all panels."""
    for figure in every_figure:
        by_name = {}
        for panel in one_legend(comparable(figure.panels)):
            if isinstance(panel, Heatmap):
                continue
            looks = []
            for series, number in zip(panel.series, look_numbers(panel), strict=True):
                look = series_look(series, number, THEMES["light"])
                filled, width = "markerfacecolor" not in look, look["linewidth"]
                looks.append((look["marker"], filled, str(look["linestyle"]), width))
                name = (series.label, series.kind, series.line)
                assert by_name.setdefault(name, look) == look, (figure.name, series.label)
            assert len(set(looks)) == len(looks), (figure.name, panel.title, looks)


def test_a_series_looks_the_same_in_all_panels():
    """The second panel lacks the first series: the others keep their looks, and their names."""
    a, b, c = (Series(name, "ours", [1, 2], [1, 2]) for name in "abc")
    first, second, third = one_legend(
        [Panel([a, b], "x", "y"), Panel([b], "x", "y"), Panel([c, a], "x", "y")]
    )
    assert [panel.looks for panel in (first, second, third)] == [(0, 1), (1,), (2, 0)]
    assert [panel.legend for panel in (first, second, third)] == [True, False, True]
    (twice,) = one_legend([Panel([a, a], "x", "y")])
    assert look_numbers(twice) == [0, 1]
