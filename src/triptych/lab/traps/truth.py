"""What is true of a network of the trap, recomputed from its weights.

    needs_pattern     would uniform attention do worse? Accuracy falls when every pattern is uniform
    important_head    the head whose absence costs most accuracy
    is_balanced       do matching brackets leave no trace [li, (2.47)]? For explicit weights, where
                      the violation is 0 up to rounding or far from it

Accuracy is that at lookups (`theory.brackets.lookups`), on sentences of fixed seed. An answer that
lies between two limits is None, and is never asked for.
"""

import itertools
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.models.constructions.heads import HeadsTransformer
from triptych.structures.brackets.dyck import Dyck
from triptych.theory.brackets.balance import Attention, balance_violation
from triptych.theory.brackets.lookups import (
    Lookups,
    lookup_accuracy,
    lookup_weight,
    lookups,
    uniform_pattern,
)

LENGTH = 28  # brackets of a sentence
Q = 0.5
TESTED = 60  # sentences on which truth is measured
TEST_SEED = 10_000

NEEDED = 0.05  # uniform attention loses at least so much accuracy
SAME = 0.005  # it loses at most so much
HEAD_MARGIN = 0.05  # the most important head is ahead of the next by so much
UNBALANCED, BALANCED = 1e-4, 1e-9  # violations


@runtime_checkable
class Network(Protocol):
    """A network of the trap: explicit weights or trained ones."""

    @property
    def types(self) -> int: ...
    @property
    def max_depth(self) -> int: ...
    @property
    def head_count(self) -> int: ...
    def patterns(self, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch heads n n"]: ...
    def predictions(
        self,
        tokens: Int[Tensor, "batch t"],
        patterns: Float[Tensor, "batch heads n n"] | None = None,
    ) -> Float[Tensor, "batch n vocab"]: ...
    def weights(self) -> dict[str, Tensor]: ...


class Measured(NamedTuple):
    """What was measured on a network.

    accuracy    at lookups, with its own attention
    uniform     with uniform attention;  swapped: with the patterns of another sentence
    without     with each head off in turn
    stack       weight of each head on the innermost open bracket
    violation   of balance; None for trained networks
    """

    accuracy: float
    uniform: float
    swapped: float
    without: tuple[float, ...]
    stack: tuple[float, ...]
    violation: float | None


class Truth(NamedTuple):
    """The right answers; None where a question is not asked of this network."""

    needs_pattern: bool | None
    important_head: int | None
    is_balanced: bool | None


class Sentences(NamedTuple):
    """Sentences of a language, with their lookups."""

    tokens: Int[Tensor, "batch t"]
    lookups: Lookups

    @classmethod
    def draw(cls, types: int, max_depth: int, count: int, seed: int) -> "Sentences":
        law = Dyck.prefixes(types, max_depth, LENGTH, q=Q)
        tokens = law.sample(count, rng=seed)
        return cls(tokens, lookups(tokens, types))


def measure(network: Network, sentences: Sentences) -> Measured:
    """Run the network with its own attention and with others."""
    tokens, where = sentences
    own = network.patterns(tokens)
    flat = uniform_pattern(own.shape[-1]).expand(own.shape)

    def accuracy(patterns: Tensor | None) -> float:
        return lookup_accuracy(network.predictions(tokens, patterns), where)

    heads = torch.arange(network.head_count)
    return Measured(
        accuracy=accuracy(None),
        uniform=accuracy(flat),
        swapped=accuracy(own.roll(1, 0)),
        without=tuple(accuracy(own * (heads != h)[None, :, None, None]) for h in heads.tolist()),
        stack=tuple(lookup_weight(own[:, h], where) for h in heads.tolist()),
        violation=violation(network) if isinstance(network, HeadsTransformer) else None,
    )


def truth_of(measured: Measured) -> Truth:
    """The answers that the measurements leave no doubt about.

    Worked value: accuracy 1, uniform 0.5, without (1, 0.2) and violation 1e-16 is
    Truth(True, 1, True).
    """
    lost = measured.accuracy - measured.uniform
    needed = True if lost > NEEDED else False if abs(lost) < SAME else None
    least, *others = sorted(measured.without)
    clear = bool(others) and others[0] - least > HEAD_MARGIN
    off = measured.violation
    balanced = None
    if off is not None:
        balanced = True if off < BALANCED else False if off > UNBALANCED else None
    head = measured.without.index(least) if clear else None
    return Truth(needed, head, balanced)


def violation(network: HeadsTransformer) -> float:
    """The balance violation of the heads that the layer norm can see: the largest of them."""
    e, found = network.vectors, []
    for head in network.heads:
        values = e @ head.value.T
        values = values - values.mean(-1, keepdim=True)
        if float(values.abs().max()) > 1e-9 * float((e @ head.value.T).abs().max()):
            scores = (e @ head.key.T) @ (e @ head.query.T).T
            attention = Attention(network.types, network.max_depth, scores, values)
            found.append(balance_violation(attention))
    return max(found)


def apart(
    first: Float[Tensor, "batch heads n n"], second: Float[Tensor, "batch heads n n"]
) -> float:
    """The mean squared distance of the patterns of a head, over sentences and heads.

    The heads of the second network are put in the order that makes it least. It is at most 2 for
    each position but the first: two rows that have no position in common.
    Worked value: rows (1, 0), (1, 0) and (1, 0), (0, 1) are 2 apart.
    """
    orders = itertools.permutations(range(second.shape[1]))
    return min(
        float((first - second[:, list(order)]).double().square().sum((-1, -2)).mean())
        for order in orders
    )
