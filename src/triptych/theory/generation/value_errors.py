"""How wrong a value is along prefixes, and what algorithms may be expected to give with it.

V̂ stands where V*(x_≤t) = E_p[τ(X) | x_≤t] should. Along the texts of the model p, at depth t,

    bias       E_p[V̂ - V*]
    forward    E_p[V̂] / E_p[τ]          = E_π[V̂ / V*], if V̂ is 0 on hopeless prefixes
    inverse    E_p[V*² / V̂] / E_p[τ]    = E_π[V* / V̂]

where π ∝ p τ is the law that is wanted. Exact values have bias 0 and ratios 1 at every depth. A
factor 1 + ε within which V̂ is everywhere bounds both ratios by 1 + ε; they are the errors on
average that `verifiers.noisy.AverageCase` sets. All but V* itself is read off texts of the model:
no V* is divided by, and V*² is the product of two roll-outs.

What may be expected [li, 3.3.1], for texts of at most H tokens:

    VGB, leaves    share of its steps at full texts, E_p[V̂(X)] / (2 E_p[Σ_t V̂(X_≤t)]), exactly; with
                   exact values of strings of one length 1 / (2H)
    VGB, law       on full texts p V̂, so it is right with E_p[V̂ τ] / E_p[V̂]; many particles too
    best of n      by V̂ of the full text; law within n of p, KL ≤ log n - (n - 1)/n
    threshold      how often a right text is refused on its way, how often a passed one is right

Two bounds for a V̂ within a factor 1 + ε of V* at every prefix: the law ∝ p V̂ on full texts is
within ε / (2 + ε) of π in total variation, and token by token (drawing ∝ p V̂) within
(a - 1) / (a + 1), a = (1 + ε)^(2H). Both follow from the largest ratio of the laws. The first is
met where V̂ / V* is 1 + ε on texts that have π-mass 1 / (2 + ε), and its inverse on the others.

Worked value: two fair bits, τ = 1 on 11 alone, V̂(1) = 1 and V̂ exact elsewhere. V* = ¼ at the root,
½ and 0 below; bias (¼, 0), forward (2, 1), inverse (½, 1); VGB is at a full text in
(¼) / (2 (½ + ¼)) = 1/6 of its steps.

Notation
--------
τ   outcome, 0 ≤ τ ≤ 1 for estimates      V*, V̂   exact and given value      H   depth of the texts
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from triptych.core.display import card, counted, facts_table, number, records_table
from triptych.core.estimates import Estimate
from triptych.core.protocols import Value
from triptych.core.table import Table, all_sequences
from triptych.core.validation import UserError
from triptych.inference.guided.best_of_n import kept_probs
from triptych.theory.generation.walks import leaf_mass_bound, relaxation_bound
from triptych.theory.numerics.betting import ratio_of_means

FLOOR = 0.01
"""A smaller V̂ counts as this in the inverse ratio of samples, which is then too small."""
BINS = 5


class Level(NamedTuple):
    """The error at texts cut after `depth` tokens; a text that ended before counts as it is."""

    depth: int
    bias: Estimate
    forward: Estimate
    inverse: Estimate


class Bin(NamedTuple):
    """Prefixes of which V̂ says between `low` and `high`: how many, what it says, what is right."""

    low: float
    high: float
    prefixes: int
    said: float
    right: Estimate


class Screen(NamedTuple):
    """A hard verifier made of V̂ by a threshold.

    right_refused   share of right texts that are refused at some prefix
    wrong_passed    share of wrong texts that are passed at all prefixes
    passed_right    share of right texts among those that are passed
    """

    threshold: float
    right_refused: Estimate
    wrong_passed: Estimate
    passed_right: Estimate


@dataclass(frozen=True, eq=False)
class Calibration:
    """What is known of one prompt. `exact` numbers are computed; the others are intervals that hold
    all together with probability `confidence`.

    factor   what 1 + ε is at least, if V̂ is within that factor of V* at every prefix; a sample
             gives no upper end
    """

    length: int
    exact: bool
    confidence: float
    texts: int
    success: Estimate
    levels: tuple[Level, ...]
    bins: tuple[Bin, ...]
    factor: Estimate
    leaf_mass: Estimate
    tilted: Estimate
    best_of_n: Mapping[int, Estimate]
    screen: Screen

    def __repr__(self) -> str:
        how = "exact" if self.exact else counted(self.texts, "text")
        return f"Calibration({how}, right {self.success}, factor at least {self.factor.low:.3g})"

    def sentences(self) -> list[str]:
        """What a user may expect, a sentence each."""
        factor, epsilon = self.factor.low, max(0.0, self.factor.low - 1)
        known = "is" if self.exact else "is at least"
        said = [
            f"The model alone is right with probability {_shown(self.success)}.",
            f"The factor by which the verifier is wrong at its worst prefix {known} {factor:.3g}"
            + ("." if self.exact else "; a sample cannot say how large it is at most."),
        ]
        said += [
            f"After {counted(level.depth, 'token')} the verifier is off by {_shown(level.bias)} on "
            f"average; the ratios of the theory, 1 for exact values, are {_shown(level.forward)} "
            f"and {_shown(level.inverse)}."
            for level in self.levels
        ]
        said.append(
            f"VGB is at a full text in {_shown(self.leaf_mass)} of its steps, and after many steps "
            f"right with probability {_shown(self.tilted)}; so are many particles."
        )
        if math.isfinite(factor):
            said.append(
                f"If the factor is nowhere above {factor:.3g} and the values of full texts are "
                f"exact, VGB is at a full text in {leaf_mass_bound(self.length, epsilon):.3g} of "
                f"its steps or more, and its relaxation time is at most "
                f"{relaxation_bound(self.length, epsilon):.3g} steps."
            )
        for n, value in self.best_of_n.items():
            said.append(f"The best of {n} is right with probability {_shown(value)}.")
        screen = self.screen
        said.append(
            f"A threshold of {screen.threshold:g} refuses {_shown(screen.right_refused)} of the "
            f"right texts on their way and passes {_shown(screen.wrong_passed)} of the wrong ones; "
            f"of the passed ones {_shown(screen.passed_right)} are right, which rejection sampling "
            "gives. Backtracking has no bound: it saves tokens and erases refused right ones too."
        )
        return said

    def _repr_html_(self) -> str:
        """For a notebook: the error by depth, the table of bins, the expectations."""
        levels = [[x.depth, *map(_shown, (x.bias, x.forward, x.inverse))] for x in self.levels]
        bins = [
            [f"{x.low:g} to {x.high:g}", x.prefixes, x.said, _shown(x.right)]
            for x in self.bins
            if x.prefixes
        ]
        facts = {
            "the model alone": _shown(self.success),
            "largest factor, at least": number(self.factor.low),
            "VGB at full texts": _shown(self.leaf_mass),
            "VGB, many steps": _shown(self.tilted),
            **{f"best of {n}": _shown(value) for n, value in self.best_of_n.items()},
            f"right texts refused at {self.screen.threshold:g}": _shown(self.screen.right_refused),
        }
        return card(
            repr(self),
            facts_table(facts),
            records_table(("tokens", "bias", "V̂ over V*", "V* over V̂"), levels),
            records_table(("V̂", "prefixes", "mean V̂", "right"), bins),
        )


def _shown(found: Estimate) -> str:
    if found.low == found.high:
        return f"{found.value:.4g}"
    return str(found)


# ------------------------------------------------------------------ exact


def exact_calibration(
    table: Table,
    value: Value,
    outcome: Value,
    *,
    n: Sequence[int] = (1, 2, 4, 8, 16),
    threshold: float = 0.5,
) -> Calibration:
    """All numbers of a small law, by enumeration; prefixes in the bins count by their chance."""
    exact = _ExactTree(table, value, outcome)
    depths = range(1, table.length + 1)
    success = exact.mean(exact.tau)
    if not success > 0:
        raise UserError(
            f"the outcome {outcome!r} is 0 on all that the table writes", parameter="outcome"
        )
    said, leaf = [exact.said(t) for t in depths], exact.said(table.length)
    levels = tuple(Level(t, *map(_known, exact.errors(t, said[t - 1], success))) for t in depths)
    passed = torch.stack(
        [(v >= threshold).repeat_interleave(len(leaf) // len(v)) for v in said]
    ).all(0)
    return Calibration(
        length=table.length,
        exact=True,
        confidence=1.0,
        texts=len(leaf),
        success=_known(success),
        levels=levels,
        bins=exact.bins(said),
        factor=_known(max(exact.factor(t, said[t - 1]) for t in depths)),
        leaf_mass=_known(
            exact.mean(leaf) / (2 * sum(float(exact.mass(t) @ said[t - 1]) for t in depths))
        ),
        tilted=_known(_over(exact.mean(leaf * exact.tau), exact.mean(leaf))),
        best_of_n={k: _known(exact.best_of(k, leaf)) for k in n},
        screen=Screen(
            threshold,
            _known(exact.mean(exact.tau * ~passed) / success),
            _known(_over(exact.mean((1 - exact.tau) * passed), 1 - success)),
            _known(_over(exact.mean(exact.tau * passed), exact.mean(passed.double()))),
        ),
    )


class _ExactTree:
    """p, τ and V̂ of every prefix of a table."""

    def __init__(self, table: Table, value: Value, outcome: Value) -> None:
        self.table, self.value = table, value
        self.p = table.log_probs.exp()
        self.tau = outcome.log_value(table.sequences).exp()

    def said(self, t: int) -> Float[Tensor, " prefixes"]:
        return self.value.log_value(all_sequences(self.table.vocab_size, t)).double().exp()

    def mean(self, of: Tensor) -> float:
        return float(self.p @ of.double())

    def mass(self, t: int) -> Float[Tensor, " prefixes"]:
        return self.p.reshape(self.table.vocab_size**t, -1).sum(-1)

    def truth(self, t: int) -> Float[Tensor, " prefixes"]:
        """V*, nan where the model never comes."""
        joint = (self.p * self.tau).reshape(self.table.vocab_size**t, -1).sum(-1)
        return joint / self.mass(t)

    def errors(self, t: int, said: Tensor, success: float) -> tuple[float, float, float]:
        mass, truth = self.mass(t), self.truth(t).nan_to_num()
        ratio = torch.where(truth > 0, truth**2 / said, 0.0)
        return (
            float(mass @ (said - truth)),
            float(mass @ said) / success,
            float(torch.where(mass > 0, mass * ratio, 0.0).sum()) / success,
        )

    def factor(self, t: int, said: Tensor) -> float:
        """The largest of V̂ / V* and V* / V̂; 1 where both are 0."""
        reached = self.mass(t) > 0
        said, truth = said[reached], self.truth(t)[reached]
        ratio = torch.where((said == 0) & (truth == 0), 1.0, said / truth)
        return float(torch.maximum(ratio, 1 / ratio).max())

    def best_of(self, n: int, leaf: Tensor) -> float:
        return float(kept_probs(self.p[None], leaf[None], n)[0] @ self.tau)

    def bins(self, said: Sequence[Tensor]) -> tuple[Bin, ...]:
        most = max(1.0, *(float(v.max()) for v in said))
        mass = torch.cat([self.mass(t) / len(said) for t in range(1, len(said) + 1)])
        truth = torch.cat([self.truth(t) for t in range(1, len(said) + 1)]).nan_to_num()
        every = torch.cat(list(said))
        place = _bin_of(every.numpy(), most)
        found: list[Bin] = []
        for k in range(BINS):
            inside = torch.from_numpy(place == k) & (mass > 0)
            total = float(mass[inside].sum())
            right = _over(float((mass * truth)[inside].sum()), total)
            mean_said = _over(float((mass * every)[inside].sum()), total)
            low, high = k * most / BINS, (k + 1) * most / BINS
            found.append(Bin(low, high, int(inside.sum()), mean_said, _known(right)))
        return tuple(found)


def _known(value: float) -> Estimate:
    return Estimate(value, value, value, 0, 1.0)


def _over(a: float, b: float) -> float:
    return a / b if b else math.nan


def _bin_of(values: np.ndarray, most: float) -> np.ndarray:
    return np.minimum((values / most * BINS).astype(int), BINS - 1)


# ------------------------------------------------------------------ from texts of the model


class Drawn(NamedTuple):
    """Texts of the model with what was said about them.

    values     V̂ after each token; a text that ended before has its last value there again
    lengths    tokens of each text
    outcome    τ of each text
    depths     where roll-outs began, in tokens
    again      τ of roll-outs from each text cut there; of a text that ended before, its own τ
    """

    values: Float[np.ndarray, "texts length"]
    lengths: Int[np.ndarray, " texts"]
    outcome: Float[np.ndarray, " texts"]
    depths: tuple[int, ...]
    again: Float[np.ndarray, "texts depths rollouts"]


def calibration(
    drawn: Drawn,
    *,
    n: Sequence[int] = (1, 2, 4, 8, 16),
    threshold: float = 0.5,
    confidence: float = 0.95,
) -> Calibration:
    """The same from independent texts, with intervals that hold all together.

    Shares of right texts have Clopper and Pearson's interval where outcomes are 0 or 1, and that
    of betting (`numerics.betting`) otherwise, as all ratios have. The best of n is an average over
    all n of the texts, with Hoeffding's interval for ⌊texts / n⌋ independent groups. Each of the
    numbers may fail with the same share of 1 - confidence. A text counts in one bin, at one of the
    depths in turn, so that a bin has independent prefixes.
    """
    values, outcome, again = drawn.values, drawn.outcome, drawn.again
    texts, length = values.shape
    chosen = [k for k in n if k <= texts]
    parts = 3 * len(drawn.depths) + BINS + len(chosen) + 6
    each = 1 - (1 - confidence) / parts
    most = max(1.0, float(values.max()))
    if most > 1:
        raise UserError(
            f"the verifier says V = {most:g} of a prefix; intervals need values from 0 to 1"
        )
    leaf, path = values[:, -1], _path_sums(values, drawn.lengths)
    levels = tuple(
        _level(depth, values[:, depth - 1], outcome, again[:, k], each)
        for k, depth in enumerate(drawn.depths)
    )
    bins = _bins(values, drawn, each)
    passed = _passed(values, drawn.lengths, threshold)
    return Calibration(
        length=length,
        exact=False,
        confidence=confidence,
        texts=texts,
        success=_share(outcome, np.ones(texts), each),
        levels=levels,
        bins=bins,
        factor=_least_factor(levels, bins, values, drawn),
        leaf_mass=ratio_of_means(leaf, 2 * path, most_below=2.0 * length, confidence=each),
        tilted=_share(outcome, leaf, each),
        best_of_n={k: _best_of(k, leaf, outcome, each) for k in chosen},
        screen=Screen(
            threshold,
            _share(1 - passed, outcome, each),
            _share(passed, 1 - outcome, each),
            _share(outcome, passed, each),
        ),
    )


def _path_sums(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Σ_t V̂(x_≤t) over the tokens that a text has."""
    inside = np.arange(1, values.shape[1] + 1) <= lengths[:, None]
    return (values * inside).sum(1)


