"""Parametric families around a truth, small enough to enumerate [li, 4.1.1].

A family says how p_θ moves when θ moves; its truth is the member at θ*. Everything that the theory
of masked training asks of it (losses, scores, information) follows from the table of log p_θ.

Families whose logits are linear in θ (Ising, exponential, free table) are `LogLinear`: their scores
have a closed form, and every masked loss on them is convex [li, Prop. 4.3.6]. A family whose
parameters are not locally identifiable, as happens with hidden Markov models, has a singular Fisher
information; `identifiable` cuts it down to the directions that change the law.

Notation
--------
θ    parameters               [d]            θ* those of the truth
T    features                 [count, d]     sequences in lexicographic order
b    log-weights of the base  [count]
S    scores ∇_θ log p_θ(x)    [count, d]     at θ*
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from triptych.core.table import Table, all_sequences
from triptych.core.validation import check_floats, check_shape
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising

NEGLIGIBLE = 1e-9  # an eigenvalue of the information below this share of the largest counts as 0


@runtime_checkable
class Family(Protocol):
    """Laws p_θ on sequences, with the truth at `theta`."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def theta(self) -> Float[Tensor, " d"]:
        """θ*, the parameters of the truth."""
        ...

    @property
    def names(self) -> list[str]:
        """One per parameter."""
        ...

    @property
    def table(self) -> Table:
        """The truth, p_θ*."""
        ...

    def table_log_probs(self, theta: Float[Tensor, " d"]) -> Float[Tensor, " count"]:
        """log p_θ of all sequences in lexicographic order; differentiable in θ."""
        ...

    def scores(self) -> Float[Tensor, "count d"]:
        """S(x) = ∇_θ log p_θ(x) at θ*; their mean under the truth is 0."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class LogLinear:
    """p_θ(x) ∝ exp(b(x) + θ·T(x)): what Ising models, exponential families and free tables are.

    Worked value: one bit with b = 0 and T(x) = x at θ* = log 3: p = (¼, ¾), scores (-¾, ¼).
    """

    vocab_size: int
    length: int
    base_log_weights: Float[Tensor, " count"]
    features: Float[Tensor, "count d"]
    theta: Float[Tensor, " d"]
    names: list[str]

    def __post_init__(self) -> None:
        count = self.vocab_size**self.length
        check_floats("features", self.features)
        check_floats("theta", self.theta)
        check_shape("features", self.features, (count, len(self.names)), "a row per sequence")
        check_shape("theta", self.theta, (len(self.names),), "a value per parameter")
        check_shape("base_log_weights", self.base_log_weights, (count,), "a value per sequence")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(length={self.length}, parameters={len(self.names)})"

    def table_log_probs(self, theta: Float[Tensor, " d"]) -> Float[Tensor, " count"]:
        """b + Tθ, normalised."""
        return (self.base_log_weights + self.features @ theta).log_softmax(0)

    @property
    def table(self) -> Table:
        return Table(self.vocab_size, self.length, self.table_log_probs(self.theta))

    def scores(self) -> Float[Tensor, "count d"]:
        """T(x) - E T."""
        return self.features - self.table.log_probs.exp() @ self.features


class IsingFamily(LogLinear):
    """Ising models: θ = (h_0, .., h_{N-1}, J_01, J_02, .., J_{N-2,N-1}), every pair i < j.

    Pairs without a coupling in `ising` are parameters too. With `fields=False` the fields stay as
    they are and θ holds the couplings alone. Worked value: two free spins (h = 0, J = 0) have
    scores S(x) = (s_0, s_1, s_0 s_1): for x = (0, 1) that is (-1, 1, -1).
    """

    def __init__(self, ising: Ising, *, fields: bool = True) -> None:
        pairs = list(combinations(range(ising.length), 2))
        i, j = [first for first, _ in pairs], [second for _, second in pairs]
        spins = (2 * all_sequences(2, ising.length, ising.device) - 1).double()
        products, couplings = spins[:, i] * spins[:, j], ising.coupling[i, j]
        names = [f"J_{first},{second}" for first, second in pairs]
        if fields:
            products = torch.cat([spins, products], 1)
            couplings = torch.cat([ising.field, couplings])
            names = [*(f"h_{site}" for site in range(ising.length)), *names]
        fixed = torch.zeros_like(spins[:, 0]) if fields else spins @ ising.field
        super().__init__(2, ising.length, fixed, products, couplings, names)


class ExponentialFamily(LogLinear):
    """p_θ(x) ∝ base(x) exp(θ·T(x)); the truth is `base`, at θ = 0, unless `at` says another θ*.

    Worked value: one bit with base (¼, ¾) and T(x) = x: log p_θ(1) = log 3e^θ / (1 + 3e^θ), and
    the scores at 0 are (-¾, ¼).
    """

    def __init__(
        self,
        base: Table,
        features: Float[Tensor, "count d"],
        *,
        at: Float[Tensor, " d"] | None = None,
    ) -> None:
        theta = features.new_zeros(features.shape[1]) if at is None else at
        names = [f"theta_{i}" for i in range(features.shape[1])]
        super().__init__(base.vocab_size, base.length, base.log_probs, features, theta, names)


class TableFamily(LogLinear):
    """Every law with the support of `truth`: a free logit per sequence, the last one pinned to 0.

    Worked value: one bit with truth (¼, ¾): θ* = log(¼ / ¾) = -log 3, and the score of x = 0 is
    1 - ¼ = ¾.
    """

    def __init__(self, truth: Table) -> None:
        logs = truth.log_probs
        *free, pinned = torch.nonzero(~torch.isneginf(logs))[:, 0].tolist()
        flat = torch.zeros_like(logs).masked_fill(torch.isneginf(logs), -torch.inf)
        features = torch.eye(len(logs), dtype=torch.float64, device=logs.device)[:, free]
        names = ["".join(map(str, x)) for x in truth.sequences[free].tolist()]
        theta = logs[free] - logs[pinned]
        super().__init__(truth.vocab_size, truth.length, flat, features, theta, names)


@dataclass(frozen=True, eq=False, repr=False)
class HMMFamily:
    """Hidden Markov models on sequences of `length`: θ are the logits of the rows of π, A and W.

    In each row the last positive entry is pinned to logit 0 and zeros stay zero. `free` says which
    rows are parameters: all, or those of W alone. Worked value: one state, W = (¼, ¾), length 1:
    θ* = (-log 3) and the score of x = 0 is ¾.

    With all rows free the Fisher information is often singular: π and A act through the law of few
    tokens only. `identifiable` then gives the family to work with.
    """

    hmm: HMM
    length: int
    free: Literal["all", "emission"] = "all"

    def __post_init__(self) -> None:
        if self.free not in ("all", "emission"):
            raise ValueError(f"free is {self.free!r}; it must be 'all' or 'emission'")

    @property
    def vocab_size(self) -> int:
        return self.hmm.vocab_size

    @cached_property
    def _rows(self) -> dict[str, Float[Tensor, "rows entries"]]:
        hmm = self.hmm
        return {"pi": hmm.initial[None], "A": hmm.transition, "W": hmm.emission}

    @cached_property
    def _freed(self) -> dict[str, Bool[Tensor, "rows entries"]]:
        """True where a logit is a parameter."""
        out = {}
        for name, rows in self._rows.items():
            positive = rows > 0
            later = positive.flip(-1).cumsum(-1).flip(-1)  # positive entries from here on
            out[name] = positive & (later > 1) & (self.free == "all" or name == "W")
        return out

    @cached_property
    def _logits(self) -> dict[str, Float[Tensor, "rows entries"]]:
        out = {}
        for name, rows in self._rows.items():
            last = (rows > 0).double().cumsum(-1).argmax(-1, keepdim=True)
            out[name] = rows.log() - rows.log().gather(-1, last)
        return out

    @property
    def theta(self) -> Float[Tensor, " d"]:
        return torch.cat([self._logits[name][free] for name, free in self._freed.items()])

    @property
    def names(self) -> list[str]:
        places = {name: torch.nonzero(free).tolist() for name, free in self._freed.items()}
        return [
            f"pi_{j}" if name == "pi" else f"{name}_{i},{j}"
            for name, found in places.items()
            for i, j in found
        ]

    def table_log_probs(self, theta: Float[Tensor, " d"]) -> Float[Tensor, " count"]:
        """The forward recursion on all prefixes at once, in probabilities."""
        law, at = {}, 0
        for name, free in self._freed.items():
            count = int(free.sum())
            place = (free.reshape(-1).cumsum(0) - 1).clamp(min=0).reshape(free.shape)
            own = theta[at : at + count]
            logits = torch.where(free, own[place], self._logits[name]) if count else None
            law[name] = (self._logits[name] if logits is None else logits).softmax(-1)
            at += count
        before = law["pi"]  # p(x_<t, z_t), a row per prefix
        for t in range(self.length):
            joint = (before[:, None, :] * law["W"].T).reshape(-1, self.hmm.states)
            before = joint @ law["A"] if t + 1 < self.length else joint
        probs = before.sum(-1)
        possible = probs > 0
        return torch.where(possible, probs, 1.0).log().masked_fill(~possible, -torch.inf)

    @property
    def table(self) -> Table:
        return Table(self.vocab_size, self.length, self.table_log_probs(self.theta))

    def scores(self) -> Float[Tensor, "count d"]:
        """By automatic differentiation; 0 for sequences that cannot occur."""
        return torch.func.jacrev(self.table_log_probs)(self.theta)


@dataclass(frozen=True, eq=False, repr=False)
class Subfamily:
    """θ = θ* + Uφ, a slice of `whole` through its truth; the parameters are φ, with φ* = 0.

    Worked value: two spins with U = (1, 1, 0)ᵀ are those with h_0 - h_1 and J as in the truth.
    """

    whole: Family
    directions: Float[Tensor, "d r"]

    @property
    def vocab_size(self) -> int:
        return self.whole.vocab_size

    @property
    def length(self) -> int:
        return self.whole.length

    @property
    def theta(self) -> Float[Tensor, " r"]:
        return torch.zeros_like(self.directions[0])

    @property
    def names(self) -> list[str]:
        return [f"direction_{i}" for i in range(self.directions.shape[1])]

    def table_log_probs(self, theta: Float[Tensor, " r"]) -> Float[Tensor, " count"]:
        return self.whole.table_log_probs(self.whole.theta + self.directions @ theta)

    @property
    def table(self) -> Table:
        return self.whole.table

    def scores(self) -> Float[Tensor, "count r"]:
        """SU: the scores along the directions."""
        return self.whole.scores() @ self.directions


def identifiable(family: Family) -> Family:
    """The family on the directions in which the law changes to first order.

    They are the eigenvectors of the Fisher information whose eigenvalue is not negligible; a family
    with a regular information is returned as it is. Worked value: a hidden Markov model of one
    state has no free entries in π and A, so nothing is cut.
    """
    scores = family.scores()
    information = (family.table.log_probs.exp()[:, None] * scores).T @ scores
    values, vectors = torch.linalg.eigh(information)
    seen = values > NEGLIGIBLE * values[-1]
    return family if bool(seen.all()) else Subfamily(family, vectors[:, seen])
