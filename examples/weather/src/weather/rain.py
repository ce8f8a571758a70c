"""Days that are dry (0) or wet (1), where the weather of a day tends to last."""

import math
from dataclasses import dataclass

from torch import Tensor
from triptych.core.protocols import Rng
from triptych.core.table import Table
from triptych.core.validation import as_tokens


@dataclass(frozen=True)
class Rain:
    """The first day is dry or wet with probability 1/2. Each next one is like the last with `stay`.

    Worked value: stay = 0.75: p(dry, dry, wet) = 1/2 * 3/4 * 1/4 = 3/32.
    """

    stay: float
    length: int
    vocab_size: int = 2

    def log_prob(self, tokens: Tensor) -> Tensor:
        """log p(x) of every row of tokens, of shape (batch, length)."""
        tokens = as_tokens(tokens, self.vocab_size, length=self.length)
        same = (tokens[:, 1:] == tokens[:, :-1]).double()
        return (same * self.stay + (1 - same) * (1 - self.stay)).log().sum(-1) - math.log(2)

    def next_token_log_probs(self, prefix: Tensor) -> Tensor:
        return Table.of(self).next_token_log_probs(prefix)

    def masked_log_probs(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        return Table.of(self).masked_log_probs(tokens, hidden)

    def sample(self, n: int, rng: Rng) -> Tensor:
        return Table.of(self).sample(n, rng)


def examples() -> dict[str, Rain]:
    """Small cases, whose axioms `triptych axioms` checks by enumeration."""
    return {"four days": Rain(0.75, 4), "the weather never changes": Rain(1.0, 3)}
