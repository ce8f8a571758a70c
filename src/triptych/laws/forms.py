"""Monotone functions of a uniform V, as numbers: what they are at V, and where they pass a value.

    power    V^p
    time     E^p, where E = -log V
    log      log E
    normal   Z, where V = P(normal < Z)

Notation
--------
v       a value of V        number in 0..1
y       a value of the function
"""

import math
from collections.abc import Callable
from typing import NamedTuple


class Monotone(NamedTuple):
    """A named increasing function with its inverse, and the ends of what it gives."""

    name: str
    inverse: Callable[[float], float]
    low: float
    high: float


def raised(value: float, exponent: float) -> float:
    if value <= 0:
        return math.inf if exponent < 0 else 0.0
    try:
        return value**exponent
    except OverflowError:
        return math.inf


def exp_or_end(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def log_or_end(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


LOG = Monotone("log", exp_or_end, -math.inf, math.inf)
EXP = Monotone("exp", log_or_end, 0.0, math.inf)
TANH = Monotone("tanh", lambda y: math.atanh(y), -1.0, 1.0)
SIGMOID = Monotone("sigmoid", lambda y: math.log(y / (1 - y)), 0.0, 1.0)
LOGIT = Monotone("logit", lambda y: 1 / (1 + exp_or_end(-y)), -math.inf, math.inf)


def value_at(kind: str, power: float, v: float) -> float:
    if kind == "power":
        return raised(v, power)
    if kind == "normal":
        return -math.inf if v <= 0 else math.inf if v >= 1 else _quantile(v)
    time = -log_or_end(v) if v < 1 else 0.0
    if kind == "time":
        return raised(time, power)
    return log_or_end(time) if time < math.inf else math.inf


def _quantile(v: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(v))


def cut_of(kind: str, power: float, y: float) -> tuple[float, bool]:
    """(v, below): {f < y} is {V < v} if below, and else {V > v}."""
    if kind == "normal":
        return 0.5 * math.erfc(-y / math.sqrt(2)), True
    if kind == "power":
        if y <= 0:
            return (0.0, True) if power > 0 else (1.0, False)
        return min(1.0, raised(y, 1 / power)), power > 0
    if kind == "log":
        return math.exp(-exp_or_end(y)), False
    if y <= 0:
        return (1.0, False) if power > 0 else (0.0, True)
    return math.exp(-raised(y, 1 / power)), power < 0


def forward(function: Monotone, inside: float) -> float:
    """Ends alone are asked for, so a function without a formula gives its own ends."""
    if function is LOG:
        return log_or_end(inside)
    if function is EXP:
        return exp_or_end(inside)
    return function.low if inside < 0 else function.high
