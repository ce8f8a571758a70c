"""Draws figures with matplotlib: one pair of axes after the other, in the colours of a theme.

Intervals are bands around lines and bars through marks. Sizes are in units: points, unless a
`Size` says how many points a unit has.
"""

import math
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from triptych.core.validation import UserError
from triptych.lab.results.series_looks import THEMES, look_numbers, series_look
from triptych.lab.results.shared_axes import comparable, ends_of, one_legend, outside, values_of
from triptych.studies.api.figures import Figure, Heatmap, Number, Panel, Series

WIDTH = 380.0  # of a panel: text of 11 points still reads at 360 pixels
PLOT = 200.0  # height of the axes
LINE = 15.0  # height of a line of text
LETTERS = 11.5  # of axes and legends
TITLE = 13.5  # size of a figure's title
BETWEEN = 16.0  # two panels
MARGIN = 12.0  # around a figure
POINTS_PER_CM = 72 / 2.54
NARROWEST = 250.0  # panel that still has its ticks apart

_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 11.5,
    "svg.hashsalt": "triptych",
    "text.parse_math": False,
    "axes.unicode_minus": True,
}


class Size(NamedTuple):
    """How large panels are: the width of one and the height of its axes in units.

    unit
        The points of a unit; letters are `LETTERS` units high.
    """

    panel: float = WIDTH
    plot: float = PLOT
    unit: float = 1.0

    def fits(self, letters: int) -> int:
        """How many letters fit where `letters` fit into a panel of the usual width."""
        return max(8, round(letters * self.panel / WIDTH))


USUAL = Size()


class Drawing(NamedTuple):
    """A canvas, its colours, the size of panels, and the upper left corner of the panel on it.

    corner
        None where the panel is alone: the canvas then takes the panel's size.
    """

    canvas: Canvas
    colours: Mapping[str, str]
    size: Size = USUAL
    corner: tuple[float, float] | None = None

    def points(self, units: Number) -> float:
        return units * self.size.unit


@contextmanager
def look(**more: Any) -> Iterator[None]:
    """Fonts and sizes of every figure; the user's own settings of matplotlib stay outside."""
    settings: dict[Any, Any] = {**_RC, **more}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that DejaVu lacks
        yield


def draw_panel(panel: Panel | Heatmap, colours: Mapping[str, str], size: Size = USUAL) -> Canvas:
    """One panel on a canvas of its own size."""
    drawing = Drawing(Canvas(dpi=72), colours, size)
    drawing.canvas.patch.set_alpha(0)
    _draw(drawing, panel)
    return drawing.canvas


def draw_legend(panels: Sequence[Panel], colours: Mapping[str, str], size: Size) -> Canvas:
    """One legend for all series of some panels, each named once, on a canvas of its own size."""
    drawing = Drawing(Canvas(dpi=72), colours, size)
    drawing.canvas.patch.set_alpha(0)
    axes = drawing.canvas.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    named: set[tuple[str, str, bool]] = set()
    for panel in panels:
        for series, index in zip(panel.series, look_numbers(panel), strict=True):
            name = (series.label, series.kind, series.line)
            if name not in named:
                named.add(name)
                bare = replace(series, x=(), y=(), low=(), high=())
                _series(drawing, axes, bare, index, (0.0, 1.0), False, 0.0)
    _, height = _legend(drawing, axes)
    drawing.canvas.set_size_inches(size.panel * size.unit / 72, height * size.unit / 72)
    return drawing.canvas


def layout(panels: int, width: Number | None = None, font: Number = LETTERS) -> tuple[Size, int]:
    """The size of panels, and how many stand next to each other.

    width
        Of the whole figure, in points; None takes panels of the usual width, two or three in a row.
    font
        The height of the letters, in points.

    Worked value: 16 cm are 453.5 points. With letters of 11.5 points two panels would have 206
    points each, below `NARROWEST`, so they stand beneath each other.
    """
    unit, columns = font / LETTERS, 2 if panels in (2, 4) else max(1, min(3, panels))
    if width is None:
        return Size(unit=unit), columns
    inside = width / unit - 2 * MARGIN
    while columns > 1 and (inside - BETWEEN * (columns - 1)) / columns < NARROWEST:
        columns -= 1
    wide = (inside - BETWEEN * (columns - 1)) / columns
    if wide < NARROWEST / 2:
        least = (NARROWEST / 2 + 2 * MARGIN) * unit / POINTS_PER_CM
        raise UserError(
            f"width is {width / POINTS_PER_CM:.3g} cm; letters of {font:g} points need at least "
            f"{math.ceil(10 * least) / 10:g} cm",
            parameter="width",
        )
    return Size(wide, PLOT * min(1.0, max(0.75, wide / WIDTH)), unit), columns


