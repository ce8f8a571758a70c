"""What a user sees of an object: short texts for `repr`, small HTML for notebooks.

Plain strings, made without any library: no scripts, nothing loaded from elsewhere, every name
escaped. Text has the colour of the page around it and marks have colours in the middle between
white and black, so that a notebook reads alike on a light and on a dark page.

    card("HMM", facts_table({"states": 4}), heat_map(transition, title="transition"))

`heat_map` shows a corner of a large matrix, and `bars` the first of many items; both say so.
"""

import html
import itertools
import math
from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor

MARK = "#4a90c4"  # of bars
EDGE = "#8a8a8a"  # of frames
MAX_BARS = 12
MAX_CELLS = 25  # rows and columns of a heat map
_NUMBERED = 6  # a matrix of at most this many rows and columns has its numbers written in it
_MAX_TEXT = 60
_MAX_FACT = 300
_LEVELS = 16
_LOW, _HIGH, _NEGATIVE = (244, 240, 230), (11, 70, 120), (176, 84, 16)

# ------------------------------------------------------------------ short texts


def counted(count: int, noun: str, several: str | None = None) -> str:
    """1 state, 25 states, 3 matrices."""
    return f"{count} {noun if count == 1 else several or noun + 's'}"


def name_of(thing: object) -> str:
    """A short name of anything: its repr where it has one of its own, else its class.

    A function has its own name; a repr of several lines or of an address says nothing.
    """
    if callable(thing) and hasattr(thing, "__name__"):
        return thing.__name__
    text = repr(thing)
    short = "\n" not in text and " object at 0x" not in text and len(text) <= _MAX_TEXT
    return text if short else type(thing).__name__


def number(value: int | float) -> str:
    """Three digits, with the minus sign of print: 0.25, −3, 12000, 1.2e−5."""
    text = f"{value:.3g}"
    if "e" in text:
        first, _, power = text.partition("e")
        text = f"{value:.0f}" if 0 < int(power) < 6 else f"{first}e{int(power)}"
    return text.replace("-", "−")


def cut(text: str, most: int = _MAX_TEXT) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


# ------------------------------------------------------------------ pieces of a page


def card(title: str, *parts: str) -> str:
    """Pieces side by side under a title; they wrap where the page is narrow."""
    inside = "".join(f'<div style="margin:4px 24px 4px 0">{part}</div>' for part in parts if part)
    return (
        '<div style="font-family:sans-serif;font-size:13px;line-height:1.35">'
        f'<div style="font-weight:bold">{html.escape(title)}</div>'
        f'<div style="display:flex;flex-wrap:wrap;align-items:flex-start">{inside}</div></div>'
    )


def facts_table(facts: Mapping[str, object]) -> str:
    """A row for each fact: its name and its value."""
    rows = "".join(
        f'<tr style="background:none"><td style="{_CELL};opacity:0.7">{html.escape(name)}</td>'
        f'<td style="{_CELL};max-width:60ch">{html.escape(cut(_fact(value), _MAX_FACT))}</td></tr>'
        for name, value in facts.items()
    )
    return f'<table style="{_TABLE}">{rows}</table>'


