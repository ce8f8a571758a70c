"""Numbers and durations as a person writes them."""

import math
from collections.abc import Iterable, Mapping
from typing import Any


def number(value: Any) -> str:
    """A JSON value as a person writes it: 0.3347, 99.7, a list with commas, 0.93 [0.9, 0.96]."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and math.isnan(value):
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")
    if isinstance(value, int):
        return str(value).replace("-", "−")
    if isinstance(value, Mapping):
        if {"value", "low", "high"} <= set(value):
            value, low, high = (number(value[key]) for key in ("value", "low", "high"))
            return f"{value} [{low}, {high}]"
        return ", ".join(f"{words(key)} {number(item)}" for key, item in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(number(item) for item in value)
    return str(value)


def duration(seconds: float | None) -> str:
    """0.42 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def words(name: Any) -> str:
    return str(name).replace("_", " ")
