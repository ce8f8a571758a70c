"""Uniform strings: the base model of the query-complexity results [li, 3.1]."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.display import card, counted, facts_table, number
from triptych.core.logspace import with_point_masses
from triptych.core.ragged import answers_of_rows, log_prob_of_rows
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    Count,
    Hidden,
    Numbers,
    Prefix,
    Tokens,
    as_device,
    as_masked,
    as_prefix,
    as_size,
    as_tokens,
    set_fields,
)


@dataclass(frozen=True)
class Uniform:
    """Every string of `length` tokens has probability vocab_size^-length.

    Worked value: 2 symbols, length 3: p(x) = 1/8.
    """

    vocab_size: int
    length: int
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        set_fields(
            self,
            vocab_size=as_size("vocab_size", self.vocab_size),
            length=as_size("length", self.length),
            device=as_device(self.device),
        )

    def __repr__(self) -> str:
        return f"Uniform({counted(self.vocab_size, 'symbol')}, length {self.length})"

    def _repr_html_(self) -> str:
        log_prob = -self.length * math.log10(self.vocab_size)
        each = number(10**log_prob) if log_prob > -300 else f"10^{number(log_prob)}"
        facts = {"symbols": self.vocab_size, "length": self.length, "each string": each}
        return card(repr(self), facts_table(facts))

    def to(self, device: torch.device | str) -> "Uniform":
        return Uniform(self.vocab_size, self.length, device)

    def log_prob(
        self, tokens: Tokens, *, hidden: Hidden | None = None, lengths: Numbers | None = None
    ) -> Float[Tensor, " batch"]:
        if hidden is not None or lengths is not None:
            return log_prob_of_rows(self, tokens, hidden, lengths)
        tokens = as_tokens(tokens, self.vocab_size, length=self.length, device=self.device)
        return self._law(len(tokens))[:, 0] * self.length

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length, device=self.device)
        return self._law(len(prefix))

    def masked_log_probs(
        self,
        tokens: Tokens,
        hidden: Hidden,
        *,
        lengths: Numbers | None = None,
    ) -> Float[Tensor, "batch length vocab"]:
        if lengths is not None:
            return answers_of_rows(self, self.masked_log_probs, tokens, hidden, lengths)
        tokens, hidden = as_masked(
            tokens, hidden, self.vocab_size, length=self.length, device=self.device
        )
        law = self._law(len(tokens))[:, None].expand(-1, self.length, -1)
        return with_point_masses(law, tokens, hidden)

    def sample(self, n: Count, rng: RngLike) -> Int[Tensor, "n length"]:
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.device)
        rows = torch.zeros((n, self.length), dtype=torch.long, device=self.device)
        return rng.categorical(self._law(1), rows)

    def _law(self, rows: int) -> Float[Tensor, "rows vocab"]:
        shape = (rows, self.vocab_size)
        each = -math.log(self.vocab_size)
        return torch.full(shape, each, dtype=torch.float64, device=self.device)


def examples() -> dict[str, Uniform]:
    return {"bits": Uniform(vocab_size=2, length=4), "trits": Uniform(vocab_size=3, length=3)}
