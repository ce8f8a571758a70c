"""A distribution given by the table of all its probabilities: the oracle of the tests.

Every query is answered by summing the table, so each method is a line or two. It costs
vocab^length memory; use it up to a few million sequences.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.display import MAX_BARS, bars, card, counted, facts_table
from triptych.core.distinct import distinct_rows
from triptych.core.logspace import log_conditional, log_normalise
from triptych.core.protocols import Density
from triptych.core.ragged import answers_of_rows, log_prob_of_rows
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    Count,
    Hidden,
    Numbers,
    Prefix,
    Tokens,
    UserError,
    as_bool_mask,
    as_device,
    as_floats,
    as_masked,
    as_prefix,
    as_seed,
    as_size,
    as_tokens,
    check_callable,
    check_can,
    check_room,
    set_fields,
)


def all_sequences(
    vocab_size: Count, length: Count, device: torch.device | str = "cpu"
) -> Int[Tensor, "count {length}"]:
    """Every sequence, in lexicographic order."""
    vocab_size, length, device = _as_alphabet(vocab_size, length, device)
    check_room("the list of all sequences", vocab_size**length, length)
    rank = torch.arange(vocab_size**length, device=device)
    return (rank[:, None] // places(vocab_size, length, device)) % vocab_size


def places(
    vocab_size: Count, length: Count, device: torch.device | str = "cpu"
) -> Int[Tensor, " {length}"]:
    """Place values: the rank of x among all sequences is Σ_i x_i places_i."""
    vocab_size, length, device = _as_alphabet(vocab_size, length, device)
    return vocab_size ** torch.arange(length - 1, -1, -1, device=device)


def _as_alphabet(
    vocab_size: Count, length: Count, device: torch.device | str = "cpu"
) -> tuple[int, int, torch.device]:
    """Sizes whose sequences can be numbered."""
    vocab, positions = as_size("vocab_size", vocab_size), as_size("length", length, at_least=0)
    if positions * math.log2(vocab) >= 63:
        raise UserError(
            f"vocab_size = {vocab} and length = {positions} make {vocab}^{positions} sequences, "
            "more than a 64-bit number can count",
            parameter="vocab_size",
        )
    return vocab, positions, as_device(device)


def rows_by_pattern(
    hidden: Numbers,
) -> Iterator[tuple[Bool[Tensor, " batch"], Bool[Tensor, " length"]]]:
    """Rows that hide the same positions, and those positions."""
    hidden = as_bool_mask("hidden", hidden)
    if hidden.ndim != 2:
        raise UserError(
            f"hidden has shape {tuple(hidden.shape)}; it must be [batch, length]",
            parameter="hidden",
        )
    if len(hidden) == 0:
        return
    if hidden.shape[1] == 0:
        yield torch.ones(len(hidden), dtype=torch.bool, device=hidden.device), hidden[0]
        return
    patterns, group, _ = distinct_rows(hidden)
    for k, pattern in enumerate(patterns):
        yield group == k, pattern


@dataclass(frozen=True, eq=False)
class Table:
    """log_probs[rank of x] = log p(x), sequences ranked in lexicographic order."""

    vocab_size: int
    length: int
    log_probs: Float[Tensor, " count"]

    def __post_init__(self) -> None:
        vocab_size, length, _ = _as_alphabet(self.vocab_size, self.length)
        count = vocab_size**length
        log_probs = as_floats(
            "log_probs", self.log_probs, shape=(None,), meaning=f"[{count}]", finite=False
        )
        if len(log_probs) != count:
            raise UserError(
                f"log_probs: a table over {vocab_size}^{length} sequences needs "
                f"{count} log-probabilities, got {len(log_probs)}",
                parameter="log_probs",
            )
        if not log_probs.logsumexp(0).abs() < 1e-8:
            raise UserError(
                "log_probs: the probabilities of a table must sum to 1; these sum to "
                f"{log_probs.exp().sum().item():.10g} (Table.of normalises a density)",
                parameter="log_probs",
            )
        set_fields(self, vocab_size=vocab_size, length=length, log_probs=log_probs)

    def __repr__(self) -> str:
        sequences = counted(len(self.log_probs), "sequence")
        return f"Table({counted(self.vocab_size, 'symbol')}, length {self.length}, {sequences})"

    def _repr_html_(self) -> str:
        found, possible = self.likeliest(MAX_BARS), int((self.log_probs > -torch.inf).sum())
        apart = " " if self.vocab_size > 10 else ""
        named = [(apart.join(map(str, x)) or "(empty)", p) for x, p in found]
        facts = {
            "symbols": self.vocab_size,
            "length": self.length,
            "sequences": len(self.log_probs),
            "of positive probability": possible,
            "entropy, nats": float(
                -(self.log_probs.exp() * self.log_probs.clamp(min=-1e300)).sum()
            ),
        }
        title = "most likely sequences"
        return card(
            repr(self), facts_table(facts), bars(named, title=title, more=possible - len(found))
        )

    @classmethod
    def of(cls, density: Density, *, device: torch.device | str = "cpu") -> "Table":
        """Tabulate any density, normalising it."""
        check_can("density", density, "vocab_size", "length", "log_prob")
        device = as_device(device)
        every = all_sequences(density.vocab_size, density.length, device)
        log_weights = as_floats("log_prob(tokens)", density.log_prob(every).double(), finite=False)
        return cls(density.vocab_size, density.length, log_normalise(log_weights))

    @classmethod
    def random(
        cls, vocab_size: Count, length: Count, seed: Count, device: torch.device | str = "cpu"
    ) -> "Table":
        """An arbitrary distribution: weights uniform on (0, 1), normalised."""
        vocab_size, length, device = _as_alphabet(vocab_size, length, device)
        check_room("the table", vocab_size**length)
        generator = torch.Generator().manual_seed(as_seed(seed))
        weights = torch.rand(vocab_size**length, generator=generator, dtype=torch.float64)
        return cls(vocab_size, length, (weights / weights.sum()).log().to(device))

    @property
    def device(self) -> torch.device:
        return self.log_probs.device

    def to(self, device: torch.device | str) -> "Table":
        return Table(self.vocab_size, self.length, self.log_probs.to(as_device(device)))

    @property
    def sequences(self) -> Int[Tensor, "count length"]:
        return all_sequences(self.vocab_size, self.length, self.device)

    @property
    def support(self) -> Int[Tensor, "count length"]:
        """The sequences of positive probability."""
        return self.sequences[~torch.isneginf(self.log_probs)]

    def as_dict(self) -> dict[tuple[int, ...], float]:
        """Sequence -> probability."""
        keys = [tuple(x) for x in self.sequences.tolist()]
        return dict(zip(keys, self.log_probs.exp().tolist(), strict=True))

    def likeliest(self, n: Count) -> list[tuple[tuple[int, ...], float]]:
        """The n most likely sequences with their probabilities, none of probability 0.

        Of equal ones the first in lexicographic order comes first.
        """
        n = as_size("n", n)
        ranks = self.log_probs.argsort(descending=True, stable=True)[:n]
        ranks = ranks[self.log_probs[ranks] > -torch.inf]
        place = places(self.vocab_size, self.length, self.device)
        sequences = (ranks[:, None] // place % self.vocab_size).tolist()
        probs = self.log_probs[ranks].exp().tolist()
        return [(tuple(x), p) for x, p in zip(sequences, probs, strict=True)]

    def tilt(self, log_weight: Callable[[Tensor], Tensor]) -> "Table":
        """p(x) V(x) / Z for log V given on full sequences: the law a verifier asks for."""
        check_callable("log_weight", log_weight, "log_weight(tokens)")
        answer = log_weight(self.sequences)
        given = as_floats(
            "log_weight(tokens)",
            answer.double() if isinstance(answer, Tensor) else answer,
            shape=(len(self.log_probs),),
            meaning=f"[{len(self.log_probs)}], one number per sequence",
            finite=False,
        )
        if torch.isposinf(given).any():
            raise UserError(
                "log_weight(tokens) is inf for a sequence; it must be below that",
                parameter="log_weight",
            )
        tilted = log_conditional((self.log_probs + given)[None], "the tilted law")[0]
        return Table(self.vocab_size, self.length, tilted)

    def rank(self, tokens: Tokens) -> Int[Tensor, " batch"]:
        """The number of each sequence in lexicographic order."""
        tokens = as_tokens(tokens, self.vocab_size, length=self.length)
        return self._rank(tokens)

    def _rank(self, tokens: Int[Tensor, "batch t"]) -> Int[Tensor, " batch"]:
        return (tokens * places(self.vocab_size, tokens.shape[1], tokens.device)).sum(-1)

    def log_prob(
        self, tokens: Tokens, *, hidden: Hidden | None = None, lengths: Numbers | None = None
    ) -> Float[Tensor, " batch"]:
        if hidden is not None or lengths is not None:
            return log_prob_of_rows(self, tokens, hidden, lengths)
        tokens = as_tokens(tokens, self.vocab_size, length=self.length, device=self.device)
        return self.log_probs[self._rank(tokens)]

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length, device=self.device)
        t = prefix.shape[1]
        joint = self.log_probs.reshape(self.vocab_size**t, self.vocab_size, -1).logsumexp(-1)
        return log_conditional(joint[self._rank(prefix)], "the prefix")

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
        out = torch.empty(
            (*tokens.shape, self.vocab_size), dtype=self.log_probs.dtype, device=self.device
        )
        for rows, pattern in rows_by_pattern(hidden):
            out[rows] = self._one_pattern(tokens[rows], pattern)
        return out

    def sample(self, n: Count, rng: RngLike) -> Int[Tensor, "n length"]:
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.device)
        rows = torch.zeros(n, dtype=torch.long, device=self.device)
        return self.sequences[rng.categorical(self.log_probs[None], rows)]

    def _one_pattern(
        self, tokens: Int[Tensor, "rows length"], hidden: Bool[Tensor, " length"]
    ) -> Float[Tensor, "rows length vocab"]:
        """Sum the table over all but one hidden position, in turn, for each shown context."""
        shown = [i for i in range(self.length) if not hidden[i]]
        grid = self.log_probs.reshape([self.vocab_size] * self.length)
        context = (tokens[:, shown] * places(self.vocab_size, len(shown), tokens.device)).sum(-1)
        marginals = []
        for i in range(self.length):
            keep = [*shown, i] if hidden[i] else shown
            others = [j for j in range(self.length) if j not in keep]
            joint = grid.permute(*keep, *others).reshape(
                self.vocab_size ** len(shown), self.vocab_size if hidden[i] else 1, -1
            )
            law = log_conditional(joint.logsumexp(-1)[context], "what is shown")
            if not hidden[i]:
                certain = torch.arange(self.vocab_size, device=self.device) == tokens[:, i, None]
                law = torch.zeros_like(certain, dtype=law.dtype).masked_fill(~certain, -torch.inf)
            marginals.append(law)
        return torch.stack(marginals, dim=1)


def examples() -> dict[str, Table]:
    return {"random": Table.random(3, 3, seed=0)}
