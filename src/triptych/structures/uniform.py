"""Uniform strings: the base model of the query-complexity results [li, 3.1]."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.logspace import with_point_masses
from triptych.core.protocols import Rng
from triptych.core.validation import check_count, check_prefix, check_sequences


@dataclass(frozen=True)
class Uniform:
    """Every string of `length` tokens has probability vocab_size^-length.

    Worked value: 2 symbols, length 3: p(x) = 1/8.
    """

    vocab_size: int
    length: int
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        check_count("vocab_size", self.vocab_size, at_least=1)
        check_count("length", self.length, at_least=1)

    def to(self, device: torch.device | str) -> "Uniform":
        return Uniform(self.vocab_size, self.length, device)

    def log_prob(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, " batch"]:
        check_sequences(tokens, self.vocab_size, self.length)
        return self._law(len(tokens))[:, 0] * self.length

    def next_token_log_probs(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, "batch vocab"]:
        check_prefix(prefix, self.vocab_size, self.length)
        return self._law(len(prefix))

    def masked_log_probs(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        check_sequences(tokens, self.vocab_size, self.length, hidden)
        law = self._law(len(tokens))[:, None].expand(-1, self.length, -1)
        return with_point_masses(law, tokens, hidden)

    def sample(self, n: int, rng: Rng) -> Int[Tensor, "n length"]:
        rows = torch.zeros((n, self.length), dtype=torch.long, device=self.device)
        return rng.categorical(self._law(1), rows)

    def _law(self, rows: int) -> Float[Tensor, "rows vocab"]:
        shape = (rows, self.vocab_size)
        each = -math.log(self.vocab_size)
        return torch.full(shape, each, dtype=torch.float64, device=self.device)


def examples() -> dict[str, Uniform]:
    return {"bits": Uniform(vocab_size=2, length=4), "trits": Uniform(vocab_size=3, length=3)}
