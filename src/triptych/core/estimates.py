"""Numbers with their uncertainty, and what may be concluded from them."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from triptych.core.display import card, facts_table, number
from triptych.core.status import Status as Status
from triptych.core.validation import (
    Count,
    Number,
    UserError,
    as_count,
    as_number,
    as_probability,
    as_seed,
    check_callable,
    set_fields,
)

Samples = Sequence[float] | np.ndarray


_NUMBERS = ("value", "low", "high")
_MAX_TRIALS = 2**53  # beyond it, floats do not count by ones
_MAX_RESAMPLES = 10**6


@dataclass(frozen=True)
class Estimate:
    """A value and a confidence interval [low, high] around it, from n independent samples.

    A bound that is proven has confidence 1. What is not known, as the mean of no samples, is nan;
    nothing is above, below or near it.
    """

    value: float
    low: float
    high: float
    n: int
    confidence: float = 0.95

    def __post_init__(self) -> None:
        ends = {name: _known_or_nan(name, getattr(self, name)) for name in _NUMBERS}
        if ends["low"] > ends["high"]:
            raise UserError(
                f"low is {ends['low']} and high {ends['high']}; low must not be above",
                parameter="low",
            )
        confidence = as_number("confidence", self.confidence, above=0, at_most=1)
        set_fields(self, **ends, n=as_count("n", self.n), confidence=confidence)

    @property
    def half_width(self) -> float:
        return 0.5 * (self.high - self.low)

    def _repr_html_(self) -> str:
        interval = f"{number(self.low)} to {number(self.high)}"
        name = "proven bounds" if self.confidence == 1 else f"{100 * self.confidence:g} % interval"
        facts = {"value": self.value, name: interval, "samples": self.n}
        return card("Estimate", facts_table(facts))

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def _known_or_nan(name: str, value: Number) -> float:
    unknown = isinstance(value, float) and math.isnan(value)
    return math.nan if unknown else as_number(name, value, finite=False)


def mean(samples: Samples, *, confidence: Number = 0.95) -> Estimate:
    """Student's t interval for the mean; one sample has the interval (-inf, inf)."""
    values = _values(samples)
    confidence = as_probability("confidence", confidence, strictly=True)
    n, centre = len(values), _mean(values)
    if n == 1 or math.isinf(centre):  # nothing is known of how far the mean is off
        return Estimate(centre, -math.inf, math.inf, n, confidence)
    with np.errstate(over="ignore"):  # a spread beyond floats is infinite
        spread = float(values.std(ddof=1))
    reach = float(stats.t.ppf(0.5 + confidence / 2, n - 1)) * spread / math.sqrt(n)
    return Estimate(centre, centre - reach, centre + reach, n, confidence)


def _mean(values: np.ndarray) -> float:
    """The mean; divided before it is summed where the sum would overflow."""
    with np.errstate(over="ignore"):
        total = float(values.mean())
    if math.isinf(total) and np.isfinite(values).all():
        total = float((values / len(values)).sum())
    return total


def proportion(successes: Count, n: Count, *, confidence: Number = 0.95) -> Estimate:
    """Wilson's score interval for a success probability; never empty at 0 or n successes."""
    successes, n = as_count("successes", successes, at_least=None), as_count("n", n, at_least=None)
    confidence = as_probability("confidence", confidence, strictly=True)
    if n < 1 or not 0 <= successes <= n:
        raise UserError(
            f"a proportion needs 0 <= successes <= n and n >= 1, got {successes}/{n}",
            parameter="successes",
        )
    if n > _MAX_TRIALS:
        raise UserError(
            f"n is {n}; a proportion counts at most {_MAX_TRIALS} trials", parameter="n"
        )
    interval = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return Estimate(successes / n, float(interval.low), float(interval.high), n, confidence)


def bootstrap(
    samples: Samples,
    statistic: Callable[..., float] = np.mean,
    *,
    confidence: Number = 0.95,
    resamples: Count = 9999,
    seed: Count = 0,
) -> Estimate:
    """Interval for any statistic (called with `axis`), by BCa resampling of the samples.

    Where BCa is not defined (most resamples tie, as for a median of few values), plain percentiles.
    Samples without spread have an interval of width zero: there is nothing to resample.
    """
    values = _values(samples)
    check_callable("statistic", statistic, "statistic(values, axis=0)")
    confidence = as_probability("confidence", confidence, strictly=True)
    resamples = as_count("resamples", resamples, at_least=1, at_most=_MAX_RESAMPLES)
    seed = as_seed(seed)
    n, centre = len(values), _statistic_of(statistic, values)
    if n == 1:
        return Estimate(centre, -math.inf, math.inf, 1, confidence)
    if np.all(values == values[0]):
        return Estimate(centre, centre, centre, n, confidence)
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a degenerate BCa warns and returns nan
            result = stats.bootstrap(
                (values,),
                statistic,
                confidence_level=confidence,
                n_resamples=resamples,
                method=method,
                rng=np.random.default_rng(seed),
            )
        low, high = (float(end) for end in result.confidence_interval)
        if not (math.isnan(low) or math.isnan(high)):
            break
    return Estimate(centre, low, high, n, confidence)


def _statistic_of(statistic: Callable[..., float], values: np.ndarray) -> float:
    try:
        answer = statistic(values, axis=0)
    except TypeError as error:
        raise UserError(
            f"statistic(values, axis=0) must be possible; it says: {error}", parameter="statistic"
        ) from None
    return as_number("statistic(values, axis=0)", answer, finite=False)


def paired_difference(first: Samples, second: Samples, *, confidence: Number = 0.95) -> Estimate:
    """t interval for the mean of first - second, measured on the same units in the same order."""
    one, other = _values(first, "first"), _values(second, "second")
    if len(one) != len(other):
        raise UserError(
            f"first and second must have equal length, got {len(one)} and {len(other)}",
            parameter="first",
        )
    return mean(one - other, confidence=confidence)


def tv_tolerance(n: Count, outcomes: Count, failure: Number) -> float:
    """P(TV(empirical law of n draws, truth) > tolerance) ≤ failure.

    E[TV] ≤ ½ √(outcomes / n) by Cauchy–Schwarz; one draw moves TV by at most 1/n, so
    McDiarmid adds √(log(1/failure) / 2n).
    """
    n, outcomes = as_count("n", n, at_least=1), as_count("outcomes", outcomes, at_least=1)
    failure = as_number("failure", failure, above=0, at_most=1)
    return 0.5 * math.sqrt(outcomes / n) + math.sqrt(math.log(1 / failure) / (2 * n))


def _values(samples: Samples, name: str = "samples") -> np.ndarray:
    """A list of numbers, at least one and none nan."""
    try:
        given = np.asarray(samples)
        if given.dtype.kind not in "fiub":
            raise TypeError
        values = given.astype(np.float64)
    except (TypeError, ValueError, RuntimeError):
        kind = type(samples).__name__
        raise UserError(
            f"{name} is a {kind}; an estimate needs a non-empty list of numbers",
            parameter=name,
        ) from None
    if values.ndim != 1 or len(values) == 0:
        raise UserError(
            f"{name} has shape {values.shape}; an estimate needs a non-empty list of numbers",
            parameter=name,
        )
    if np.isnan(values).any():
        raise UserError(f"{name}: sample {int(np.isnan(values).argmax())} is nan", parameter=name)
    if np.isposinf(values).any() and np.isneginf(values).any():
        raise UserError(f"{name} holds inf and -inf, which have no mean", parameter=name)
    return values
