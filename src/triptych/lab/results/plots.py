"""Figures as inline SVG whose colours are CSS variables, so that one drawing suits light and dark.

Matplotlib draws with sentinel colours that nothing else uses; they are then replaced by
`var(--ours, ...)` and the like. The fallback after the comma colours an SVG that stands alone.

    ours       solid line, filled markers      control    thin grey line, open markers
    published  hollow diamonds                 truth      dashed, always the same colour

Series of one kind differ in marker, dash and shade, so no reading depends on colour alone.
Intervals are bands around lines and bars through marks.
"""

import hashlib
import html
import io
import math
import re
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from triptych.studies.api.figures import Figure, Heatmap, Panel, Series

WIDTH = 380.0  # points, the units of the viewBox: text of 11 of them still reads at 360 pixels
PLOT = 200.0  # height of the axes
LINE = 15.0  # height of a line of text

# name of the CSS variable -> (sentinel drawn by matplotlib, colour where the variable is not set)
COLOURS = {
    "paper": ("#f1e1d1", "#ffffff"),
    "ink": ("#1e0e0d", "#1d1c1a"),
    "muted": ("#5e4e4d", "#66625a"),
    "grid": ("#d1c1b1", "#e4dfd4"),
    "ours": ("#0d1eb1", "#0b62a4"),
    "ours-2": ("#0d1eb2", "#4f9ad6"),
    "ours-3": ("#0d1eb3", "#0a2f52"),
    "control": ("#7d7e71", "#857f74"),
    "control-2": ("#7d7e72", "#aaa499"),
    "control-3": ("#7d7e73", "#55514a"),
    "published": ("#d1510d", "#c2500a"),
    "truth": ("#0d7e51", "#00795a"),
}
_DRAWN = {name: sentinel for name, (sentinel, _) in COLOURS.items()}

_MARKERS = {"ours": "os^vP", "control": "oXph*", "published": "Dd", "truth": " "}
_DASHES: tuple[Any, ...] = ("-", (0, (7, 1.5, 1.5, 1.5)), (0, (1.5, 1.5)), (0, (9, 2, 3, 2)))

_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 11.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "triptych",
    "text.parse_math": False,
    "axes.unicode_minus": True,
}


def to_svg(figure: Figure, *, prefix: str | None = None) -> str:
    """One SVG with the panels side by side; ids start with `prefix` (default: from the content)."""
    prefix = prefix or _digest(figure)
    drawn = [_drawn(panel, f"{prefix}-{i}") for i, panel in enumerate(figure.panels)]
    left, bodies = 0.0, []
    for body, width, _ in drawn:
        bodies.append(f'<g transform="translate({left:.1f} 0)">{body}</g>')
        left += width
    height = max((height for _, _, height in drawn), default=1.0)
    return _wrapped("".join(bodies), max(left, 1.0), height, figure.title, prefix)


def panel_svgs(figure: Figure, *, prefix: str | None = None) -> list[str]:
    """One SVG per panel, for a page that lets them stack where it is narrow."""
    prefix = prefix or _digest(figure)
    svgs = []
    for i, panel in enumerate(figure.panels):
        body, width, height = _drawn(panel, f"{prefix}-{i}")
        title = f"{figure.title}: {panel.title}" if panel.title else figure.title
        svgs.append(_wrapped(body, width, height, title, f"{prefix}-{i}"))
    return svgs


def notes(figure: Figure) -> list[str]:
    """What a reader must know about marks at the edge of the axes."""
    panels = [panel for panel in figure.panels if isinstance(panel, Panel)]
    said = []
    bounds = [v for p in panels for s in p.series for v in (*s.low, *s.high)]
    if any(math.isinf(v) for v in bounds):
        said.append("An interval that reaches both edges is unbounded: there is one sample.")
    if any(_outside(v, p.y_log) for p in panels for s in p.series for v in s.y):
        said.append(
            "A triangle at an edge is a value that the axis cannot show (zero or infinite)."
        )
    return said


def _digest(figure: Figure) -> str:
    return "f" + hashlib.sha256(repr(figure).encode()).hexdigest()[:10]