def draw_figure(
    figure: Figure, theme: str = "light", *, width: Number | None = None, font: Number = LETTERS
) -> Canvas:
    """A matplotlib figure: the title, and under it the panels in rows; see `layout` for sizes."""
    if theme not in THEMES:
        raise UserError(
            f"there is no theme {theme!r}: choose from {', '.join(THEMES)}", parameter="theme"
        )
    colours = THEMES[theme]
    with look(**_letters(font)):
        panels = one_legend(comparable(figure.panels))
        size, columns = layout(len(panels), width, font)
        sizes = [
            draw_panel(panel, colours, size).get_size_inches()[1] * 72 / size.unit
            for panel in panels
        ]
        rows = [sizes[i : i + columns] for i in range(0, len(sizes), columns)]
        wide = size.panel * columns + BETWEEN * (columns - 1)
        title = _within(figure.title, wide, TITLE)
        top = 12 + 18.0 * _count(title)
        height = top + sum(max(row) + 8 for row in rows) + 6
        inches = ((wide + 2 * MARGIN) * size.unit / 72, height * size.unit / 72)
        canvas = Canvas(dpi=72, figsize=inches)
        canvas.patch.set_facecolor(colours["paper"])
        canvas.text(
            MARGIN / (wide + 2 * MARGIN),
            1 - 10 / height,
            title,
            fontsize=TITLE * size.unit,
            weight="bold",
            color=colours["ink"],
            ha="left",
            va="top",
        )
        for i, panel in enumerate(panels):
            row, column = divmod(i, columns)
            down = top + sum(max(sizes) + 8 for sizes in rows[:row])
            corner = (MARGIN + column * (size.panel + BETWEEN), down)
            _draw(Drawing(canvas, colours, size, corner), panel)
    return canvas


def _letters(font: Number) -> dict[str, Any]:
    """The settings of matplotlib that scale with the letters."""
    unit = font / LETTERS
    return {"font.size": font, "xtick.major.pad": 3.5 * unit, "ytick.major.pad": 3.5 * unit}


