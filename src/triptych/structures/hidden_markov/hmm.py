"""Hidden Markov model: the data of head and prompt tuning [wei, 3].

    p(x) = Σ_z π(z_1) W(z_1, x_1) Π_t A(z_{t-1}, z_t) W(z_t, x_t)

The embedding model G of [wei, B] is message passing over arbitrary nonnegative vectors in
place of emission rows, so that a soft prompt is a fake token.

Notation
--------
z_t in 0..states-1   hidden state     π   initial      [states], the law of z_1
x_t in 0..vocab-1    token            A   transition   [states, states], A[i, j] = P(j | i)
                                      W   emission     [states, vocab]
The papers write the transposes: their A is ours transposed, their W has shape [vocab, states].
Their H_0, the state before the first token, is our z_1 with the first token hidden.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.deprecation import Renamed, renamed
from triptych.core.display import card, counted, facts_table, heat_map
from triptych.core.logspace import log_matmul, with_point_masses
from triptych.core.protocols import Rng
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    Count,
    Hidden,
    Number,
    Numbers,
    Prefix,
    Tokens,
    UserError,
    as_count,
    as_device,
    as_distributions,
    as_masked,
    as_prefix,
    as_seed,
    as_size,
    as_tokens,
    check_room,
    check_same_device,
    moved_to,
    raise_if_impossible,
    set_fields,
)
from triptych.structures.hidden_markov import fast_messages, messages, permutations
from triptych.structures.hidden_markov.soft_tokens import as_soft_tokens, at_position

_TOKENS_PER_CHUNK = 2**18


class Drawn(NamedTuple):
    """Tokens with the hidden states that emitted them."""

    tokens: Int[Tensor, "n length"]
    states: Int[Tensor, "n length"]


@dataclass(frozen=True, eq=False, repr=False)
class HMM:
    """A hidden Markov model on sequences of `length` tokens.

    Worked value: π = (½, ½), A = [[¾, ¼], [¼, ¾]], W = [[1, 0], [½, ½]], length 2:
    p(x = 0, 1) = ½·1·¼·½ + ½·½·¾·½ = 5/32.
    """

    initial: Float[Tensor, " states"]
    transition: Float[Tensor, "states states"]
    emission: Float[Tensor, "states vocab"]
    length: int

    def __post_init__(self) -> None:
        initial = as_distributions("initial", self.initial, shape=(None,), meaning="[states]")
        states = len(initial)
        of_states = f"with {states} initial probabilities"
        transition = as_distributions(
            "transition",
            self.transition,
            shape=(states, states),
            meaning=f"{(states, states)} {of_states}",
        )
        emission = as_distributions(
            "emission",
            self.emission,
            shape=(states, None),
            meaning=f"[states, vocab] {of_states}",
        )
        check_same_device(initial=initial, transition=transition, emission=emission)
        length = as_size("length", self.length)
        set_fields(self, initial=initial, transition=transition, emission=emission, length=length)

    def __repr__(self) -> str:
        states, symbols = counted(self.states, "state"), counted(self.vocab_size, "symbol")
        return f"HMM({states}, {symbols}, length {self.length})"

    def _repr_html_(self) -> str:
        facts = {"states": self.states, "symbols": self.vocab_size, "length": self.length}
        return card(
            repr(self),
            facts_table(facts),
            heat_map(self.transition, title="transition", rows="state", columns="next state"),
            heat_map(self.emission, title="emission", rows="state", columns="symbol"),
        )

    @property
    def vocab_size(self) -> int:
        return self.emission.shape[1]

    @property
    def states(self) -> int:
        return self.initial.shape[0]

    @property
    def device(self) -> torch.device:
        return self.initial.device

    def to(self, device: torch.device | str) -> "HMM":
        return moved_to(self, device)

    def with_length(self, length: Count) -> "HMM":
        """The same chain on sequences of another length."""
        return replace(self, length=as_size("length", length))

    # ------------------------------------------------------------------ constructors

    @classmethod
    @renamed(vocab="vocab_size")
    def random(
        cls,
        states: Count,
        vocab_size: Count,
        length: Count,
        *,
        seed: Count,
        device: torch.device | str = "cpu",
    ) -> "HMM":
        """Rows of π, A and W drawn from a flat Dirichlet."""
        states, vocab_size = _as_sizes(states, vocab_size)
        draw = np.random.default_rng(as_seed(seed))
        return cls._from_numpy(
            draw.dirichlet(np.ones(states)),
            draw.dirichlet(np.ones(states), size=states),
            draw.dirichlet(np.ones(vocab_size), size=states),
            length,
            device,
        )

    @classmethod
    @renamed(vocab="vocab_size")
    def random_permutation_mixture(
        cls,
        states: Count,
        vocab_size: Count,
        length: Count,
        *,
        seed: Count,
        initial_temperature: Number = 10.0,
        transition_temperature: Number = 0.01,
        emission_temperature: Number = 0.01,
        device: torch.device | str = "cpu",
    ) -> "HMM":
        """The random HMM of the experiments [wei, D]: A mixes `states` random permutations.

        Logits are uniform on an interval of width 1 and softmaxed at the given temperatures:
        π is nearly uniform, rows of W nearly one-hot, A doubly stochastic. The order of draws
        is the one of the authors' experiments, so that a seed names the same HMM.
        """
        states, vocab_size = _as_sizes(states, vocab_size)
        warm, mix, cold = permutations.as_temperatures(
            initial_temperature, transition_temperature, emission_temperature
        )
        draw = np.random.RandomState(as_seed(seed, at_most=permutations.MAX_OLD_SEED))
        initial = permutations.softmax(draw.rand(states) - 0.5, warm)
        transition = permutations.mixture(states, states, mix, draw)
        emission = permutations.softmax(draw.rand(states, vocab_size) - 0.5, cold)
        return cls._from_numpy(initial, transition, emission, length, device)

    @classmethod
    @renamed(vocab="vocab_size")
    def random_sparse(
        cls,
        states: Count,
        vocab_size: Count,
        length: Count,
        *,
        seed: Count,
        successors: Count = 2,
        device: torch.device | str = "cpu",
    ) -> "HMM":
        """Every state has exactly `successors` successors; the chain is ergodic.

        For the relaxed non-degeneracy of [wei, Assumption 3.5], which asks that the states
        reachable in one step from a set B be few. One successor is the next state on a random
        cycle through all states, the others are random; the first state of the cycle has
        itself among its successors, so the chain is aperiodic. Weights are flat Dirichlet.
        """
        states, vocab_size = _as_sizes(states, vocab_size)
        successors = as_count("successors", successors, at_least=2 if states > 1 else 1)
        if successors > states:
            raise UserError(f"{successors} successors of {states} states: at most {states}")
        draw = np.random.default_rng(as_seed(seed))
        cycle = draw.permutation(states)
        transition = np.zeros((states, states))
        for place, state in enumerate(cycle):
            follower = cycle[(place + 1) % states]
            chosen = [follower] if place or states == 1 else [follower, state]
            others = draw.permutation(np.setdiff1d(np.arange(states), chosen))
            chosen = np.concatenate([chosen, others])[:successors].astype(int)
            transition[state, chosen] = draw.dirichlet(np.ones(successors))
        return cls._from_numpy(
            draw.dirichlet(np.ones(states)),
            transition,
            draw.dirichlet(np.ones(vocab_size), size=states),
            length,
            device,
        )

    @classmethod
    def _from_numpy(
        cls,
        initial: np.ndarray,
        transition: np.ndarray,
        emission: np.ndarray,
        length: Count,
        device: torch.device | str,
    ) -> "HMM":
        device, length = as_device(device), as_size("length", length)
        parts = [torch.tensor(p, dtype=torch.float64) for p in (initial, transition, emission)]
        return cls(*(part.to(device) for part in parts), length=length)

    def stationary(self) -> Float[Tensor, " states"]:
        """The law s with s A = s: the limit of P[z_t] for an ergodic chain."""
        states = self.states
        eye = torch.eye(states, dtype=torch.float64, device=self.device)
        ones = torch.ones(1, states, dtype=torch.float64, device=self.device)
        system = torch.cat([self.transition.T - eye, ones])
        right = torch.zeros(states + 1, 1, dtype=torch.float64, device=self.device)
        right[-1] = 1.0
        law = torch.linalg.lstsq(system, right).solution[:, 0].clamp(min=0.0)
        return law / law.sum()

    # ------------------------------------------------------------------ exact answers

    def log_prob(self, tokens: Tokens) -> Float[Tensor, " batch"]:
        tokens = as_tokens(tokens, self.vocab_size, length=self.length, device=self.device)
        return self._filter(tokens).log_evidence

    def log_posterior(
        self, tokens: Tokens, hidden: Hidden | None = None
    ) -> Float[Tensor, "batch length states"]:
        """log p(z_t = · | the tokens that are shown); all of them, where `hidden` is not given."""
        return self._smooth(*self._as_masked(tokens, hidden), None)

    posterior = Renamed("log_posterior")

    def masked_log_probs(
        self, tokens: Tokens, hidden: Hidden
    ) -> Float[Tensor, "batch length vocab"]:
        tokens, hidden = self._as_masked(tokens, hidden)
        predicted = self._smooth(tokens, hidden, self.emission)
        return with_point_masses(predicted, tokens, hidden)

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length, device=self.device)
        log_evidence, log_next = self._filter(prefix)
        raise_if_impossible(log_evidence, "the prefix")
        return log_matmul(log_next[:, None], self.emission.log())[:, 0]

    def every_next_token_log_probs(self, tokens: Tokens) -> Float[Tensor, "batch length vocab"]:
        """log p(x_i = · | x_<i) for every i, in one forward pass."""
        tokens = as_tokens(tokens, self.vocab_size, length=self.length, device=self.device)
        log_evidence, log_next = fast_messages.predict_everywhere(
            self.initial, self.transition, self.emission.T, tokens
        )
        raise_if_impossible(log_evidence, "the sequence")
        log_probs = (log_next.exp() @ self.emission).log()
        zero = torch.isneginf(log_probs).any(-1)  # impossible, or too small for a product
        if zero.any():
            log_probs[zero] = log_matmul(log_next[zero], self.emission.log())
        return log_probs

    def sample(self, n: Count, rng: RngLike) -> Int[Tensor, "n length"]:
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.device)
        tokens = self._empty_tokens(n)
        for chunk, _, emitted in self._sample_chunks(n, rng):
            _write(tokens, chunk, emitted)
        return tokens

    def sample_with_states(self, n: Count, rng: RngLike) -> Drawn:
        """Tokens and the states behind them; the same tokens as `sample` from the same rng."""
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.device)
        drawn = Drawn(self._empty_tokens(n), self._empty_tokens(n))
        for chunk, states, emitted in self._sample_chunks(n, rng):
            _write(drawn.states, chunk, states)
            _write(drawn.tokens, chunk, emitted)
        return drawn

    def _empty_tokens(self, n: int) -> Int[Tensor, "n length"]:
        if self.device.type == "cpu":  # numpy asks for huge pages: 6 times as fast to fill
            return torch.from_numpy(np.empty((n, self.length), dtype=np.int64))
        return torch.empty((n, self.length), dtype=torch.long, device=self.device)

    def _sample_chunks(self, n: int, rng: Rng) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """(positions, states, tokens) with states and tokens laid out position first.

        Every step moves all n rows at once; tokens are emitted for a cache-sized run of steps.
        """
        log_transition, log_emission = self.transition.log(), self.emission.log()
        everyone = torch.zeros(n, dtype=torch.long, device=self.device)
        state = rng.categorical(self.initial.log()[None], everyone)
        steps = max(1, _TOKENS_PER_CHUNK // max(1, n))
        for first in range(0, self.length, steps):
            run: list[Tensor] = []
            for t in range(first, min(first + steps, self.length)):
                if t > 0:
                    state = rng.categorical(log_transition, state)
                run.append(state)
            states = torch.stack(run)
            yield slice(first, first + len(run)), states, rng.categorical(log_emission, states)

    # ------------------------------------------------------------------ the embedding model

    def embed(
        self, tokens: Prefix, hidden: Hidden | None = None
    ) -> Float[Tensor, "batch t states"]:
        """Proper embeddings e(x) = W[:, x]; a hidden token embeds as all ones."""
        if hidden is None:
            return self._evidence_table()[as_tokens(tokens, self.vocab_size, device=self.device)]
        tokens, hidden = as_masked(tokens, hidden, self.vocab_size, device=self.device)
        return self._evidence_table()[self._symbols(tokens, hidden)]

    def state_messages(self, vectors: Numbers) -> Float[Tensor, "batch t states"]:
        """τ_i / |τ_i| of [wei, (B.1)]: p(z_i | all soft tokens but the i-th), 0 where |τ_i| = 0.

        Differentiable in `vectors`, which may have any length and any nonnegative entries.
        """
        vectors = as_soft_tokens(vectors, self.states, device=self.device)
        return messages.leave_one_out(self.initial, self.transition, vectors).state

    @property
    def soft_range(self) -> tuple[float, float]:
        """The entries of a soft token are probabilities."""
        return (0.0, 1.0)

    def soft_masked_probs(
        self, vectors: Numbers, *, at: Count | None = None
    ) -> Float[Tensor, "batch positions vocab"]:
        """G_i(v) = W τ_i / |τ_i|: the embedding model of [wei, B]; 0 where the mass is 0.

        On proper embeddings, G_i(e(x)) = p(x_i = · | every other token). `at` keeps position i
        alone.
        """
        return at_position(self.state_messages(vectors), at) @ self.emission

    # ------------------------------------------------------------------ inside

    def _evidence_table(self) -> Float[Tensor, "symbols states"]:
        """Row x: the emission column of token x. Last row: ones, for a hidden token."""
        return torch.cat([self.emission.T, torch.ones_like(self.initial)[None]])

    def _symbols(self, tokens: Tensor, hidden: Tensor) -> Int[Tensor, "batch t"]:
        return tokens.masked_fill(hidden, self.vocab_size)

    def _filter(self, tokens: Int[Tensor, "batch t"]) -> fast_messages.Filtered:
        return fast_messages.filter_forward(self.initial, self.transition, self.emission.T, tokens)

    def _as_masked(self, tokens: Tokens, hidden: Hidden | None) -> tuple[Tensor, Tensor]:
        return as_masked(tokens, hidden, self.vocab_size, length=self.length, device=self.device)

    def _smooth(
        self,
        tokens: Int[Tensor, "batch length"],
        hidden: Bool[Tensor, "batch length"],
        readout: Float[Tensor, "states outcomes"] | None,
    ) -> Float[Tensor, "batch length outcomes"]:
        smoothed = fast_messages.smooth(
            self.initial,
            self.transition,
            self._evidence_table(),
            self._symbols(tokens, hidden),
            readout,
        )
        raise_if_impossible(smoothed.log_evidence, "what is shown")
        return smoothed.log_probs


def _write(
    tokens: Int[Tensor, "n length"], positions: slice, drawn: Int[Tensor, "positions n"]
) -> None:
    """tokens[:, positions] = the transpose of `drawn`; on a CPU by numpy, in half the time."""
    if tokens.device.type == "cpu":
        tokens.numpy()[:, positions] = drawn.numpy().T
    else:
        tokens[:, positions] = drawn.T


def _as_sizes(states: Count, vocab_size: Count) -> tuple[int, int]:
    sizes = as_size("states", states), as_size("vocab_size", vocab_size)
    check_room("the transition matrix", sizes[0], sizes[0])
    check_room("the emission matrix", *sizes)
    return sizes


def examples() -> dict[str, HMM]:
    """Small enough to be checked against `core.table.Table`."""
    zeros = HMM(
        torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64),
        torch.tensor([[0.0, 0.5, 0.5], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], dtype=torch.float64),
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.25, 0.75]], dtype=torch.float64),
        length=5,
    )
    return {
        "two states": HMM.random(states=2, vocab_size=3, length=4, seed=0),
        "one state": HMM.random(states=1, vocab_size=2, length=3, seed=1),
        "more states than tokens": HMM.random(states=5, vocab_size=2, length=5, seed=2),
        "permutation mixture": HMM.random_permutation_mixture(4, 3, 4, seed=3),
        "sparse": HMM.random_sparse(4, 2, 5, seed=4),
        "zeros everywhere": zeros,
    }
