"""Categorical samplers in the styles people write them in, all right: `STYLES[name](p)` draws."""

import bisect
import itertools
import math
import random

import numpy as np
import torch
import torch.nn.functional as F

WEIGHTS = [
    [0.5, 0.3, 0.2],
    [1.0],
    [0.25, 0.25, 0.25, 0.25],
    [0.7, 0.0, 0.3],
    [0.1, 0.2, 0.3, 0.4],
    [0.9, 0.05, 0.05],
    [0.0, 1.0, 0.0],
]
SEEDED = np.random.default_rng(0)


def tensor(p):
    return torch.tensor(p, dtype=torch.float64)


def uniform(*shape):
    return torch.rand(shape, dtype=torch.float64)


def ends(p):
    """A cumulative sum whose last end is 1, as careful people write it."""
    found = tensor(p).cumsum(0)
    found[-1] = 1.0
    return found


def alias_tables(p):
    """Walker's tables by Vose: column k keeps itself with keep[k], else gives other[k]."""
    n = len(p)
    scaled, keep, other = [x * n for x in p], [1.0] * n, list(range(n))
    small = [k for k in range(n) if scaled[k] < 1]
    large = [k for k in range(n) if scaled[k] >= 1]
    while small and large:
        a, b = small.pop(), large.pop()
        keep[a], other[a] = scaled[a], b
        scaled[b] -= 1 - scaled[a]
        (small if scaled[b] < 1 - 1e-12 else large).append(b)
    return keep, other


def alias(p):
    keep, other = alias_tables(p)
    column = int(torch.randint(len(p), (1,)))
    return column if uniform() < keep[column] else other[column]


def alias_of_one_uniform(p):
    keep, other = alias_tables(p)
    scaled = uniform() * len(p)
    column = int(scaled.floor())
    return column if scaled - column < keep[column] else other[column]


def alias_of_python(p):
    keep, other = alias_tables(p)
    column = random.randrange(len(p))
    return column if random.random() < keep[column] else other[column]


def bounded_rejection(p):
    """Three attempts, and then an exact draw."""
    most = max(p)
    for _ in range(3):
        k = int(torch.randint(len(p), (1,)))
        if uniform() * most < p[k]:
            return k
    return int(torch.multinomial(tensor(p), 1))


def stick_breaking(p):
    left = 1.0
    for k, x in enumerate(p[:-1]):
        if x > 0 and bool(torch.bernoulli(tensor(min(1.0, x / left)))):
            return k
        left -= x
        if left <= 1e-12:
            return max(j for j in range(k + 1) if p[j] > 0)
    return len(p) - 1


def halving(p):
    low, high = 0, len(p)
    while high - low > 1:
        middle = (low + high) // 2
        left, all_of = sum(p[low:middle]), sum(p[low:high])
        if all_of > 0 and random.random() < left / all_of:
            high = middle
        else:
            low = middle
    return low


def in_place(p):
    noise = torch.empty(len(p), dtype=torch.float64)
    noise.exponential_()
    return tensor(p).div_(noise).argmax()


def with_out(p):
    keys = torch.empty(len(p), dtype=torch.float64)
    torch.rand(len(p), dtype=torch.float64, out=keys)
    torch.div(tensor(p), keys.log().neg(), out=keys)
    return keys.argmax()


def a_row_of_a_batch(p):
    table = torch.stack([tensor(p), tensor(p[::-1])])
    noise = torch.empty(2, len(p), dtype=torch.float64)
    noise[0].exponential_()
    noise[1].fill_(1.0)
    return (table / noise).argmax(-1)[0]


def loop_of_python(p):
    u, total = random.random(), 0.0
    for k, x in enumerate(p[:-1]):
        total += x
        if u < total:
            return k
    return max(k for k, x in enumerate(p) if x > 0)


def remaining(p):
    u = random.random()
    for k, x in enumerate(p):
        if u < x or k == len(p) - 1:
            return k if x > 0 else max(j for j in range(k) if p[j] > 0)
        u -= x
    return None


def race_of_python(p):
    return min((random.expovariate(x), k) for k, x in enumerate(p) if x > 0)[1]


def gumbel_of_python(p):
    support = [k for k, x in enumerate(p) if x > 0]
    return max(support, key=lambda k: math.log(p[k]) - math.log(-math.log(random.random())))


def log_of(p):
    with np.errstate(divide="ignore"):
        return np.log(p)


def powers_of_numpy(p):
    support = [k for k, x in enumerate(p) if x > 0]
    keys = SEEDED.random(len(support)) ** (1 / np.array(p)[support])
    return support[int(np.argmax(keys))]


