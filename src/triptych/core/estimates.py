"""Numbers with their uncertainty, and what may be concluded from them."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy import stats

Samples = Sequence[float] | np.ndarray


class Outcome(Enum):
    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Estimate:
    """A value and a confidence interval [low, high] around it, from n independent samples."""

    value: float
    low: float
    high: float
    n: int
    confidence: float = 0.95

    @property
    def half_width(self) -> float:
        return 0.5 * (self.high - self.low)

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def mean(samples: Samples, *, confidence: float = 0.95) -> Estimate:
    """Student's t interval for the mean; one sample has the interval (-inf, inf)."""
    values = _values(samples)
    n, centre = len(values), float(values.mean())
    if n == 1:
        return Estimate(centre, -math.inf, math.inf, 1, confidence)
    reach = float(stats.t.ppf(0.5 + confidence / 2, n - 1) * values.std(ddof=1) / math.sqrt(n))
    return Estimate(centre, centre - reach, centre + reach, n, confidence)


def proportion(successes: int, n: int, *, confidence: float = 0.95) -> Estimate:
    """Wilson's score interval for a success probability; never empty at 0 or n successes."""
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"a proportion needs 0 <= successes <= n and n >= 1, got {successes}/{n}")
    interval = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return Estimate(successes / n, float(interval.low), float(interval.high), n, confidence)


def bootstrap(
    samples: Samples,
    statistic: Callable[..., float] = np.mean,
    *,
    confidence: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> Estimate:
    """Interval for any statistic (called with `axis`), by BCa resampling of the samples.

    Where BCa is not defined (most resamples tie, as for a median of few values), plain percentiles.
    Samples without spread have an interval of width zero: there is nothing to resample.
    """
    values = _values(samples)
    n, centre = len(values), float(statistic(values, axis=0))
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


def paired_difference(first: Samples, second: Samples, *, confidence: float = 0.95) -> Estimate:
    """t interval for the mean of first - second, measured on the same units in the same order."""
    if len(first) != len(second):
        raise ValueError(
            f"paired samples must have equal length, got {len(first)} and {len(second)}"
        )
    return mean([a - b for a, b in zip(first, second, strict=True)], confidence=confidence)


def above(estimate: Estimate, threshold: float) -> Outcome:
    """HOLDS or FAILS only if the whole interval lies on one side of the threshold."""
    if estimate.low > threshold:
        return Outcome.HOLDS
    if estimate.high < threshold:
        return Outcome.FAILS
    return Outcome.UNDECIDED


def below(estimate: Estimate, threshold: float) -> Outcome:
    """The mirror image of `above`."""
    if estimate.high < threshold:
        return Outcome.HOLDS
    if estimate.low > threshold:
        return Outcome.FAILS
    return Outcome.UNDECIDED


def tv_tolerance(n: int, outcomes: int, failure: float) -> float:
    """P(TV(empirical law of n draws, truth) > tolerance) ≤ failure.

    E[TV] ≤ ½ √(outcomes / n) by Cauchy–Schwarz; one draw moves TV by at most 1/n, so
    McDiarmid adds √(log(1/failure) / 2n).
    """
    return 0.5 * math.sqrt(outcomes / n) + math.sqrt(math.log(1 / failure) / (2 * n))


def _values(samples: Samples) -> np.ndarray:
    values = np.asarray(samples, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"an estimate needs a non-empty list of numbers, got shape {values.shape}")
    if np.isnan(values).any():
        raise ValueError(f"sample {int(np.isnan(values).argmax())} is nan")
    return values
