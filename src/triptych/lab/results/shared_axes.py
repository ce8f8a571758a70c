"""What the panels of a figure share: one range of y where they compare, and one legend."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from triptych.studies.api.figures import Heatmap, Panel


def comparable(panels: Sequence[Panel | Heatmap]) -> list[Panel | Heatmap]:
    """The panels; those that show the same series by the same measure have one range of y.

    Not where a panel would use less than a third of it.
    """
    alike: dict[Any, list[int]] = {}
    for place, panel in enumerate(panels):
        if isinstance(panel, Panel):
            names = tuple((series.label, series.kind) for series in panel.series)
            alike.setdefault((panel.y_label, panel.y_log, names), []).append(place)
    found = list(panels)
    for (_, log, _), places in alike.items():
        chosen = [panel for place in places if isinstance(panel := panels[place], Panel)]
        ends = [ends_of(values_of(panel), log) for panel in chosen]
        if len(ends) < 2 or None in ends:
            continue
        lows, highs = zip(*filter(None, ends), strict=True)
        size = _size(min(lows), max(highs), log)
        if all(3 * _size(low, high, log) >= size for low, high in zip(lows, highs, strict=True)):
            for place, panel in zip(places, chosen, strict=True):
                found[place] = replace(panel, y_range=(min(lows), max(highs)))
    return found


def values_of(panel: Panel) -> list[float]:
    return [v for each in panel.series for v in (*each.y, *each.low, *each.high)]


def ends_of(values: Sequence[float], log: bool) -> tuple[float, float] | None:
    """The smallest and the largest value that can be shown."""
    shown = [v for v in values if math.isfinite(v) and not outside(v, log)]
    return (min(shown), max(shown)) if shown else None


def _size(low: float, high: float, log: bool) -> float:
    return math.log(high / low) if log else high - low


def one_legend(panels: Sequence[Panel | Heatmap]) -> list[Panel | Heatmap]:
    """The panels; a panel whose series the one before it names has no legend of its own.

    A series of the same name and kind looks the same in all panels.
    """
    found: list[Panel | Heatmap] = []
    known: dict[str, list[str]] = {}
    named: set[tuple[str, str, bool]] = set()
    for panel in panels:
        if not isinstance(panel, Panel):
            found.append(panel)
            named = set()
            continue
        looks = [_number(known.setdefault(each.kind, []), each.label) for each in panel.series]
        own = {(each.label, each.kind, each.line) for each in panel.series}
        if not named or not own <= named:
            named, legend = own, True
        else:
            legend = False
        distinct = len({(each.kind, k) for each, k in zip(panel.series, looks, strict=True)})
        if distinct < len(looks):  # two of one name: told apart by their order
            looks = []
        found.append(replace(panel, legend=legend, looks=tuple(looks)))
    return found


def _number(known: list[str], label: str) -> int:
    """The place of a label in a list, where it is put if it is new."""
    if label not in known:
        known.append(label)
    return known.index(label)


def outside(value: float, log: bool) -> bool:
    """Whether an axis has no place for a value: an infinite one, or not above 0 on a log axis."""
    return math.isinf(value) or (log and value <= 0)
