"""The colours of figures, and the look of each series of a kind: marker, dash and shade.

    ours       solid line, filled markers      control    thin grey line, open markers
    published  hollow diamonds                 truth      dashed, always the same colour; a
                                                          second one has marks and other dashes

Series of one kind differ in marker, dash and shade, so no reading depends on colour alone.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from triptych.studies.api.figures import Panel, Series

THEMES: dict[str, dict[str, str]] = {
    "light": {
        "paper": "#ffffff",
        "ink": "#1d1c1a",
        "muted": "#66625a",
        "grid": "#e4dfd4",
        "ours": "#0b62a4",
        "ours-2": "#4f9ad6",
        "ours-3": "#0a2f52",
        "control": "#857f74",
        "control-2": "#aaa499",
        "control-3": "#55514a",
        "published": "#c2500a",
        "truth": "#00795a",
    },
    "dark": {
        "paper": "#15171a",
        "ink": "#e8e5de",
        "muted": "#a39f96",
        "grid": "#2b2e33",
        "ours": "#6db3ec",
        "ours-2": "#b9daf6",
        "ours-3": "#3d86c6",
        "control": "#a8a298",
        "control-2": "#77736b",
        "control-3": "#d0cbc1",
        "published": "#f39c62",
        "truth": "#43cfa1",
    },
}

# 8 markers and 5 dashes: 40 series of a kind before a pair comes again
_MARKERS = {"ours": "os^vPX*h", "control": "os^vPX*h", "published": "Dd", "truth": " x+1"}
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (7, 1.5, 1.5, 1.5)),
    (0, (1.5, 1.5)),
    (0, (11, 3)),
    (0, (7, 1.5, 1.5, 1.5, 1.5, 1.5)),
)

_TRUTH_DASHES: tuple[Any, ...] = ((0, (4.5, 2.5)), (0, (1, 1.8)), (0, (9, 2.5, 1.5, 2.5)))


def series_look(series: Series, index: int, colours: Mapping[str, str]) -> dict[str, Any]:
    """Marker, dash and shade of the index-th series of its kind."""
    kind, shade = series.kind, index % 3
    several = kind in ("ours", "control") and shade
    colour = colours[f"{kind}-{shade + 1}" if several else kind]
    marker = _MARKERS[kind][index % len(_MARKERS[kind])]
    look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5.5, "zorder": 3}
    look["linestyle"] = _DASHES[index % len(_DASHES)] if series.line else "none"
    look["linewidth"] = 1.8
    if kind == "control":
        look |= {"linewidth": 1.3, "markerfacecolor": colours["paper"], "markeredgewidth": 1.2}
    if kind == "published":
        look |= {"markerfacecolor": colours["paper"], "markersize": 7, "markeredgewidth": 1.5}
        look |= {"linewidth": 0.9, "zorder": 5}
    if kind == "truth":
        dashes = _TRUTH_DASHES[index % len(_TRUTH_DASHES)]
        look |= {"linestyle": dashes if series.line else "none", "zorder": 4}
        if not series.line:
            look |= {"marker": "_", "markersize": 22, "markeredgewidth": 2, "zorder": 2}
    return look


def look_numbers(panel: Panel) -> list[int]:
    """The number of each series among those of its kind, as the panel says or in their order."""
    if panel.looks:
        return list(panel.looks)
    seen: Counter[str] = Counter()
    found = []
    for series in panel.series:
        found.append(seen[series.kind])
        seen[series.kind] += 1
    return found
