"""Do words attend more to words of their own topic? Attention over ordered pairs [li, 2.1.5.4].

On a passage with L inputs, for positions i that look at j, both of them words with topics and not
the same word,

    b_ij = A_ij L / 100      in an encoder
    b_ij = A_ij i / 100      in a causal model, where position i = 1, 2, … sees i inputs, j < i

so that uniform attention is 1/100 in every passage and at every position: the source rescales
attention to length 100, because long passages have more topics and smaller weights. Means are over
all pairs of all passages. An interval resamples passages.

Notation
--------
A     attention     [layers, heads, L, L], rows sum to 1
M     membership    [words, topics]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.randomness import RngLike
from triptych.core.validation import UserError
from triptych.theory.topics.word_pairs import RESAMPLES, Ratio, multiplicities, ratio_of

LENGTH = 100  # to which passages are rescaled
SAME, DIFFERENT, TOGETHER = range(3)  # kinds of pairs: same topic, different, often together


@dataclass(frozen=True, eq=False)
class AttentionSums:
    """Sums of b and numbers of pairs: passage, setting, kind of pair, and for sums layer, head."""

    sums: Float[Tensor, "passages settings 3 layers heads"]
    pairs: Float[Tensor, "passages settings 3"]

    def has(self, setting: int, *kinds: int) -> bool:
        """Whether there are pairs of all these kinds."""
        return all(float(self.pairs[:, setting, kind].sum()) > 0 for kind in kinds)

    def means(self, setting: int, kind: int) -> Float[Tensor, "layers heads"]:
        """The mean of b over the pairs of one kind; nan if there are none."""
        return self.sums[:, setting, kind].sum(0) / self.pairs[:, setting, kind].sum(0)

    def ratio(
        self, setting: int, rng: RngLike, *, layer: int | None = None, over: int = DIFFERENT
    ) -> Ratio:
        """Same topic over another kind of pair, heads averaged, in one layer or in all."""
        sums = self.sums[:, setting]
        sums = sums.mean((-2, -1)) if layer is None else sums[:, :, layer].mean(-1)
        pairs = self.pairs[:, setting]
        if not self.has(setting, SAME, over):
            raise UserError(
                "the passages have no pair of words of the same topic, or none of the other kind; "
                "give more passages or a larger threshold"
            )
        times = multiplicities(len(sums), RESAMPLES, rng)
        same = (times @ sums[:, SAME]) / (times @ pairs[:, SAME])
        other = (times @ sums[:, over]) / (times @ pairs[:, over])
        whole = sums.sum(0) / pairs.sum(0)
        return ratio_of(float(whole[SAME]), float(whole[over]), same, other)


def attention_sums(
    attention: Callable[[Sequence[int]], Float[Tensor, "layers heads t t"]],
    passages: Sequence[Sequence[int]],
    word_of: Int[Tensor, " vocab"],
    memberships: Sequence[Bool[Tensor, "words topics"]],
    together: Sequence[Bool[Tensor, "words words"] | None],
    *,
    causal: bool,
) -> AttentionSums:
    """The sums over passages, for every setting's membership and its pairs that occur together.

    `passages` are inputs as the model reads them, special tokens among them; `word_of` is the word
    of a token, -1 where it has none.
    """
    sums, pairs = [], []
    for inputs in passages:
        weights = rescaled(attention(inputs), causal=causal)
        layers, heads, length, _ = weights.shape
        words = word_of[torch.tensor(list(inputs))]
        kinds = torch.stack(
            [
                pair_kinds(words, membership, often, causal=causal)
                for membership, often in zip(memberships, together, strict=True)
            ]
        ).double()
        flat = weights.reshape(layers * heads, length * length)
        found = kinds.reshape(-1, length * length) @ flat.T
        sums.append(found.reshape(len(memberships), 3, layers, heads))
        pairs.append(kinds.sum((-2, -1)))
    return AttentionSums(torch.stack(sums), torch.stack(pairs))


def rescaled(
    weights: Float[Tensor, "layers heads t t"], *, causal: bool
) -> Float[Tensor, "layers heads t t"]:
    """b: weights of a passage of length 100.

    Worked value: uniform weights 1/4 of four inputs become 1/100 each.
    """
    length = weights.shape[-1]
    sees = torch.arange(1.0, length + 1) if causal else torch.full((length,), float(length))
    return weights.double() * sees.double()[:, None] / LENGTH


def pair_kinds(
    words: Int[Tensor, " t"],
    membership: Bool[Tensor, "words topics"],
    together: Bool[Tensor, "words words"] | None,
    *,
    causal: bool,
) -> Bool[Tensor, "3 t t"]:
    """Which ordered pairs of positions are of the kinds SAME, DIFFERENT and TOGETHER."""
    known = words >= 0
    at = words.clamp(min=0)
    topics = (membership[at] & known[:, None]).float()
    has_topic = topics.any(1)
    other = words[:, None] != words
    if causal:
        other &= torch.ones(len(words), len(words), dtype=torch.bool).tril(-1)
    both = has_topic[:, None] & has_topic & other
    share = (topics @ topics.T) > 0
    often = torch.zeros_like(both)
    if together is not None:
        often = together[at][:, at] & known[:, None] & known & other
    return torch.stack([both & share, both & ~share, often])
