"""Count the questions put to an oracle: the cost that the theorems are about."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass
class Counted:
    """An oracle that remembers what it was asked, and answers exactly as before.

    queries
        Rows asked about: one prefix, one masked sequence or one verified prefix each.
    calls
        Batched calls: what a parallel machine waits for.
    tokens
        Tokens read, over all rows.
    seconds
        Wall-clock time spent inside the oracle.
    """

    oracle: Any
    queries: int = 0
    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0

    @property
    def vocab_size(self) -> int:
        return self.oracle.vocab_size

    def next_token_log_probs(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, "batch vocab"]:
        return self._ask("next_token_log_probs", prefix)

    def masked_log_probs(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        return self._ask("masked_log_probs", tokens, hidden)

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]:
        return self._ask("log_value", prefix)

    def reset(self) -> None:
        """Forget every count."""
        self.queries, self.calls, self.tokens, self.seconds = 0, 0, 0, 0.0

    def _ask(self, question: str, tokens: Tensor, *more: Tensor) -> Tensor:
        answer: Callable[..., Tensor] | None = getattr(self.oracle, question, None)
        if answer is None:
            raise TypeError(f"{type(self.oracle).__name__} has no method {question}")
        started = time.perf_counter()
        try:
            return answer(tokens, *more)
        finally:  # a question that made the oracle raise was still asked
            self.seconds += time.perf_counter() - started
            self.queries += tokens.shape[0]
            self.calls += 1
            self.tokens += tokens.numel()
