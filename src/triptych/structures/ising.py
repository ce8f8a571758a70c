"""Ising model on any graph: the data of masking and mixing [li, 4.1.4.2].

    p(x) ∝ exp(½ sᵀJs + hᵀs),   s_i = 2 x_i - 1

J is symmetric with zero diagonal, so ½ sᵀJs counts every pair {i, j} once, as in [li, (4.5)]. The
clique energy of [li, (4.6)], a sum over i ≠ j, also means every pair once: flipping one spin of an
aligned clique C costs 2 (|C| - 1) J in the proof of Proposition 4.3.3, and the single-site odds in
the proof of 4.1.5 are exp(2 h_j + 2 J Σ x_i).

Conditionals of a block enumerate that block only, so they are exact at any size; whatever needs
the normaliser enumerates all 2^N states and stops at 20 spins.

Notation
--------
x_i in {0, 1}   token          s_i in {-1, 1}   spin
J   coupling   [length, length]        h   field   [length]
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.logspace import log_normalise, with_point_masses
from triptych.core.protocols import Rng
from triptych.core.table import all_sequences, places, rows_by_pattern
from triptych.core.validation import (
    check_count,
    check_dimensions,
    check_floats,
    check_prefix,
    check_same_device,
    check_sequences,
    check_shape,
    moved_to,
)

MAX_ENUMERATED = 20
_STATES_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False, repr=False)
class Ising:
    """An Ising model of `length` spins.

    Worked value: two spins, coupling J, no field: p(spins agree) = e^J / (e^J + e^-J) =
    sigmoid(2J). One spin in a field h: p(x = 1) = sigmoid(2h).
    """

    coupling: Float[Tensor, "length length"]
    field: Float[Tensor, " length"]

    def __post_init__(self) -> None:
        check_dimensions("field", self.field, 1, "[spins]")
        check_count("length", self.length, at_least=1)
        because = f"an Ising model with {self.length} field values"
        check_shape("coupling", self.coupling, (self.length, self.length), because)
        check_floats("coupling", self.coupling)
        check_floats("field", self.field)
        check_same_device(coupling=self.coupling, field=self.field)
        if self.coupling.diagonal().any():
            raise ValueError("coupling must have a zero diagonal: a spin does not act on itself")
        if not torch.equal(self.coupling, self.coupling.T):
            i, j = torch.nonzero(self.coupling != self.coupling.T)[0].tolist()
            raise ValueError(
                f"coupling must be symmetric; coupling[{i}, {j}] = {self.coupling[i, j].item():g} "
                f"and coupling[{j}, {i}] = {self.coupling[j, i].item():g} "
                "(each pair is counted once, so do not double the entries)"
            )

    def __repr__(self) -> str:
        return f"Ising(spins={self.length})"

    @property
    def vocab_size(self) -> int:
        return 2

    @property
    def length(self) -> int:
        return self.field.shape[0]

    @property
    def device(self) -> torch.device:
        return self.field.device

    def to(self, device: torch.device | str) -> "Ising":
        return moved_to(self, device)

    # ------------------------------------------------------------------ constructors

    @classmethod
    def chain(
        cls, length: int, coupling: float, field: float = 0.0, *, device: torch.device | str = "cpu"
    ) -> "Ising":
        """Nearest neighbours on a line."""
        return cls.grid(1, length, coupling, field, device=device)

    @classmethod
    def grid(
        cls,
        rows: int,
        columns: int,
        coupling: float,
        field: float = 0.0,
        *,
        device: torch.device | str = "cpu",
    ) -> "Ising":
        """Nearest neighbours on a rectangle with free borders; spin (r, c) is r * columns + c."""
        check_count("rows", rows, at_least=1)
        check_count("columns", columns, at_least=1)
        site = torch.arange(rows * columns).reshape(rows, columns)
        pairs = [(site[:, :-1], site[:, 1:]), (site[:-1], site[1:])]
        matrix = torch.zeros((rows * columns,) * 2, dtype=torch.float64)
        for first, second in pairs:
            matrix[first.reshape(-1), second.reshape(-1)] = coupling
        fields = torch.full((rows * columns,), field, dtype=torch.float64)
        return cls((matrix + matrix.T).to(device), fields.to(device))

    @classmethod
    def clique_and_free(
        cls,
        spins: int,
        clique: int,
        coupling: float,
        field: float | Sequence[float],
        *,
        device: torch.device | str = "cpu",
    ) -> "Ising":
        """The first `clique` spins all coupled, the others independent [li, (4.6)].

        `field` is one value for every spin or one per spin.
        """
        if not 2 <= clique <= spins:
            raise ValueError(f"a clique of {clique} among {spins} spins: it needs 2..{spins}")
        matrix = torch.zeros((spins, spins), dtype=torch.float64)
        matrix[:clique, :clique] = coupling
        matrix.fill_diagonal_(0.0)
        values = [float(field)] * spins if isinstance(field, int | float) else list(field)
        if len(values) != spins:
            raise ValueError(f"field has {len(values)} values for {spins} spins")
        fields = torch.tensor(values, dtype=torch.float64)
        return cls(matrix.to(device), fields.to(device))

    @classmethod
    def random(
        cls, length: int, *, scale: float, seed: int, device: torch.device | str = "cpu"
    ) -> "Ising":
        """Couplings and fields normal with standard deviation `scale`."""
        generator = torch.Generator().manual_seed(seed)
        raw = torch.randn((length, length), generator=generator, dtype=torch.float64) * scale
        fields = torch.randn(length, generator=generator, dtype=torch.float64) * scale
        upper = raw.triu(1)
        return cls((upper + upper.T).to(device), fields.to(device))

    # ------------------------------------------------------------------ at any size

    def log_weight(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, " batch"]:
        """½ sᵀJs + hᵀs: the log-probability up to the normaliser."""
        check_sequences(tokens, 2, self.length)
        spins = _spins(tokens)
        return 0.5 * ((spins @ self.coupling) * spins).sum(-1) + spins @ self.field

    def site_log_odds(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length"]:
        """log p(x_i = 1 | others) / p(x_i = 0 | others) = 2 (h_i + Σ_j J_ij s_j), every site."""
        check_sequences(tokens, 2, self.length)
        return 2 * (self.field + _spins(tokens) @ self.coupling)

    def block_log_probs(
        self, tokens: Int[Tensor, "batch length"], block: Sequence[int]
    ) -> Float[Tensor, "batch states"]:
        """log p(x_block = state | the rest), jointly, states in lexicographic order.

        What `tokens` holds inside the block is not read.
        """
        at = list(block)
        self._check_enumerable(len(at), "a block")
        if len(set(at)) != len(at) or not all(0 <= i < self.length for i in at):
            raise ValueError(f"block {at} must hold distinct positions in 0..{self.length - 1}")
        hidden = torch.zeros_like(tokens, dtype=torch.bool)
        hidden[:, at] = True
        check_sequences(tokens, 2, self.length, hidden)
        outside = _spins(tokens.masked_fill(hidden, 0)).masked_fill(hidden, 0.0)
        pull = self.field[at] + outside @ self.coupling[:, at]  # batch block
        states = _spins(all_sequences(2, len(at), self.device))
        within = 0.5 * ((states @ self.coupling[at][:, at]) * states).sum(-1)
        return log_normalise(pull @ states.T + within)

    def masked_log_probs(
        self, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        check_sequences(tokens, 2, self.length, hidden)
        out = torch.zeros((*tokens.shape, 2), dtype=torch.float64, device=self.device)
        for rows, pattern in rows_by_pattern(hidden):
            block = torch.nonzero(pattern)[:, 0].tolist()
            self._check_enumerable(len(block), "the hidden positions of a row")
            if not block:
                continue
            chosen = torch.nonzero(rows)[:, 0]
            for part in chosen.split(max(1, _STATES_AT_ONCE // 2 ** len(block))):
                joint = self.block_log_probs(tokens[part], block)
                joint = joint.reshape(len(part), *[2] * len(block))
                for place, i in enumerate(block):
                    others = [axis for axis in range(1, joint.ndim) if axis != place + 1]
                    out[part, i] = joint.logsumexp(others) if others else joint
        return with_point_masses(out, tokens, hidden)

    # ------------------------------------------------------------------ up to 20 spins

    @cached_property
    def log_partition(self) -> float:
        """log Σ_x exp(½ sᵀJs + hᵀs)."""
        return float(self._log_weights.logsumexp(0))

    def log_prob(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, " batch"]:
        return self.log_weight(tokens) - self.log_partition

    def next_token_log_probs(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, "batch vocab"]:
        check_prefix(prefix, 2, self.length)
        t = prefix.shape[1]
        joint = self._log_weights.reshape(2**t, 2, -1).logsumexp(-1)
        return log_normalise(joint[(prefix * places(2, t, prefix.device)).sum(-1)])

    def sample(self, n: int, rng: Rng) -> Int[Tensor, "n length"]:
        everyone = torch.zeros(n, dtype=torch.long, device=self.device)
        law = (self._log_weights - self.log_partition)[None]
        rank = rng.categorical(law, everyone)
        return (rank[:, None] // places(2, self.length, self.device)) % 2

    def magnetisation(self) -> Float[Tensor, " length"]:
        """E[s_i] for every spin."""
        probs = (self._log_weights - self.log_partition).exp()
        return torch.stack(
            [
                (probs.reshape(2**i, 2, -1).sum((0, 2)) * torch.tensor([-1.0, 1.0]).to(probs)).sum()
                for i in range(self.length)
            ]
        )

    @cached_property
    def _log_weights(self) -> Float[Tensor, " states"]:
        """log_weight of all 2^N states in lexicographic order, added up one spin at a time."""
        self._check_enumerable(self.length, "the normaliser")
        grid = torch.zeros([1] * self.length, dtype=torch.float64, device=self.device)
        spin = torch.tensor([-1.0, 1.0], dtype=torch.float64, device=self.device)
        axis = [
            spin.reshape([-1 if j == i else 1 for j in range(self.length)])
            for i in range(self.length)
        ]
        for i in range(self.length):
            pull = self.field[i] + torch.zeros_like(axis[i])
            for j in range(i):
                if self.coupling[i, j] != 0:
                    pull = pull + self.coupling[i, j] * axis[j]
            grid = grid + axis[i] * pull
        return grid.reshape(-1)

    def _check_enumerable(self, spins: int, what: str) -> None:
        if spins > MAX_ENUMERATED:
            raise ValueError(
                f"{what} would enumerate 2^{spins} states; the exact limit is {MAX_ENUMERATED} "
                "spins (single-site and small-block conditionals work at any size)"
            )


def _spins(tokens: Int[Tensor, "batch sites"]) -> Float[Tensor, "batch sites"]:
    return (2 * tokens - 1).double()


def examples() -> dict[str, Ising]:
    return {
        "free chain": Ising.chain(4, 0.7),
        "chain in a field": Ising.chain(3, 0.4, field=0.2),
        "frustrated": Ising.random(5, scale=1.0, seed=0),
        "clique and free spins": Ising.clique_and_free(5, 3, 0.5, [0.3, -0.1, 0.2, 1.0, -2.0]),
        "one spin": Ising.chain(1, 0.0, field=math.log(2) / 2),
    }
