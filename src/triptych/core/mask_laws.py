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

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.display import MAX_BARS, bars, card, counted, facts_table, records_table
from triptych.core.logspace import log_normalise
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    Count,
    Number,
    Tokens,
    UserError,
    as_bool_mask,
    as_device,
    as_floats,
    as_integers,
    as_list,
    as_number,
    as_positions,
    as_probability,
    as_size,
    check_callable,
    check_distributions,
    check_room,
    check_shape,
    set_fields,
)

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
        blocks = as_bool_mask("blocks", self.blocks, meaning="[blocks, positions]")
        if blocks.ndim != 2:
            raise UserError(
                f"blocks has shape {tuple(blocks.shape)}; it must be of shape [blocks, positions]",
                parameter="blocks",
            )
        count = as_size("the number of blocks", len(blocks))
        log_probs = as_floats(
            "log_probs",
            self.log_probs,
            shape=(count,),
            meaning=f"[{count}], for a law of {count} blocks",
            finite=False,
        )
        check_distributions("exp(log_probs)", log_probs.exp())
        if self.given is not None:
            check_callable("given", self.given, "given(tokens)")
        set_fields(self, blocks=blocks, log_probs=log_probs)
        reached = blocks if self.adaptive else blocks[log_probs > -torch.inf]
        never = torch.nonzero(~reached.any(0))[:, 0].tolist()
        if never:
            raise UserError(
                f"positions {never} of length {blocks.shape[1]} are in no block of positive "
                "probability (blocks, log_probs): "
                "they would never be hidden nor redrawn"
            )

    def __repr__(self) -> str:
        sizes = self.blocks.sum(-1)
        least, most = int(sizes.min()), int(sizes.max())
        of = counted(most, "position") if least == most else f"{least} to {most} positions"
        looks = ", looks at the sequence" if self.adaptive else ""
        return f"MaskLaw({counted(len(self.blocks), 'block')} of {of}, length {self.length}{looks})"

    def _repr_html_(self) -> str:
        facts = {
            "length": self.length,
            "blocks": len(self.blocks),
            "looks at the sequence": "yes" if self.adaptive else "no",
        }
        order = self.log_probs.argsort(descending=True, stable=True)
        shown = order[self.log_probs[order] > -torch.inf][:MAX_BARS]
        rows = self.blocks[shown].tolist()
        texts = ["".join("■" if hidden else "·" for hidden in row) for row in rows]
        more = len(self.blocks) - len(shown)
        if self.adaptive:
            note = f"and {more} more" if more else ""
            blocks = records_table(["blocks"], [[text] for text in texts], note)
        else:
            probs = self.log_probs[shown].exp().tolist()
            blocks = bars(list(zip(texts, probs, strict=True)), title="blocks", more=more)
        return card(repr(self), facts_table(facts), blocks)

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
        device = as_device(device)
        return MaskLaw(self.blocks.to(device), self.log_probs.to(device), self.given)

    # ------------------------------------------------------------------ constructors

    @classmethod
    def of_size(cls, length: Count, k: Count) -> "MaskLaw":
        """Every block of k positions, uniform: k-pseudolikelihood and k-Gibbs [li, Def. 4.1.3]."""
        length, k = as_size("length", length), as_size("k", k)
        if k > length:
            raise UserError(f"blocks of {k} positions do not fit in {length}", parameter="blocks")
        few = min(k, length - k)
        if few and (length > MAX_BLOCKS or few > 16 or math.comb(length, k) > MAX_BLOCKS):
            raise UserError(
                f"{length} positions have more than {MAX_BLOCKS} blocks of {k}, the most that a "
                "mask law holds",
                parameter="blocks",
            )
        return cls.weighted(length, list(combinations(range(length), k)))

    @classmethod
    def spans(cls, length: Count, k: Count) -> "MaskLaw":
        """Every run of k neighbouring positions, uniform; inner positions are hidden more often."""
        length, k = as_size("length", length), as_size("k", k)
        if k > length:
            raise UserError(f"runs of {k} positions do not fit in {length}")
        if length - k + 1 > MAX_BLOCKS:
            raise UserError(f"{length} positions have more than {MAX_BLOCKS} runs of {k}")
        return cls.weighted(length, [range(at, at + k) for at in range(length - k + 1)])

    @classmethod
    def independent(cls, length: Count, rate: Number) -> "MaskLaw":
        """Every position hidden with probability `rate`, given that some position is.

        Worked value, two positions, rate ½: {0}, {1}, {0, 1}, each 1/3.
        """
        length, rate = as_size("length", length), as_probability("rate", rate, strictly=True)
        if length > 16:
            raise UserError(
                f"{length} positions have 2^{length} - 1 blocks, more than can be held",
                parameter="blocks",
            )
        blocks = [K for size in range(1, length + 1) for K in combinations(range(length), size)]
        odds = math.log(rate) - math.log1p(-rate)  # in logs: a tiny rate would make weights of 0
        log_weights = torch.tensor([len(K) * odds for K in blocks], dtype=torch.float64)
        return cls(_as_masks(length, blocks), log_weights.log_softmax(0))

    @classmethod
    def weighted(
        cls,
        length: Count,
        blocks: Sequence[Sequence[Count]],
        weights: Sequence[Number] | None = None,
    ) -> "MaskLaw":
        """Blocks by their positions, drawn in proportion to `weights` (all the same if None)."""
        hidden = _as_masks(length, blocks)
        given = [1.0] * len(hidden) if weights is None else as_list("weights", weights, "numbers")
        if len(given) != len(hidden):
            raise UserError(f"{len(given)} weights for {len(hidden)} blocks")
        values = [as_number(f"weights[{m}]", w, at_least=0) for m, w in enumerate(given)]
        if not any(values):
            raise UserError("weights must not all be zero", parameter="weights")
        log_weights = torch.tensor(values, dtype=torch.float64).log()  # sums could overflow
        return cls(hidden, log_normalise(log_weights))

    @classmethod
    def looking(
        cls,
        length: Count,
        blocks: Sequence[Sequence[Count]],
        log_weights: Callable[[Int[Tensor, "batch length"]], Float[Tensor, "batch blocks"]],
    ) -> "MaskLaw":
        """p(K | x) ∝ exp(log_weights(x)[K]): the law of adaptive masking [li, Def. 4.1.7].

        The law must not depend on what is being learned. Worked value: two positions, blocks {0}
        and {1}, log_weights(x) = (x_0, x_1) log 2: for x = (1, 0), block {0} has probability 2/3.
        """
        hidden = _as_masks(length, blocks)
        check_callable("log_weights", log_weights, "log_weights(tokens)")

        def given(tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch blocks"]:
            return log_normalise(log_weights(tokens).double())

        uniform = torch.zeros(len(hidden), dtype=torch.float64).log_softmax(0)
        return cls(hidden, uniform, given)

    # ------------------------------------------------------------------ what it answers

    def log_prob(self, tokens: Tokens) -> Float[Tensor, "batch blocks"]:
        """log p(K = m | x) for every block."""
        tokens = self._as_tokens(tokens)
        if self.given is None:
            return self.log_probs.expand(len(tokens), -1)
        answer = self.given(tokens)
        check_shape("log p(K | x)", answer, (len(tokens), len(self.blocks)), "one row per sequence")
        check_distributions("p(K | x)", answer.exp())
        return answer

    def draw(self, tokens: Tokens, rng: RngLike) -> Int[Tensor, " batch"]:
        """The number of a block for each sequence."""
        tokens = self._as_tokens(tokens)
        rng = as_rng(rng, self.device)
        if self.given is None:
            rows = torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
            return rng.categorical(self.log_probs[None], rows)
        return rng.categorical(self.log_prob(tokens))

    def _as_tokens(self, tokens: Tokens) -> Int[Tensor, "batch length"]:
        """Sequences of the law's length; it does not know which tokens there are."""
        rows = as_integers("tokens", tokens, dimensions=2, device=self.device)
        if rows.shape[1] != self.length:
            raise UserError(
                f"tokens has shape {tuple(rows.shape)}; the law hides {self.length} positions",
                parameter="tokens",
            )
        return rows


def _as_masks(length: Count, blocks: Sequence[Sequence[Count]]) -> Bool[Tensor, "blocks length"]:
    length = as_size("length", length)
    if isinstance(blocks, Tensor | np.ndarray):
        blocks = blocks.tolist()
    given = as_list("blocks", blocks, "blocks of positions")
    if not 1 <= len(given) <= MAX_BLOCKS:
        raise UserError(
            f"{len(given)} blocks; a mask law holds 1 to {MAX_BLOCKS}", parameter="blocks"
        )
    check_room("the table of blocks", len(given), length)
    hidden = torch.zeros((len(given), length), dtype=torch.bool)
    for m, block in enumerate(given):
        positions = block if isinstance(block, range) else as_positions("block", block, length)
        hidden[m, positions] = True
    return hidden
