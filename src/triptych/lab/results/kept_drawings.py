"""Drawings that are kept between reports, in the user's folder for caches.

A report has a hundred panels, most of them of bundled evidence, and drawing one takes a fifth of a
second. A drawing is named by all that decides it: the panel, its size, the code that draws and the
version of matplotlib. So a kept drawing is never out of date. Without a folder to write to,
everything is drawn every time.
"""

import functools
import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import matplotlib

from triptych.lab import kept
from triptych.lab.results.drawing import Size
from triptych.studies.api.figures import Heatmap, Panel

_KEPT = "drawings"
SOURCES = ("plots.py", "drawing.py", "series_looks.py", "shared_axes.py")
MOST = 2000
"""Drawings that are kept; when there are more, the half that was unused for longest goes."""


class Drawing(NamedTuple):
    """SVG elements, with their width and height in points."""

    body: str
    width: float
    height: float


def kept_or_drawn(panel: Panel | Heatmap, size: Size, draw: Callable[[], Drawing]) -> Drawing:
    """The drawing of a panel: what is kept, or what `draw` makes, which is kept then."""
    name = _name(panel, size)
    with suppress(ValueError, TypeError):
        return Drawing(**json.loads(kept.read(_KEPT, name) or ""))
    drawing = draw()
    kept.keep(_KEPT, name, json.dumps(drawing._asdict()), most=MOST)
    return drawing


def _name(panel: Panel | Heatmap, size: Size) -> str:
    """Fields of a panel are texts and floats, whose repr is exact."""
    return hashlib.sha256(f"{_code()}\n{size!r}\n{panel!r}".encode()).hexdigest()[:32]


@functools.cache
def _code() -> str:
    """What draws: the version of matplotlib and our sources."""
    here = Path(__file__).parent
    sources = [(here / name).read_bytes() for name in SOURCES]
    return matplotlib.__version__ + hashlib.sha256(b"".join(sources)).hexdigest()