def _wrapped(body: str, width: float, height: float, title: str, prefix: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'role="img" aria-labelledby="{prefix}-title" width="100%" '
        f'viewBox="0 0 {width:.1f} {height:.1f}" stroke-linejoin="round">'
        f'<title id="{prefix}-title">{html.escape(title)}</title>{body}</svg>'
    )


def _drawn(panel: Panel | Heatmap, prefix: str) -> tuple[str, float, float]:
    """The SVG elements of one panel with their width and height."""
    with matplotlib.rc_context(_RC), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that DejaVu lacks: the browser has its own fonts
        canvas = Canvas(dpi=72)  # pixels are points
        canvas.patch.set_alpha(0)
        axes = canvas.add_subplot()
        if isinstance(panel, Heatmap):
            _heatmap(canvas, axes, panel)
        else:
            _lines(canvas, axes, panel)
        out = io.StringIO()
        # no "Date": the same figure is the same bytes
        canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        width, height = canvas.get_size_inches() * 72
    return _variables(out.getvalue(), prefix), float(width), float(height)


def _variables(svg: str, prefix: str) -> str:
    """The elements inside matplotlib's SVG: own ids, variables for colours, the page's font."""
    body = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)  # it would style the whole page
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', body))

    def own(found: re.Match[str]) -> str:
        return f' id="{prefix}-{found[1]}"' if found[1] in used else ""

    body = re.sub(r' id="([^"]*)"', own, body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", body)
    body = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--sans, sans-serif)", body)
    for name, (sentinel, fallback) in COLOURS.items():
        body = body.replace(sentinel, f"var(--{name}, {fallback})")
    return re.sub(r"\s*\n\s*", "\n", body).strip()


def _lines(canvas: Canvas, axes: Axes, panel: Panel) -> None:
    _frame(axes)
    axes.set_xlabel(textwrap.fill(panel.x_label, 60), color=_DRAWN["ink"])
    if not any(len(series.x) for series in panel.series):
        _nothing(axes)
        _place(canvas, axes, panel.title, panel.y_label)
        return
    low, high = _limits([v for s in panel.series for v in (*s.y, *s.low, *s.high)], panel.y_log)
    _scale(axes, panel, low, high)
    seen: dict[str, int] = {}
    marks = [id(series) for series in panel.series if not series.line and series.kind != "truth"]
    for series in panel.series:
        index = seen.get(series.kind, 0)
        seen[series.kind] = index + 1
        dodge = marks.index(id(series)) - (len(marks) - 1) / 2 if id(series) in marks else 0.0
        _series(canvas, axes, series, index, (low, high), panel.y_log, dodge)
    below = _legend(canvas, axes)
    # a horizontal label over the axis reads without turning the head or the phone
    _place(canvas, axes, panel.title, panel.y_label, below=below)


def _series(
    canvas: Canvas,
    axes: Axes,
    series: Series,
    index: int,
    limits: tuple[float, float],
    log: bool,
    dodge: float,
) -> None:
    """One series with its intervals; marks that share an x stand side by side."""
    look = _look(series, index)
    shift = ScaledTranslation(6 * dodge / 72, 0, canvas.dpi_scale_trans)
    where = axes.transData + shift
    x, y = np.asarray(series.x, float), np.asarray(series.y, float)
    if series.low and series.high:
        low = np.clip(np.asarray(series.low, float), *limits)
        high = np.clip(np.asarray(series.high, float), *limits)
        colour = look["color"]
        if series.line:
            axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0, zorder=1)
        else:
            axes.vlines(
                x, low, high, color=colour, linewidth=1.6, alpha=0.75, zorder=2, transform=where
            )
    out = np.array([_outside(v, log) for v in series.y], bool)
    shown = np.where(out, np.nan, y)
    # enough markers to tell lines apart, no beads; marks without a line are the data: all of them
    every = max(1, math.ceil(len(x) / 9)) if series.line else 1
    axes.plot(x, shown, label=series.label, markevery=every, transform=where, **look)
    for upper in (False, True):
        at = x[out & ((y == math.inf) == upper)]
        edge = limits[1] if upper else limits[0]
        style = {"color": look["color"], "linestyle": "none", "clip_on": False, "zorder": 6}
        axes.plot(at, np.full(len(at), edge), marker="^" if upper else "v", **style)