def _passed(values: np.ndarray, lengths: np.ndarray, threshold: float) -> np.ndarray:
    inside = np.arange(1, values.shape[1] + 1) <= lengths[:, None]
    return ((values >= threshold) | ~inside).all(1).astype(float)


def _level(
    depth: int, said: np.ndarray, outcome: np.ndarray, again: np.ndarray, confidence: float
) -> Level:
    """`again` are roll-outs that share the first `depth` tokens with a text, and nothing else."""
    every = np.column_stack([outcome, again])
    k = every.shape[1]
    mean = every.mean(1)
    pairs = (every.sum(1) ** 2 - (every**2).sum(1)) / (k * (k - 1))
    shifted = ratio_of_means((said - mean + 1) / 2, confidence=confidence)
    value, low, high = (2 * end - 1 for end in (shifted.value, shifted.low, shifted.high))
    return Level(
        depth,
        Estimate(value, low, high, len(said), confidence),
        ratio_of_means(said, mean, confidence=confidence),
        ratio_of_means(
            pairs / np.maximum(said, FLOOR), mean, most_above=1 / FLOOR, confidence=confidence
        ),
    )


def _bins(values: np.ndarray, drawn: Drawn, confidence: float) -> tuple[Bin, ...]:
    said, right = _one_prefix_each(values, drawn)
    place = _bin_of(said, 1.0)
    found: list[Bin] = []
    for k in range(BINS):
        inside = place == k
        count = int(inside.sum())
        mean = float(said[inside].mean()) if count else math.nan
        share = _share(right[inside], np.ones(count), confidence)
        found.append(Bin(k / BINS, (k + 1) / BINS, count, mean, share))
    return tuple(found)


