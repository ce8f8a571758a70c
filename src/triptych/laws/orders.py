"""The order of continuous draws: the largest of several, the first few, all of them.

Draws of one family are monotone functions of the times of one race, T = time / rate, so that an
argmax of perturbed scores is the first of a race. Families differ where draws were moved or scaled
in ways that a race does not know, and then the comparison is refused.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from triptych.laws import races
from triptych.laws.continuous import Draw, Value, before, less
from triptych.laws.forms import exp_or_end
from triptych.laws.races import Source
from triptych.laws.search import refuse

_SAME = 1e-12


class _Key(NamedTuple):
    """What an order needs: draws of one family have the order of T, or its reverse."""

    family: tuple[Any, ...]
    growing: bool  # X grows with T
    rate: float
    flipped: bool


def _key(draw: Draw) -> _Key:
    core, shift, scale = draw.core, draw.shift, draw.scale
    if core.inner is not None:
        inner = _key(core.inner)
        growing = inner.growing == (scale > 0)
        family = (draw.function, shift, scale, *inner.family)
        return _Key(family, growing, inner.rate, inner.flipped)
    if core.kind == "power":
        family = ("power", shift, scale, core.power > 0)
        growing = (scale > 0) != (core.power > 0)
        return _Key(family, growing, 1 / abs(core.power), core.flipped)
    if core.kind == "time":
        family = ("time", core.power, shift, scale > 0)
        growing = (scale > 0) == (core.power > 0)
        return _Key(family, growing, abs(scale) ** (-1 / core.power), core.flipped)
    if core.kind == "log":
        return _Key(("log", scale), scale > 0, exp_or_end(-shift / scale), core.flipped)
    return _Key(("normal", shift, scale), scale < 0, 1.0, core.flipped)


def best(values: Sequence[Value], largest: bool) -> int:
    """The position of the largest or smallest value; the first of equal ones."""
    draws: dict[int, Draw] = {}
    top: int | None = None
    for k, value in enumerate(values):
        if isinstance(value, Draw):
            draws[k] = value
        elif top is None or (value != values[top] and (value > _number(values[top])) == largest):
            top = k
        elif math.isnan(value):
            raise refuse("an order has a nan among continuous draws")
    if not draws:
        return top if top is not None else 0
    chosen = _best_draw(draws, largest)
    if top is None:
        return chosen
    limit = _number(values[top])
    under = less(draws[chosen], limit, False)
    return chosen if under != largest else top


def _number(value: Value) -> float:
    assert not isinstance(value, Draw)
    return value


def _best_draw(draws: dict[int, Draw], largest: bool) -> int:
    of_source: dict[int, int] = {}
    for k, draw in draws.items():
        rival = of_source.setdefault(id(draw.source), k)
        if rival != k and draw != draws[rival]:
            better = before(draws[rival], draw) == largest
            if better:
                of_source[id(draw.source)] = k
    places = sorted(of_source.values())
    if len(places) == 1:
        return places[0]
    keys = [_key(draws[k]) for k in places]
    if not _one_family(keys):
        raise refuse(
            "continuous draws that were moved or scaled in different ways are compared (as "
            "uniform noise plus different scores); the law of that is not a finite choice here"
        )
    sources = [draws[k].source for k in places]
    rates = [key.rate for key in keys]
    wanted_first = keys[0].growing != largest  # the first of the race is the one we want
    flipped = keys[0].flipped
    if any(key.flipped != flipped for key in keys) and all(abs(r - 1) <= _SAME for r in rates):
        raise refuse("draws of u and of 1 - u are compared; that order is not known exactly here")
    even = all(abs(rate - 1) <= _SAME for rate in rates)
    if not wanted_first and even:
        flipped, wanted_first = not flipped, True
    same_way = races.enter(sources, rates, flipped)
    if not (wanted_first and same_way):
        return places[_last(sources)]
    winner = races.first(_in_first_interval(sources, flipped))
    return next(k for k in places if draws[k].source is winner)


def _one_family(keys: Sequence[_Key]) -> bool:
    """Families that differ by rounding alone."""
    for key in keys[1:]:
        if len(key.family) != len(keys[0].family):
            return False
        for a, b in zip(key.family, keys[0].family, strict=True):
            if isinstance(a, float) and isinstance(b, float):
                if abs(a - b) > _SAME * max(1.0, abs(a)):
                    return False
            elif a != b:
                return False
    return True


def _in_first_interval(sources: list[Source], flipped: bool) -> list[Source]:
    """The draws in the interval that comes first in the race."""
    ends = [(source.low, source.high) for source in sources]
    wanted = min(ends) if flipped else max(ends)
    return [source for source, there in zip(sources, ends, strict=True) if there == wanted]


def _last(sources: list[Source]) -> int:
    """The position of the one that comes last, by comparing two at a time."""
    last = 0
    for k in range(1, len(sources)):
        pair = [sources[last], sources[k]]
        if races.same_interval(*pair):
            after = races.first(pair) is pair[0]
        else:
            after = (pair[1].low < pair[0].low) != pair[0].flipped
        if after:
            last = k
    return last


def order(values: Sequence[Value], largest: bool, count: int | None = None) -> list[int]:
    """Positions from the best on; `count` of them."""
    left = list(range(len(values)))
    ranked: list[int] = []
    while left and len(ranked) < (len(values) if count is None else count):
        ranked.append(left.pop(best([values[k] for k in left], largest)))
    return ranked