def _look(series: Series, index: int) -> dict[str, Any]:
    """Marker, dash and shade of the index-th series of its kind."""
    kind, shade = series.kind, index % 3
    several = kind in ("ours", "control") and shade
    colour = _DRAWN[f"{kind}-{shade + 1}" if several else kind]
    marker = _MARKERS[kind][index % len(_MARKERS[kind])]
    look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5.5, "zorder": 3}
    look["linestyle"] = _DASHES[index % len(_DASHES)] if series.line else "none"
    look["linewidth"] = 1.8
    if kind == "control":
        look |= {"linewidth": 1.3, "markerfacecolor": _DRAWN["paper"], "markeredgewidth": 1.2}
    if kind == "published":
        look |= {"markerfacecolor": _DRAWN["paper"], "markersize": 7, "markeredgewidth": 1.5}
        look |= {"linewidth": 0.9, "zorder": 5}
    if kind == "truth":
        look |= {"linestyle": (0, (4.5, 2.5)) if series.line else "none", "zorder": 4}
        if not series.line:
            look |= {"marker": "_", "markersize": 22, "markeredgewidth": 2, "zorder": 2}
    return look


def _outside(value: float, log: bool) -> bool:
    return math.isinf(value) or (log and value <= 0)


def _limits(values: Sequence[float], log: bool) -> tuple[float, float]:
    """Limits that contain every value that can be shown, with some air."""
    shown = [v for v in values if math.isfinite(v) and not _outside(v, log)]
    if not shown:
        return (0.1, 10.0) if log else (0.0, 1.0)
    low, high = min(shown), max(shown)
    if log:
        air = max((high / low) ** 0.07, 1.15)
        return low / air, high * air
    air = 0.07 * (high - low) or 0.1 * abs(high) or 1.0
    return low - air, high + air


def _scale(axes: Axes, panel: Panel, low: float, high: float) -> None:
    if panel.x_log:
        axes.set_xscale("log")
    if panel.y_log:
        axes.set_yscale("log")
    axes.set_ylim(low, high)
    left, right = _limits([v for series in panel.series for v in series.x], panel.x_log)
    axes.set_xlim(left, right)
    for axis, log, ratio in (
        (axes.xaxis, panel.x_log, right / left if panel.x_log else 1.0),
        (axes.yaxis, panel.y_log, high / low if panel.y_log else 1.0),
    ):
        if log:
            steps = (1.0, 2.0, 5.0) if ratio < 50 else (1.0,)
            axis.set_major_locator(LogLocator(subs=steps, numticks=7))
        else:
            axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(_tick))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())


