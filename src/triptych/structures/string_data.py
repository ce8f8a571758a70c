"""Data for fitting a grammar: whole strings, and how often each rule is expected in them.

The law of a `CFG` is its grammar's on strings of at most `length` words. So the log-likelihood has
a normaliser, log p(at most `length` words), and its expected counts are those of a string of which
nothing is shown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.distinct import distinct_rows
from triptych.core.ragged import as_ragged, as_weights, inside
from triptych.core.validation import Count, Hidden, Numbers, Tokens, UserError, as_size
from triptych.fitting.rows import Expected, Parameters

_SPANS_AT_ONCE = 2**21  # rows x positions x rules of one block


@runtime_checkable
class Grammar(Protocol):
    """What is asked of a grammar."""

    def rule_counts(
        self,
        tokens: Int[Tensor, "batch length"],
        shown: Bool[Tensor, "batch length"],
        weights: Float[Tensor, " batch"],
        /,
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, "symbols rules"]]: ...


@dataclass(frozen=True, eq=False)
class StringData:
    """Strings padded with the end token; `seen` is True where a token is shown.

    The end counts as shown and is no word: how many words are shown is `shown`. Parameters: rules
    [symbols, symbols² + words], for each symbol its pairs and then its words.
    """

    tokens: Int[Tensor, "batch length"]
    seen: Bool[Tensor, "batch length"]
    weights: Float[Tensor, " batch"]
    words: int
    grammar: Callable[[Parameters], Grammar] | None = None

    @property
    def length(self) -> int:
        return self.tokens.shape[1]

    @property
    def rows(self) -> int:
        return len(self.tokens)

    @property
    def shown(self) -> int:
        return int((self.seen & (self.tokens != self.words)).sum())

    def some(self, rows: Int[Tensor, " rows"]) -> "StringData":
        part = self.tokens[rows], self.seen[rows], self.weights[rows]
        return StringData(*part, self.words, self.grammar)

    def expected(self, parameters: Parameters) -> Expected:
        """Inside and outside over all rows, and over a row that shows nothing."""
        assert self.grammar is not None
        grammar = self.grammar(parameters)
        rules = parameters["rules"]
        counts = torch.zeros_like(rules)
        logs = []
        tokens, seen, weights = self._distinct
        rows = max(1, _SPANS_AT_ONCE // (self.length * rules.numel()))
        for part in torch.arange(len(tokens)).split(rows):
            own, found = grammar.rule_counts(tokens[part], seen[part], weights[part])
            logs.append(own)
            counts += found
        blank = torch.zeros((1, self.length), dtype=torch.long)
        log_total, normaliser = grammar.rule_counts(blank, blank.bool(), weights.sum()[None])
        log_likelihood = torch.cat(logs) - log_total
        total = torch.where(weights > 0, weights * log_likelihood, 0.0).sum()
        return Expected(float(total), {"rules": counts}, {"rules": normaliser})

    @cached_property
    def _distinct(self) -> tuple[Tensor, Tensor, Tensor]:
        """Each string once, with the sum of its weights: short strings are often the same."""
        shown = self.tokens.masked_fill(~self.seen, 0)
        found = distinct_rows(torch.cat([shown, self.seen.long()], 1))
        weights = self.weights.new_zeros(len(found.first))
        weights.index_add_(0, found.group, self.weights)
        return shown[found.first], self.seen[found.first], weights


def read_strings(
    tokens: Tokens,
    words: int,
    length: Count | None,
    hidden: Hidden | None,
    lengths: Numbers | None,
    weights: Numbers | None,
) -> StringData:
    """Whole strings: behind its last word, or its first end token, a row is over.

    Worked value: with words 0 and 1, rows 0 and 1, 0 become 0 2 and 1 0, where 2 is the end.
    """
    rows = as_ragged(tokens, words + 1, hidden=hidden, lengths=lengths, device="cpu")
    width = rows.tokens.shape[1]
    size = width if length is None else as_size("length", length)
    if size < int(rows.lengths.max()):
        raise UserError(
            f"length is {size}, and a row of tokens has {int(rows.lengths.max())} words",
            parameter="length",
        )
    ended = (rows.tokens == words) & ~rows.hidden
    ends = torch.where(ended.any(1), ended.double().argmax(1), rows.lengths)
    over = ~inside(ends, width)
    padded = rows.tokens.masked_fill(over, words)
    missing = max(0, size - width)
    padded = torch.nn.functional.pad(padded, (0, missing), value=words)[:, :size]
    seen = torch.nn.functional.pad(~rows.hidden | over, (0, missing), value=True)[:, :size]
    return StringData(padded, seen, as_weights(weights, len(padded)), words)


def random_rules(symbols: int, words: int, *, seed: int) -> Parameters:
    """Rows from a Dirichlet law in which words are as likely as pairs, so that strings end."""
    draw = np.random.default_rng(seed)
    pairs = draw.dirichlet(np.ones(symbols**2), size=symbols)
    terminal = draw.dirichlet(np.ones(words), size=symbols)
    share = draw.uniform(0.2, 0.5, size=(symbols, 1))
    rules = np.concatenate([share * pairs, (1 - share) * terminal], 1)
    return {"rules": torch.from_numpy(rules / rules.sum(1, keepdims=True))}


def split_rules(
    rules: Float[Tensor, "symbols rules"],
) -> tuple[Float[Tensor, "symbols symbols symbols"], Float[Tensor, "symbols words"]]:
    """The pairs and the words of each symbol."""
    symbols = len(rules)
    pairs, words = rules[:, : symbols**2], rules[:, symbols**2 :]
    return pairs.reshape(symbols, symbols, symbols), words


def rule_names(symbols: int, words: Sequence[str]) -> list[str]:
    """What the entries of the rules are. Worked value: one symbol, the word a: 0 → 0 0, 0 → a."""
    every = range(symbols)
    pairs = [f"{left} {right}" for left in every for right in every]
    return [f"{symbol} → {right}" for symbol in every for right in [*pairs, *words]]
