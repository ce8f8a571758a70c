"""Methods to compare with, written as a user would write them.

coin        knows nothing
stack       attention on the innermost open bracket explains the prediction
entropy     attention on few positions explains the prediction
ablation    the oracle: change the attention, or what was read before, and see what is lost
"""

import random

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.lab.traps.methods import Method, Subject
from triptych.theory.brackets.lookups import lookup_accuracy, lookup_weight, uniform_pattern

PUMPED = 150  # pairs of each kind that a balanced network forgets
LOST = 0.05  # accuracy


def coin() -> Method:
    """Heads or tails, from a fixed seed."""
    draw = random.Random(0)
    return Method(
        "coin",
        {
            "needs_pattern": lambda network: draw.randrange(2),
            "important_head": lambda network: draw.randrange(network.heads),
            "is_balanced": lambda network: draw.randrange(2),
        },
    )


def stack() -> Method:
    """Weight on the innermost open bracket, of the head that has most."""

    def weights(network: Subject) -> list[float]:
        patterns = network.patterns
        return [lookup_weight(patterns[:, h], network.lookups) for h in range(network.heads)]

    def most(network: Subject) -> float:
        return max(weights(network))

    def best(network: Subject) -> int:
        found = weights(network)
        return found.index(max(found))

    return Method("stack", {"needs_pattern": most, "important_head": best, "is_balanced": most})


def entropy() -> Method:
    """1 - entropy over its largest value, of the head that has most of it."""

    def certainty(network: Subject) -> Float[Tensor, " heads"]:
        rows = network.patterns.double()[..., 1:, :]  # the first row has one position
        positions = torch.arange(2, rows.shape[-1] + 1, dtype=torch.float64)
        spread = -(rows * rows.clamp(min=1e-300).log()).sum(-1) / positions.log()
        return 1 - spread.mean((0, 2))

    def most(network: Subject) -> float:
        return min(1.0, max(0.0, float(certainty(network).max())))

    def best(network: Subject) -> int:
        return int(certainty(network).argmax())

    return Method("entropy", {"needs_pattern": most, "important_head": best, "is_balanced": most})


def ablation() -> Method:
    """Uniform attention, heads that are off, and closed brackets put before a sentence."""

    def lost(network: Subject, patterns: Float[Tensor, "batch heads n n"]) -> float:
        own = lookup_accuracy(network.run(), network.lookups)
        return own - lookup_accuracy(network.run(patterns=patterns), network.lookups)

    def needs_pattern(network: Subject) -> bool:
        own = network.patterns
        return lost(network, uniform_pattern(own.shape[-1]).expand(own.shape)) > LOST

    def important_head(network: Subject) -> int:
        own, heads = network.patterns, torch.arange(network.heads)
        without = [
            lost(network, own * (heads != head)[None, :, None, None]) for head in heads.tolist()
        ]
        return without.index(max(without))

    def is_balanced(network: Subject) -> bool:
        """Whether it still knows after this many closed pairs what it knew before."""
        before = pumped(network.types, network.max_depth)
        most = int(network.lookups.sentence.bincount().argmax())
        sentences = network.tokens[most : most + 1]
        accuracy = []
        for tokens in (sentences, torch.cat([before[None], sentences], 1)):
            where = network.find_lookups(tokens)
            late = where.place > tokens.shape[1] - sentences.shape[1]
            asked = type(where)(*(part[late] for part in where))
            accuracy.append(lookup_accuracy(network.run(tokens), asked))
        return accuracy[0] - accuracy[1] < LOST

    return Method(
        "ablation",
        {
            "needs_pattern": needs_pattern,
            "important_head": important_head,
            "is_balanced": is_balanced,
        },
    )


def pumped(types: int, max_depth: int, pairs: int = PUMPED) -> Int[Tensor, " t"]:
    """A closed string with this many pairs of every type at every level.

    Worked value: one type, depth 2 and one pair is "[][[]]".
    """
    tokens: list[int] = []
    for level in range(max_depth):
        tokens += [2 * kind + side for kind in range(types) for side in (0, 1)] * pairs
        if level + 1 < max_depth:
            tokens.append(0)
    return torch.tensor(tokens + [1] * (max_depth - 1))


def baselines() -> list[Method]:
    """All of them, new."""
    return [coin(), stack(), entropy(), ablation()]
