"""Count the questions put to an oracle, from outside: the cost that the theorems are about.

A guided generation counts its own costs (`Result.costs`), row by row. `Counted` knows nothing of
rows and algorithms: it counts what reaches the oracle, whoever asks. Chains, theory and tests use
it; the tests hold `costs.forward_passes` equal to `Counted.calls` of the model.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from triptych.core.display import counted, name_of
from triptych.core.validation import (
    Hidden,
    Prefix,
    Tokens,
    UserError,
    as_bool_mask,
    as_count,
    as_integers,
    as_number,
    shown,
)

_QUESTIONS = ("next_token_log_probs", "masked_log_probs", "log_value")


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

    def __post_init__(self) -> None:
        if not any(hasattr(self.oracle, question) for question in _QUESTIONS):
            raise UserError(
                f"oracle is {shown(self.oracle)}; it needs one of {', '.join(_QUESTIONS)}",
                parameter="oracle",
            )
        self.queries = as_count("queries", self.queries)
        self.calls = as_count("calls", self.calls)
        self.tokens = as_count("tokens", self.tokens)
        self.seconds = as_number("seconds", self.seconds, at_least=0)

    def __repr__(self) -> str:
        queries, calls = counted(self.queries, "query", "queries"), counted(self.calls, "call")
        return f"Counted({name_of(self.oracle)}, {queries} in {calls})"

    @property
    def vocab_size(self) -> int:
        return self.oracle.vocab_size

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        return self._ask("next_token_log_probs", as_integers("prefix", prefix, dimensions=2))

    def masked_log_probs(
        self, tokens: Tokens, hidden: Hidden
    ) -> Float[Tensor, "batch length vocab"]:
        rows = as_integers("tokens", tokens, dimensions=2)
        return self._ask("masked_log_probs", rows, as_bool_mask("hidden", hidden))

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        return self._ask("log_value", as_integers("prefix", prefix, dimensions=2))

    def reset(self) -> None:
        """Forget every count."""
        self.queries, self.calls, self.tokens, self.seconds = 0, 0, 0, 0.0

    def _ask(self, question: str, tokens: Tensor, *more: Tensor) -> Tensor:
        answer: Callable[..., Tensor] | None = getattr(self.oracle, question, None)
        if answer is None:
            raise UserError(f"{type(self.oracle).__name__} has no method {question}")
        started = time.perf_counter()
        try:
            return answer(tokens, *more)
        finally:  # a question that made the oracle raise was still asked
            self.seconds += time.perf_counter() - started
            self.queries += tokens.shape[0]
            self.calls += 1
            self.tokens += tokens.numel()
