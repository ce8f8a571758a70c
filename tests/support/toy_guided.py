"""Verifiers, generators and choices written down by hand, and every algorithm with some options."""

import sys

import torch

from triptych.core.decoders import RecomputingDecoder
from triptych.core.streams import hashed_uniform
from triptych.inference.guided.algorithm import algorithms

RECORDS = algorithms()


def sample_of(name):
    """The function `sample` of the module of an algorithm."""
    return sys.modules[RECORDS[name].__module__].sample


_OPTIONS = {  # what the tests run: a label, the algorithm, and small numbers that show most of it
    "ancestral": ("ancestral", {}),
    "backtracking": ("backtracking", {"quota": 2, "stride": 2}),
    "rejection": ("rejection", {"attempts": 3, "threshold": 0.7}),
    "tokenwise threshold": ("tokenwise", {"threshold": 0.4, "tries": 3}),
    "tokenwise value": ("tokenwise", {"accept": "value", "tries": 6}),
    "best of n": ("best_of_n", {"n": 3}),
    "blocks": ("blocks", {"block": 2, "n": 3}),
    "particles": ("particles", {"n": 3, "ess": 0.8}),
    "particles, always": ("particles", {"n": 3, "ess": 1.0}),
    "adaptive": ("adaptive", {"n": 3, "ess": 0.8, "tries": 4}),
    "vgb": ("vgb", {"steps": 60}),
    "greedy": ("greedy", {"threshold": 0.2}),
    "majority": ("majority", {"n": 3}),
}
_NEW = RECORDS.keys() - {name for name, _ in _OPTIONS.values()}  # as their records have them

ALGORITHMS = {
    **{label: (sample_of(name), options) for label, (name, options) in _OPTIONS.items()},
    **{name: (RECORDS[name]().sample, {}) for name in sorted(_NEW)},
}


class Noisy:
    """V uniform in [0, 1), a fixed number for every prefix."""

    def log_value(self, prefix):
        return hashed_uniform(5, prefix).log()


class Values:
    """V by a table from strings of digits; 1 for what is not there. Keeps what it was asked."""

    def __init__(self, **values):
        self.values = {key.strip("_"): value for key, value in values.items()}
        self.asked = []

    def log_value(self, prefix):
        texts = ["".join(map(str, row)) for row in prefix.tolist()]
        self.asked += texts
        values = [self.values.get(text, 1.0) for text in texts]
        return torch.tensor(values, dtype=torch.float64).log()


class FirstDraws:
    """An rng that gives out written choices in order, then the likeliest outcome."""

    def __init__(self, *choices):
        self.choices = list(choices)

    def categorical(self, log_probs, rows=None):
        drawn = [self.choices.pop(0) if self.choices else int(law.argmax()) for law in log_probs]
        assert all(law[k] > -torch.inf for law, k in zip(log_probs, drawn, strict=True))
        return torch.tensor(drawn, dtype=torch.long)


def standing_at(lm, *prompts):
    decoder = RecomputingDecoder(lm, len(prompts))
    longest = max(map(len, prompts))
    decoder.extend(torch.tensor([[*p, *[-1] * (longest - len(p))] for p in prompts]).long())
    return decoder


def ledger_of(result):
    costs = result.costs
    columns = (costs.generator_calls, costs.generated, costs.erased, costs.verifier_calls)
    return [tuple(column[row].item() for column in columns) for row in range(len(columns[0]))]