def mixture(p):
    """First a half of the outcomes, then one of it."""
    half = max(1, len(p) // 2)
    parts = [p[:half], p[half:]]
    masses = [sum(part) for part in parts]
    chosen = int(torch.multinomial(tensor(masses), 1)) if len(p) > 1 else 0
    inside = int(torch.multinomial(tensor(parts[chosen]), 1))
    return inside + chosen * half


def sorted_first(p):
    order = tensor(p).argsort(descending=True)
    table = tensor(p)[order].cumsum(0)
    table[-1] = 1.0
    return order[(uniform(1) > table).sum()]


STYLES = {
    "multinomial": lambda p: torch.multinomial(tensor(p), 1).item(),
    "multinomial of weights": lambda p: (tensor(p) * 7).multinomial(1).item(),
    "multinomial, the second": lambda p: torch.multinomial(tensor(p), 2, replacement=True)[1],
    "inverse": lambda p: (uniform(1) > ends(p)).sum(),
    "inverse, at most": lambda p: int((ends(p) <= uniform(1)).sum()),
    "inverse, argmax": lambda p: (uniform(1) < ends(p)).int().argmax(),
    "searchsorted": lambda p: torch.searchsorted(ends(p), uniform(1)).item(),
    "searchsorted, right": lambda p: torch.searchsorted(ends(p), uniform(1), right=True).item(),
    "bucketize": lambda p: torch.bucketize(uniform(1), ends(p)).item(),
    "uniform_": lambda p: (torch.empty(1).double().uniform_() > ends(p)).sum(),
    "Gumbel": lambda p: (tensor(p).log() - (-uniform(len(p)).log()).log()).argmax(),
    "Gumbel, from times": lambda p: (
        tensor(p).log() - torch.empty(len(p)).double().exponential_().log()
    ).argmax(),
    "Gumbel, scaled": lambda p: ((tensor(p).log() - (-uniform(len(p)).log()).log()) / 0.3).argmax(),
    "Gumbel, top": lambda p: (tensor(p).log() - (-uniform(len(p)).log()).log()).topk(1).indices[0],
    "Gumbel, softmax": lambda p: F.gumbel_softmax(tensor(p).log(), hard=True).argmax(),
    "Gumbel, soft": lambda p: F.gumbel_softmax(tensor(p).log(), tau=2.0).argmax(),
    "race": lambda p: (tensor(p) / torch.empty(len(p)).double().exponential_()).argmax(),
    "race, reversed": lambda p: (torch.empty(len(p)).double().exponential_() / tensor(p)).argmin(),
    "race, sorted": lambda p: (
        (torch.empty(len(p)).double().exponential_() / tensor(p)).sort().indices[0]
    ),
    "race, in place": in_place,
    "race, out": with_out,
    "race, a row": a_row_of_a_batch,
    "powers": lambda p: (uniform(len(p)) ** (1 / tensor(p))).argmax(),
    "alias": alias,
    "alias, one uniform": alias_of_one_uniform,
    "rejection": bounded_rejection,
    "sticks": stick_breaking,
    "sorted": sorted_first,
    "mixture": mixture,
    "Categorical": lambda p: torch.distributions.Categorical(tensor(p)).sample(),
    "Categorical, logits": lambda p: torch.distributions.Categorical(
        logits=tensor(p).log().clamp(min=-1e300)
    ).sample(),
    "OneHotCategorical": lambda p: (
        torch.distributions.OneHotCategorical(tensor(p)).sample().argmax()
    ),
    "np.choice": lambda p: SEEDED.choice(len(p), p=p),
    "np.random.choice": lambda p: np.random.choice(len(p), p=p),
    "np.multinomial": lambda p: np.random.multinomial(1, p).argmax(),
    "np.searchsorted": lambda p: np.searchsorted(ends(p).numpy(), SEEDED.random()),
    "np.cumsum": lambda p: int((ends(p).numpy() < np.random.rand()).sum()),
    "np.gumbel": lambda p: np.argmax(log_of(p) + SEEDED.gumbel(size=len(p))),
    "np.exponential": lambda p: np.argmax(np.array(p) / SEEDED.exponential(size=len(p))),
    "np powers": powers_of_numpy,
    "random.choices": lambda p: random.choices(range(len(p)), p)[0],
    "random, loop": loop_of_python,
    "random, remaining": remaining,
    "random, bisect": lambda p: bisect.bisect(ends(p).tolist()[:-1], random.random()),
    "random, race": race_of_python,
    "random, Gumbel": gumbel_of_python,
    "random, alias": alias_of_python,
    "random, halving": halving,
}
CASES = list(itertools.product(STYLES, range(len(WEIGHTS))))
