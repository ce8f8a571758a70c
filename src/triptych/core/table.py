"""A distribution given by the table of all its probabilities: the oracle of the tests.

Every query is answered by summing the table, so each method is a line or two. It costs
vocab^length memory; use it up to a few million sequences.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.logspace import log_conditional, log_normalise
from triptych.core.protocols import Density, Rng
from triptych.core.validation import check_prefix, check_sequences


def all_sequences(
    vocab_size: int, length: int, device: torch.device | str = "cpu"
) -> Int[Tensor, "count {length}"]:
    """Every sequence, in lexicographic order."""
    rank = torch.arange(vocab_size**length, device=device)
    return (rank[:, None] // places(vocab_size, length, device)) % vocab_size


def places(
    vocab_size: int, length: int, device: torch.device | str = "cpu"
) -> Int[Tensor, " {length}"]:
    """Place values: the rank of x among all sequences is Σ_i x_i places_i."""
    return vocab_size ** torch.arange(length - 1, -1, -1, device=device)


def rows_by_pattern(
    hidden: Bool[Tensor, "batch length"],
) -> Iterator[tuple[Bool[Tensor, " batch"], Bool[Tensor, " length"]]]:
    """Rows that hide the same positions, and those positions."""
    if len(hidden) == 0:
        return
    patterns, pattern_of = hidden.unique(dim=0, return_inverse=True)
    for k, pattern in enumerate(patterns):
        yield pattern_of == k, pattern


@dataclass(frozen=True, eq=False)
class Table:
    """log_probs[rank of x] = log p(x), sequences ranked in lexicographic order."""

    vocab_size: int
    length: int
    log_probs: Float[Tensor, " count"]

    def __post_init__(self) -> None:
        if len(self.log_probs) != self.vocab_size**self.length:
            raise ValueError(
                f"a table over {self.vocab_size}^{self.length} sequences needs "
                f"{self.vocab_size**self.length} log-probabilities, got {len(self.log_probs)}"
            )
        if not self.log_probs.logsumexp(0).abs() < 1e-8:
            raise ValueError(
                "the probabilities of a table must sum to 1; these sum to "
                f"{self.log_probs.exp().sum().item():.10g} (Table.of normalises a density)"
            )

    @classmethod
    def of(cls, density: Density, *, device: torch.device | str = "cpu") -> "Table":
        """Tabulate any density, normalising it."""
        every = all_sequences(density.vocab_size, density.length, device)
        log_weights = density.log_prob(every)
        return cls(density.vocab_size, density.length, log_normalise(log_weights))

    @classmethod
    def random(
        cls, vocab_size: int, length: int, seed: int, device: torch.device | str = "cpu"
    ) -> "Table":
        """An arbitrary distribution: weights uniform on (0, 1), normalised."""
        generator = torch.Generator().manual_seed(seed)
        weights = torch.rand(vocab_size**length, generator=generator, dtype=torch.float64)
        return cls(vocab_size, length, (weights / weights.sum()).log().to(device))

    @property
    def device(self) -> torch.device:
        return self.log_probs.device

    def to(self, device: torch.device | str) -> "Table":
        return Table(self.vocab_size, self.length, self.log_probs.to(device))

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

    def tilt(self, log_weight: Callable[[Tensor], Tensor]) -> "Table":
        """p(x) V(x) / Z for log V given on full sequences: the law a verifier asks for."""
        return Table(
            self.vocab_size,
            self.length,
            log_conditional((self.log_probs + log_weight(self.sequences))[None], "the tilted law")[
                0
            ],
        )

    def rank(self, tokens: Int[Tensor, "batch length"]) -> Int[Tensor, " batch"]:
        return (tokens * places(self.vocab_size, self.length, tokens.device)).sum(-1)

    def log_prob(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, " batch"]:
        check_sequences(tokens, self.vocab_size, self.length)
        return self.log_probs[self.rank(tokens)]

    def next_token_log_probs(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, "batch vocab"]:
        check_prefix(prefix, self.vocab_size, self.length)
        t = prefix.shape[1]
        joint = self.log_probs.reshape(self.vocab_size**t, self.vocab_size, -1).logsumexp(-1)
        rank = (prefix * places(self.vocab_size, t, prefix.device)).sum(-1)
        return log_conditional(joint[rank], "the prefix")

    def masked_log_probs(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        check_sequences(tokens, self.vocab_size, self.length, hidden)
        out = torch.empty(
            (*tokens.shape, self.vocab_size), dtype=self.log_probs.dtype, device=self.device
        )
        for rows, pattern in rows_by_pattern(hidden):
            out[rows] = self._one_pattern(tokens[rows], pattern)
        return out

    def sample(self, n: int, rng: Rng) -> Int[Tensor, "n length"]:
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
