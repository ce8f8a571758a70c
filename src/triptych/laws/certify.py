"""`certify_by_draws`: a sequential test of a sampler that cannot be entered, as a compiled kernel.

The evidence against the target is an e-process: a mixture of predictions of the next draw, divided
by the target's own. Under the target its mean is 1 at every stopping time, so that

    P(it ever reaches 1 / level) <= level            [Ville]

whenever one stops. Half of the bet is on all probabilities at once (a Dirichlet prior); the other
half is spread over the outcomes, one at a time, which finds one that is wrong.

Notation
--------
p       target       probabilities of k outcomes
c       counts       of the draws until now
E       e-value      evidence against the target
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaln, gammaln

from triptych.core.errors import UserError
from triptych.core.validation import Count, Number, as_count, as_number, check_callable
from triptych.laws.law import Target
from triptych.laws.outcomes import as_probs, canonical

POWER = 0.99


@dataclass(frozen=True)
class Certificate:
    """What draws say: `passed` is False once the evidence reached 1 / level.

    e_value
        The evidence against the target, at the end.
    detects
        A sampler this far away in total variation would have failed with probability `power`.
    """

    passed: bool
    draws: int
    level: float
    e_value: float
    detects: float
    power: float
    outcome: Hashable = None
    seen: float = 0.0
    target: float = 0.0

    def __str__(self) -> str:
        if self.passed:
            return (
                f"{self.draws} draws agree with the target at level {self.level:g}; a sampler that "
                f"is {self.detects:.3g} away in total variation fails with probability "
                f"{self.power:g}"
            )
        return (
            f"after {self.draws} draws the target is refuted at level {self.level:g}: outcome "
            f"{self.outcome!r} came in a share {self.seen:.4g} of them, and has probability "
            f"{self.target:.4g} in the target"
        )

    def __bool__(self) -> bool:
        return self.passed


class Evidence:
    """log E after each draw of a sequence, for a law of k outcomes.

    Worked value: a fair coin. The first draw is predicted with 1/2, so E = 1; a second equal one
    with (1 + 1/2) / (1 + 1) = 3/4, so the mixture has E = 3/4 : 1/2 = 3/2.
    """

    def __init__(self, probs: np.ndarray) -> None:
        self.p = np.asarray(probs, dtype=np.float64)
        self.k = len(self.p)

    def log_joint(self, counts: np.ndarray) -> Any:
        """log of the Dirichlet(1/2) mixture over the target's own probability of the draws."""
        counts = np.asarray(counts, dtype=np.float64)
        n = counts.sum(-1)
        terms = gammaln(counts + 0.5) - gammaln(0.5) - counts * np.log(self.p)
        return gammaln(self.k / 2) - gammaln(self.k / 2 + n) + terms.sum(-1)

    def log_single(self, counts: np.ndarray) -> Any:
        """The same for every outcome against all others, with a Beta prior around its share."""
        counts = np.asarray(counts, dtype=np.float64)
        n = counts.sum(-1, keepdims=True)
        p = np.clip(self.p, 0.0, 1 - 1e-16)
        a, b = 2 * p, 2 * (1 - p)
        ratio = betaln(a + counts, b + n - counts) - betaln(a, b)
        return ratio - counts * np.log(p) - (n - counts) * np.log1p(-p)

    def log_e(self, counts: np.ndarray) -> Any:
        """log of ½ (mixture) + ½ (mean over the outcomes)."""
        joint = self.log_joint(counts) - math.log(2)
        single = self.log_single(counts)
        single = np.logaddexp.reduce(single, axis=-1) - math.log(2 * self.k)
        return np.logaddexp(joint, single)

    def regret(self, n: int) -> float:
        """The most that log_joint stays below n KL(shares || p), over all counts of n draws.

        The difference is convex in the counts, as 1 / c >= trigamma(c + 1/2), so that the most is
        where all draws are equal.
        """
        half = self.k / 2
        return float(gammaln(half + n) - gammaln(half) - gammaln(n + 0.5) + gammaln(0.5))


