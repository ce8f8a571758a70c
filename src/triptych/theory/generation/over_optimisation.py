"""What more computation buys when the value is wrong: true value and KL of exact laws.

An algorithm looks at V̂ and is judged by τ, the truth about full strings. For the law L_n of its
output with n strings, particles or steps,

    said   E_{L_n}[V̂]        right   E_{L_n}[τ]        kl   KL(L_n ‖ p)

- The best of n. KL ≤ log n - (n - 1)/n: a string is a function of the largest of n uniform
  numbers and of a coin for ties, whose KL from one uniform number is just that, and no function
  makes it larger. Its law tends to p on the strings of largest V̂: whatever τ is elsewhere is lost.
- Particles that are resampled after every token. Their law follows from that of the multiset of
  prefixes, which is a Markov chain: the order of particles never matters.
- VGB after n steps, given that it stands at a leaf.

The laws of particles and of VGB tend to p V̂, normalised, whose KL is at most log (max V̂ / E_p[V̂]);
with V̂ within a factor 1 + ε of τ they are right with nearly the target's probability
(`value_errors.tilted_distance_bound`), at any n.

Worked value: a fair bit, V̂(0) = 1, V̂(1) = 2, τ = 1 on 0 alone. The best of 2 is a 1 with ¾: right
¼, KL ¾ log 3/2 + ¼ log ½ = 0.1308, below log 2 - ½ = 0.1931. Two particles: 1 with 7/12. In the
limit right is 0 for the best of n and ⅓ for the others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import gammaln

from triptych.core.display import card, records_table
from triptych.core.divergences import kl_divergence
from triptych.core.protocols import Value
from triptych.core.table import Table, all_sequences
from triptych.core.validation import UserError, as_count
from triptych.inference.guided import best_of_n
from triptych.theory.generation import walks

MAX_MULTISETS = 5000


class Point(NamedTuple):
    """An algorithm with `n` strings, particles or steps; None is its limit."""

    n: int | None
    said: float
    right: float
    kl: float


@dataclass(frozen=True, eq=False)
class OverOptimisation:
    """The points of each algorithm; `model` is p itself, `tilted` the limit of particles and VGB,
    `target` the law ∝ p τ."""

    model: Point
    best_of_n: tuple[Point, ...]
    particles: tuple[Point, ...]
    vgb: tuple[Point, ...]
    tilted: Point
    target: Point

    def __repr__(self) -> str:
        points = self.best_of_n + self.particles + self.vgb
        return f"OverOptimisation({len(points)} points, target right {self.target.right:.3g})"

    def _repr_html_(self) -> str:
        named = {
            "model": (self.model,),
            "best of n": self.best_of_n,
            "particles": self.particles,
            "VGB": self.vgb,
            "p V̂": (self.tilted,),
            "p τ": (self.target,),
        }
        rows = [
            [name, "" if point.n is None else point.n, *point[1:]]
            for name, points in named.items()
            for point in points
        ]
        return card(repr(self), records_table(("law", "n", "E[V̂]", "E[τ]", "KL"), rows))


def over_optimisation(
    table: Table,
    value: Value,
    outcome: Value,
    *,
    n: Sequence[int] = (1, 2, 4, 8, 16, 64, 256),
    particles: Sequence[int] = (),
    steps: Sequence[int] = (),
) -> OverOptimisation:
    """The points of the best of n, of particles and of VGB's walk, exactly.

    value     V̂ of every prefix; the best of n asks it about full strings alone
    outcome   τ of full strings
    """
    measure = _Measure(table, value, outcome)
    vgb: list[Point] = []
    if steps:
        walk = walks.Walk.of(table, value)
        laws = {t: walks.given_leaf(walk, walks.after(walk, t)) for t in steps}
        vgb = [measure.point(law, t) for t, law in laws.items()]
    return OverOptimisation(
        model=measure.point(table, None),
        best_of_n=tuple(measure.point(best_of_n.law(table, value, k), k) for k in n),
        particles=tuple(measure.point(resampled_law(table, value, k), k) for k in particles),
        vgb=tuple(vgb),
        tilted=measure.point(table.tilt(value.log_value), None),
        target=measure.point(table.tilt(outcome.log_value), None),
    )


class _Measure:
    """V̂ and τ of all full strings of a table."""

    def __init__(self, table: Table, value: Value, outcome: Value) -> None:
        self.table = table
        self.said = value.log_value(table.sequences).double().exp()
        self.right = outcome.log_value(table.sequences).double().exp()

    def point(self, law: Table, n: int | None) -> Point:
        probs = law.log_probs.exp()
        kl = float(kl_divergence(law.log_probs, self.table.log_probs))
        return Point(n, float(probs @ self.said), float(probs @ self.right), kl)


def best_of_n_kl_bound(n: int) -> float:
    """log n - (n - 1)/n. Worked value: n = 2: log 2 - ½ = 0.1931."""
    n = as_count("n", n, at_least=1)
    return math.log(n) - (n - 1) / n


def tilted_kl_bound(table: Table, value: Value) -> float:
    """log (max V̂ / E_p[V̂]), which KL(p V̂ / E_p[V̂] ‖ p) does not exceed.

    Worked value: a fair bit with V̂ = 1, 2: log (2 / 1.5) = 0.2877; the KL is 0.0566.
    """
    said = value.log_value(table.sequences).double()[table.log_probs > -torch.inf]
    mean = (value.log_value(table.sequences).double() + table.log_probs).logsumexp(0)
    return float(said.max() - mean)


# ------------------------------------------------------------------ particles


def resampled_law(table: Table, value: Value, n: int) -> Table:
    """The law of `particles` with ess = 1, n particles, given that not all of them die.

    Multisets of prefixes are followed from token to token; `particles.law` follows every particle
    and is the slow and obvious version. Worked value: as above, P(1) = 7/12 for n = 2.
    """
    n, vocab = as_count("n", n, at_least=1), table.vocab_size
    _check_multisets(vocab ** (table.length - 1), n)
    law = np.zeros(vocab**table.length)
    states: dict[tuple[int, ...], float] = {(n,): 1.0}  # how many particles at each prefix
    before = np.ones(1)
    for t in range(1, table.length + 1):
        mass = table.log_probs.exp().reshape(vocab**t, -1).sum(-1)
        chances = (mass.reshape(-1, vocab) / mass.reshape(-1, vocab).sum(-1, keepdim=True)).numpy()
        now = value.log_value(all_sequences(vocab, t)).double().exp().numpy()
        gain = np.divide(
            now, before.repeat(vocab), out=np.zeros_like(now), where=before.repeat(vocab) > 0
        )
        extended = _extended(states, np.nan_to_num(chances))
        if t == table.length:
            for counts, chance in extended.items():
                weights = np.array(counts) * gain
                if (total := weights.sum()) > 0:
                    law += chance * weights / total
            break
        states, before = _resampled(extended, gain, n), now
    if not law.sum() > 0:
        raise UserError(
            "every particle dies: the value is 0 on all that the table writes", parameter="table"
        )
    return Table(vocab, table.length, torch.from_numpy(law / law.sum()).log())


def _extended(
    states: dict[tuple[int, ...], float], chances: Float[np.ndarray, "prefixes vocab"]
) -> dict[tuple[int, ...], float]:
    """Every particle draws a token."""
    found: dict[tuple[int, ...], float] = {}
    for counts, chance in states.items():
        parts = [_splits(c, row) for c, row in zip(counts, chances, strict=True)]
        for chosen in product(*parts):
            key = tuple(k for split, _ in chosen for k in split)
            found[key] = found.get(key, 0.0) + chance * math.prod(p for _, p in chosen)
    return found


def _splits(count: int, chances: np.ndarray) -> list[tuple[tuple[int, ...], float]]:
    """How `count` particles share out among the tokens, with the probability."""
    sets = _multisets(len(chances), count)
    probs = _multinomial(sets, chances)
    return [(tuple(s), p) for s, p in zip(sets.tolist(), probs.tolist(), strict=True) if p > 0]


def _resampled(
    extended: dict[tuple[int, ...], float], gain: np.ndarray, n: int
) -> dict[tuple[int, ...], float]:
    """n draws from the particles by their weights."""
    alive = np.flatnonzero(gain > 0)
    sets = _multisets(len(alive), n)
    chance = np.zeros(len(sets))
    for counts, prob in extended.items():
        weights = np.array(counts)[alive] * gain[alive]
        if (total := weights.sum()) > 0:
            chance += prob * _multinomial(sets, weights / total)
    found: dict[tuple[int, ...], float] = {}
    for counts, prob in zip(sets, chance.tolist(), strict=True):
        if prob > 0:
            every = np.zeros(len(gain), dtype=int)
            every[alive] = counts
            found[tuple(every.tolist())] = prob
    return found


def _multisets(cells: int, n: int) -> Int[np.ndarray, "sets cells"]:
    """All ways to put n particles into this many cells."""
    if cells == 1:
        return np.array([[n]])
    parts = [
        np.column_stack([np.full(len(rest), first), rest])
        for first in range(n + 1)
        for rest in [_multisets(cells - 1, n - first)]
    ]
    return np.concatenate(parts)


def _check_multisets(prefixes: int, n: int) -> None:
    if (number := math.comb(n + prefixes - 1, n)) > MAX_MULTISETS:
        raise UserError(
            f"{n} particles at {prefixes} prefixes make {number} multisets; at most "
            f"{MAX_MULTISETS} are followed: give a smaller n or shorter strings",
            parameter="prefixes",
        )


def _multinomial(
    sets: Int[np.ndarray, "sets cells"], chances: Float[np.ndarray, " cells"]
) -> Float[np.ndarray, " sets"]:
    n = int(sets[0].sum())
    with np.errstate(divide="ignore"):
        logs = np.log(chances)
    terms = np.where(sets > 0, sets * np.where(np.isfinite(logs), logs, 0.0), 0.0)
    possible = ~((sets > 0) & ~np.isfinite(logs)).any(1)
    found = np.exp(gammaln(n + 1) - gammaln(sets + 1).sum(1) + terms.sum(1))
    return found * possible
