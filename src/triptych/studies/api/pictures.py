"""Figures as HTML for notebooks, drawn in plain SVG without a plotter.

The report draws with matplotlib and has colours that its page sets. A notebook sets none, and a
study must not import a plotter: so here are lines, marks, intervals and heat maps in fixed colours,
with text in the colour of the page. They read alike on a light and on a dark page.

    ours       solid, filled marks        control    thin grey, open marks
    published  hollow diamonds            truth      dashed
"""

import html
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from triptych.core.display import card, heat_map, number
from triptych.studies.api.figures import Figure, Heatmap, Panel, Series

WIDTH, HEIGHT = 380.0, 200.0  # of the axes with their labels, and of the axes alone
COLOURS = {
    "ours": ("#3a86c8", "#7f6fd0", "#1f9e9e"),
    "control": ("#8f8a80", "#a59c8c", "#7c7870"),
    "published": ("#d9731a",),
    "truth": ("#1a9a70",),
}
_MAX_POINTS = 400  # of one series; of a longer one, every k-th
_MAX_CELLS = 64  # rows and columns of a heat map
_HUGE = 1e300  # what is larger stands at the edge
_LETTER = 6.2  # width of a letter of 11 points


Mark = Callable[[float, float], str]
"""Draws one mark at a place."""


class _Axis(NamedTuple):
    """low..high of the data, shown at begin..end of the picture."""

    low: float
    high: float
    log: bool
    begin: float
    end: float
    whole: bool = False  # numbers between whole ones mean nothing

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.begin + (at - low) / (high - low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """About five round numbers."""
        if not self.log:
            return _round_steps(self.low, self.high, 1.0 if self.whole else 0.0)
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high))
        every = max(1, math.ceil((last - first + 1) / 6))
        decades = [10.0**k for k in range(first, last + 1, every)]
        return decades if len(decades) > 1 else _round_steps(self.low, self.high)


def to_html(figure: Figure) -> str:
    """The panels side by side under the title, and the caption."""
    pieces = [
        _heat_map(panel) if isinstance(panel, Heatmap) else panel_svg(panel)
        for panel in figure.panels
    ]
    caption = html.escape(figure.caption)
    under = f'<div style="font-family:sans-serif;font-size:13px;opacity:0.8">{caption}</div>'
    return card(figure.title, *pieces) + (under if caption else "")


def panel_svg(panel: Panel) -> str:
    """One pair of axes with its legend."""
    values = [v for s in panel.series for v in (*s.y, *s.low, *s.high)]
    y_low, y_high = _limits(values, panel.y_log)
    x_low, x_high = _limits([v for s in panel.series for v in s.x], panel.x_log)
    head = [line for line in (*_wrapped(panel.title), *_wrapped(panel.y_label)) if line]
    top = 16.0 * len(head) + 6
    y = _Axis(y_low, y_high, panel.y_log, top + HEIGHT, top)
    left = 10 + _LETTER * max(len(number(tick)) for tick in y.ticks())
    whole = all(v.is_integer() for s in panel.series for v in map(float, s.x))
    x = _Axis(x_low, x_high, panel.x_log, left, WIDTH - 12, whole)
    parts = [
        _text(2, 12 + 16 * i, line, bold=i < len(_wrapped(panel.title)))
        for i, line in enumerate(head)
    ]
    parts += _frame(x, y, panel.x_label)
    if not any(len(series.x) for series in panel.series):
        middle = (left + WIDTH) / 2
        parts.append(_text(middle, top + 0.4 * HEIGHT, "nothing to draw yet", anchor="middle"))
    seen: dict[str, int] = {}
    legend: list[str] = []
    under = top + HEIGHT + 42
    for i, series in enumerate(panel.series):
        colour = COLOURS[series.kind][seen.get(series.kind, 0) % len(COLOURS[series.kind])]
        mark = _mark_of(series, seen.get(series.kind, 0), colour)
        seen[series.kind] = seen.get(series.kind, 0) + 1
        parts += _series(series, colour, mark, x, y)
        at = under + 16 * i
        line = _stroke(series, colour)
        if series.line:
            legend.append(f'<path d="M4 {at}h26" {line}/>')
        legend += [mark(17, at), _text(36, at + 4, _shortened(series.label, 52))]
    total = under + 16 * len(panel.series)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH:g}" '
        f'height="{total:g}" viewBox="0 0 {WIDTH:g} {total:g}"><title>'
        f"{html.escape(panel.title or panel.y_label or 'a panel')}</title>"
        f"{''.join(parts + legend)}</svg>"
    )


# ------------------------------------------------------------------ pieces


def _frame(x: _Axis, y: _Axis, label: str) -> list[str]:
    """Grid lines with their numbers, the two axes, and what x is."""
    bottom = y.begin
    parts = [f'<path d="M{x.begin:.1f} {y.end:.1f}V{bottom:.1f}H{x.end:.1f}" {_GREY}/>']
    for tick in y.ticks():
        at = y(tick)
        parts.append(f'<path d="M{x.begin:.1f} {at:.1f}H{x.end:.1f}" {_GREY} opacity="0.35"/>')
        parts.append(_text(x.begin - 4, at + 4, number(tick), anchor="end"))
    for tick in x.ticks():
        parts.append(f'<path d="M{x(tick):.1f} {bottom:.1f}v4" {_GREY}/>')
        parts.append(_text(x(tick), bottom + 16, number(tick), anchor="middle"))
    return [*parts, _text(x.begin, bottom + 31, _shortened(label, 58))]