def draws_needed(target: Target, level: Number, distance: Number, power: Number = POWER) -> int:
    """How many draws refute, with probability `power`, any sampler `distance` from the target.

    With q the sampler and A the set where it exceeds p, the share of A in n draws is below q(A) by
    at most sqrt(log(1 / (1 - power)) / 2n) with that probability [Hoeffding]. The shares are then
    at least `gap` away from p, so that n KL(shares || p) >= 2 n gap² [Pinsker], and the mixture
    pays its regret.
    """
    probs = _positive(as_probs("target", target))
    level = _as_level(level)
    distance = as_number("distance", distance, at_least=1e-4, at_most=1)
    power = as_number("power", power, at_least=0.5, at_most=1 - 1e-9)
    evidence = Evidence(np.array(list(probs.values())))
    n = 16
    while not _refutes(evidence, n, level, distance, power):
        n = math.ceil(n * 1.05)
        if n > 1e9:
            raise UserError("more than 10^9 draws would be needed; give a larger distance")
    return n


def _refutes(evidence: Evidence, n: int, level: float, distance: float, power: float) -> bool:
    gap = distance - math.sqrt(math.log(1 / (1 - power)) / (2 * n))
    if gap <= 0:
        return False
    return 2 * n * gap * gap - evidence.regret(n) - math.log(2) >= math.log(1 / level)


def _positive(probs: dict[Hashable, float]) -> dict[Hashable, float]:
    return {x: p for x, p in probs.items() if p > 0}


def _as_level(level: Number) -> float:
    return as_number("level", level, at_least=1e-300, at_most=0.5)


def certify_by_draws(
    sampler: Callable[[], Any],
    target: Target,
    level: Number = 1e-3,
    *,
    distance: Number = 0.02,
    max_draws: Count | None = None,
) -> Certificate:
    """Draw until the target is refuted, or until a distance of `distance` would have been seen.

    `sampler()` returns one outcome. A correct sampler fails with probability at most `level`,
    whenever the test is stopped. `max_draws` stops it earlier; the certificate says what
    it detects then.
    """
    check_callable("sampler", sampler, "sampler()")
    probs = _positive(as_probs("target", target))
    level = _as_level(level)
    distance = as_number("distance", distance, at_least=1e-4, at_most=1)
    needed = draws_needed(probs, level, distance)
    most = needed if max_draws is None else as_count("max_draws", max_draws, at_least=1)
    index = {outcome: k for k, outcome in enumerate(probs)}
    evidence = Evidence(np.array(list(probs.values())))
    counts = np.zeros(len(probs))
    limit, log_e = math.log(1 / level), 0.0
    for n in range(1, most + 1):
        outcome = canonical(sampler())
        if outcome not in index:
            return Certificate(False, n, level, math.inf, distance, POWER, outcome, 1 / n, 0.0)
        counts[index[outcome]] += 1
        if n < 64 or n % 16 == 0 or n == most:  # one may look whenever one likes
            log_e = float(evidence.log_e(counts))
            if log_e >= limit:
                return _failed(evidence, probs, counts, n, level, log_e, distance)
    seen = distance if most >= needed else _detected(probs, level, most)
    return Certificate(True, most, level, _exp(log_e), seen, POWER)


def _failed(
    evidence: Evidence,
    probs: dict[Hashable, float],
    counts: np.ndarray,
    n: int,
    level: float,
    log_e: float,
    distance: float,
) -> Certificate:
    worst = int(np.argmax(evidence.log_single(counts)))
    outcome = list(probs)[worst]
    share = float(counts[worst]) / n
    return Certificate(
        False, n, level, _exp(log_e), distance, POWER, outcome, share, probs[outcome]
    )


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _detected(probs: dict[Hashable, float], level: float, draws: int) -> float:
    """The least distance that this many draws detect; 1 if none."""
    evidence = Evidence(np.array(list(probs.values())))
    for distance in np.geomspace(1e-3, 1, 200):
        if _refutes(evidence, draws, level, float(distance), POWER):
            return float(distance)
    return 1.0


def shared_level(level: Number, tests: Count) -> float:
    """The level of each of this many tests that together have a false alarm at most `level`."""
    return _as_level(level) / as_count("tests", tests, at_least=1)
