"""Draws of whole numbers, which all doors share: each is one choice or a few."""

import math

from triptych.laws.search import Search, refuse

MAX_PERMUTED = 12
_MAX_OUTCOMES = 1_000_000


def some_of(
    search: Search, weights: list[float], count: int, replacement: bool, what: str
) -> list[int]:
    """Outcomes drawn by weight, one after the other; Plackett and Luce's law if none returns."""
    left = list(weights)
    drawn: list[int] = []
    for _ in range(count):
        total = math.fsum(left)
        if total <= 0:
            raise refuse(
                f"{what} draws {count} outcomes without replacement, and only "
                f"{len(drawn)} have a weight above 0"
            )
        drawn.append(search.choose([w / total for w in left], what))
        if not replacement:
            left[drawn[-1]] = 0.0
    return drawn


def evenly(search: Search, count: int, what: str) -> int:
    """One of `count` outcomes of equal probability."""
    if count > _MAX_OUTCOMES:
        raise refuse(f"{what} draws one of {count} numbers, more than can be enumerated")
    return search.choose([1 / count] * count, what)


def permutation(search: Search, count: int, what: str) -> list[int]:
    """An order of `count` things, one after the other."""
    if count > MAX_PERMUTED:
        raise refuse(
            f"{what} of {count} things has {math.factorial(count)} outcomes, more than can be "
            "enumerated"
        )
    left = list(range(count))
    return [left.pop(evenly(search, len(left), what)) for _ in range(count)]


def binomial(search: Search, n: int, p: float, what: str) -> int:
    """How many of n coins with chance p fall on 1."""
    return search.choose([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)], what)


def poisson(search: Search, rate: float, what: str) -> int:
    """One count after the other: is it 0, else is it 1, ...; a program without a last one."""
    k, mass, above = 0, math.exp(-rate), 1.0
    while search.choose([min(1.0, mass / above), max(0.0, 1 - mass / above)], what):
        above -= mass
        k += 1
        mass *= rate / k
    return k


def geometric(search: Search, p: float, what: str) -> int:
    """P(k) = (1 - p)^(k - 1) p for k = 1, 2, ..."""
    k = 1
    while search.choose([p, 1 - p], what):
        k += 1
    return k
