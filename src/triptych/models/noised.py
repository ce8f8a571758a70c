"""A denoiser of uniform noise: what stood at every position, from a sequence with wrong tokens.

    NoisedLM   d(x_i = · | z without z_i, α)   from the inputs  <level of α> z_1 .. z_N

That is what its logits mean, as in published models of uniform noise: the chance of z_i from x_i is
known, and `denoised_log_probs` multiplies by it. The network reads z_i, and need not use it. α is
the chance that a token was kept. The network's vocabulary is larger than the language's: its
last ids are the levels, equal parts of [0, 1], the first for the strongest noise.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.validation import (
    Numbers,
    Tokens,
    UserError,
    as_floats,
    as_size,
    as_tokens,
    check_shape,
    set_fields,
)
from triptych.models.jumps import posterior_of
from triptych.models.transformer import Transformer

LEVELS = 64
"""Ids that say to a network how strong the noise is."""


def level_of(kept: Float[Tensor, " batch"], levels: int) -> Int[Tensor, " batch"]:
    """Which of the equal parts of [0, 1] α is in.

    Worked value: two levels; 0.3 is in part 0, and 0.5 and 1 in part 1.
    """
    return (kept * levels).long().clamp(max=levels - 1)


@dataclass(frozen=True, eq=False)
class NoisedLM:
    """A denoiser of uniform noise on sequences of up to `length` tokens.

    The first position of the network holds the level of the noise, so `length` is one less.
    """

    net: Transformer
    levels: int = LEVELS

    def __post_init__(self) -> None:
        set_fields(self, levels=as_size("levels", self.levels))
        if not isinstance(self.net, Transformer):
            raise UserError(
                f"net is a {type(self.net).__name__}; it must be a Transformer", parameter="net"
            )
        shape = self.net.shape
        if shape.causal or shape.embedding == "given":
            raise UserError(
                "a denoiser reads tokens in both directions: it needs a network with causal=False "
                "and embeddings of its own",
                parameter="net",
            )
        if self.vocab_size < 1 or self.length < 1:
            raise UserError(
                f"the network has {shape.vocab_size} ids and length {shape.length}; a denoiser "
                f"with {self.levels} levels needs more ids than that and at least length 2",
                parameter="net",
            )

    @property
    def vocab_size(self) -> int:
        return self.net.shape.vocab_size - self.levels

    @property
    def length(self) -> int:
        return self.net.shape.length - 1

    def token_logits(
        self, seen: Int[Tensor, "batch columns"]
    ) -> Float[Tensor, "batch length vocab"]:
        """Logits of every token, from `seen` with the level first; differentiable."""
        return self.net(seen)[:, 1:, : self.vocab_size]

    def with_level(
        self, tokens: Int[Tensor, "batch length"], kept: Float[Tensor, " batch"]
    ) -> Int[Tensor, "batch columns"]:
        """What the network reads: the level of each row, then its tokens."""
        return torch.cat([self.vocab_size + level_of(kept, self.levels)[:, None], tokens], 1)

    @torch.no_grad()
    def denoised_log_probs(
        self, tokens: Tokens, kept: Numbers
    ) -> Float[Tensor, "batch length vocab"]:
        """log p(x_i = · | z) at every position, for noisy tokens z and an α for each row."""
        tokens = as_tokens(tokens, self.vocab_size, device=self.net.device)
        if tokens.shape[1] > self.length:
            raise UserError(
                f"the sequences have {tokens.shape[1]} tokens; this denoiser reads at most "
                f"{self.length}",
                parameter="tokens",
            )
        chance = as_floats("kept", kept, device=self.net.device)
        check_shape("kept", chance, (len(tokens),), "one chance for each row")
        if not ((chance >= 0) & (chance <= 1)).all():
            raise UserError("kept must be between 0 and 1", parameter="kept")
        logits = self.token_logits(self.with_level(tokens, chance))
        return posterior_of(logits.double().log_softmax(-1), tokens, chance)
