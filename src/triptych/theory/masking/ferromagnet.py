"""How soon samplers reach the large mode of a clique of coupled spins [li, 4.1.4.2, 4.3.5-4.3.8].

    p(s) ∝ exp(Σ_i h_i s_i + J Σ_{i<j in C} s_i s_j),   every pair of the clique C once

Spins outside of C are independent of everything, so the spins of C are a Markov chain of their own
under both samplers: k-Gibbs redraws |K ∩ C| spins of C, a hypergeometric number, uniformly chosen,
jointly; independent parallel redraws each given the others. With equal fields on C the number of up
spins alone is a chain of |C| + 1 states, made in log-space by adding and multiplying probabilities
only, so that an escape of probability e^-1000 keeps its digits. With unequal fields it is the chain
of all 2^|C| states, where probabilities below 1e-308 are 0.

Proposition 4.3.3 prints p(y) > e^{2 J_0} p(z); its proof gives ≥, and = is met when |C| = 2 and one
clique field is 0. Proposition 4.1.5 squares r = -1 + tanh(J_0) |C| / 2 where its proof needs r > 0.
For r ≤ 0 it promises no step at all (T = 0) unless |C| = 2, and there it is false exactly for

    2 exp(-(1 - tanh J_0)²) ≤ δ < 1 - P(both spins stay down)

which with vanishing fields, P = ((1 + tanh J_0) / 2)², needs J_0 < 0.0072; `stuck_gap` has both.

Notation
--------
N   spins       C, c   the clique, its size     J     coupling       h    fields
J_0   J - ‖h‖₁, the most Assumption 4.1.5 allows    h_G   Σ_{i in C} h_i   ‖h‖₁   Σ_i |h_i|
R_1, R_-1   the clique all up, all down         m = 2 up - c   its magnetisation
K, k   a block and its size      δ   failure probability      T, M   numbers of steps
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.logspace import log_matmul, log_normalise
from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table, all_sequences
from triptych.core.validation import check_count
from triptych.structures.ising import Ising
from triptych.theory.masking.blocks.moves import block_log_moves
from triptych.theory.numerics.hitting import Hitting, whole_exp

_MOST_UNEQUAL = 10  # spins of a clique with unequal fields: 2^10 states


@dataclass(frozen=True)
class Ferromagnet:
    """A clique with coupling J and free spins, each with its field.

    Worked value: J = 3, clique fields (1, 0), one free field -½: J_0 = 3/2, h_G = 1.
    """

    coupling: float
    clique_fields: tuple[float, ...]
    free_fields: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_count("the size of the clique", self.clique, at_least=2)
        if not all(map(math.isfinite, (self.coupling, *self.clique_fields, *self.free_fields))):
            raise ValueError("the coupling and all fields must be finite numbers")

    @classmethod
    def with_margin(
        cls,
        spins: int,
        clique: int,
        *,
        margin: float,
        clique_field: float = 0.0,
        free_field: float = 0.0,
    ) -> "Ferromagnet":
        """Equal fields, and the coupling that makes J_0 = `margin`."""
        norm = clique * abs(clique_field) + (spins - clique) * abs(free_field)
        return cls.equal(spins, clique, margin + norm, clique_field, free_field)

    @classmethod
    def equal(
        cls, spins: int, clique: int, coupling: float, clique_field: float, free_field: float
    ) -> "Ferromagnet":
        """One field for the clique, one for the free spins."""
        if not 2 <= clique <= spins:
            raise ValueError(f"a clique of {clique} among {spins} spins: it needs 2..{spins}")
        return cls(coupling, (clique_field,) * clique, (free_field,) * (spins - clique))

    @property
    def spins(self) -> int:
        return len(self.clique_fields) + len(self.free_fields)

    @property
    def clique(self) -> int:
        return len(self.clique_fields)

    @property
    def clique_sum(self) -> float:
        """h_G."""
        return math.fsum(self.clique_fields)

    @property
    def free_norm(self) -> float:
        """Σ_{i not in C} |h_i|."""
        return math.fsum(map(abs, self.free_fields))

    @property
    def margin(self) -> float:
        """J_0."""
        return self.coupling - math.fsum(map(abs, (*self.clique_fields, *self.free_fields)))

    @property
    def violations(self) -> list[str]:
        """What of Assumption 4.1.5 does not hold, as sentences; empty when all of it does."""
        found = []
        if not self.clique_sum > 0:
            found.append(f"h_G = {self.clique_sum:g}, and it must be above 0")
        if not self.clique_sum > self.free_norm:
            free = f"{self.free_norm:g}, the sum of the free |h|"
            found.append(f"h_G = {self.clique_sum:g} is not above {free}")
        if not self.margin > 0:
            norm = self.coupling - self.margin
            found.append(f"J = {self.coupling:g} is not above {norm:g}, the sum of all |h|")
        return found

    def ising(self) -> Ising:
        """The whole model; the clique comes first."""
        fields = [*self.clique_fields, *self.free_fields]
        return Ising.clique_and_free(self.spins, self.clique, self.coupling, fields)


# ------------------------------------------------------------------ Proposition 4.3.3


class ModeRatios(NamedTuple):
    """The least log-ratios over all states, exactly, and what Proposition 4.3.3 says of them.

    large_over_small   min log p(x) / p(y), x in R_1, y in R_-1        printed: > 0
    small_over_rest    min log p(y) / p(z), z in neither               printed: > 2 J_0
    flipped            log p(x) / p(f(x)), f turns the clique over     printed: = 2 h_G
    """

    large_over_small: float
    small_over_rest: float
    flipped: float


def mode_ratios(model: Ferromagnet) -> ModeRatios:
    """By the best state with n spins of the clique down, for every n: no 2^c states are needed.

    Worked value, equality: J = 3, clique fields (1, 0): y = (-,-) has log-weight 2, z = (+,-) has
    -2: the ratio is 4 = 2 J_0.
    """
    c, j = model.clique, model.coupling
    fields = sorted(model.clique_fields)  # what it costs least to turn down comes first
    rest = [
        j * ((c - 2 * down) ** 2 - c) / 2 + model.clique_sum - 2 * math.fsum(fields[:down])
        for down in range(1, c)
    ]
    aligned = j * c * (c - 1) / 2
    return ModeRatios(
        2 * model.clique_sum - 2 * model.free_norm,
        aligned - model.clique_sum - max(rest) - 2 * model.free_norm,
        2 * model.clique_sum,
    )


# ------------------------------------------------------------------ the clique as a chain


class CliqueChain(NamedTuple):
    """log_matrix[x, y] = log P(y | x) on states of the clique with up[x] spins up."""

    log_matrix: Float[Tensor, "states states"]
    up: Int[Tensor, " states"]

    @property
    def large(self) -> Bool[Tensor, " states"]:
        """R_1."""
        return self.up == self.up.max()

    @property
    def freed(self) -> Bool[Tensor, " states"]:
        """Σ_{i in C} s_i > -2: where Proposition 4.1.5 says the chain does not come."""
        return 2 * self.up - self.up.max() > -2


def gibbs_chain(model: Ferromagnet, k: int) -> CliqueChain:
    """k-Gibbs [li, Def. 4.1.10] of the whole model, seen on the clique.

    Worked value: N = k = c = 2, no fields: every step is a draw from p, and goes to R_1 with
    e^J / (2 e^J + 2 e^-J).
    """
    if not 1 <= k <= model.spins:
        raise ValueError(f"a block of {k} among {model.spins} spins: k must be in 1..N")
    c, free = model.clique, len(model.free_fields)
    met = torch.arange(max(0, k - free), min(c, k) + 1)
    log_met = log_normalise(_log_choose(c, met) + _log_choose(free, k - met))
    if len(set(model.clique_fields)) > 1:
        table = _unequal(model)
        stay = torch.eye(len(table.log_probs), dtype=torch.float64).log()
        parts = [block_log_moves(table, MaskLaw.of_size(c, m)) if m else stay for m in met.tolist()]
        return _on_states((log_met[:, None, None] + torch.stack(parts)).logsumexp(0), c)
    up, h, j = torch.arange(c + 1), model.clique_fields[0], model.coupling
    total = torch.full((c + 1, c + 1), -torch.inf, dtype=torch.float64)
    for m, log_weight in zip(met.tolist(), log_met, strict=True):
        kept = torch.arange(c - m + 1)  # up spins among those that stay
        leave = _log_choose(up[:, None], kept) + _log_choose(c - up[:, None], c - m - kept)
        new = torch.arange(m + 1)
        inside = (2 * new - m).double()
        pull = h + j * (2 * kept - (c - m)).double()
        energy = inside * pull[:, None] + j * (inside**2 - m) / 2
        law = log_normalise(energy + _log_choose(m, new))  # kept, new
        moved = torch.full((c - m + 1, c + 1), -torch.inf, dtype=torch.float64)
        moved[kept[:, None], kept[:, None] + new] = law
        total = torch.logaddexp(total, log_weight + log_matmul(log_normalise(leave), moved))
    return CliqueChain(log_normalise(total), up)


def parallel_chain(model: Ferromagnet) -> CliqueChain:
    """Independent parallel [li, Def. 4.1.11] on the clique.

    Worked value: c = 2, fields 0: from R_-1 each spin goes up with sigmoid(-2J) on its own.
    """
    c = model.clique
    if len(set(model.clique_fields)) > 1:
        up = _unequal(model).sequences.double()
        spins = 2 * up - 1
        fields = torch.tensor(model.clique_fields, dtype=torch.float64)
        pull = 2 * (fields + model.coupling * (spins.sum(1, keepdim=True) - spins))
        rise, fall = (torch.nn.functional.logsigmoid(sign * pull) for sign in (1, -1))
        return _on_states(rise @ up.T + fall @ (1 - up).T, c)
    up, h, j = torch.arange(c + 1), model.clique_fields[0], model.coupling
    rows = []
    for n in range(c + 1):  # an up spin sees n - 1 others up, a down spin n
        stay = _log_binomial(n, 2 * (h + j * (2 * n - c - 1)))
        rise = _log_binomial(c - n, 2 * (h + j * (2 * n - c + 1)))
        at = up[:, None] - torch.arange(n + 1)  # target, stayed
        terms = stay + rise[at.clamp(0, c - n)]
        terms = terms.masked_fill((at < 0) | (at > c - n), -torch.inf)
        rows.append(terms.logsumexp(-1))
    return CliqueChain(log_normalise(torch.stack(rows)), up)


def _unequal(model: Ferromagnet) -> Table:
    if model.clique > _MOST_UNEQUAL:
        raise ValueError(
            f"a clique of {model.clique} spins with unequal fields has 2^{model.clique} states; "
            f"the limit is {_MOST_UNEQUAL} spins (with equal fields some 200)"
        )
    alone = Ferromagnet(model.coupling, model.clique_fields)
    return Table.of(alone.ising())


def _on_states(log_matrix: Float[Tensor, "states states"], clique: int) -> CliqueChain:
    return CliqueChain(log_normalise(log_matrix), all_sequences(2, clique).sum(-1))


def _log_choose(n: Int[Tensor, "..."] | int, r: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """log of n over r, -inf outside of 0..n."""
    whole, part = torch.broadcast_tensors(torch.as_tensor(n).double(), r.double())
    inside = (part >= 0) & (part <= whole)
    part = torch.where(inside, part, 0.0)
    out = torch.lgamma(whole + 1) - torch.lgamma(part + 1) - torch.lgamma(whole - part + 1)
    return out.masked_fill(~inside, -torch.inf)


def _log_binomial(n: int, log_odds: float) -> Float[Tensor, " counts"]:
    """log P(i of n succeed), i = 0..n."""
    i, x = torch.arange(n + 1), torch.tensor(log_odds, dtype=torch.float64)
    up, down = (torch.nn.functional.logsigmoid(sign * x) for sign in (1, -1))
    return _log_choose(n, i) + i * up + (n - i) * down


# ------------------------------------------------------------------ Proposition 4.1.4


def log_reaching(model: Ferromagnet, k: int) -> float:
    """log(1 - c_{R_1}): what the proof guarantees of every step of k-Gibbs.

    1 - c = C(N-c, k-c) / C(N, k) · e^{2(J_0 + h_G)} / (e^{2(J_0 + h_G)} + e^{2 J_0} + 2^c - 2), as
    in the proof: the last terms are garbled in the main text and are 2c - 2 in (4.49).
    Worked value: N = k = c = 2, J_0 = h_G = (log 2) / 2: 4 / (4 + 2 + 2) = ½.
    """
    n, c = model.spins, model.clique
    if not c <= k <= n:
        raise ValueError(f"Proposition 4.1.4 is for blocks of {c}..{n} spins, not of {k}")
    whole = _log_choose(n - c, torch.tensor(k - c)) - _log_choose(n, torch.tensor(k))
    others = c * math.log(2) + math.log1p(-(2.0 ** (1 - c)))
    h = model.clique_sum
    terms = torch.tensor([0.0, -2 * h, others - 2 * (model.margin + h)], dtype=torch.float64)
    return float(whole - terms.logsumexp(0))


def reaching_steps(model: Ferromagnet, k: int, delta: float) -> int:
    """T = ⌈log_c δ⌉. Worked value: c = ½, δ = 0.1: 4."""
    _check_delta(delta)
    if (success := log_reaching(model, k)) < -40:  # log c is -(1 - c) in every digit
        return whole_exp(-math.log(delta), -success) + 1
    log_c = math.log(-math.expm1(success)) if success > -0.7 else math.log1p(-math.exp(success))
    return math.ceil(math.log(delta) / log_c)


# ------------------------------------------------------------------ Proposition 4.1.5


def stuck_radius(clique: int, margin: float) -> float:
    """r = -1 + tanh(J_0) c / 2; the proof needs r > 0. Worked value: c = 2, J_0 → 0: -1."""
    return -1 + math.tanh(margin) * clique / 2


def stuck_exponent(clique: int, margin: float) -> float:
    """c_stuck = 2 r² / c. Worked value: c = 8 and J_0 = ∞: 2 · 9 / 8 = 9/4."""
    return 2 * stuck_radius(clique, margin) ** 2 / clique


def stuck_steps(clique: int, margin: float, delta: float) -> int:
    """T = ⌊δ/2 exp(c_stuck)⌋, as printed. Worked value: c = 2, J_0 → 0, δ = 0.74: ⌊1.006⌋ = 1."""
    _check_delta(delta)
    return whole_exp(delta / 2, stuck_exponent(clique, margin))


def stuck_gap(margin: float) -> tuple[float, float]:
    """[low, high): the δ for which Proposition 4.1.5 is false at c = 2 as the fields go to 0.

    From low on it promises a step, which keeps both spins down with probability 1 - high alone.
    Worked value: J_0 = 0: [2/e, 3/4). Empty (low ≥ high) from J_0 = 0.0072 on.
    """
    low = 2 * math.exp(-stuck_exponent(2, margin))
    return low, 1 - ((1 + math.tanh(margin)) / 2) ** 2


# ------------------------------------------------------------------ Corollary 4.1.1


def interaction_violations(model: Ferromagnet, delta: float, steps: int) -> list[str]:
    """What of Assumption 4.1.6 does not hold, for δ and M = `steps`."""
    least, field = smallest_clique(delta, steps), least_field(delta)
    j, found = least_margin(model.clique), []
    if model.clique < least:
        found.append(f"|C| = {model.clique}, and it must be at least {least}")
    if not model.clique_sum >= field:
        found.append(f"h_G = {model.clique_sum:g}, and it must be at least {field:g}")
    if not model.margin >= j:
        found.append(f"J_0 = {model.margin:g}, and it must be at least {j:g}")
    return found


def smallest_clique(delta: float, steps: int) -> int:
    """⌈8 (1 + log(4M/δ))⌉. Worked value: M = 1, δ = ½: ⌈8 (1 + log 8)⌉ = 25."""
    _check_delta(delta)
    check_count("steps", steps, at_least=1)
    return math.ceil(8 * (1 + math.log(4 * steps / delta)))


def least_field(delta: float) -> float:
    """½ log(2 (4 - δ) / δ), which h_G must reach. Worked value: δ = ½: ½ log 14."""
    return 0.5 * math.log(2 * (4 - delta) / delta)


def least_margin(clique: int) -> float:
    """½ c log 2, which J_0 must reach. Worked value: c = 2: log 2."""
    return 0.5 * clique * math.log(2)


def smallest_block(spins: int, clique: int, delta: float) -> int:
    """The least k of Assumption 4.1.7: max(c, ⌈N - δ (N + 1) / ((4 - δ) c + δ)⌉).

    Worked value: N = 100, c = 25, δ = ½: 100 - 50.5 / 88 = 99.4: k = 100.
    """
    _check_delta(delta)
    return max(clique, math.ceil(spins - delta * (spins + 1) / ((4 - delta) * clique + delta)))


class Separation(NamedTuple):
    """Exact log-probabilities of failure, from the worst start with Σ_{i in C} s_i ≤ -2.

    gibbs      one step of k-Gibbs does not end in R_1
    parallel   independent parallel is in R_1 at some step of 1..M
    """

    gibbs: float
    parallel: float

    @property
    def failure(self) -> float:
        """P(either), at most; Corollary 4.1.1 wants at most δ however the two are coupled."""
        return math.exp(self.gibbs) + math.exp(self.parallel)


def separation(model: Ferromagnet, k: int, steps: int) -> Separation:
    """Both parts of Corollary 4.1.1, exactly."""
    one, many = gibbs_chain(model, k), parallel_chain(model)
    missed = Hitting(one.log_matrix, one.large).within(1)[1][~one.freed].max()
    reached = Hitting(many.log_matrix, many.large).within(steps)[0][~many.freed].max()
    return Separation(float(missed), float(reached))


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; it must lie strictly between 0 and 1")
