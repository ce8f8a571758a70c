"""Which positions are hidden, or redrawn, together: the law of a block K [li, 4.1.1, 4.1.2.3].

Masked training draws a block, hides it and predicts it; block dynamics draws a block and redraws
it. One object says how the block is drawn, so that what training learns and what sampling does are
compared under the same law. The law may look at the sequence: p(K | x). The conditional that goes
with it is then the one given K as well,

    p(x_K | x_-K, K) ∝ p(x) p(K | x)   as a function of x_K,

which differs from p(x_K | x_-K) [li, Lemma 4.3.1].

Notation
--------
K   a block of positions          [blocks, length], True where hidden
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.logspace import log_normalise
from triptych.core.protocols import Rng
from triptych.core.validation import check_count, check_dimensions, check_distributions, check_shape

MAX_BLOCKS = 2**16


@dataclass(frozen=True, eq=False, repr=False)
class MaskLaw:
    """blocks[m]: the positions of block m. log_probs: log p(K = m), whatever the sequence is.

    With `given`, the law depends on the sequence: given(tokens) is log p(K = m | x), one row per
    sequence, and `log_probs` is not read.

    Worked value: all blocks of 2 among 3 positions, uniform: {0, 1}, {0, 2}, {1, 2}, each 1/3.
    """

    blocks: Bool[Tensor, "blocks length"]
    log_probs: Float[Tensor, " blocks"]
    given: Callable[[Int[Tensor, "batch length"]], Float[Tensor, "batch blocks"]] | None = None

    def __post_init__(self) -> None:
        check_dimensions("blocks", self.blocks, 2, "[blocks, positions]")
        check_count("blocks", len(self.blocks), at_least=1)
        check_shape(
            "log_probs", self.log_probs, (len(self.blocks),), f"a law of {len(self.blocks)} blocks"
        )
        check_distributions("exp(log_probs)", self.log_probs.exp())
        reached = self.blocks if self.adaptive else self.blocks[self.log_probs > -torch.inf]
        never = torch.nonzero(~reached.any(0))[:, 0].tolist()
        if never:
            raise ValueError(
                f"positions {never} are in no block: they would never be hidden nor redrawn"
            )

    def __repr__(self) -> str:
        kind = "adaptive, " if self.adaptive else ""
        return f"MaskLaw({kind}blocks={len(self.blocks)}, length={self.length})"

    @property
    def length(self) -> int:
        return self.blocks.shape[1]

    @property
    def adaptive(self) -> bool:
        """Does the law look at the sequence?"""
        return self.given is not None

    @property
    def device(self) -> torch.device:
        return self.blocks.device

    def to(self, device: torch.device | str) -> "MaskLaw":
        return MaskLaw(self.blocks.to(device), self.log_probs.to(device), self.given)

    # ------------------------------------------------------------------ constructors

    @classmethod
    def of_size(cls, length: int, k: int) -> "MaskLaw":
        """Every block of k positions, uniform: k-pseudolikelihood and k-Gibbs [li, Def. 4.1.3]."""
        check_count("k", k, at_least=1)
        if k > length:
            raise ValueError(f"blocks of {k} positions do not fit in {length}")
        if math.comb(length, k) > MAX_BLOCKS:
            raise ValueError(
                f"{length} positions have {math.comb(length, k)} blocks of {k}; a mask law holds "
                f"at most {MAX_BLOCKS}"
            )
        return cls.weighted(length, list(combinations(range(length), k)))

    @classmethod
    def spans(cls, length: int, k: int) -> "MaskLaw":
        """Every run of k neighbouring positions, uniform; inner positions are hidden more often."""
        check_count("k", k, at_least=1)
        if k > length:
            raise ValueError(f"runs of {k} positions do not fit in {length}")
        return cls.weighted(length, [range(at, at + k) for at in range(length - k + 1)])

    @classmethod
    def independent(cls, length: int, rate: float) -> "MaskLaw":
        """Every position hidden with probability `rate`, given that some position is.

        Worked value, two positions, rate ½: {0}, {1}, {0, 1}, each 1/3.
        """
        if not 0 < rate < 1:
            raise ValueError(f"rate is {rate}; it must lie strictly between 0 and 1")
        if 2**length - 1 > MAX_BLOCKS:
            raise ValueError(
                f"{length} positions have 2^{length} - 1 blocks, more than can be held"
            )
        blocks = [K for size in range(1, length + 1) for K in combinations(range(length), size)]
        weights = [rate ** len(K) * (1 - rate) ** (length - len(K)) for K in blocks]
        return cls.weighted(length, blocks, weights)

    @classmethod
    def weighted(
        cls, length: int, blocks: Sequence[Sequence[int]], weights: Sequence[float] | None = None
    ) -> "MaskLaw":
        """Blocks by their positions, drawn in proportion to `weights` (all the same if None)."""
        hidden = _as_masks(length, blocks)
        values = [1.0] * len(blocks) if weights is None else list(weights)
        if len(values) != len(blocks):
            raise ValueError(f"{len(values)} weights for {len(blocks)} blocks")
        if not all(0 <= w < float("inf") for w in values) or not sum(values) > 0:
            raise ValueError("weights must be finite, none negative and not all zero")
        probs = torch.tensor(values, dtype=torch.float64)
        return cls(hidden, (probs / probs.sum()).log())

    @classmethod
    def looking(
        cls,
        length: int,
        blocks: Sequence[Sequence[int]],
        log_weights: Callable[[Int[Tensor, "batch length"]], Float[Tensor, "batch blocks"]],
    ) -> "MaskLaw":
        """p(K | x) ∝ exp(log_weights(x)[K]): the law of adaptive masking [li, Def. 4.1.7].

        The law must not depend on what is being learned. Worked value: two positions, blocks {0}
        and {1}, log_weights(x) = (x_0, x_1) log 2: for x = (1, 0), block {0} has probability 2/3.
        """
        hidden = _as_masks(length, blocks)

        def given(tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch blocks"]:
            return log_normalise(log_weights(tokens).double())

        uniform = torch.zeros(len(blocks), dtype=torch.float64).log_softmax(0)
        return cls(hidden, uniform, given)

    # ------------------------------------------------------------------ what it answers

    def log_prob(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch blocks"]:
        """log p(K = m | x) for every block."""
        check_shape("tokens", tokens, (len(tokens), self.length), "the law hides these positions")
        if self.given is None:
            return self.log_probs.expand(len(tokens), -1)
        answer = self.given(tokens)
        check_shape("log p(K | x)", answer, (len(tokens), len(self.blocks)), "one row per sequence")
        check_distributions("p(K | x)", answer.exp())
        return answer

    def draw(self, tokens: Int[Tensor, "batch length"], rng: Rng) -> Int[Tensor, " batch"]:
        """The number of a block for each sequence."""
        if self.given is None:
            rows = torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
            return rng.categorical(self.log_probs[None], rows)
        return rng.categorical(self.log_prob(tokens))


def _as_masks(length: int, blocks: Sequence[Sequence[int]]) -> Bool[Tensor, "blocks length"]:
    if not 1 <= len(blocks) <= MAX_BLOCKS:
        raise ValueError(f"{len(blocks)} blocks; a mask law holds 1 to {MAX_BLOCKS}")
    hidden = torch.zeros((len(blocks), length), dtype=torch.bool)
    for m, block in enumerate(blocks):
        at = list(block)
        if len(set(at)) != len(at) or not all(0 <= i < length for i in at):
            raise ValueError(f"block {at} must hold distinct positions in 0..{length - 1}")
        hidden[m, at] = True
    return hidden
