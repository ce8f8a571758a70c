"""Probabilistic context-free grammar in Chomsky normal form, on strings of bounded length.

    A → B C   with probability binary[A, B, C]          A → a   with probability terminal[A, a]

The law is the grammar's, conditioned on strings of at most `length` words; the end token pads.
The inside probabilities I[i, n, A] = p(A derives the evidence at positions i .. i+n-1), where a
hidden word is any word, give the probability of whatever is shown, and their gradient with
respect to the evidence is every marginal at once: the outside pass is automatic differentiation.

Notation
--------
A, B, C   symbols, the first is the start     a   words     end token = words
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.logspace import with_point_masses
from triptych.core.protocols import Rng
from triptych.core.validation import (
    ROW_SUM_TOLERANCE,
    check_count,
    check_floats,
    check_prefix,
    check_same_device,
    check_sequences,
    check_shape,
    moved_to,
    raise_if_impossible,
)

Rules = Mapping[str, Mapping[str | tuple[str, str], float]]


@dataclass(frozen=True, eq=False, repr=False)
class CFG:
    """A grammar in Chomsky normal form on strings of at most `length` words.

    Worked value: S → S S with probability ¼, S → a with ¾. p("a") ∝ ¾, p("aa") ∝ ¼·(¾)²
    and p("aaa") ∝ 2·(¼)²·(¾)³, two trees. At most 2 words: p("a") = ¾ / (¾ + 9/64) = 16/19.
    """

    binary: Float[Tensor, "symbols symbols symbols"]
    terminal: Float[Tensor, "symbols words"]
    length: int
    word_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        symbols, words = self.terminal.shape
        check_shape("binary", self.binary, (symbols,) * 3, f"a grammar of {symbols} symbols")
        check_floats("binary", self.binary)
        check_floats("terminal", self.terminal)
        check_same_device(binary=self.binary, terminal=self.terminal)
        check_count("length", self.length, at_least=1)
        if (self.binary < 0).any() or (self.terminal < 0).any():
            raise ValueError("a rule has a negative probability")
        total = self.binary.sum((1, 2)) + self.terminal.sum(1)
        if ((total - 1).abs() > ROW_SUM_TOLERANCE).any():
            worst = int((total - 1).abs().argmax())
            raise ValueError(
                f"the rules of symbol {worst} have total probability {total[worst].item():.10g}; "
                "the rules of each symbol must sum to 1"
            )
        if self.word_names and len(self.word_names) != words:
            raise ValueError(f"{len(self.word_names)} word names for {words} words")
        if not self._spans[:, 0].sum() > 0:
            raise ValueError(f"this grammar derives no string of at most {self.length} words")

    def __repr__(self) -> str:
        return f"CFG(symbols={self.symbols}, words={self.words}, length={self.length})"

    @classmethod
    def from_rules(cls, rules: Rules, length: int, *, device: torch.device | str = "cpu") -> "CFG":
        """`{"S": {("S", "S"): 0.25, "a": 0.75}}`: pairs are symbols, strings are words.

        The first symbol is the start; words are numbered in order of appearance.
        """
        names = list(rules)
        words = list(
            dict.fromkeys(
                right for body in rules.values() for right in body if isinstance(right, str)
            )
        )
        binary = torch.zeros((len(names),) * 3, dtype=torch.float64)
        terminal = torch.zeros((len(names), len(words)), dtype=torch.float64)
        for symbol, body in rules.items():
            for right, probability in body.items():
                if isinstance(right, str):
                    terminal[names.index(symbol), words.index(right)] = probability
                    continue
                if len(right) != 2 or not set(right) <= set(names):
                    raise ValueError(
                        f"rule {symbol} → {' '.join(right)}: a rule is one word, or a pair of "
                        f"symbols out of {', '.join(names)} (Chomsky normal form)"
                    )
                binary[names.index(symbol), names.index(right[0]), names.index(right[1])] = (
                    probability
                )
        return cls(binary.to(device), terminal.to(device), length, tuple(words))

    @property
    def symbols(self) -> int:
        return self.terminal.shape[0]

    @property
    def words(self) -> int:
        return self.terminal.shape[1]

    @property
    def end_token(self) -> int:
        return self.words

    @property
    def vocab_size(self) -> int:
        return self.words + 1

    @property
    def device(self) -> torch.device:
        return self.terminal.device

    def to(self, device: torch.device | str) -> "CFG":
        return moved_to(self, device)

    def text(self, tokens: Int[Tensor, "batch t"]) -> list[str]:
        """Rows as words, without the end tokens."""
        names = self.word_names or tuple(str(word) for word in range(self.words))
        return [
            " ".join(names[token] for token in row if token != self.end_token)
            for row in tokens.tolist()
        ]

    # ------------------------------------------------------------------ exact answers

    def inside(
        self, evidence: Float[Tensor, "batch length words"]
    ) -> Float[Tensor, "batch spans symbols"]:
        """p(A derives the evidence on the first n positions), n = 1..length.

        `evidence[b, i, a]` weighs word a at position i: one-hot where shown, ones where hidden.
        """
        length = evidence.shape[1]
        # chart[n - 1][b, i, A]: A derives positions i .. i + n - 1.
        chart = [evidence @ self.terminal.T]
        for n in range(2, length + 1):
            starts = length - n + 1
            pairs = sum(
                chart[k - 1][:, :starts, :, None] * chart[n - k - 1][:, k : k + starts, None, :]
                for k in range(1, n)
            )
            chart.append(torch.einsum("bixy,axy->bia", pairs, self.binary))
        return torch.stack([spans[:, 0] for spans in chart], dim=1)

    def log_prob(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, " batch"]:
        check_sequences(tokens, self.vocab_size, self.length)
        log_evidence, _ = self._marginals(tokens, torch.zeros_like(tokens, dtype=torch.bool))
        return log_evidence

    def masked_log_probs(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        check_sequences(tokens, self.vocab_size, self.length, hidden)
        log_evidence, marginals = self._marginals(tokens, hidden)
        raise_if_impossible(log_evidence, "what is shown")
        return with_point_masses(marginals.log(), tokens, hidden)

    def next_token_log_probs(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, "batch vocab"]:
        check_prefix(prefix, self.vocab_size, self.length)
        t = prefix.shape[1]
        tokens = torch.nn.functional.pad(prefix, (0, self.length - t))
        hidden = torch.arange(self.length, device=prefix.device).expand_as(tokens) >= t
        log_evidence, marginals = self._marginals(tokens, hidden)
        raise_if_impossible(log_evidence, "the prefix")
        return marginals[:, t].log()

    def sample(self, n: int, rng: Rng) -> Int[Tensor, "n length"]:
        """A length, then the tree from the top, every split in proportion to what it can derive."""
        everyone = torch.zeros(n, dtype=torch.long, device=self.device)
        lengths = self._spans[:, 0]
        total = 1 + rng.categorical((lengths / lengths.sum()).log()[None], everyone)
        log_splits, log_words = self._split_log_probs, self._word_log_probs
        tokens = torch.full((n, self.length), self.end_token, device=self.device)
        written = torch.zeros_like(everyone)
        # Per row a stack of (symbol, words it must derive), the leftmost on top.
        symbol = torch.zeros((n, self.length + 1), dtype=torch.long, device=self.device)
        span = torch.zeros_like(symbol)
        span[:, 0] = total
        height = torch.ones_like(everyone)
        for _ in range(2 * self.length - 1):
            at = (height - 1).clamp(min=0)[:, None]
            top, size = symbol.gather(1, at)[:, 0], span.gather(1, at)[:, 0]
            leaf, split = (height > 0) & (size == 1), (height > 0) & (size > 1)
            rows = torch.nonzero(leaf)[:, 0]
            tokens[rows, written[rows]] = rng.categorical(log_words, top[rows])
            written[rows] += 1
            height[rows] -= 1
            rows = torch.nonzero(split)[:, 0]
            choice = rng.categorical(log_splits, top[rows] * self.length + size[rows] - 1)
            right = choice % self.symbols
            left = choice // self.symbols % self.symbols
            cut = 1 + choice // self.symbols**2
            below = height[rows] - 1
            symbol[rows, below], span[rows, below] = right, size[rows] - cut
            symbol[rows, below + 1], span[rows, below + 1] = left, cut
            height[rows] += 1
        return tokens

    # ------------------------------------------------------------------ inside

    def _marginals(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch length vocab"]]:
        """log p(shown), and p(token | shown) at every position."""
        position = torch.arange(self.length, device=tokens.device)
        ended = ~hidden & (tokens == self.end_token)
        shown = ~hidden & ~ended
        word = torch.where(shown, tokens, 0)
        # A shown word is weighed by 1 / (its largest probability), so that long strings do not
        # underflow; every length that fits contains all shown words, so the factor is common.
        peak = self.terminal.amax(0)[word]
        letter = torch.nn.functional.one_hot(word, self.words)
        weight = letter / peak.masked_fill(peak == 0, 1.0)[..., None]
        evidence = torch.where(hidden[..., None], torch.ones_like(weight), weight)
        evidence = evidence.masked_fill(ended[..., None], 0.0)
        with torch.enable_grad():
            evidence = evidence.detach().requires_grad_()
            derived = self.inside(evidence)[:, :, 0]
            shortest = torch.where(shown, position + 1, 1).amax(1)
            fits = position + 1 >= shortest[:, None]
            by_length = derived.masked_fill(~fits, 0.0)  # batch length: the string has n words
            total = by_length.sum(-1)
            (gradient,) = torch.autograd.grad(total.sum(), evidence)
        scale = torch.where(shown, peak.log(), 0.0).sum(-1)
        log_evidence = total.detach().log() + scale - self._spans[:, 0].sum().log()
        safe = total.detach().masked_fill(total == 0, 1.0)
        words = gradient * evidence.detach() / safe[:, None, None]
        over = (by_length.detach().cumsum(-1) - by_length.detach()) / safe[:, None]
        return log_evidence, torch.cat([words, over[..., None]], dim=-1)

    @cached_property
    def _spans(self) -> Float[Tensor, "length symbols"]:
        """p(A derives some string of n words), n = 1..length."""
        anything = self.terminal.new_ones((1, self.length, self.words))
        return self.inside(anything)[0]

    @cached_property
    def _word_log_probs(self) -> Float[Tensor, "symbols words"]:
        return _rows_or_uniform(self.terminal).log()

    @cached_property
    def _split_log_probs(self) -> Float[Tensor, "symbol_spans splits"]:
        """Row A * length + n - 1: the law of (cut, B, C) when A derives n words."""
        table = self.terminal.new_zeros(
            (self.symbols, self.length, self.length, self.symbols, self.symbols)
        )
        for n in range(2, self.length + 1):
            for cut in range(1, n):
                left, right = self._spans[cut - 1], self._spans[n - cut - 1]
                table[:, n - 1, cut - 1] = self.binary * left[:, None] * right
        return _rows_or_uniform(table.flatten(2).flatten(0, 1)).log()


def _rows_or_uniform(weights: Float[Tensor, "rows outcomes"]) -> Float[Tensor, "rows outcomes"]:
    """Rows scaled to sum to 1; a row of zeros, which is never drawn from, becomes uniform."""
    total = weights.sum(-1, keepdim=True)
    empty = torch.full_like(weights, 1.0 / weights.shape[-1])
    return torch.where(total > 0, weights / total.masked_fill(total == 0, 1.0), empty)


def examples() -> dict[str, CFG]:
    noun_verb: Rules = {
        "S": {("N", "V"): 0.6, ("S", "S"): 0.4},
        "N": {"cat": 0.7, ("N", "N"): 0.3},
        "V": {"runs": 1.0},
    }
    return {
        "one word": CFG.from_rules({"S": {("S", "S"): 0.25, "a": 0.75}}, length=6),
        "two words": CFG.from_rules({"S": {("S", "S"): 0.3, "a": 0.4, "b": 0.3}}, length=4),
        "sentences": CFG.from_rules(noun_verb, length=6),
    }
