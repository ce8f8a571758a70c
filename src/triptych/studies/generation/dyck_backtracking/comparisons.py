"""Numbers of trained networks compared: within each network, then over networks.

A trained network is one trial. Networks differ in their errors by a factor of ten and more, so
errors are compared by their ratio.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist

from triptych.core.estimates import Estimate, mean
from triptych.studies.api.decide import Need, at_least
from triptych.studies.api.summaries import scaled

FEWEST_NETWORKS = 3
MAX_POWER = 700.0  # beyond it, exp overflows

ByNetwork = Mapping[int, float]


def by_network(values: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Mean of the values of each network, from (seed, value)."""
    found: dict[int, list[float]] = {}
    for seed, value in values:
        found.setdefault(seed, []).append(value)
    return {seed: sum(some) / len(some) for seed, some in sorted(found.items())}


def over_networks(values: ByNetwork, *, confidence: float = 0.95) -> Estimate:
    """Mean over networks with a t interval; nan, which decides nothing, where there are none."""
    if not values or any(math.isnan(value) for value in values.values()):
        return Estimate(math.nan, math.nan, math.nan, 0, confidence)
    return mean(list(values.values()), confidence=confidence)


def paired(first: ByNetwork, second: ByNetwork, *, confidence: float = 0.95) -> Estimate:
    """first - second within each network, in points of a hundred."""
    both = {seed: first[seed] - second[seed] for seed in first if seed in second}
    return scaled(over_networks(both, confidence=confidence), 100.0)


def log_ratio(first: ByNetwork, second: ByNetwork) -> Estimate:
    """log(errors of first / errors of second) within each network; ½ is added to every count."""
    shared = [seed for seed in first if seed in second]
    return over_networks({s: math.log((first[s] + 0.5) / (second[s] + 0.5)) for s in shared})


def geometric_ratio(first: ByNetwork, second: ByNetwork) -> Estimate:
    """Geometric mean over networks of errors of first / errors of second; ½ is added to each.

    Worked value: 1 and 7 errors in one network, 3 and 13 in another have the ratios 1.5 / 7.5 and
    3.5 / 13.5, and the mean 0.2277.
    """
    log = log_ratio(first, second)
    return replace(log, value=math.exp(log.value), low=math.exp(log.low), high=_exp(log.high))


def _exp(power: float) -> float:
    return math.inf if power >= MAX_POWER else math.exp(power)


def ratio(first: ByNetwork, second: ByNetwork) -> Estimate:
    """first / second within each network."""
    return over_networks({s: first[s] / second[s] for s in first if second.get(s)})


def pooled(parts: Sequence[int], wholes: Sequence[int]) -> Estimate:
    """Σ parts / Σ wholes over networks, with a jackknife interval within [0, 1].

    Worked value: 1 of 2 and 3 of 4 make 4 of 6; leaving out one leaves ¾ and ½.
    """
    part, whole, n = sum(parts), sum(wholes), len(wholes)
    if n < 2:
        return mean([part / whole]) if n else over_networks({})
    without = [(part - a) / (whole - b) for a, b in zip(parts, wholes, strict=True)]
    spread = mean([n * part / whole - (n - 1) * value for value in without])
    share, reach = part / whole, spread.half_width
    return Estimate(share, max(0.0, share - reach), min(1.0, share + reach), n, spread.confidence)


def average(values: Sequence[float], errors: Sequence[float], *, confidence: float) -> Estimate:
    """Mean of independent numbers with known standard errors; their own spread plays no part.

    Worked value: 1 and 3, each ± 1, have the mean 2 ± √2 / 2.
    """
    n = len(values)
    if n == 0:
        return over_networks({}, confidence=confidence)
    centre = sum(values) / n
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * math.hypot(*errors) / n
    return Estimate(centre, centre - reach, centre + reach, n, confidence)


def jointly(comparisons: int) -> float:
    """The confidence of each of this many intervals that all hold together with 95 %."""
    return 1 - 0.05 / comparisons


def networks(seeds: Iterable[int], what: str = "trained networks") -> Need:
    """The fewest networks that may decide."""
    return at_least(what, len(set(seeds)), FEWEST_NETWORKS)


def level(values: ByNetwork) -> float:
    """Mean over networks."""
    return over_networks(values).value