def _one_prefix_each(values: np.ndarray, drawn: Drawn) -> tuple[np.ndarray, np.ndarray]:
    """V̂ at one prefix of each text, and the outcome of a roll-out from there."""
    which = np.arange(len(values)) % len(drawn.depths)
    depth = np.array(drawn.depths)[which]
    rows = np.arange(len(values))
    return values[rows, depth - 1], drawn.again[rows, which, 0]


def _least_factor(
    levels: Sequence[Level], bins: Sequence[Bin], values: np.ndarray, drawn: Drawn
) -> Estimate:
    """What 1 + ε is at least: in a bin some prefix is as good as their mean, and some as bad."""
    said, _ = _one_prefix_each(values, drawn)
    place = _bin_of(said, 1.0)
    least = [1.0]
    for level in levels:
        least += [level.forward.low, _over(1.0, level.forward.high), level.inverse.low]
    for k, each in enumerate(bins):
        if each.prefixes:
            inside = said[place == k]
            least += [
                each.right.low / inside.max() if inside.max() > 0 else 1.0,
                inside.min() / each.right.high,
            ]
            if inside.max() == 0 and each.right.low > 0:
                least.append(math.inf)
    found = max(x for x in least if not math.isnan(x))
    return Estimate(found, found, math.inf, len(values), levels[0].bias.confidence)