def _within(text: str, width: float, size: float) -> str:
    """Bold text in lines that are no wider than this; a single longer word has its own."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        drawn = TextPath((0, 0), longer, size=size, prop=FontProperties(weight="bold"))
        if lines and drawn.get_extents().width <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(lines)


def _draw(drawing: Drawing, panel: Panel | Heatmap) -> None:
    axes = drawing.canvas.add_subplot()
    if isinstance(panel, Heatmap):
        _heatmap(drawing, axes, panel)
    else:
        _lines(drawing, axes, panel)


def _lines(drawing: Drawing, axes: Axes, panel: Panel) -> None:
    _frame(drawing, axes)
    axes.set_xlabel(
        textwrap.fill(panel.x_label, drawing.size.fits(60)),
        color=drawing.colours["ink"],
        labelpad=drawing.points(4),
    )
    if not any(len(series.x) for series in panel.series):
        _nothing(drawing, axes)
        _place(drawing, axes, panel.title, panel.y_label)
        return
    low, high = _limits([*values_of(panel), *panel.y_range], panel.y_log)
    _scale(drawing, axes, panel, low, high)
    marks = _side_by_side(panel.series)
    for series, index in zip(panel.series, look_numbers(panel), strict=True):
        dodge = marks.index(id(series)) - (len(marks) - 1) / 2 if id(series) in marks else 0.0
        _series(drawing, axes, series, index, (low, high), panel.y_log, dodge)
    legend, below = _legend(drawing, axes) if panel.legend else (None, 0.0)
    below += LINE * max((_count(name) - 1 for name in _wrapped(drawing, panel.x_names)), default=0)
    # a horizontal label over the axis reads without turning the head or the phone
    _place(drawing, axes, panel.title, panel.y_label, below=below, legend=legend)


def _side_by_side(series: Sequence[Series]) -> list[int]:
    """Ids of the series without a line that share places with others; else each stands at its x."""
    marks = [each for each in series if not each.line and each.kind != "truth"]
    places = Counter(x for each in marks for x in set(each.x))
    return [id(each) for each in marks] if max(places.values(), default=0) > 1 else []


def _series(
    drawing: Drawing,
    axes: Axes,
    series: Series,
    index: int,
    limits: tuple[float, float],
    log: bool,
    dodge: float,
) -> None:
    """One series with its intervals; marks that share an x stand side by side."""
    look = series_look(series, index, drawing.colours)
    for name in ("markersize", "linewidth", "markeredgewidth"):
        if name in look:
            look[name] = drawing.points(look[name])
    shift = ScaledTranslation(drawing.points(6 * dodge) / 72, 0, drawing.canvas.dpi_scale_trans)
    where = axes.transData + shift
    x, y = np.asarray(series.x, float), np.asarray(series.y, float)
    if series.low and series.high:
        low = np.clip(np.asarray(series.low, float), *limits)
        high = np.clip(np.asarray(series.high, float), *limits)
        colour = look["color"]
        if series.line:
            axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0, zorder=1)
        else:
            bar = {"linewidth": drawing.points(1.6), "alpha": 0.75, "zorder": 2}
            axes.vlines(x, low, high, color=colour, transform=where, **bar)
    out = np.array([outside(v, log) for v in series.y], bool)
    shown = np.where(out, np.nan, y)
    # enough markers to tell lines apart, no beads; marks without a line are the data: all of them
    every = max(1, math.ceil(len(x) / 9)) if series.line else 1
    start = index * every // 5 % every  # markers of neighbouring lines stand apart
    axes.plot(x, shown, label=series.label, markevery=(start, every), transform=where, **look)
    for upper in (False, True):
        at = x[out & ((y == math.inf) == upper)]
        edge = limits[1] if upper else limits[0]
        style = {"color": look["color"], "linestyle": "none", "clip_on": False, "zorder": 6}
        style["markersize"] = drawing.points(6)
        axes.plot(at, np.full(len(at), edge), marker="^" if upper else "v", **style)


def _limits(values: Sequence[float], log: bool) -> tuple[float, float]:
    """Limits that contain every value that can be shown, with some air."""
    ends = ends_of(values, log)
    if ends is None:
        return (0.1, 10.0) if log else (0.0, 1.0)
    low, high = ends
    if log:
        air = max((high / low) ** 0.07, 1.15)
        return low / air, high * air
    air = 0.07 * (high - low) or 0.1 * abs(high) or 1.0
    return low - air, high + air


def _scale(drawing: Drawing, axes: Axes, panel: Panel, low: float, high: float) -> None:
    if panel.x_log:
        axes.set_xscale("log")
    if panel.y_log:
        axes.set_yscale("log")
    axes.set_ylim(low, high)
    left, right = _limits([v for series in panel.series for v in series.x], panel.x_log)
    if panel.x_names:
        left, right = -0.5, len(panel.x_names) - 0.5
    axes.set_xlim(left, right)
    for axis, log, ratio in (
        (axes.xaxis, panel.x_log, right / left if panel.x_log else 1.0),
        (axes.yaxis, panel.y_log, high / low if panel.y_log else 1.0),
    ):
        if log:
            steps = (1.0, 2.0, 5.0) if ratio < 50 else (1.0,)
            axis.set_major_locator(LogLocator(subs=steps, numticks=7))
        else:
            whole = axis is axes.xaxis and all(
                float(v).is_integer() for series in panel.series for v in series.x
            )
            steps = [1, 2, 5, 10] if whole else [1, 2, 2.5, 5, 10]
            axis.set_major_locator(MaxNLocator(6, integer=whole, steps=steps))
        axis.set_major_formatter(FuncFormatter(_tick))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    if panel.x_names:
        axes.set_xticks(range(len(panel.x_names)), _wrapped(drawing, panel.x_names))


def _wrapped(drawing: Drawing, names: Sequence[str]) -> list[str]:
    """Names of places side by side, in lines that do not meet."""
    letters = drawing.size.fits(56)
    return [textwrap.fill(name, max(8, letters // len(names))) for name in names]


def _tick(value: float, _: int | None = None) -> str:
    """0.25, −3, 1000, and 2.5e−5 where zeros would fill the label."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.6g}".replace("-", "−")
    first, _e, exponent = f"{value:.2e}".partition("e")
    return f"{float(first):g}e{int(exponent)}".replace("-", "−")


