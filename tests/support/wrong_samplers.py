"""Samplers with a mistake each, as people make them: `WRONG[name](p)` should draw from p.

`ORDERS` should give a permutation of three things, `PAIRS` two of them in order, by weight, without
replacement.
"""

import itertools
import random

import numpy as np
import torch
from tests.support.right_samplers import alias_tables, ends, tensor, uniform

CASES = [[0.5, 0.3, 0.2], [0.1, 0.2, 0.3, 0.4]]


def fallback_to_the_last(p):
    for _ in range(3):
        k = int(torch.randint(len(p), (1,)))
        if uniform() * max(p) < p[k]:
            return k
    return k


def wrong_acceptance(p):
    k = int(torch.randint(len(p), (1,)))
    if uniform() < (p[k] / max(p)) ** 0.5:
        return k
    return int(torch.multinomial(tensor(p), 1))


def sticks_not_renormalised(p):
    for k, x in enumerate(p[:-1]):
        if random.random() < x:
            return k
    return len(p) - 1


def alias_reversed(p):
    keep, other = alias_tables(p)
    column = random.randrange(len(p))
    return other[column] if random.random() < keep[column] else column


def alias_with_one_uniform_twice(p):
    keep, other = alias_tables(p)
    u = random.random()
    column = int(u * len(p))
    return column if u < keep[column] else other[column]


def gumbel_of_one_uniform(p):
    return (tensor(p).log() - (-uniform(1).log()).log()).argmax()


def coarse_keys(p):
    """Ties go to the first."""
    keys = (tensor(p).log() - (-uniform(len(p)).log()).log()) > 0
    return keys.int().argmax()


def two_uniforms_for_one_comparison(p):
    for k, end in enumerate(ends(p).tolist()):
        if random.random() < end:
            return k
    return None


def modulo_of_bits(p):
    table = [k for k, x in enumerate(p) for _ in range(round(10 * x))]
    return table[random.getrandbits(4) % 10]


def from_a_table(p):
    """An integer among 9 of 10 cells."""
    table = [k for k, x in enumerate(p) for _ in range(round(10 * x))]
    return table[random.randrange(9)]


WRONG = {
    "off by one in the sum": lambda p: min((uniform(1) > (ends(p) - tensor(p))).sum(), len(p) - 1),
    "the last is never drawn": lambda p: min(int((uniform(1) > ends(p)).sum()), len(p) - 2),
    "half precision of the sum": lambda p: (uniform(1) > tensor(p).half().cumsum(0)).sum(),
    "half precision of the uniform": lambda p: (torch.rand(1, dtype=torch.float16) > ends(p)).sum(),
    "bfloat16 of the uniform": lambda p: (torch.rand(1, dtype=torch.bfloat16) > ends(p)).sum(),
    "probabilities instead of logs": lambda p: (
        tensor(p) - (-uniform(len(p)).log()).log()
    ).argmax(),
    "sign of the noise": lambda p: (tensor(p).log() + (-uniform(len(p)).log()).log()).argmax(),
    "one uniform for all": gumbel_of_one_uniform,
    "a race with inverse rates": lambda p: (
        tensor(p) * torch.empty(len(p)).double().exponential_()
    ).argmin(),
    "the last of a race": lambda p: (
        torch.empty(len(p)).double().exponential_() / tensor(p)
    ).argmax(),
    "uniform": lambda p: int(torch.randint(len(p), (1,))),
    "two logarithms": lambda p: (tensor(p).log2() - (-uniform(len(p)).log()).log()).argmax(),
    "noise not scaled with the scores": lambda p: (
        tensor(p).log() / 0.5 - (-uniform(len(p)).log()).log()
    ).argmax(),
    "softmax of probabilities": lambda p: torch.multinomial(tensor(p).softmax(-1), 1).item(),
    "softmax in half precision": lambda p: torch.multinomial(
        tensor(p).log().half().softmax(-1), 1
    ).item(),
    "powers of p": lambda p: (uniform(len(p)) ** tensor(p)).argmax(),
    "last proposal when all fail": fallback_to_the_last,
    "wrong acceptance": wrong_acceptance,
    "sticks not renormalised": sticks_not_renormalised,
    "alias reversed": alias_reversed,
    "one uniform twice": alias_with_one_uniform_twice,
    "ties": coarse_keys,
    "a new uniform at each step": two_uniforms_for_one_comparison,
    "modulo of bits": modulo_of_bits,
    "a cell too few": from_a_table,
    "rounded index": lambda p: round(random.random() * (len(p) - 1)),
    "np rounded sum": lambda p: (
        np.searchsorted(np.cumsum(np.round(p, 1) * 0.99), np.random.rand()) % len(p)
    ),
    "np squares": lambda p: np.random.choice(len(p), p=np.square(p) / np.square(p).sum()),
}


def naive_shuffle():
    items = [0, 1, 2]
    for k in range(3):
        j = random.randrange(3)
        items[k], items[j] = items[j], items[k]
    return items


def never_stays():
    items = [0, 1, 2]
    for k in (2, 1):
        j = random.randrange(k)
        items[k], items[j] = items[j], items[k]
    return items


def sorted_by_whole_keys():
    return sorted(range(3), key=[random.randrange(3) for _ in range(3)].__getitem__)


def one_swap():
    items = [0, 1, 2]
    a, b = random.sample(range(3), 2)
    items[a], items[b] = items[b], items[a]
    return items


def rotated():
    return torch.arange(3).roll(int(torch.randint(3, (1,)))).tolist()


ORDERS = {
    "naive shuffle": naive_shuffle,
    "never stays": never_stays,
    "whole keys": sorted_by_whole_keys,
    "one swap": one_swap,
    "rotated": rotated,
}
ORDERS_TARGET = dict.fromkeys(itertools.permutations(range(3)), 1 / 6)


def skip_to_the_next(p):
    a, b = torch.multinomial(tensor(p), 2, replacement=True).tolist()
    return a, (b + 1) % len(p) if a == b else b


def uniform_second(p):
    a = int(torch.multinomial(tensor(p), 1))
    return a, random.choice([k for k in range(len(p)) if k != a])


def sorted_pair(p):
    return sorted(torch.multinomial(tensor(p), 2).tolist())


def lowest_keys(p):
    return (tensor(p).log() - (-uniform(len(p)).log()).log()).topk(2, largest=False).indices


PAIRS = {
    "skip to the next": skip_to_the_next,
    "uniform second": uniform_second,
    "sorted pair": sorted_pair,
    "lowest keys": lowest_keys,
}


def pairs_target(p):
    pairs = itertools.permutations(range(len(p)), 2)
    return {(a, b): p[a] * p[b] / (1 - p[a]) for a, b in pairs}
