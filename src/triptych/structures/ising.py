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
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.display import card, counted, facts_table, heat_map
from triptych.core.logspace import log_normalise, with_point_masses
from triptych.core.mask_laws import MaskLaw
from triptych.core.ragged import answers_of_rows, log_prob_of_rows
from triptych.core.randomness import RngLike, as_rng
from triptych.core.table import all_sequences, places, rows_by_pattern
from triptych.core.validation import (
    Count,
    Hidden,
    Number,
    Numbers,
    Prefix,
    Tokens,
    UserError,
    as_device,
    as_floats,
    as_integers,
    as_masked,
    as_number,
    as_positions,
    as_prefix,
    as_seed,
    as_size,
    as_tokens,
    check_room,
    check_same_device,
    moved_to,
    set_fields,
)
from triptych.fitting.fit import as_start
from triptych.fitting.result import Fit
from triptych.fitting.search import Search
from triptych.structures.spin_fit import fit_spins

MAX_ENUMERATED = 20
# Of |h_i| + Σ_j |J_ij|. Energies of 20 spins are then below 2e5 and sums of 210 terms, so that
# rounding moves them, and log-probabilities, by less than 210 · 2e5 · 2^-53 = 5e-9.
MAX_PULL = 1e4
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
        field = as_floats("field", self.field, shape=(None,), meaning="[spins]")
        length = as_size("the number of spins in field", len(field))
        square = f"{(length, length)}: an Ising model with {length} field values"
        coupling = as_floats("coupling", self.coupling, shape=(length, length), meaning=square)
        check_same_device(coupling=coupling, field=field)
        set_fields(self, coupling=coupling, field=field)
        if coupling.diagonal().any():
            raise UserError(
                "coupling must have a zero diagonal: a spin does not act on itself",
                parameter="coupling",
            )
        if not torch.equal(coupling, coupling.T):
            i, j = torch.nonzero(coupling != coupling.T)[0].tolist()
            raise UserError(
                f"coupling must be symmetric; coupling[{i}, {j}] = {coupling[i, j].item():g} "
                f"and coupling[{j}, {i}] = {coupling[j, i].item():g} "
                "(each pair is counted once, so do not double the entries)",
                parameter="coupling",
            )
        pull = field.abs() + coupling.abs().sum(-1)
        if not (pull <= MAX_PULL).all():
            i = int(pull.argmax())
            raise UserError(
                f"coupling and field pull at spin {i} with |h| + Σ |J| = {pull[i].item():.4g}; it "
                f"must be at most {MAX_PULL:g}, since float64 cannot tell larger energies apart",
                parameter="coupling",
            )

    def __repr__(self) -> str:
        couplings = counted(int(self.coupling.triu().count_nonzero()), "coupling")
        return f"Ising({counted(self.length, 'spin')}, {couplings})"

    def _repr_html_(self) -> str:
        facts = {
            "spins": self.length,
            "couplings": int(self.coupling.triu().count_nonzero()),
            "exact": "all questions" if self.length <= MAX_ENUMERATED else "conditionals only",
        }
        return card(
            repr(self),
            facts_table(facts),
            heat_map(self.coupling, title="coupling", rows="spin", columns="spin"),
            heat_map(self.field[None], title="field", columns="spin"),
        )

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
        cls,
        length: Count,
        coupling: Number,
        field: Number = 0.0,
        *,
        device: torch.device | str = "cpu",
    ) -> "Ising":
        """Nearest neighbours on a line."""
        return cls.grid(1, as_size("length", length), coupling, field, device=device)

    @classmethod
    def grid(
        cls,
        rows: Count,
        columns: Count,
        coupling: Number,
        field: Number = 0.0,
        *,
        device: torch.device | str = "cpu",
    ) -> "Ising":
        """Nearest neighbours on a rectangle with free borders; spin (r, c) is r * columns + c."""
        rows, columns = as_size("rows", rows), as_size("columns", columns)
        coupling, field = as_number("coupling", coupling), as_number("field", field)
        device = as_device(device)
        spins = f"the coupling matrix of {rows} x {columns} spins"
        check_room(spins, rows * columns, rows * columns)
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
        spins: Count,
        clique: Count,
        coupling: Number,
        field: Number | Numbers,
        *,
        device: torch.device | str = "cpu",
    ) -> "Ising":
        """The first `clique` spins all coupled, the others independent [li, (4.6)].

        `field` is one value for every spin or one per spin.
        """
        spins, clique = as_size("spins", spins), as_size("clique", clique)
        coupling, device = as_number("coupling", coupling), as_device(device)
        if not 2 <= clique <= spins:
            raise UserError(f"a clique of {clique} among {spins} spins: it needs 2..{spins}")
        check_room("the coupling matrix", spins, spins)
        matrix = torch.zeros((spins, spins), dtype=torch.float64)
        matrix[:clique, :clique] = coupling
        matrix.fill_diagonal_(0.0)
        listed = isinstance(field, Sequence) and not isinstance(field, str)
        if listed or getattr(field, "ndim", 0):
            fields = as_floats("field", cast(Numbers, field)).to("cpu")
            if fields.shape != (spins,):
                raise UserError(
                    f"field has {fields.numel()} values for {spins} spins", parameter="field"
                )
        else:
            value = as_number("field", cast(Number, field))
            fields = torch.full((spins,), value, dtype=torch.float64)
        return cls(matrix.to(device), fields.to(device))

    @classmethod
    def random(
        cls, length: Count, *, scale: Number, seed: Count, device: torch.device | str = "cpu"
    ) -> "Ising":
        """Couplings and fields normal with standard deviation `scale`."""
        length, device = as_size("length", length), as_device(device)
        scale = as_number("scale", scale, at_least=0, at_most=MAX_PULL)
        check_room("the coupling matrix", length, length)
        generator = torch.Generator().manual_seed(as_seed(seed))
        raw = torch.randn((length, length), generator=generator, dtype=torch.float64) * scale
        fields = torch.randn(length, generator=generator, dtype=torch.float64) * scale
        upper = raw.triu(1)
        return cls((upper + upper.T).to(device), fields.to(device))

    @classmethod
    def fit(
        cls,
        tokens: Tokens,
        *,
        hidden: Hidden | None = None,
        weights: Numbers | None = None,
        masks: MaskLaw | None = None,
        pairs: Numbers | None = None,
        fields: bool = True,
        start: "Ising | None" = None,
        prior: Number = 0.0,
        held_out: Number = 0.0,
        search: Search | None = None,
    ) -> "Fit[Ising]":
        """The Ising model that makes the rows likeliest, or best at predicting masked blocks.

        Up to 20 spins the likelihood is exact, and spins may be hidden. With `masks` it is the
        pseudolikelihood of [li, Def. 4.1.3], which is the only way beyond 20 spins, where every
        block of one spin is the default; hidden spins are then refused. `pairs` is True where a
        coupling is free, None for all; `fields=False` keeps the fields. What is not free is that of
        `start`, or 0. `prior` is the precision of a normal prior around 0 of each free parameter.
        Standard errors of masks are those of the sandwich of [li, Lemma 4.1.1].

        Worked value: one spin, rows 0, 1, 1, 1: sigmoid(2h) = ¾, so h = ½ log 3.
        """
        return fit_spins(
            tokens,
            cls,
            as_start(start, cls),
            hidden=hidden,
            weights=weights,
            masks=masks,
            pairs=pairs,
            fields=fields,
            prior=prior,
            held_out=held_out,
            search=search,
            enumerated=MAX_ENUMERATED,
        )

    # ------------------------------------------------------------------ at any size

    def log_weight(self, tokens: Tokens) -> Float[Tensor, " batch"]:
        """½ sᵀJs + hᵀs: the log-probability up to the normaliser."""
        tokens = as_tokens(tokens, 2, length=self.length, device=self.device)
        spins = _spins(tokens)
        return 0.5 * ((spins @ self.coupling) * spins).sum(-1) + spins @ self.field

    def site_log_odds(self, tokens: Tokens) -> Float[Tensor, "batch length"]:
        """log p(x_i = 1 | others) / p(x_i = 0 | others) = 2 (h_i + Σ_j J_ij s_j), every site."""
        tokens = as_tokens(tokens, 2, length=self.length, device=self.device)
        return 2 * (self.field + _spins(tokens) @ self.coupling)

    def block_log_probs(
        self, tokens: Tokens, block: Sequence[Count]
    ) -> Float[Tensor, "batch states"]:
        """log p(x_block = state | the rest), jointly, states in lexicographic order.

        What `tokens` holds inside the block is not read.
        """
        at = as_positions("block", block, self.length)
        self._check_enumerable(len(at), "a block")
        tokens = as_integers("tokens", tokens, dimensions=2, device=self.device)
        hidden = torch.zeros_like(tokens, dtype=torch.bool)
        hidden[:, [i for i in at if i < tokens.shape[1]]] = True
        tokens = as_tokens(tokens, 2, length=self.length, hidden=hidden)
        outside = _spins(tokens.masked_fill(hidden, 0)).masked_fill(hidden, 0.0)
        pull = self.field[at] + outside @ self.coupling[:, at]  # batch block
        states = _spins(all_sequences(2, len(at), self.device))
        within = 0.5 * ((states @ self.coupling[at][:, at]) * states).sum(-1)
        return log_normalise(pull @ states.T + within)

    def masked_log_probs(
        self,
        tokens: Tokens,
        hidden: Hidden,
        *,
        lengths: Numbers | None = None,
    ) -> Float[Tensor, "batch length vocab"]:
        if lengths is not None:
            return answers_of_rows(self, self.masked_log_probs, tokens, hidden, lengths)
        tokens, hidden = as_masked(tokens, hidden, 2, length=self.length, device=self.device)
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

    def log_prob(
        self, tokens: Tokens, *, hidden: Hidden | None = None, lengths: Numbers | None = None
    ) -> Float[Tensor, " batch"]:
        if hidden is not None or lengths is not None:
            return log_prob_of_rows(self, tokens, hidden, lengths)
        return self.log_weight(tokens) - self.log_partition

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, 2, self.length, device=self.device)
        t = prefix.shape[1]
        joint = self._log_weights.reshape(2**t, 2, -1).logsumexp(-1)
        return log_normalise(joint[(prefix * places(2, t, prefix.device)).sum(-1)])

    def sample(self, n: Count, rng: RngLike) -> Int[Tensor, "n length"]:
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.device)
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
            raise UserError(
                f"{what} would enumerate 2^{spins} states; the exact limit is {MAX_ENUMERATED} "
                "spins (single-site and small-block conditionals work at any size)",
                parameter="spins",
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
