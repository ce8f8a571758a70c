"""Probabilistic context-free grammar in Chomsky normal form, on strings of bounded length.

    A → B C   with probability binary[A, B, C]          A → a   with probability terminal[A, a]

The law is the grammar's, conditioned on strings of at most `length` words; the end token pads.
The inside probabilities I[i, n, A] = p(A derives the evidence at positions i .. i+n-1), where a
hidden word is any word, give the probability of whatever is shown. The outside probabilities
O[i, n, A] = p(the evidence elsewhere, and A at positions i .. i+n-1) give every marginal at once:

    p(word a at i, evidence) = Σ_A O[i, 1, A] terminal[A, a]       p(n words, evidence) = I[0, n, S]

All of it in log-space, so that the conditional of a rare word or a rare end has all its digits.

Notation
--------
A, B, C   symbols, the first is the start     a   words     end token = words
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.display import card, counted, facts_table
from triptych.core.logspace import with_point_masses
from triptych.core.ragged import answers_of_rows, full_rows
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    ROW_SUM_TOLERANCE,
    Count,
    Hidden,
    Number,
    Numbers,
    Prefix,
    Tokens,
    UserError,
    as_device,
    as_floats,
    as_list,
    as_masked,
    as_number,
    as_prefix,
    as_size,
    as_text,
    as_tokens,
    check_can,
    check_room,
    check_same_device,
    moved_to,
    raise_if_impossible,
    set_fields,
)
from triptych.fitting.fit import as_start, fit_rows
from triptych.fitting.result import Fit
from triptych.fitting.rows import Constraints, Parameters, Prior
from triptych.fitting.search import Search
from triptych.structures.string_data import random_rules, read_strings, rule_names, split_rules
from triptych.structures.strings import likely_strings

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
        terminal = as_floats(
            "terminal", self.terminal, shape=(None, None), meaning="[symbols, words]"
        )
        symbols, words = terminal.shape
        wanted = f"{(symbols,) * 3}, since terminal has {symbols} symbols"
        binary = as_floats("binary", self.binary, shape=(symbols,) * 3, meaning=wanted)
        check_same_device(binary=binary, terminal=terminal)
        length = as_size("length", self.length)
        set_fields(self, binary=binary, terminal=terminal, length=length)
        if not symbols:
            raise UserError(
                "terminal has no rows: a grammar needs at least its start symbol",
                parameter="terminal",
            )
        if (binary < 0).any() or (terminal < 0).any():
            raise UserError(
                "binary or terminal gives a rule a negative probability", parameter="binary"
            )
        total = binary.sum((1, 2)) + terminal.sum(1)
        if ((total - 1).abs() > ROW_SUM_TOLERANCE).any():
            worst = int((total - 1).abs().argmax())
            raise UserError(
                f"the rules of symbol {worst} have total probability {total[worst].item():.10g}; "
                "the rules of each symbol, binary and terminal together, must sum to 1"
            )
        names = as_list("word_names", self.word_names, "words")
        set_fields(self, word_names=tuple(as_text("word_names", name) for name in names))
        if self.word_names and len(self.word_names) != words:
            raise UserError(
                f"{len(self.word_names)} word names for {words} words", parameter="word_names"
            )
        check_room("the chart of this grammar", length, length, symbols, symbols)
        if torch.isneginf(self._spans[:, 0]).all():
            raise UserError(
                f"this grammar derives no string of at most {self.length} words", parameter="length"
            )

    def __repr__(self) -> str:
        symbols, words = counted(self.symbols, "symbol"), counted(self.words, "word")
        return f"CFG({symbols}, {words}, length at most {self.length})"

    def _repr_html_(self) -> str:
        facts = {
            "symbols": self.symbols,
            "words": self.words,
            "rules": int(self.binary.count_nonzero() + self.terminal.count_nonzero()),
            "length at most": self.length,
            "end token": self.end_token,
        }
        return card(repr(self), facts_table(facts), likely_strings(self, self.text))

    @classmethod
    def from_rules(
        cls, rules: Rules, length: Count, *, device: torch.device | str = "cpu"
    ) -> "CFG":
        """`{"S": {("S", "S"): 0.25, "a": 0.75}}`: pairs are symbols, strings are words.

        The first symbol is the start; words are numbered in order of appearance. No word has the
        name of a symbol.
        """
        check_can("rules", rules, "items")
        for symbol, body in rules.items():
            as_text("a symbol of rules", symbol)
            check_can(f"rules[{symbol!r}]", body, "items")
        names = list(rules)
        words = list(
            dict.fromkeys(
                right for body in rules.values() for right in body if isinstance(right, str)
            )
        )
        binary = torch.zeros((len(names),) * 3, dtype=torch.float64)
        terminal = torch.zeros((len(names), len(words)), dtype=torch.float64)
        for symbol, body in rules.items():
            for right, value in body.items():
                probability = as_number(f"rules[{symbol!r}][{right!r}]", value)
                if isinstance(right, str):
                    parts = [right] if right in rules else right.split()
                    if parts and set(parts) <= set(names):
                        raise UserError(
                            f"rule {symbol} → {right}: a string is a word, and {right!r} names "
                            "what is a symbol; write a pair of symbols as a tuple, such as "
                            f"{(parts[0], parts[-1])}, or give the word another name"
                        )
                    terminal[names.index(symbol), words.index(right)] = probability
                    continue
                pair = isinstance(right, tuple) and len(right) == 2 and set(right) <= set(names)
                if not pair:
                    body_text = " ".join(map(str, right)) if isinstance(right, tuple) else right
                    raise UserError(
                        f"rule {symbol} → {body_text}: a rule is one word, or a pair of "
                        f"symbols out of {', '.join(names)} (Chomsky normal form)"
                    )
                binary[names.index(symbol), names.index(right[0]), names.index(right[1])] = (
                    probability
                )
        place = as_device(device)
        size = as_size("length", length)
        return cls(binary.to(place), terminal.to(place), size, tuple(words))

    @classmethod
    def fit(
        cls,
        tokens: Tokens,
        start: "CFG | None" = None,
        *,
        symbols: Count | None = None,
        words: Count | None = None,
        length: Count | None = None,
        hidden: Hidden | None = None,
        lengths: Numbers | None = None,
        weights: Numbers | None = None,
        constraints: Constraints | None = None,
        prior: Prior | None = None,
        held_out: Number = 0.0,
        search: Search | None = None,
    ) -> "Fit[CFG]":
        """The grammar that makes what is shown likeliest, by inside and outside probabilities.

        A row is a whole string of `lengths` words, or ends at the first end token. Rules that
        `start` gives probability 0 stay out; without one, every rule on `symbols` symbols and
        `words` words may be used. The law is that of strings of at most `length` words, so what
        longer strings would have used is subtracted: rules → counts less those of the normaliser.
        The one part is rules: for each symbol its pairs, then its words.

        Worked value: S → S S or a, at most 2 words, five rows a and one aa: p(aa) = 1/6, where the
        binary rule has p (1 - p) = 1/5.
        """
        given = as_start(start, cls)
        if given is None and (symbols is None or words is None):
            missing = "symbols" if symbols is None else "words"
            raise UserError(f"{missing} is not given, and no start", parameter=missing)
        of_start = (0, 0) if given is None else (given.symbols, given.words)
        sizes = (
            as_size("symbols", of_start[0] if symbols is None else symbols),
            as_size("words", of_start[1] if words is None else words),
        )
        if given is not None and sizes != of_start:
            raise UserError(
                f"{sizes[0]} symbols and {sizes[1]} words; start has {given.symbols} and "
                f"{given.words}",
                parameter="symbols",
            )
        check_room("the rules", sizes[0], sizes[0] ** 2 + sizes[1])
        names = () if given is None else given.word_names
        strings = read_strings(tokens, sizes[1], length, hidden, lengths, weights)

        def built(p: Parameters) -> CFG:
            return cls(*split_rules(p["rules"]), strings.length, names)

        found = fit_rows(
            replace(strings, grammar=built),
            lambda seed: random_rules(*sizes, seed=seed),
            built,
            given=None
            if given is None
            else {"rules": torch.cat([given.binary.flatten(1), given.terminal], 1).to("cpu")},
            constraints=constraints,
            prior=prior,
            held_out=held_out,
            search=search,
        )
        words_of = names or tuple(str(word) for word in range(sizes[1]))
        rules = rule_names(sizes[0], words_of)
        renamed = [replace(p, name=name) for p, name in zip(found.parameters, rules, strict=True)]
        return replace(found, parameters=tuple(renamed))

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

    def text(self, tokens: Prefix) -> list[str]:
        """Rows as words, without the end tokens."""
        rows = as_tokens(tokens, self.vocab_size)
        names = self.word_names or tuple(str(word) for word in range(self.words))
        return [
            " ".join(names[token] for token in row if token != self.end_token)
            for row in rows.tolist()
        ]

    # ------------------------------------------------------------------ exact answers

    def log_inside(self, log_evidence: Numbers) -> Float[Tensor, "batch spans symbols"]:
        """log p(A derives the evidence on the first n positions), n = 1..length.

        `log_evidence[b, i, a]` weighs word a at position i: -inf excludes it, 0 where hidden.
        """
        evidence = as_floats(
            "log_evidence",
            log_evidence,
            shape=(None, None, self.words),
            meaning=f"[batch, length, {self.words} words]",
            finite=False,
        )
        if torch.isposinf(evidence).any() or not evidence.shape[1]:
            raise UserError(
                "log_evidence must have at least one position and no entry +inf",
                parameter="log_evidence",
            )
        return torch.stack([spans[:, 0] for spans in self._chart(evidence)], dim=1)

    def log_prob(
        self, tokens: Tokens, *, hidden: Hidden | None = None, lengths: Numbers | None = None
    ) -> Float[Tensor, " batch"]:
        if hidden is not None or lengths is not None:
            filled, unseen, _ = full_rows(self, tokens, hidden, lengths)
            found = self._read(filled, ~unseen).log_lengths.logsumexp(-1)
            return found - self._spans[:, 0].logsumexp(0)
        tokens = as_tokens(tokens, self.vocab_size, length=self.length, device=self.device)
        shown = torch.ones_like(tokens, dtype=torch.bool)
        by_length = self._read(tokens, shown).log_lengths
        return by_length.logsumexp(-1) - self._spans[:, 0].logsumexp(0)

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
        log_probs = self._marginals(tokens, ~hidden, "what is shown")
        return with_point_masses(log_probs, tokens, hidden)

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length, device=self.device)
        t = prefix.shape[1]
        tokens = torch.nn.functional.pad(prefix, (0, self.length - t))
        shown = torch.arange(self.length, device=prefix.device).expand_as(tokens) < t
        return self._marginals(tokens, shown, "the prefix")[:, t]

    def sample(self, n: Count, rng: RngLike) -> Int[Tensor, "n length"]:
        """A length, then the tree from the top, every split in proportion to what it can derive."""
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.device)
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

    def _read(
        self, tokens: Int[Tensor, "batch length"], shown: Bool[Tensor, "batch length"]
    ) -> "_Read":
        """The inside pass for the tokens that are shown."""
        position = torch.arange(self.length, device=tokens.device)
        ended = shown & (tokens == self.end_token)
        word = shown & ~ended
        letter = torch.nn.functional.one_hot(torch.where(word, tokens, 0), self.words).bool()
        excluded = (word[..., None] & ~letter) | ended[..., None]
        evidence = torch.zeros(letter.shape, dtype=torch.float64, device=tokens.device)
        evidence = evidence.masked_fill(excluded, -torch.inf)
        chart = self._chart(evidence)
        shortest = torch.where(word, position + 1, 1).amax(1)
        fits = position + 1 >= shortest[:, None]
        derived = torch.stack([spans[:, 0, 0] for spans in chart], dim=1)
        return _Read(evidence, chart, fits, derived.masked_fill(~fits, -torch.inf))

    def _chart(self, log_evidence: Float[Tensor, "batch length words"]) -> list[Tensor]:
        """chart[n - 1][b, i, A] = log p(A derives the evidence at positions i .. i + n - 1)."""
        length = log_evidence.shape[1]
        log_binary = self.binary.log()
        chart = [(log_evidence[:, :, None, :] + self.terminal.log()).logsumexp(-1)]
        for n in range(2, length + 1):
            starts = length - n + 1
            joint = self._pairs(chart, n, starts)[:, :, None] + log_binary
            chart.append(joint.flatten(-2).logsumexp(-1))
        return chart

    def _pairs(self, chart: list[Tensor], n: int, starts: int) -> Tensor:
        """log Σ_k I[i, k, B] I[i + k, n - k, C], for every start i of n words and every B and C."""
        splits = [
            chart[k - 1][:, :starts, :, None] + chart[n - k - 1][:, k : k + starts, None, :]
            for k in range(1, n)
        ]
        return torch.stack(splits).logsumexp(0)

    def _log_outside(self, read: "_Read") -> list[Tensor]:
        """outside[n - 1][b, i, A] = log p(the evidence elsewhere, and A at n words from i on).

        From long spans to short ones: a parent of n words hands each of its two parts what stands
        outside the parent, times what the other part derives.
        """
        chart, length = read.chart, len(read.chart)
        log_binary = self.binary.log()
        outside = [torch.full_like(spans, -torch.inf) for spans in chart]
        for n in range(1, length + 1):  # nothing stands outside a whole string
            outside[n - 1][:, 0, 0].masked_fill_(read.fits[:, n - 1], 0.0)
        for n in range(length, 1, -1):
            starts = length - n + 1
            rules = (outside[n - 1][..., None, None] + log_binary).logsumexp(2)  # batch starts B C
            left = torch.stack([chart[k - 1][:, :starts] for k in range(1, n)])
            right = torch.stack([chart[n - k - 1][:, k : k + starts] for k in range(1, n)])
            to_left = (rules + right[..., None, :]).logsumexp(-1)
            to_right = (rules + left[..., None]).logsumexp(-2)
            for k in range(1, n):
                first, second = outside[k - 1][:, :starts], outside[n - k - 1][:, k : k + starts]
                torch.logaddexp(first, to_left[k - 1], out=first)
                torch.logaddexp(second, to_right[k - 1], out=second)
        return outside

    @torch.no_grad()
    def rule_counts(
        self,
        tokens: Int[Tensor, "batch length"],
        shown: Bool[Tensor, "batch length"],
        weights: Float[Tensor, " batch"],
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, "symbols rules"]]:
        """log p(what is shown) under the grammar as it stands, and how often each rule is used.

        A span that A covers uses A → B C with O[A] p(A → B C) Σ_k I[B] I[C] / p(shown).
        """
        read = self._read(tokens, shown)
        total = read.log_lengths.logsumexp(-1)
        outside = self._log_outside(read)
        weight = weights * (total > -torch.inf)
        scale = torch.where(total > -torch.inf, total, 0.0)
        log_binary, log_terminal = self.binary.log(), self.terminal.log()
        words = outside[0][..., None] + log_terminal + read.log_evidence[:, :, None]
        terminal = torch.einsum("b,biaw->aw", weight, (words - scale[:, None, None, None]).exp())
        binary = torch.zeros_like(self.binary)
        for n in range(2, self.length + 1):
            starts = self.length - n + 1
            pairs = self._pairs(read.chart, n, starts)
            used = outside[n - 1][..., None, None] + pairs[:, :, None] + log_binary
            binary += torch.einsum(
                "b,biacd->acd", weight, (used - scale[:, None, None, None, None]).exp()
            )
        return total, torch.cat([binary.flatten(1), terminal], 1)

    @torch.no_grad()
    def _marginals(
        self,
        tokens: Int[Tensor, "batch length"],
        shown: Bool[Tensor, "batch length"],
        what: str,
    ) -> Float[Tensor, "batch length vocab"]:
        """log p(token | shown) at every position."""
        read = self._read(tokens, shown)
        total = read.log_lengths.logsumexp(-1)
        raise_if_impossible(total, what)
        parents = self._log_outside(read)[0][..., None] + self.terminal.log()
        words = parents.logsumexp(2) + read.log_evidence
        # The end stands at position i where the string has at most i words.
        ends = torch.full_like(words[..., :1], -torch.inf)
        ends[:, 1:, 0] = read.log_lengths.logcumsumexp(-1)[:, :-1]
        return torch.cat([words, ends], dim=-1) - total[:, None, None]

    @cached_property
    def _spans(self) -> Float[Tensor, "length symbols"]:
        """log p(A derives some string of n words), n = 1..length."""
        anything = self.terminal.new_zeros((1, self.length, self.words))
        return torch.stack([spans[0, 0] for spans in self._chart(anything)])

    @cached_property
    def _word_log_probs(self) -> Float[Tensor, "symbols words"]:
        return _rows_or_uniform(self.terminal.log())

    @cached_property
    def _split_log_probs(self) -> Float[Tensor, "symbol_spans splits"]:
        """Row A * length + n - 1: the law of (cut, B, C) when A derives n words."""
        shape = (self.symbols, self.length, self.length, self.symbols, self.symbols)
        table = torch.full(shape, -torch.inf, dtype=torch.float64, device=self.device)
        for n in range(2, self.length + 1):
            for cut in range(1, n):
                left, right = self._spans[cut - 1], self._spans[n - cut - 1]
                table[:, n - 1, cut - 1] = self.binary.log() + left[:, None] + right
        return _rows_or_uniform(table.flatten(2).flatten(0, 1))


class _Read(NamedTuple):
    """What the shown tokens say.

    log_evidence[b, i, a]   0 where word a may stand at position i, -inf where it may not
    chart                   the inside probabilities of `_chart`
    fits[b, n - 1]          no shown word stands beyond n words
    log_lengths[b, n - 1]   log p(the string has n words, and what is shown), not normalised
    """

    log_evidence: Float[Tensor, "batch length words"]
    chart: list[Tensor]
    fits: Bool[Tensor, "batch length"]
    log_lengths: Float[Tensor, "batch length"]


def _rows_or_uniform(
    log_weights: Float[Tensor, "rows outcomes"],
) -> Float[Tensor, "rows outcomes"]:
    """Rows normalised; a row of only zeros, which is never drawn from, is uniform."""
    nothing = torch.isneginf(log_weights).all(-1, keepdim=True)
    rows = log_weights.masked_fill(nothing, 0.0)
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
