"""Which first layers a balanced second layer can work with [li, Theorem 2.2.1, sufficiency].

The theorem asks that the encodings of each depth are independent; its proof uses that all of them
are. (2.56) and (2.57) satisfy the first only. With uniform attention, which is balanced, no value
matrix and no MLP helps them: the vectors of an opening bracket are a sum of type and depth, so that
the same open brackets in another order add up to the same vector.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.table import all_sequences
from triptych.core.validation import Count, UserError, as_size
from triptych.models.constructions.balanced import Kinds


class Independence(NamedTuple):
    """Ranks of the encodings: all together, and the least of one depth; and how many there are."""

    together: int
    kinds: int
    at_a_depth: int
    kinds_at_a_depth: int

    @property
    def as_stated(self) -> bool:
        return self.at_a_depth == self.kinds_at_a_depth

    @property
    def as_used(self) -> bool:
        return self.together == self.kinds


def independence(
    vectors: Float[Tensor, "kinds width"], types: Count, max_depth: Count
) -> Independence:
    """What is independent among the vectors of a minimal first layer.

    Worked value: k = 1, D = 2, (2.55): 5 of 5 together, 3 of 3 at each depth.
    """
    kinds = _kinds(vectors, types, max_depth)
    ranks = [
        int(torch.linalg.matrix_rank(vectors[[*opening, *closing, kinds.start]]))
        for opening, closing in zip(kinds.opening.T.tolist(), kinds.closing.T.tolist(), strict=True)
    ]
    together = int(torch.linalg.matrix_rank(vectors))
    return Independence(together, len(vectors), min(ranks), 2 * kinds.opening.shape[0] + 1)


class Twins(NamedTuple):
    """Two stacks with different innermost brackets, and the distance of their sums of vectors."""

    stack: Int[Tensor, " open"]
    other: Int[Tensor, " open"]
    apart: float


def twin_stacks(vectors: Float[Tensor, "kinds width"], types: Count, max_depth: Count) -> Twins:
    """The two stacks that are hardest to tell apart under uniform attention.

    Prefixes that differ in these stacks alone have attention outputs that differ by W_V times the
    difference of the sums. Where that is 0, no weights of the second layer tell them apart.
    """
    kinds = _kinds(vectors, types, max_depth)
    types, max_depth = kinds.opening.shape
    if types < 2 or max_depth < 2:
        raise UserError(
            "two types and depth 2 are needed for two stacks to end differently", parameter="types"
        )
    found: Twins | None = None
    for depth in range(1, max_depth):
        stacks = all_sequences(types, depth)
        sums = vectors[kinds.opening[stacks, torch.arange(depth)]].sum(1)
        apart = torch.cdist(sums, sums)
        apart = apart.masked_fill(stacks[:, None, -1] == stacks[None, :, -1], torch.inf)
        first, second = divmod(int(apart.argmin()), len(stacks))
        distance = float((sums[first] - sums[second]).norm())
        if found is None or distance < found.apart:
            found = Twins(stacks[first], stacks[second], distance)
    assert found is not None
    return found


def _kinds(vectors: Float[Tensor, "kinds width"], types: Count, max_depth: Count) -> Kinds:
    kinds = Kinds.of(as_size("types", types), as_size("max_depth", max_depth))
    if len(vectors) != kinds.start + 1:
        raise UserError(
            f"vectors has {len(vectors)} rows; there are {kinds.start + 1} kinds",
            parameter="vectors",
        )
    return kinds
