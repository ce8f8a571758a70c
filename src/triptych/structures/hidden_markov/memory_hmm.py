"""HMM with a persistent memory of N cells [wei, 4].

A memory m = (m_1, …, m_N) is drawn once and never changes. The hidden state h_t = (j_t, s_t) is
a Markov chain over a cell index and a syntax state; the token depends on the cell it points at:

    p(x) = Σ_m P(m) Σ_h π(h_1) Π_t A(h_{t-1}, h_t) Π_t W(m_{j_t}, j_t, s_t, x_t)

Since the memory does not move, inference conditions on each of the |M|^N assignments, as a
batch of ordinary chains over the |H| = N |S| hidden states, and mixes. The lifted chain over
(m, h), which the soft prompts of [wei, C.2] need, is never built as a matrix.

Notation
--------
P   memory       [values, …, values], one axis per cell: the joint law of the memory
π   initial      [hidden], the law of h_1; h = j * syntax + s
A   transition   [hidden, hidden]
W   emission     [values, cells, syntax, vocab]
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.deprecation import Renamed, renamed
from triptych.core.display import card, counted, facts_table, heat_map
from triptych.core.logspace import log_matmul, log_normalise, with_point_masses
from triptych.core.randomness import RngLike, as_rng
from triptych.core.table import all_sequences
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
    as_floats,
    as_masked,
    as_prefix,
    as_seed,
    as_size,
    as_tokens,
    check_distributions,
    check_room,
    check_same_device,
    moved_to,
    raise_if_impossible,
    set_fields,
)
from triptych.structures.hidden_markov import fast_messages, messages, permutations
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.hidden_markov.soft_tokens import as_soft_tokens, at_position

MAX_CELLS = 32  # the law of the memory has one dimension per cell
_ROWS_AT_ONCE = 2**22  # rows x assignments x positions of one block


class Posteriors(NamedTuple):
    """Everything the shown tokens say about the latent variables, as probabilities.

    memory[b, m_1, …, m_N]        p(m | shown)
    hidden[b, t, j, s]            p(h_t = (j, s) | shown)
    addressed[b, t, value, j, s]  p(m_{j_t} = value, h_t = (j, s) | shown)
    """

    memory: Float[Tensor, "batch *assignment"]
    hidden: Float[Tensor, "batch length cells syntax"]
    addressed: Float[Tensor, "batch length values cells syntax"]

    def cell(self, j: Count) -> Float[Tensor, "batch values"]:
        """p(m_j = · | shown)."""
        j = as_count("j", j, at_most=self.memory.ndim - 2)
        others = [axis for axis in range(1, self.memory.ndim) if axis != j + 1]
        return self.memory.sum(others) if others else self.memory


@dataclass(frozen=True, eq=False, repr=False)
class MemoryHMM:
    """A memory-augmented HMM on sequences of `length` tokens.

    Worked value: one cell with two equally likely values, one hidden state, W(value, x) =
    [[1, 0], [½, ½]], length 2. Then p(0, 0) = ½·1 + ½·¼ = 5/8, and after seeing 0, 0 the
    memory is value 0 with probability (½) / (5/8) = 4/5.
    """

    memory: Float[Tensor, "*assignment"]
    initial: Float[Tensor, " hidden"]
    transition: Float[Tensor, "hidden hidden"]
    emission: Float[Tensor, "values cells syntax vocab"]
    length: int

    def __post_init__(self) -> None:
        meaning = "[values, cells, syntax, vocab], none of them 0"
        emission = as_distributions("emission", self.emission, shape=(None,) * 4, meaning=meaning)
        values, cells, syntax, _ = emission.shape
        if not emission.numel():
            raise UserError(
                f"emission has shape {tuple(emission.shape)}; it must be {meaning}",
                parameter="emission",
            )
        tensors = {"emission": emission}
        for name, shape in (
            ("memory", (values,) * cells),
            ("initial", (cells * syntax,)),
            ("transition", (cells * syntax,) * 2),
        ):
            because = f"{shape}, as an emission of shape {tuple(emission.shape)} needs"
            tensors[name] = as_floats(name, getattr(self, name), shape=shape, meaning=because)
            rows = tensors[name].reshape(-1) if name == "memory" else tensors[name]
            check_distributions(name, rows)
        check_same_device(**tensors)
        set_fields(self, **tensors, length=as_size("length", self.length))

    def __repr__(self) -> str:
        cells = f"{counted(self.cells, 'cell')} of {counted(self.values, 'value')}"
        syntax, symbols = counted(self.syntax, "syntax state"), counted(self.vocab_size, "symbol")
        return f"MemoryHMM({cells}, {syntax}, {symbols}, length {self.length})"

    def _repr_html_(self) -> str:
        facts = {
            "memory cells": self.cells,
            "values of a cell": self.values,
            "syntax states": self.syntax,
            "symbols": self.vocab_size,
            "length": self.length,
        }
        emission, where = self.emission.flatten(0, 2), "value, cell, syntax state"
        return card(
            repr(self),
            facts_table(facts),
            heat_map(self.transition, title="transition", rows="state", columns="next state"),
            heat_map(emission, title=f"emission (rows: {where})", columns="symbol"),
        )

    @property
    def values(self) -> int:
        return self.emission.shape[0]

    @property
    def cells(self) -> int:
        return self.emission.shape[1]

    @property
    def syntax(self) -> int:
        return self.emission.shape[2]

    @property
    def vocab_size(self) -> int:
        return self.emission.shape[3]

    @property
    def device(self) -> torch.device:
        return self.initial.device

    @property
    def assignments(self) -> Int[Tensor, "assignments cells"]:
        """Every memory, one per row, in the order of `memory.reshape(-1)`."""
        return all_sequences(self.values, self.cells, self.device)

    def to(self, device: torch.device | str) -> "MemoryHMM":
        return moved_to(self, device)

    def with_length(self, length: Count) -> "MemoryHMM":
        """The same model on sequences of another length."""
        return replace(self, length=as_size("length", length))

    # ------------------------------------------------------------------ constructors

    @classmethod
    @renamed(vocab="vocab_size")
    def random(
        cls,
        values: Count,
        cells: Count,
        syntax: Count,
        vocab_size: Count,
        length: Count,
        *,
        seed: Count,
        device: torch.device | str = "cpu",
    ) -> "MemoryHMM":
        """Every law drawn from a flat Dirichlet; the memory's joint law too."""
        values = as_size("values", values)
        cells = as_count("cells", cells, at_least=1, at_most=MAX_CELLS)
        syntax, vocab_size = as_size("syntax", syntax), as_size("vocab_size", vocab_size)
        length, device = as_size("length", length), as_device(device)
        hidden = cells * syntax
        check_room("the law of the memory", *[values] * cells)
        check_room("the transition matrix", hidden, hidden)
        check_room("the emission", values, cells, syntax, vocab_size)
        draw = np.random.default_rng(as_seed(seed))
        memory = draw.dirichlet(np.ones(values**cells)).reshape((values,) * cells)
        initial = draw.dirichlet(np.ones(hidden))
        transition = draw.dirichlet(np.ones(hidden), size=hidden)
        emission = draw.dirichlet(np.ones(vocab_size), size=(values, cells, syntax))
        parts = [torch.tensor(p).to(device) for p in (memory, initial, transition, emission)]
        return cls(*parts, length=length)

    @classmethod
    @renamed(vocab="vocab_size")
    def random_permutation_mixture(
        cls,
        values: Count,
        hidden: Count,
        vocab_size: Count,
        length: Count,
        *,
        seed: Count,
        initial_temperature: Number = 10.0,
        transition_temperature: Number = 0.01,
        emission_temperature: Number = 0.01,
        device: torch.device | str = "cpu",
    ) -> "MemoryHMM":
        """The single-cell model of the experiments [wei, 5, D]: values · hidden states in all.

        The transition mixes values · hidden random permutations of the hidden states, as the
        authors' experiments do. Memory and first state are independent here, as in the paper's
        definition; the authors' code draws one start law over all pairs, nearly uniform too.
        """
        values, hidden = as_size("values", values), as_size("hidden", hidden)
        vocab_size, length = as_size("vocab_size", vocab_size), as_size("length", length)
        device = as_device(device)
        check_room("the transition matrix", hidden, hidden)
        check_room("the emission", values, hidden, vocab_size)
        warm, mix, cold = permutations.as_temperatures(
            initial_temperature, transition_temperature, emission_temperature
        )
        draw = np.random.RandomState(as_seed(seed, at_most=permutations.MAX_OLD_SEED))
        memory = permutations.softmax(draw.rand(values) - 0.5, warm)
        initial = permutations.softmax(draw.rand(hidden) - 0.5, warm)
        transition = permutations.mixture(hidden, values * hidden, mix, draw)
        emission = permutations.softmax(draw.rand(values, 1, hidden, vocab_size) - 0.5, cold)
        parts = [torch.tensor(p).to(device) for p in (memory, initial, transition, emission)]
        return cls(*parts, length=length)

    def as_hmm(self) -> HMM:
        """The lifted HMM over (m, h) as one chain of |M|^N |H| states: small cases only."""
        count, hidden = self.values**self.cells, self.cells * self.syntax
        if count * hidden > 4096:
            raise UserError(
                f"the lifted chain has {count * hidden} states; as_hmm builds at most 4096 "
                "(every exact method of MemoryHMM works without it)"
            )
        initial = self.memory.reshape(-1)[:, None] * self.initial
        eye = torch.eye(count, dtype=torch.float64, device=self.device)
        emission = self._emission_given_memory().reshape(count * hidden, -1)
        transition = torch.kron(eye, self.transition)
        return HMM(initial.reshape(-1), transition, emission, self.length)

    # ------------------------------------------------------------------ exact answers

    def log_prob(self, tokens: Tokens) -> Float[Tensor, " batch"]:
        tokens = as_tokens(tokens, self.vocab_size, length=self.length, device=self.device)
        log_evidence, _ = self._filter(tokens)
        return (log_evidence + self._log_memory).logsumexp(-1)

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length, device=self.device)
        log_evidence, log_next = self._filter(prefix)
        joint = log_evidence + self._log_memory
        raise_if_impossible(joint.logsumexp(-1), "the prefix")
        state = (log_normalise(joint)[..., None] + log_next).flatten(1)
        emission = self._emission_given_memory().flatten(0, 1)
        log_probs = (state.exp() @ emission).log()
        zero = torch.isneginf(log_probs).any(-1)  # impossible, or too small for a product
        if zero.any():
            log_probs[zero] = log_matmul(state[zero][:, None], emission.log())[:, 0]
        return log_probs

    def masked_log_probs(
        self, tokens: Tokens, hidden: Hidden
    ) -> Float[Tensor, "batch length vocab"]:
        tokens, hidden = self._as_masked(tokens, hidden)
        addressed = self.posteriors(tokens, hidden).addressed
        predicted = addressed.flatten(2) @ self.emission.flatten(0, 2)
        return with_point_masses(predicted.log(), tokens, hidden)

    def log_posterior(
        self, tokens: Tokens, hidden: Hidden | None = None
    ) -> Float[Tensor, "batch length states"]:
        """log p(h_t = · | the tokens that are shown), h = j * syntax + s."""
        return self.posteriors(tokens, hidden).hidden.flatten(2).log()

    posterior = Renamed("log_posterior")

    @torch.no_grad()
    def posteriors(self, tokens: Tokens, hidden: Hidden | None = None) -> Posteriors:
        """The posterior of the memory, of the hidden states, and of the cell each one reads."""
        tokens, hidden = self._as_masked(tokens, hidden)
        symbols = tokens.masked_fill(hidden, self.vocab_size)
        rows = max(1, _ROWS_AT_ONCE // (len(self.assignments) * self.length))
        blocks = [
            self._posteriors_of_block(symbols[first : first + rows])
            for first in range(0, max(1, len(symbols)), rows)
        ]
        return Posteriors(*(torch.cat(parts) for parts in zip(*blocks, strict=True)))

    def sample(self, n: Count, rng: RngLike) -> Int[Tensor, "n length"]:
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.device)
        everyone = torch.zeros(n, dtype=torch.long, device=self.device)
        memory = rng.categorical(self._log_memory[None], everyone)
        log_transition = self.transition.log()
        log_emission = self._emission_given_memory().flatten(0, 1).log()
        hidden = self.cells * self.syntax
        state = rng.categorical(self.initial.log()[None], everyone)
        tokens = torch.empty((self.length, n), dtype=torch.long, device=self.device)
        for t in range(self.length):
            if t > 0:
                state = rng.categorical(log_transition, state)
            tokens[t] = rng.categorical(log_emission, memory * hidden + state)
        return tokens.T.contiguous()

    # ------------------------------------------------------------------ the embedding model

    def embed(
        self, tokens: Prefix, hidden: Hidden | None = None
    ) -> Float[Tensor, "batch t addressed"]:
        """Proper embeddings e(x)[value, j, s] = W(value, j, s, x), flat; ones where hidden."""
        rows = self.emission.flatten(0, 2).T  # vocab, values * cells * syntax
        table = torch.cat([rows, torch.ones_like(rows[:1])])
        if hidden is None:
            return table[as_tokens(tokens, self.vocab_size, device=self.device)]
        tokens, hidden = as_masked(tokens, hidden, self.vocab_size, device=self.device)
        return table[tokens.masked_fill(hidden, self.vocab_size)]

    def lift(self, vectors: Numbers) -> Float[Tensor, "*batch lifted"]:
        """η(v)[m, j, s] = v[m_j, j, s]: from what a cell says to the whole memory [wei, C.2]."""
        vectors = self._as_vectors(vectors, self.values * self.cells * self.syntax)
        shaped = vectors.unflatten(-1, (self.values, self.cells, self.syntax))
        cell = torch.arange(self.cells, device=vectors.device)
        return shaped[..., self.assignments, cell, :].flatten(-3)

    def lower(self, vectors: Numbers) -> Float[Tensor, "*batch addressed"]:
        """φ(v)[value, j, s] = |M|^(1-N) Σ_{m : m_j = value} v[m, j, s] [wei, (C.4)]."""
        shape = (len(self.assignments), self.cells, self.syntax)
        vectors = self._as_vectors(vectors, math.prod(shape))
        shaped = vectors.unflatten(-1, shape)
        mean = torch.einsum("...mjs,mjv->...vjs", shaped, self._reads())
        return mean.flatten(-3) / self.values ** (self.cells - 1)

    def lifted_messages(self, vectors: Numbers) -> Float[Tensor, "batch t lifted"]:
        """τ_i / |τ_i| of [wei, (C.3)] over (m, h); 0 where |τ_i| = 0. Differentiable."""
        count, hidden = len(self.assignments), self.cells * self.syntax
        vectors = as_soft_tokens(vectors, count * hidden, device=self.device)
        batch, length, _ = vectors.shape
        per_memory = vectors.unflatten(-1, (count, hidden)).transpose(1, 2)
        flat = per_memory.reshape(batch * count, length, hidden)
        joint, log_total = messages.leave_one_out(self.initial, self.transition, flat)
        joint = joint.reshape(batch, count, length, hidden)
        log_scale = log_total.reshape(batch, count, length) + self._log_memory[:, None]
        top = log_scale.detach().amax(1, keepdim=True)
        relative = (log_scale - top.masked_fill(torch.isneginf(top), 0.0)).exp()
        message = (joint * relative[..., None]).transpose(1, 2).flatten(2)
        total = message.sum(-1, keepdim=True)
        return message / torch.where(total > 0, total, torch.ones_like(total))

    @property
    def soft_range(self) -> tuple[float, float]:
        """The entries of a soft token are probabilities."""
        return (0.0, 1.0)

    def soft_masked_probs(
        self, vectors: Numbers, *, at: Count | None = None
    ) -> Float[Tensor, "batch positions vocab"]:
        """G_i(v) = W φ(τ_i) / |φ(τ_i)| of [wei, C.2]; 0 where the mass is 0.

        On lifted proper embeddings, G_i(η(e(x))) = p(x_i = · | every other token). `at` keeps
        position i alone. With one cell, lifting changes nothing.
        """
        lowered = self.lower(at_position(self.lifted_messages(vectors), at))
        total = lowered.sum(-1, keepdim=True)
        law = lowered / torch.where(total > 0, total, torch.ones_like(total))
        return law @ self.emission.flatten(0, 2)

    # ------------------------------------------------------------------ inside

    def _as_masked(self, tokens: Tokens, hidden: Hidden | None) -> tuple[Tensor, Tensor]:
        return as_masked(tokens, hidden, self.vocab_size, length=self.length, device=self.device)

    def _as_vectors(self, vectors: Numbers, width: int) -> Float[Tensor, "*batch width"]:
        """Vectors of `width` numbers, in any number of rows; gradients pass."""
        given = as_floats("vectors", vectors, device=self.device)
        if given.shape[-1:] != (width,):
            raise UserError(
                f"vectors has shape {tuple(given.shape)}; its last must be {width}",
                parameter="vectors",
            )
        return given

    @property
    def _log_memory(self) -> Float[Tensor, " assignments"]:
        return self.memory.reshape(-1).log()

    def _reads(self) -> Float[Tensor, "assignments cells values"]:
        """1[m_j = value]."""
        return torch.nn.functional.one_hot(self.assignments, self.values).to(self.memory.dtype)

    def _emission_given_memory(self) -> Float[Tensor, "assignments hidden vocab"]:
        """W(m_j, j, s, x) for every memory m."""
        return torch.einsum("mjv,vjsx->mjsx", self._reads(), self.emission).flatten(1, 2)

    def _chains(
        self, symbols: Int[Tensor, "batch t"]
    ) -> tuple[Float[Tensor, "symbols hidden"], Int[Tensor, "chains t"]]:
        """One chain per (row, memory): its evidence table and its symbols."""
        emission = self._emission_given_memory()
        count, hidden, vocab = emission.shape
        ones = torch.ones((count, 1, hidden), dtype=emission.dtype, device=self.device)
        table = torch.cat([emission.transpose(1, 2), ones], dim=1).flatten(0, 1)
        offset = (vocab + 1) * torch.arange(count, device=self.device)
        return table, (symbols[:, None, :] + offset[:, None]).flatten(0, 1)

    def _filter(
        self, tokens: Int[Tensor, "batch t"]
    ) -> tuple[Float[Tensor, "batch assignments"], Float[Tensor, "batch assignments hidden"]]:
        """log p(tokens | m) and log p(next hidden state | tokens, m)."""
        table, symbols = self._chains(tokens)
        filtered = fast_messages.filter_forward(self.initial, self.transition, table, symbols)
        shape = (len(tokens), len(self.assignments))
        return filtered.log_evidence.reshape(shape), filtered.log_next.reshape(
            *shape, self.cells * self.syntax
        )

    def _posteriors_of_block(self, symbols: Int[Tensor, "batch t"]) -> Posteriors:
        table, chains = self._chains(symbols)
        smoothed = fast_messages.smooth(self.initial, self.transition, table, chains)
        batch, count = len(symbols), len(self.assignments)
        joint = smoothed.log_evidence.reshape(batch, count) + self._log_memory
        raise_if_impossible(joint.logsumexp(-1), "what is shown")
        weight = log_normalise(joint).exp()
        state = smoothed.log_probs.exp().reshape(batch, count, self.length, self.cells, self.syntax)
        mixed = torch.einsum("bm,bmtjs->bmtjs", weight, state)
        addressed = torch.einsum("bmtjs,mjv->btvjs", mixed, self._reads())
        return Posteriors(weight.reshape(batch, *self.memory.shape), mixed.sum(1), addressed)


def examples() -> dict[str, MemoryHMM]:
    two = MemoryHMM.random(2, 2, 1, 2, 4, seed=0)
    unsure = torch.tensor([[0.5, 0.0], [0.2, 0.3]], dtype=torch.float64)
    hard = two.emission.round()
    hard = hard / hard.sum(-1, keepdim=True)
    return {
        "one cell": MemoryHMM.random(3, 1, 2, 2, 4, seed=1),
        "two cells": two,
        "three cells": MemoryHMM.random(2, 3, 1, 2, 4, seed=2),
        "a memory without full support": replace(two, memory=unsure),
        "a one-hot emission": replace(two, emission=hard),
        "permutation mixture": MemoryHMM.random_permutation_mixture(2, 2, 3, 4, seed=3),
    }