def _series(series: Series, colour: str, mark: Mark, x: _Axis, y: _Axis) -> list[str]:
    """A line with its band, or marks with bars; what the axes cannot show stands at their edge."""
    step = max(1, math.ceil(len(series.x) / _MAX_POINTS))
    chosen = [i for i in range(0, len(series.x), step) if not math.isnan(series.x[i])]
    chosen = [i for i in chosen if not math.isnan(series.y[i])]
    points = [(x(_known(series.x[i], x)), y(_known(series.y[i], y))) for i in chosen]
    parts: list[str] = []
    if series.low and series.high:
        lows = [y(_known(series.low[i], y)) for i in chosen]
        highs = [y(_known(series.high[i], y)) for i in chosen]
        if series.line and points:
            there = " ".join(f"{p[0]:.1f},{h:.1f}" for p, h in zip(points, highs, strict=True))
            back = [f"{p[0]:.1f},{low:.1f}" for p, low in zip(points, lows, strict=True)]
            parts.append(
                f'<polygon points="{there} {" ".join(reversed(back))}" fill="{colour}" '
                'opacity="0.2"/>'
            )
        else:
            parts += [
                f'<path d="M{p[0]:.1f} {low:.1f}V{high:.1f}" stroke="{colour}" stroke-width="1.6"/>'
                for p, low, high in zip(points, lows, highs, strict=True)
            ]
    if series.line and points:
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{path}" {_stroke(series, colour)}/>')
    every = max(1, math.ceil(len(points) / 9)) if series.line else 1
    return parts + [mark(*point) for point in points[::every]]


def _mark_of(series: Series, index: int, colour: str) -> Mark:
    """A circle, a square or a triangle, filled or open by its kind; a dash for the truth."""
    fill = colour if series.kind == "ours" else "none"
    style = f'fill="{fill}" stroke="{colour}" stroke-width="1.4"'
    if series.kind == "truth":
        return lambda x, y: "" if series.line else f'<path d="M{x - 9:.1f} {y:.1f}h18" {style}/>'
    shape = "diamond" if series.kind == "published" else ("circle", "square", "triangle")[index % 3]
    paths = {
        "circle": "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
        "square": "m-3-3h6v6h-6z",
        "triangle": "m0-4l3.6 6.6h-7.2z",
        "diamond": "m0-4.6l4.6 4.6l-4.6 4.6l-4.6-4.6z",
    }
    return lambda x, y: f'<path d="M{x:.1f} {y:.1f}{paths[shape]}" {style}/>'


def _stroke(series: Series, colour: str) -> str:
    dash = ' stroke-dasharray="6 4"' if series.kind == "truth" else ""
    width = 1.9 if series.kind in ("ours", "truth") else 1.2
    return f'fill="none" stroke="{colour}" stroke-width="{width}"{dash}'


def _heat_map(heatmap: Heatmap) -> str:
    values = torch.tensor(heatmap.values, dtype=torch.float64)
    if not values.numel():
        return f"<div>{html.escape(heatmap.title)}: nothing to draw yet</div>"
    return heat_map(
        values,
        title=heatmap.title,
        rows=heatmap.y_label,
        columns=heatmap.x_label or ", ".join(heatmap.names),
        largest=max(map(abs, heatmap.limits)) if heatmap.limits else None,
        most_cells=_MAX_CELLS,
    )


# ------------------------------------------------------------------ numbers and texts

_GREY = 'fill="none" stroke="#8a8a8a"'


def _limits(values: Sequence[float], log: bool) -> tuple[float, float]:
    """Limits around all values that the axis can show, with some air."""
    shown = [v for v in values if math.isfinite(v) and not (log and v <= 0)]
    if not shown:
        return (0.1, 10.0) if log else (0.0, 1.0)
    low, high = max(min(shown), -_HUGE), min(max(shown), _HUGE)
    if log:
        low = max(low, 1 / _HUGE)
        air = max(math.exp(0.06 * (math.log(high) - math.log(low))), 1.15)
        return max(low / air, 1e-307), min(high * air, 1e307)
    air = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return low - air, high + air


def _known(value: float, axis: _Axis) -> float:
    """The value, or the end of the axis for one that the axis cannot show."""
    return axis.low if axis.log and value <= 0 else value


def _round_steps(low: float, high: float, least: float = 0.0) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, at least `least` apart.

    Worked value: 0..1 has 0, 0.2, 0.4, 0.6, 0.8, 1.
    """
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * min((1, 2, 5, 10), key=lambda factor: abs(math.log(factor * power / rough)))
    step = max(step, least)
    return [
        k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def _wrapped(text: str, most: int = 58) -> list[str]:
    """Lines of at most this many letters, cut between words."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(
    x: int | float, y: int | float, text: str, *, anchor: str = "start", bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="currentColor" font-size="11" '
        f'font-family="sans-serif" text-anchor="{anchor}"{weight}>{html.escape(text)}</text>'
    )
