"""The laws that names promise, written from their definitions in plain Python: top-k, nucleus, a Gibbs step, resampling.

Nothing here is taken from the libraries that are held against it.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

Law = dict[Any, float]


def normalised(weights: Mapping[Hashable, float]) -> Law:
    """Weights divided by their sum; outcomes without weight are left out."""
    total = math.fsum(weights.values())
    return {x: w / total for x, w in weights.items() if w > 0}


def softmax(logits: Sequence[float], temperature: float = 1.0) -> Law:
    """exp(logit / temperature), normalised."""
    top = max(logits)
    return normalised({k: math.exp((x - top) / temperature) for k, x in enumerate(logits)})


def by_probability(law: Law) -> list[Any]:
    """Outcomes, the likeliest first."""
    return sorted(law, key=lambda x: -law[x])


def restricted(law: Law, kept: Iterable[Hashable]) -> Law:
    """The law given that the outcome is one of `kept`."""
    return normalised({x: law[x] for x in kept})


def top_k(law: Law, k: int) -> Law:
    """The k likeliest outcomes."""
    return restricted(law, by_probability(law)[:k])


def nucleus(law: Law, mass: float) -> Law:
    """The smallest set of likeliest outcomes whose probabilities add up to `mass` or more (Holtzman et al., 2020)."""
    kept, total = [], 0.0
    for x in by_probability(law):
        kept.append(x)
        total += law[x]
        if total >= mass:
            break
    return restricted(law, kept)


def min_p(law: Law, share: float) -> Law:
    """Outcomes of at least `share` times the largest probability (Nguyen et al., 2024)."""
    return restricted(law, [x for x in law if law[x] >= share * max(law.values())])


def top_a(law: Law, ratio: float, power: float) -> Law:
    """Outcomes of at least ratio * max ** power."""
    return restricted(law, [x for x in law if law[x] >= ratio * max(law.values()) ** power])


def entropy(law: Law) -> float:
    """In nats."""
    return -math.fsum(p * math.log(p) for p in law.values())


def typical(law: Law, mass: float) -> Law:
    """The outcomes whose surprise is nearest to the entropy, up to `mass` (Meister et al., 2022)."""
    mean = entropy(law)
    kept, total = [], 0.0
    for x in sorted(law, key=lambda x: abs(-math.log(law[x]) - mean)):
        kept.append(x)
        total += law[x]
        if total >= mass:
            break
    return restricted(law, kept)


def at_least(law: Law, floor: float) -> Law:
    """Outcomes of probability `floor` or more; the likeliest alone if there is none."""
    kept = [x for x in law if law[x] >= floor]
    return restricted(law, kept or by_probability(law)[:1])


def eta(law: Law, epsilon: float) -> Law:
    """Outcomes above min(ε, sqrt(ε) exp(-entropy)) (Hewitt et al., 2022)."""
    return at_least(law, min(epsilon, math.sqrt(epsilon) * math.exp(-entropy(law))))


def product(*laws: Law) -> Law:
    """Independent draws, as tuples."""
    return {
        tuple(outcome): math.prod(law[x] for law, x in zip(laws, outcome, strict=True))
        for outcome in itertools.product(*laws)
    }


def sequences(following: Callable[[tuple], Law], length: int) -> Law:
    """p(x_1) p(x_2 | x_1) ..., one outcome after another."""
    found: Law = {(): 1.0}
    for _ in range(length):
        found = {
            (*prefix, x): p * q for prefix, p in found.items() for x, q in following(prefix).items()
        }
    return found


def ordered_without_replacement(weights: Sequence[float], count: int) -> Law:
    """One after another, each in proportion to its weight among those left (Plackett and Luce)."""

    def following(chosen: tuple) -> Law:
        return normalised({k: w for k, w in enumerate(weights) if k not in chosen})

    return sequences(following, count)


def merged(law: Law, reading: Callable[[Any], Hashable]) -> Law:
    """The law of a function of the outcome."""
    found: Law = {}
    for x, p in law.items():
        key = reading(x)
        found[key] = found.get(key, 0.0) + p
    return found


def uniform(outcomes: Iterable[Hashable]) -> Law:
    """Each as likely as another."""
    listed = list(outcomes)
    return {x: 1 / len(listed) for x in listed}


# Resampling: which particle each of n places takes (Douc, Cappé and Moulines, 2005).


def _inverse(weights: Sequence[float], low: float, high: float) -> Law:
    """The law of the particle under a point that is uniform on [low, high) of the unit interval."""
    found: Law = {}
    below = 0.0
    for k, w in enumerate(weights):
        overlap = min(high, below + w) - max(low, below)
        if overlap > 1e-15:
            found[k] = overlap / (high - low)
        below += w
    return normalised(found)


def multinomial_resampling(weights: Sequence[float], count: int) -> Law:
    """Independent draws."""
    return product(*[dict(enumerate(weights))] * count)


def stratified_resampling(weights: Sequence[float], count: int) -> Law:
    """One point in each of `count` equal parts, independently."""
    return product(*[_inverse(weights, i / count, (i + 1) / count) for i in range(count)])


def systematic_resampling(weights: Sequence[float], count: int) -> Law:
    """One uniform point, shifted by 1 / count again and again."""
    edges = list(itertools.accumulate(weights))
    cuts = {0.0, 1.0}
    cuts |= {min(max(edge * count - i, 0.0), 1.0) for edge in edges for i in range(count)}
    found: Law = {}
    for low, high in itertools.pairwise(sorted(cuts)):
        if high - low < 1e-12:
            continue
        points = [((low + high) / 2 + i) / count for i in range(count)]
        chosen = tuple(next(k for k, edge in enumerate(edges) if point < edge) for point in points)
        found[chosen] = found.get(chosen, 0.0) + high - low
    return normalised(found)


def residual_resampling(weights: Sequence[float], count: int) -> Law:
    """floor(count * w) copies of each; the other places are independent draws from what is left."""
    copies = [math.floor(count * w + 1e-12) for w in weights]
    certain = tuple(k for k, n in enumerate(copies) for _ in range(n))
    left = normalised(
        {k: count * w - n for k, (w, n) in enumerate(zip(weights, copies, strict=True))}
    )
    rest = product(*[left] * (count - len(certain)))
    return {(*certain, *drawn): p for drawn, p in rest.items()}


# Hidden Markov models.


def hidden_markov(
    initial: Sequence[float],
    transition: Sequence[Sequence[float]],
    emission: Sequence[Sequence[float]],
    length: int,
) -> Law:
    """p(states, symbols) as pairs of tuples."""
    found: Law = {}
    for states in itertools.product(range(len(initial)), repeat=length):
        chance = initial[states[0]]
        for before, after in itertools.pairwise(states):
            chance *= transition[before][after]
        for symbols in itertools.product(range(len(emission[0])), repeat=length):
            seen = math.prod(emission[z][x] for z, x in zip(states, symbols, strict=True))
            if chance * seen > 0:
                found[states, symbols] = chance * seen
    return found


def given(law: Law, condition: Callable[[Any], bool]) -> Law:
    """The law given an event."""
    return normalised({x: p for x, p in law.items() if condition(x)})
