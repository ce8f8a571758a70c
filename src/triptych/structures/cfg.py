"""Probabilistic context-free grammar in Chomsky normal form, on strings of bounded length.

    A → B C   with probability binary[A, B, C]          A → a   with probability terminal[A, a]

The law is the grammar's, conditioned on strings of at most `length` words; the end token pads.
The inside probabilities I[i, n, A] = p(A derives the evidence at positions i .. i+n-1), where a
hidden word is any word, give the probability of whatever is shown, and the gradient of its
logarithm is every marginal at once: the outside pass is automatic differentiation.

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
    check_dimensions,
    check_floats,
    check_prefix,
    check_same_device,
    check_sequences,
    check_shape,
    moved_to,
    raise_if_impossible,
)

LOG_ZERO = -1e200  # log 0 as a number: sums of it stay far below every real log-probability

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
        check_dimensions("terminal", self.terminal, 2, "[symbols, words]")
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
        if not self._spans[:, 0].max() > LOG_ZERO / 2:
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

    def log_inside(
        self, log_evidence: Float[Tensor, "batch length words"]
    ) -> Float[Tensor, "batch spans symbols"]:
        """log p(A derives the evidence on the first n positions), n = 1..length.

        `log_evidence[b, i, a]` weighs word a at position i: 0 or LOG_ZERO where shown, 0 where
        hidden. A probability of 0 is the finite LOG_ZERO or less, so that gradients stay finite.
        """
        length = log_evidence.shape[1]
        log_binary, log_terminal = _log(self.binary), _log(self.terminal)
        # chart[n - 1][b, i, A]: A derives positions i .. i + n - 1.
        chart = [(log_evidence[:, :, None, :] + log_terminal).logsumexp(-1)]
        for n in range(2, length + 1):
            starts = length - n + 1
            splits = [
                chart[k - 1][:, :starts, :, None] + chart[n - k - 1][:, k : k + starts, None, :]
                for k in range(1, n)
            ]
            pairs = torch.stack(splits).logsumexp(0)
            joint = pairs[:, :, None] + log_binary
            chart.append(joint.flatten(-2).logsumexp(-1))
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
        lengths = _rows_or_uniform(self._spans[:, 0][None])
        total = 1 + rng.categorical(lengths, everyone)
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
        letter = torch.nn.functional.one_hot(word, self.words).bool()
        log_evidence = torch.zeros(letter.shape, dtype=torch.float64, device=tokens.device)
        log_evidence = log_evidence.masked_fill(shown[..., None] & ~letter, LOG_ZERO)
        log_evidence = log_evidence.masked_fill(ended[..., None], LOG_ZERO)
        with torch.enable_grad():
            log_evidence = log_evidence.detach().requires_grad_()
            derived = self.log_inside(log_evidence)[:, :, 0]
            shortest = torch.where(shown, position + 1, 1).amax(1)
            fits = position + 1 >= shortest[:, None]
            by_length = derived.masked_fill(~fits, LOG_ZERO)  # the string has n words
            total = by_length.logsumexp(-1)
            (words,) = torch.autograd.grad(total.sum(), log_evidence)
        by_length, total = by_length.detach(), total.detach()
        possible = total > LOG_ZERO / 2
        mass = self._spans[:, 0].logsumexp(0)
        nothing = torch.full_like(total, -torch.inf)
        lengths = (by_length - total[:, None]).exp()
        over = lengths.cumsum(-1) - lengths
        marginals = torch.cat([words, over[..., None]], dim=-1)
        return torch.where(possible, total - mass, nothing), marginals

    @cached_property
    def _spans(self) -> Float[Tensor, "length symbols"]:
        """log p(A derives some string of n words), n = 1..length."""
        anything = self.terminal.new_zeros((1, self.length, self.words))
        return self.log_inside(anything)[0]

    @cached_property
    def _word_log_probs(self) -> Float[Tensor, "symbols words"]:
        return _rows_or_uniform(_log(self.terminal))

    @cached_property
    def _split_log_probs(self) -> Float[Tensor, "symbol_spans splits"]:
        """Row A * length + n - 1: the law of (cut, B, C) when A derives n words."""
        shape = (self.symbols, self.length, self.length, self.symbols, self.symbols)
        table = torch.full(shape, LOG_ZERO, dtype=torch.float64, device=self.device)
        for n in range(2, self.length + 1):
            for cut in range(1, n):
                left, right = self._spans[cut - 1], self._spans[n - cut - 1]
                table[:, n - 1, cut - 1] = _log(self.binary) + left[:, None] + right
        return _rows_or_uniform(table.flatten(2).flatten(0, 1))


def _log(probs: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """log p, with the finite LOG_ZERO for log 0."""
    return (
        torch.where(probs > 0, probs, torch.ones_like(probs))
        .log()
        .masked_fill(probs <= 0, LOG_ZERO)
    )


def _rows_or_uniform(
    log_weights: Float[Tensor, "rows outcomes"],
) -> Float[Tensor, "rows outcomes"]:
    """Rows normalised, zeros as -inf; a row of only zeros, which is never drawn from, uniform."""
    zero = log_weights <= LOG_ZERO / 2
    rows = log_weights.masked_fill(zero, -torch.inf)
    rows = rows.masked_fill(zero.all(-1, keepdim=True), 0.0)
    return rows - rows.logsumexp(-1, keepdim=True)


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