def _tick(value: float, _: int | None = None) -> str:
    """0.25, −3, 1000, and 2.5e−5 where zeros would fill the label."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.6g}".replace("-", "−")
    first, _e, exponent = f"{value:.2e}".partition("e")
    return f"{float(first):g}e{int(exponent)}".replace("-", "−")


def _legend(canvas: Canvas, axes: Axes) -> float:
    """Labels at the bottom, in as many columns as fit; returns their height."""
    handles, labels = axes.get_legend_handles_labels()
    wrapped = [textwrap.fill(label, 48) for label in labels]
    columns = max(1, min(len(labels), 58 // (max(map(len, labels), default=0) + 6)))
    lines = [1 + text.count("\n") for text in wrapped]
    rows = math.ceil(len(lines) / columns)
    canvas.legend(
        handles,
        wrapped,
        loc="lower left",
        bbox_to_anchor=(0, 0),
        ncols=columns,
        frameon=False,
        labelcolor=_DRAWN["ink"],
        fontsize=11.5,
        handlelength=2.8,
        columnspacing=1.4,
        borderpad=0.1,
        borderaxespad=0.1,
    )
    tallest = max(sum(lines[i : i + rows]) for i in range(0, len(lines), rows))
    return 4 + 1.15 * LINE * tallest


def _place(
    canvas: Canvas,
    axes: Axes,
    title: str,
    label: str = "",
    *,
    below: float = 0.0,
    height: float = PLOT,
    width: float | None = None,
) -> tuple[float, float, float]:
    """Size the canvas around axes of this height: title and label above, `below` points beneath.

    Returns the left, bottom and width of the axes as shares of the canvas.
    """
    head, line = textwrap.fill(title, 48), textwrap.fill(label, 54)
    heads, lines = _count(head), _count(line)
    top = 4 + LINE * (heads + lines) + (8 if heads or lines else 2)
    bottom = below + 26 + LINE * _count(axes.get_xlabel())
    total = top + height + bottom
    canvas.set_size_inches(WIDTH / 72, total / 72)
    axes.set_position((0.15, bottom / total, 0.8, height / total))
    canvas.draw_without_rendering()
    ticks = axes.yaxis.get_tightbbox()  # labels of the ticks and of the axis
    left = axes.bbox.x0 - ticks.x0 + 3 if ticks else 4.0
    share = (width or WIDTH - left - 12) / WIDTH
    axes.set_position((left / WIDTH, bottom / total, share, height / total))
    style: dict[str, Any] = {"ha": "left", "va": "top"}
    y = 1 - 3 / total
    canvas.text(0.004, y, head, fontsize=12, weight="bold", color=_DRAWN["ink"], **style)
    canvas.text(0.004, y - LINE * heads / total, line, color=_DRAWN["muted"], **style)
    return left / WIDTH, bottom / total, share


def _count(text: str) -> int:
    return 1 + text.count("\n") if text else 0


def _heatmap(canvas: Canvas, axes: Axes, heatmap: Heatmap) -> None:
    """Sequential colours, or diverging around 0 where values have both signs."""
    widths = {len(row) for row in heatmap.values}
    if len(widths) > 1:
        raise ValueError(f"heatmap {heatmap.title!r} has rows of lengths {sorted(widths)}")
    _frame(axes, grid=False)
    axes.set_xlabel(heatmap.x_label, color=_DRAWN["ink"])
    axes.set_ylabel(heatmap.y_label, color=_DRAWN["ink"])
    values = np.asarray(heatmap.values, float)
    finite = values[np.isfinite(values)]
    if not finite.size:
        _nothing(axes)
        _place(canvas, axes, heatmap.title)
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
    width = WIDTH - 120 - longest / 2  # room for labels on the left, the colour bar on the right
    height = width * rows / columns
    if height > 260 and rows < 3 * columns:  # keep cells square
        width, height = 260 * columns / rows, 260.0
    height = min(max(height, 90.0), 260.0)
    left, bottom, share = _place(
        canvas, axes, heatmap.title, below=max(0.0, longest - 12), height=height, width=width
    )
    tall = height / (canvas.get_size_inches()[1] * 72)
    beside = canvas.add_axes((left + share + 0.02, bottom, 0.025, tall))
    bar = canvas.colorbar(image, cax=beside)
    beside.patch.set_alpha(0)
    beside.tick_params(colors=_DRAWN["muted"], length=2, labelsize=10.5)
    beside.yaxis.set_major_locator(MaxNLocator(5))
    beside.yaxis.set_major_formatter(FuncFormatter(_tick))
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def _frame(axes: Axes, *, grid: bool = True) -> None:
    axes.patch.set_alpha(0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_DRAWN["muted"])
        axes.spines[side].set_visible(grid)
    axes.tick_params(colors=_DRAWN["muted"], length=3, labelsize=11)
    if grid:
        axes.grid(axis="y", color=_DRAWN["grid"], linewidth=0.8)
        axes.set_axisbelow(True)


def _nothing(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    style: dict[str, Any] = {"ha": "center", "va": "center", "color": _DRAWN["muted"]}
    axes.text(0.5, 0.5, "nothing to draw yet", transform=axes.transAxes, **style)
