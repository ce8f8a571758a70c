"""What a structure, a model, a verifier and a source of randomness must be able to do.

Exact structures and trained networks satisfy the same protocols: a structure is a perfect
model, a network is an imperfect structure. Every algorithm runs on the truth first.

Notation
--------
x      tokens   Int[Tensor, "batch length"]
x_≤t   prefix   Int[Tensor, "batch t"]
m      hidden   Bool[Tensor, "batch length"]     True where the token is not shown
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@runtime_checkable
class Rng(Protocol):
    """The only door through which randomness enters.

    A function that gives a whole result, as `sample` or `unmask`, also takes a whole number in its
    place: `rng=0` is `rng=TorchRng(0)` on the device of the data. A step of a chain is called again
    and again and would repeat the same draws, so it refuses a whole number.
    """

    def categorical(
        self,
        log_probs: Float[Tensor, "*table outcomes"],
        rows: Int[Tensor, "*batch"] | None = None,
    ) -> Int[Tensor, "..."]:
        """One draw per row of `log_probs`; with `rows`, one draw from `log_probs[rows[b]]` per b.

        `rows` is a shortcut for `categorical(log_probs[rows])` that never builds that table:
        the same law, and the same outcomes from an rng that enumerates.
        """
        ...


@runtime_checkable
class Density(Protocol):
    """A distribution p over token sequences whose probabilities are known."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def length(self) -> int: ...

    def log_prob(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, " batch"]:
        """log p(x), -inf outside the support."""
        ...


@runtime_checkable
class NextToken(Protocol):
    """An autoregressive oracle: log p(x_{t+1} = · | x_≤t)."""

    @property
    def vocab_size(self) -> int: ...

    def next_token_log_probs(
        self, prefix: Int[Tensor, "batch t"]
    ) -> Float[Tensor, "batch vocab"]: ...


