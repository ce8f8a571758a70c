"""What stands before a string in the contrastive penalty [li, (2.58)].

    printed       r nested pairs, r uniform in 1..D, each pair of a random type
    programmed    a full nest of type 1, a full nest of type 2, and one pair of one of these types
                  inserted at a random depth of its nest: the authors' code

The code puts the start token after this prefix, the formula says p ⊕ s. A network without positions
sees the same tokens either way when it reads s; only its first prediction differs.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.training.ensembles import Contrast

Penalty = Literal["none", "printed", "programmed"]
WEIGHT = 0.3  # of the authors' code; the thesis names none


def nested_pairs(types: list[int]) -> list[int]:
    """Worked value: types 0, 1 make "[()]", tokens 0, 2, 3, 1."""
    return [2 * kind for kind in types] + [2 * kind + 1 for kind in reversed(types)]


def nests_with_a_pair(max_depth: int, kind: int, depth: int) -> list[int]:
    """Worked value: D = 2, a pair of type 1 at depth 1 makes "[[]](()())"."""
    tokens = nested_pairs([0] * max_depth) + nested_pairs([1] * max_depth)
    place = 2 * kind * max_depth + depth
    return [*tokens[:place], 2 * kind, 2 * kind + 1, *tokens[place:]]


def before(penalty: Penalty, types: int, max_depth: int) -> Callable[[int], Int[Tensor, " t"]]:
    """The prefix of every step, which decides all that is random in it."""

    def at(step: int) -> Int[Tensor, " t"]:
        generator = torch.Generator().manual_seed(step)

        def draw(n: int, count: int) -> list[int]:
            return torch.randint(n, (count,), generator=generator).tolist()

        if penalty == "printed":
            (pairs,) = draw(max_depth, 1)
            return torch.tensor(nested_pairs(draw(types, pairs + 1)))
        (kind,), (depth,) = draw(2, 1), draw(max_depth, 1)
        return torch.tensor(nests_with_a_pair(max_depth, kind, depth))

    return at


def contrast(penalty: Penalty, types: int, max_depth: int) -> Contrast | None:
    return None if penalty == "none" else Contrast(before(penalty, types, max_depth), WEIGHT)
