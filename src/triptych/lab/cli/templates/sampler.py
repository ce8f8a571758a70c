"""A sampler and its promise: letters in proportion to weights.

    triptych law my_sampler.py

enumerates every choice of `sampler` and compares its law with `target`. The sampler may draw with
torch, numpy or Python's random, and needs no name of ours: replace it by your own.
"""

import random

WEIGHTS = {"a": 1.0, "b": 2.0, "c": 1.0}

target = {letter: weight / sum(WEIGHTS.values()) for letter, weight in WEIGHTS.items()}


def sampler() -> str:
    """The letter whose part of [0, total) a uniform number falls into."""
    place, end, chosen = random.random() * sum(WEIGHTS.values()), 0.0, ""
    for letter, weight in WEIGHTS.items():
        if place >= end:
            chosen = letter
        end += weight
    return chosen