@runtime_checkable
class EveryNextToken(NextToken, Protocol):
    """A `NextToken` that answers at every position of a sequence in one pass."""

    def every_next_token_log_probs(
        self, tokens: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        """log p(x_i = · | x_<i) for every i."""
        ...


@runtime_checkable
class Masked(Protocol):
    """A masked oracle: log p(x_i = · | the tokens that are shown)."""

    @property
    def vocab_size(self) -> int: ...

    def masked_log_probs(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        """Marginal of each position given the shown tokens; a point mass where shown.

        What `tokens` holds at a hidden position is never read.
        """
        ...


@runtime_checkable
class SoftMasked(Protocol):
    """A masked model that reads vectors instead of tokens: that is where soft prompts go.

    On `embed(tokens, hidden)`, `soft_masked_probs` gives at a hidden position what
    `masked_log_probs` gives there.
    """

    @property
    def vocab_size(self) -> int: ...

    def embed(
        self, tokens: Int[Tensor, "batch t"], hidden: Bool[Tensor, "batch t"] | None = None
    ) -> Float[Tensor, "batch t width"]:
        """The vector that stands for each token; one of its own where a token is hidden."""
        ...

    @property
    def soft_range(self) -> tuple[float, float]:
        """Where the entries of a vector may lie: all reals for a network, [0, 1] for the truth."""
        ...

    def soft_masked_probs(
        self, vectors: Float[Tensor, "batch t width"], *, at: int | None = None
    ) -> Float[Tensor, "batch positions vocab"]:
        """Probabilities (not logs) of every token, at every position or only `at` one.

        Differentiable in the vectors.
        """
        ...


@runtime_checkable
class Latent(Protocol):
    """A model with one hidden variable per position: log p(z_t = · | shown)."""

    def log_posterior(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length states"]: ...


@runtime_checkable
class Structure(Density, NextToken, Masked, Protocol):
    """A generative model of text that answers every question exactly."""

    def sample(self, n: int, rng: Rng) -> Int[Tensor, "n length"]:
        """n sequences, independent. Our own structures also take a seed: `sample(5, rng=0)`; one of
        yours does with `rng = core.randomness.as_rng(rng, device)` in its first line.
        """
        ...


@runtime_checkable
class Value(Protocol):
    """A process verifier in its simple form: log V(x_≤t) of rows of one length.

    A hard verifier answers 0 or -inf. A generation takes a `Value` where it takes a `Verifier`, and
    asks it about the rows of one length at a time.
    """

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]: ...


@runtime_checkable
class Decoder(Protocol):
    """A batch of growing prefixes, each row at its own length: the cursor of every algorithm."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def lengths(self) -> Int[Tensor, " batch"]: ...

    @property
    def tokens(self) -> Int[Tensor, "batch t"]:
        """The rows cut at the longest of them, -1 beyond each row's end."""
        ...

    def next_log_probs(self, rows: Int[Tensor, " rows"] | None = None) -> Float[Tensor, "_ vocab"]:
        """log p(· | the prefix of each row); of the given rows only, if they are named."""
        ...

    def append(
        self, tokens: Int[Tensor, " rows"], rows: Int[Tensor, " rows"] | None = None
    ) -> None: ...

    def rollback(self, counts: Int[Tensor, " batch"]) -> None:
        """Erase the last `counts[b]` tokens of row b."""
        ...

    def fork(self, rows: Int[Tensor, " copies"]) -> "Decoder":
        """A new decoder whose row i is a copy of row `rows[i]`."""
        ...


@runtime_checkable
class CountsPasses(Protocol):
    """A decoder that says how often its model was run, together with its forks; or a verifier.

    Neither need be one: without it, each `next_log_probs` and each question is counted as one pass.
    """

    @property
    def passes(self) -> int: ...


@runtime_checkable
class EndsRows(Protocol):
    """A decoder that says which of its rows are over, as one that counts lines of text does.

    A decoder need not be one: without it, a row ends by its length or by an end token alone.
    """

    def over(self) -> Bool[Tensor, " batch"]:
        """Rows that nothing is added to any more."""
        ...


@runtime_checkable
class NetworkDecoder(Decoder, Protocol):
    """A decoder of a network, which has states for a verifier to look at."""

    def hidden_state(self, rows: Int[Tensor, " rows"] | None = None) -> Float[Tensor, "_ width"]:
        """The network's state at the end of each row."""
        ...


@runtime_checkable
class UsedOnce(Protocol):
    """A decoder that knows whether a generation has used its rows up; another one refuses it."""

    used: bool


@runtime_checkable
class OfModel(Protocol):
    """A decoder that says which model answers it, for messages."""

    @property
    def lm(self) -> object: ...


@runtime_checkable
class RowRng(Protocol):
    """An rng with a stream for every row of a batch."""

    def of(self, rows: Int[Tensor, " rows"]) -> Rng:
        """The rng of these rows; a row that is named twice draws twice."""
        ...


@dataclass(frozen=True, eq=False)
class Question:
    """What a verifier is asked: log V of rows of different lengths, and whose they are.

    tokens    the rows, with -1 beyond each row's end
    lengths   how many tokens each row has, its prompt included
    starts    where the completion of each row begins
    over      rows that are asked about as finished texts: they have drawn an end token, or are cut
              off at their full length and nothing follows
    row       the row of the batch that each one works for: several particles share one
    decoder   the decoder that holds these rows, for a verifier of states; None where none does
    at        where each row stands in that decoder
    """

    tokens: Int[Tensor, "rows t"]
    lengths: Int[Tensor, " rows"]
    starts: Int[Tensor, " rows"]
    over: Bool[Tensor, " rows"]
    row: Int[Tensor, " rows"]
    decoder: Decoder | None = None
    at: Int[Tensor, " rows"] | None = None

    @classmethod
    def about(
        cls, tokens: Int[Tensor, "rows t"], *, start: int = 0, over: bool = False
    ) -> "Question":
        """A question about rows of one length, each a row of the batch."""
        same = torch.full_like(tokens[:, :0].sum(1), tokens.shape[1])
        every = torch.arange(len(tokens), device=tokens.device)
        starts = torch.full_like(same, start)
        return cls(tokens, same, starts, torch.full_like(same, over, dtype=torch.bool), every)

    def some(self, places: Int[Tensor, " places"]) -> "Question":
        """The same question about some of its rows."""
        return Question(
            self.tokens[places],
            self.lengths[places],
            self.starts[places],
            self.over[places],
            self.row[places],
            self.decoder,
            None if self.at is None else self.at[places],
        )

    def by_length(self) -> Iterator[tuple[Int[Tensor, " same"], Int[Tensor, "same length"]]]:
        """Rows of one length at a time, from short to long: their places here, and their tokens."""
        for length in self.lengths.unique().tolist():
            same = torch.nonzero(self.lengths == length)[:, 0]
            yield same, self.tokens[same, :length]


@runtime_checkable
class Verifier(Protocol):
    """A process verifier: log V of every row of a question, in one answer.

    A hard verifier answers 0 or -inf. What else a verifier can do are protocols of their own, which
    a verifier need not have: `Masks`, `Ends`, `ReadsOver`, `ReadsStates`, `CountsPasses`.
    """

    def log_values(self, asked: Question) -> Float[Tensor, " rows"]: ...


@runtime_checkable
class Masks(Protocol):
    """A verifier that says which tokens may come next, for the whole vocabulary at once.

    Unless it is `Graded` too its values are 0 and 1 alone: a mask is all that it has to say, and
    algorithms do not ask about a token that the mask allows.
    """

    def masks(self, asked: Question) -> Bool[Tensor, "rows vocab"]:
        """True where V of the row with this token after it is above 0."""
        ...


@runtime_checkable
class Graded(Protocol):
    """A verifier with masks that may answer between 0 and 1 about what a mask allows."""

    @property
    def graded(self) -> bool: ...


@runtime_checkable
class Ends(Protocol):
    """A verifier that says which texts are over: accepted, and nothing but space may follow.

    A generation ends such a row where it stands. Its next token need not be the end token.
    """

    def over(self, asked: Question) -> Bool[Tensor, " rows"]: ...


@runtime_checkable
class ReadsOver(Protocol):
    """A verifier that may answer otherwise about a text that is over (`Question.over`).

    Only such a verifier is asked again about rows that were cut off at their full length.
    """

    @property
    def reads_over(self) -> bool: ...


@runtime_checkable
class ReadsStates(Protocol):
    """A verifier of a network's states: every question to it has a decoder that holds its rows."""

    @property
    def layer(self) -> int | None:
        """The layer whose states it reads; None is any."""
        ...


VerifierLike = Verifier | Value
"""What a generation takes: a verifier, or its simple form."""
