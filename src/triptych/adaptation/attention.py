"""The attention head of [wei, (4.1)-(4.2)], over the outputs of a masked model at every position.

    score_i = qᵀ(Θ_K G_i + β_i)          value_i = B ((Θ_V G_i) ⊙ e(x_i))
    hard: the mean of value_i over the positions of maximal score, as in the theorems
    soft: the mean of value_i with weights softmax(score), for training

Notation
--------
G     probs       [batch, t, vocab], the model's law at every position
e     embedding   [symbols, values]: one row per token, then one for a position that shows none
q     query       [keys]
Θ_K   key         [keys, vocab]
β     position    [length, keys]
Θ_V   value       [values, vocab]
B     mix         [classes, values]; the theorems' bᵀ when there is one class
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from triptych.core.deprecation import renamed
from triptych.core.validation import UserError, as_device, check_shape

TIE = 1e-9  # scores closer than this to the maximum share it


class AttentionHead(nn.Module):
    """Scores [batch, classes] from G at every position and the symbols that stand there.

    symbols[b, i] is the token shown at i, or `vocab` where none is (hidden, or a prompt).

    Worked value: two positions with G = (1, 0) and (0, 1), Θ_K = Θ_V = I, q = (1, 0), β = 0,
    B = (2, 3), e = 1. The scores are 1 and 0: hard attention gives 2, soft attention
    (2 exp(1) + 3) / (exp(1) + 1).
    """

    def __init__(
        self,
        query: Float[Tensor, " keys"],
        key: Float[Tensor, "keys vocab"],
        position: Float[Tensor, "length keys"],
        value: Float[Tensor, "values vocab"],
        mix: Float[Tensor, "classes values"],
        embedding: Float[Tensor, "symbols values"],
        *,
        hard: bool,
        tie: float = TIE,
    ) -> None:
        super().__init__()
        keys, vocab, values = len(query), key.shape[-1], value.shape[0]
        because = f"a query of {keys} keys, {vocab} tokens and {values} values"
        check_shape("key", key, (keys, vocab), because)
        check_shape("position", position, (len(position), keys), because)
        check_shape("value", value, (values, vocab), because)
        check_shape("mix", mix, (len(mix), values), because)
        check_shape("embedding", embedding, (vocab + 1, values), because)
        self.query, self.key = nn.Parameter(query.clone()), nn.Parameter(key.clone())
        self.position, self.value = nn.Parameter(position.clone()), nn.Parameter(value.clone())
        self.mix, self.embedding = nn.Parameter(mix.clone()), nn.Parameter(embedding.clone())
        self.hard, self.tie = hard, tie

    @classmethod
    @renamed(vocab="vocab_size")
    def random(
        cls,
        vocab_size: int,
        length: int,
        *,
        keys: int = 16,
        values: int = 32,
        classes: int = 2,
        seed: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> "AttentionHead":
        """A soft head to be trained; at first no position is preferred (β = 0)."""
        generator, device = torch.Generator().manual_seed(seed), as_device(device)

        def drawn(*shape: int, scale: float) -> Tensor:
            return (torch.randn(*shape, generator=generator) * scale).to(device, dtype)

        return cls(
            query=drawn(keys, scale=keys**-0.5),
            key=drawn(keys, vocab_size, scale=1.0),
            position=torch.zeros(length, keys, device=device, dtype=dtype),
            value=drawn(values, vocab_size, scale=1.0),
            mix=drawn(classes, values, scale=values**-0.5),
            embedding=1.0 + drawn(vocab_size + 1, values, scale=0.1),
            hard=False,
        )

    @property
    def length(self) -> int:
        return len(self.position)

    def scores(self, probs: Float[Tensor, "batch t vocab"]) -> Float[Tensor, "batch t"]:
        """qᵀ(Θ_K G_i + β_i)."""
        t = probs.shape[1]
        if t > self.length:
            raise UserError(f"the input has {t} positions; this head knows {self.length}")
        # qᵀΘ_K first: one number for each token instead of a key at each position
        return probs @ (self.query @ self.key) + self.position[:t] @ self.query

    def attention(self, probs: Float[Tensor, "batch t vocab"]) -> Float[Tensor, "batch t"]:
        """The weight of every position; rows sum to 1."""
        scores = self.scores(probs)
        if not self.hard:
            return scores.softmax(-1)
        chosen = (scores >= scores.amax(-1, keepdim=True) - self.tie).to(scores.dtype)
        return chosen / chosen.sum(-1, keepdim=True)

    def values(
        self, probs: Float[Tensor, "batch t vocab"], symbols: Int[Tensor, "batch t"]
    ) -> Float[Tensor, "batch t classes"]:
        """B ((Θ_V G_i) ⊙ e(x_i)) at every position."""
        return ((probs @ self.value.T) * self.embedding[symbols]) @ self.mix.T

    def forward(
        self, probs: Float[Tensor, "batch t vocab"], symbols: Int[Tensor, "batch t"]
    ) -> Float[Tensor, "batch classes"]:
        """The mean of the values with the weights of the attention.

        A value is M_x G_i with one matrix M_x = B diag(e(x)) Θ_V for each symbol, so the weighted
        G_i are added up by symbol before any product.
        """
        weighted = self.attention(probs)[..., None] * probs
        (batch, _, vocab), count = probs.shape, len(self.embedding)
        place = count * torch.arange(batch, device=probs.device)[:, None] + symbols
        gathered = weighted.new_zeros((batch * count, vocab))
        gathered = gathered.index_add(0, place.flatten(), weighted.flatten(0, 1))
        matrices = (self.embedding[:, None] * self.mix) @ self.value  # symbols classes vocab
        return gathered.view(batch, count * vocab) @ matrices.transpose(1, 2).flatten(0, 1)