def records_table(columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> str:
    """A table with names over its columns."""
    head = "".join(
        f'<th style="{_CELL};opacity:0.7;font-weight:normal">{html.escape(cut(name))}</th>'
        for name in columns
    )
    body = "".join(
        '<tr style="background:none">'
        + "".join(f'<td style="{_CELL}">{html.escape(cut(_fact(value)))}</td>' for value in row)
        + "</tr>"
        for row in rows
    )
    return f'<table style="{_TABLE}"><tr style="background:none">{head}</tr>{body}</table>' + _note(
        note
    )


def bars(items: Sequence[tuple[str, float]], *, title: str = "", more: int = 0) -> str:
    """A bar for each named number, none below 0; at most 12 of them, and a word about the rest.

    `more` is how many there are beyond `items`.
    """
    shown, more = items[:MAX_BARS], more + max(0, len(items) - MAX_BARS)
    most = max((value for _, value in shown if math.isfinite(value)), default=0.0)
    rows = []
    for label, value in shown:
        width = 140 * value / most if most > 0 and math.isfinite(value) else 0.0
        rows.append(
            f'<tr style="background:none"><td style="{_CELL};font-family:monospace;'
            f'white-space:pre">{html.escape(cut(label, 48))}</td>'
            f'<td style="{_CELL}"><div style="background:{MARK};height:10px;width:{width:.1f}px">'
            f'</div></td><td style="{_CELL}">{number(value)}</td></tr>'
        )
    table = f'<table style="{_TABLE}">{"".join(rows)}</table>'
    return _note(title) + table + _note(f"and {more} more" if more else "")


def heat_map(
    matrix: Float[Tensor, "rows columns"],
    *,
    title: str = "",
    rows: str = "",
    columns: str = "",
    largest: float | None = None,
    most_cells: int = MAX_CELLS,
    size: tuple[int, int] | None = None,
) -> str:
    """A matrix as colours, rows from the top; `rows` and `columns` say what they stand for.

    White is 0 and dark is the largest value; where there are negative values, these are orange.
    Of a matrix with more than `most_cells` rows or columns, the upper left corner.

    largest   the value of the darkest colour, so that several pictures compare
    size      of the whole matrix, where `matrix` itself is a corner of it
    """
    height, width = size or matrix.shape
    corner = matrix[:most_cells, :most_cells].detach().double().cpu()
    values: list[list[float]] = corner.tolist()
    side = 30 if max(corner.shape) <= _NUMBERED else 14 if max(corner.shape) <= 12 else 9
    side = min(side, max(3, 300 // max(1, *corner.shape)))
    across, down = side * corner.shape[1], side * corner.shape[0]
    left, top, bottom = (16 if rows else 1), (15 if columns else 1), 18
    finite = corner[corner.isfinite()]
    most = largest or (float(finite.abs().max()) if finite.numel() else 0.0)
    signed = bool((finite < 0).any())
    parts = [
        f'<g transform="translate({left} {top})"><g transform="scale({side})">',
        *_cells(values, most),
        f"</g>{_numbers(values, most, side)}",
        f'<rect width="{across}" height="{down}" fill="none" stroke="{EDGE}"/></g>',
    ]
    style = 'fill="currentColor" font-size="11" font-family="sans-serif"'
    if columns:
        parts.append(f'<text x="{left}" y="11" {style}>{html.escape(columns)} →</text>')
    if rows:
        turned = f"translate(4 {top}) rotate(90)"
        parts.append(f'<text transform="{turned}" {style}>{html.escape(rows)} →</text>')
    parts.append(_scale(left, top + down + 4, -most if signed else 0.0, most))
    total = (max(left + across + 2, left + 150), top + down + bottom)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{total[0]}" '
        f'height="{total[1]}" viewBox="0 0 {total[0]} {total[1]}"><title>'
        f"{html.escape(title or 'a matrix')}</title>{''.join(parts)}</svg>"
    )
    whole = tuple(corner.shape) == (height, width)
    corner_of = f"the first {corner.shape[0]} x {corner.shape[1]} of {height} x {width}"
    return _note(title) + svg + ("" if whole else _note(corner_of))


# ------------------------------------------------------------------ inside

_TABLE = "border-collapse:collapse;margin:0;border:none;font-size:13px"
_CELL = "text-align:left;padding:1px 12px 1px 0;border:none"


def _fact(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _note(text: str) -> str:
    return f'<div style="opacity:0.7">{html.escape(text)}</div>' if text else ""


def _cells(values: list[list[float]], most: float) -> list[str]:
    """A path for every colour, with a rectangle for each run of cells of that colour in a row."""
    runs: dict[str, list[str]] = {}
    for y, row in enumerate(values):
        x = 0
        for colour, cells in itertools.groupby(row, lambda value: _colour(value, most)):
            width = len(list(cells))
            runs.setdefault(colour, []).append(f"M{x} {y}h{width}v1h-{width}")
            x += width
    return [f'<path fill="{colour}" d="{"".join(d)}"/>' for colour, d in runs.items()]


def _colour(value: float, most: float) -> str:
    """One of 16 shades from white to dark blue, or to dark orange below 0; grey for no number."""
    if math.isnan(value):
        return EDGE
    share = min(1.0, abs(value) / most) if most > 0 else float(math.isinf(value))
    share = math.ceil(share * _LEVELS) / _LEVELS  # only 0 is white
    end = _HIGH if value >= 0 else _NEGATIVE
    mixed = (round(low + share * (high - low)) for low, high in zip(_LOW, end, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _numbers(values: list[list[float]], most: float, side: int) -> str:
    """Each value in its cell, where there is room for it."""
    if side < 30:
        return ""
    texts = []
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            dark = most > 0 and abs(value) > 0.5 * most
            place = f'x="{(x + 0.5) * side:g}" y="{(y + 0.5) * side + 4:g}"'
            text = f"{value:.2f}".removeprefix("0") if 0 <= value < 0.995 else f"{value:.2g}"
            text = "0" if value == 0 else text.replace("-0.", "−.").replace("-", "−")
            texts.append(f'<text {place} fill="{"#fff" if dark else "#222"}">{text}</text>')
    style = 'font-size="11" font-family="sans-serif" text-anchor="middle"'
    return f"<g {style}>{''.join(texts)}</g>"


def _scale(x: int, y: int, low: float, high: float) -> str:
    """The colours from the lowest to the highest value."""
    steps = [low + (high - low) * k / 10 for k in range(11)]
    most = max(abs(low), abs(high))
    style = 'fill="currentColor" font-size="10" font-family="sans-serif"'
    first, last = number(low), number(high)
    start = 6 * len(first) + 4
    squares = "".join(
        f'<rect x="{x + start + 6 * k}" y="{y}" width="6" height="9" fill="{_colour(v, most)}"/>'
        for k, v in enumerate(steps)
    )
    return (
        f'<text x="{x}" y="{y + 8}" {style}>{first}</text>{squares}'
        f'<text x="{x + start + 70}" y="{y + 8}" {style}>{last}</text>'
    )
