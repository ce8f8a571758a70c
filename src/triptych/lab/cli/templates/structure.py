"""Tokens that tend to repeat: a start for a structure of your own.

Change `log_prob` and run `triptych axioms my_structure.py`. `Table` answers the other
questions by enumeration. Replace it by a formula where you need speed.
"""

import math
from dataclasses import dataclass

from torch import Tensor
from triptych.core.protocols import Rng
from triptych.core.table import Table
from triptych.core.validation import as_tokens


@dataclass(frozen=True)
class MyStructure:
    """The first token is uniform. Each next one repeats the last with probability `stay`.

    Worked value: 2 tokens, stay = 0.9: p(0, 0, 1) = 1/2 * 0.9 * 0.1 = 0.045.
    """

    stay: float
    vocab_size: int
    length: int

    def log_prob(self, tokens: Tensor) -> Tensor:
        """log p(x) of every row of tokens, of shape (batch, length)."""
        tokens = as_tokens(tokens, self.vocab_size, length=self.length)
        repeats = (tokens[:, 1:] == tokens[:, :-1]).double()
        move = (1 - self.stay) / (self.vocab_size - 1)
        steps = repeats * self.stay + (1 - repeats) * move
        return steps.log().sum(-1) - math.log(self.vocab_size)

    def next_token_log_probs(self, prefix: Tensor) -> Tensor:
        return Table.of(self).next_token_log_probs(prefix)

    def masked_log_probs(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        return Table.of(self).masked_log_probs(tokens, hidden)

    def sample(self, n: int, rng: Rng) -> Tensor:
        return Table.of(self).sample(n, rng)


def examples() -> dict[str, MyStructure]:
    """Small cases, whose axioms are checked by enumeration."""
    return {
        "bits": MyStructure(0.9, vocab_size=2, length=4),
        "three tokens": MyStructure(0.5, vocab_size=3, length=3),
        "always the same": MyStructure(1.0, vocab_size=3, length=3),
    }