def _share(of: np.ndarray, among: np.ndarray, confidence: float) -> Estimate:
    """E[of · among] / E[among]; exact for 0 and 1."""
    both, total = of * among, float(among.sum())
    if total == 0:
        return Estimate(math.nan, 0.0, 1.0, 0, confidence)
    if np.isin(of, (0.0, 1.0)).all() and np.isin(among, (0.0, 1.0)).all():
        interval = stats.binomtest(int(both.sum()), int(total)).proportion_ci(
            confidence, method="exact"
        )
        low, high = float(interval.low), float(interval.high)
        return Estimate(float(both.sum()) / total, low, high, int(total), confidence)
    found = ratio_of_means(both, among, confidence=confidence)
    return Estimate(found.value, found.low, min(1.0, found.high), len(of), confidence)


def _best_of(n: int, leaf: np.ndarray, outcome: np.ndarray, confidence: float) -> Estimate:
    """The mean outcome of the best of n texts, over all sets of n; ties are shared.

    Worked value: V̂ = 1, 2, 3 with outcomes 0, 1, 0: the best of 2 is right in one set of three.
    """
    values, group = np.unique(leaf, return_inverse=True)
    size = np.bincount(group, minlength=len(values))
    right = np.bincount(group, outcome, minlength=len(values)) / size
    upto = np.cumsum(size)
    total = len(leaf)

    def sets(m: np.ndarray) -> np.ndarray:  # share of all sets of n that lie in m texts
        steps = np.arange(n)
        return np.clip((m[:, None] - steps) / (total - steps), 0.0, None).prod(1)

    found = float(((sets(upto) - sets(upto - size)) * right).sum())
    reach = math.sqrt(math.log(2 / (1 - confidence)) / (2 * (total // n)))
    return Estimate(found, max(0.0, found - reach), min(1.0, found + reach), total, confidence)


# ------------------------------------------------------------------ bounds


def tilted_distance_bound(epsilon: float) -> float:
    """TV of the law ∝ p V̂ on full texts to π, at most: ε / (2 + ε). Worked value: ε = 1: ⅓."""
    return epsilon / (2 + epsilon)


def tokenwise_distance_bound(length: int, epsilon: float) -> float:
    """TV of drawing each token ∝ p V̂ to π, at most. Worked value: H = 1, ε = 1: a = 4, 3/5."""
    return math.tanh(length * math.log1p(epsilon))  # (a - 1)/(a + 1) with a = e^(2 H log(1 + ε))