def _legend(drawing: Drawing, axes: Axes) -> tuple[Legend, float]:
    """Labels at the bottom, in as many columns as fit, and their height."""
    handles, labels = axes.get_legend_handles_labels()
    wrapped = [textwrap.fill(label, drawing.size.fits(48)) for label in labels]
    room = drawing.size.fits(58)
    columns = max(1, min(len(labels), room // (max(map(len, labels), default=0) + 6)))
    lines = [1 + text.count("\n") for text in wrapped]
    rows = math.ceil(len(lines) / columns)
    legend = drawing.canvas.legend(
        handles,
        wrapped,
        loc="lower left",
        bbox_to_anchor=(0, 0),
        ncols=columns,
        frameon=False,
        labelcolor=drawing.colours["ink"],
        fontsize=drawing.points(LETTERS),
        handlelength=2.8,
        columnspacing=1.4,
        borderpad=0.1,
        borderaxespad=0.1,
    )
    tallest = max(sum(lines[i : i + rows]) for i in range(0, len(lines), rows))
    return legend, 4 + 1.15 * LINE * tallest


def _place(
    drawing: Drawing,
    axes: Axes,
    title: str,
    label: str = "",
    *,
    below: float = 0.0,
    height: float | None = None,
    width: float | None = None,
    legend: Legend | None = None,
) -> Callable[[float], tuple[float, float, float, float]]:
    """Put axes of this height between a title and a label above and `below` points beneath.

    Returns a function: the place of a bar of some width, right of the axes.
    """
    canvas, colours, size, corner = drawing
    height = height or size.plot
    head, line = textwrap.fill(title, size.fits(48)), textwrap.fill(label, size.fits(54))
    heads, lines = _count(head), _count(line)
    top = 4 + LINE * (heads + lines) + (8 if heads or lines else 2)
    bottom = below + 26 + LINE * _count(axes.get_xlabel())
    total = top + height + bottom
    if corner is None:
        canvas.set_size_inches(size.panel * size.unit / 72, total * size.unit / 72)
    page_width, page_height = canvas.get_size_inches() * 72 / size.unit
    x0, down = corner or (0.0, 0.0)
    y0 = page_height - down - total

    def point(x: float, y: float) -> tuple[float, float]:
        """Units from the lower left corner of the panel, as shares of the canvas."""
        return float((x0 + x) / page_width), float((y0 + y) / page_height)

    def box(x: float, y: float, wide: float, tall: float) -> tuple[float, float, float, float]:
        return (*point(x, y), float(wide / page_width), float(tall / page_height))

    axes.set_position(box(0.15 * size.panel, bottom, 0.8 * size.panel, height))
    renderer = FigureCanvasAgg(canvas).get_renderer()  # measures text; a whole drawing costs double
    ticks = axes.yaxis.get_tightbbox(renderer)  # labels of the ticks and of the axis
    left = (axes.bbox.x0 - ticks.x0) * 72 / canvas.dpi / size.unit + 3 if ticks else 4.0
    wide = width or size.panel - left - 12
    axes.set_position(box(left, bottom, wide, height))
    style: dict[str, Any] = {"ha": "left", "va": "top"}
    bold = {"fontsize": drawing.points(12), "weight": "bold", "color": colours["ink"]}
    canvas.text(*point(1.5, total - 3), head, **bold, **style)
    below_head = point(1.5, total - 3 - LINE * heads)
    canvas.text(*below_head, line, color=colours["muted"], **style)
    if legend:
        legend.set_bbox_to_anchor(point(0.0, 0.0), transform=canvas.transFigure)
    return lambda bar: box(left + wide + 0.02 * size.panel, bottom, bar, height)


def _count(text: str) -> int:
    return 1 + text.count("\n") if text else 0


def _heatmap(drawing: Drawing, axes: Axes, heatmap: Heatmap) -> None:
    """Sequential colours, or diverging around 0 where values have both signs."""
    widths = {len(row) for row in heatmap.values}
    if len(widths) > 1:
        raise ValueError(f"heatmap {heatmap.title!r} has rows of lengths {sorted(widths)}")
    _frame(drawing, axes, grid=False)
    axes.set_xlabel(heatmap.x_label, color=drawing.colours["ink"])
    axes.set_ylabel(heatmap.y_label, color=drawing.colours["ink"])
    values = np.asarray(heatmap.values, float)
    finite = values[np.isfinite(values)]
    if not finite.size:
        _nothing(drawing, axes)
        _place(drawing, axes, heatmap.title)
        return
    reach = float(np.abs(finite).max())
    signed = float(finite.min()) < 0 < float(finite.max()) and heatmap.limits is None
    low, high = heatmap.limits or (None, None)
    image = axes.imshow(
        np.ma.masked_invalid(values),
        vmin=low,
        vmax=high,
        cmap="PuOr" if signed else "cividis",
        norm=TwoSlopeNorm(0, -reach, reach) if signed else None,
        interpolation="none",
        aspect="auto",
    )
    for axis, stand_for in ((axes.xaxis, heatmap.x), (axes.yaxis, heatmap.y)):
        if heatmap.names:
            axis.set_ticks(range(len(heatmap.names)), list(heatmap.names))
            continue
        if stand_for:  # the first and last are always named, with up to 4 steps between
            step = max(1, -(-(len(stand_for) - 1) // 4))
            named = sorted({*range(0, len(stand_for), step), len(stand_for) - 1})
            if len(named) > 2 and named[-1] - named[-2] < step / 2:
                named.pop(-2)
            axis.set_ticks(named, [_tick(float(f"{stand_for[i]:.2g}")) for i in named])
            continue
        axis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        axis.set_major_formatter(FuncFormatter(_tick))
    longest = max(map(len, heatmap.names), default=0)
    if longest > 1:  # names of columns stand upright; a single letter fits as it is
        axes.tick_params(axis="x", labelrotation=90)
    rows, columns = values.shape
    longest *= 6.4
    # room for labels on the left, the colour bar on the right
    width, tallest = drawing.size.panel - 120 - longest / 2, 1.3 * drawing.size.plot
    height = width * rows / columns
    if height > tallest and rows < 3 * columns:  # keep cells square
        width, height = tallest * columns / rows, tallest
    height = min(max(height, 90.0), tallest)
    below = max(0.0, longest - 12)
    right_of_it = _place(drawing, axes, heatmap.title, below=below, height=height, width=width)
    beside = drawing.canvas.add_axes(right_of_it(0.025 * drawing.size.panel))
    bar = drawing.canvas.colorbar(image, cax=beside)
    beside.patch.set_alpha(0)
    beside.tick_params(
        colors=drawing.colours["muted"],
        length=drawing.points(2),
        labelsize=drawing.points(10.5),
    )
    beside.yaxis.set_major_locator(MaxNLocator(5))
    beside.yaxis.set_major_formatter(FuncFormatter(_tick))
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def _frame(drawing: Drawing, axes: Axes, *, grid: bool = True) -> None:
    axes.patch.set_alpha(0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(drawing.colours["muted"])
        axes.spines[side].set_visible(grid)
        axes.spines[side].set_linewidth(drawing.points(0.8))
    axes.tick_params(
        colors=drawing.colours["muted"],
        length=drawing.points(3),
        width=drawing.points(0.8),
        labelsize=drawing.points(11),
    )
    if grid:
        axes.grid(axis="y", color=drawing.colours["grid"], linewidth=drawing.points(0.8))
        axes.set_axisbelow(True)


def _nothing(drawing: Drawing, axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    style: dict[str, Any] = {"ha": "center", "va": "center", "color": drawing.colours["muted"]}
    axes.text(0.5, 0.5, "nothing to draw yet", transform=axes.transAxes, **style)
