"""`kernel_of`: the exact transition matrix of a step of a Markov chain, and what follows from it.

Kernel           every choice of every step was enumerated; each entry is exact
BoundedKernel    M[i, j] <= P[i, j] <= M[i, j] + missing[i]; answers are intervals

Notation
--------
P       matrix   states x states, P[i, j] = probability that a step moves state i to state j
M       matrix   the part of P that was followed
π       law      on the states
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.display import card, facts_table, heat_map
from triptych.core.errors import UserError
from triptych.core.validation import Count, as_count, check_callable
from triptych.laws.law import BoundedLaw, Target, Worst
from triptych.laws.outcomes import as_probs, canonical
from triptych.laws.program import BUDGET, law_of
from triptych.laws.search import Choice


@dataclass(frozen=True, eq=False)
class _Rows:
    """The matrix, the names of its states, and the likeliest way of every move.

    left_out
        The most that a row is off, in total variation, by small numbers against log(0); 0 without.
    """

    states: tuple[Hashable, ...]
    matrix: Float[Tensor, "states states"]
    paths: dict[Any, dict[Any, tuple[Choice, ...]]] = field(default_factory=dict, repr=False)
    left_out: float = 0.0

    def as_vector(self, law: Target) -> Float[Tensor, " states"]:
        """Probabilities of the states, in their order."""
        probs = as_probs("law", law)
        unknown = [x for x in probs if x not in self.states and probs[x] > 0]
        if unknown:
            raise UserError(f"the law has {unknown[0]!r}, which is none of the states")
        return torch.tensor([probs.get(x, 0.0) for x in self.states], dtype=torch.float64)

    def worst(self, law: Target) -> Worst:
        """The state whose probability a step changes most, with the likeliest way into it."""
        before = self.as_vector(law)
        after = before @ self.matrix
        j = int((after - before).abs().argmax())
        i = int((before * self.matrix[:, j]).argmax())
        there = self.states[j]
        path = self.paths.get(self.states[i], {}).get(there, ())
        return Worst(there, float(after[j]), float(before[j]), path)


@dataclass(frozen=True, eq=False)
class Kernel(_Rows):
    """A transition matrix with the names of its states.

    Worked value: P = [[1/2, 1/2], [1, 0]] has the stationary law (2/3, 1/3), is reversible under
    it, and its spectral gap is 1 - |-1/2| = 1/2.
    """

    @property
    def exact(self) -> bool:
        """Whether nothing at all was left out of any row."""
        return self.left_out == 0

    def _repr_html_(self) -> str:
        facts = {"states": len(self.states), "spectral gap": self.spectral_gap()}
        if self.left_out:
            facts["left out"] = self.left_out
        return card("Kernel", facts_table(facts), heat_map(self.matrix, title="transition matrix"))

    def after(self, law: Target, steps: Count = 1) -> dict[Hashable, float]:
        """π P^t."""
        vector = self.as_vector(law)
        for _ in range(as_count("steps", steps)):
            vector = vector @ self.matrix
        return dict(zip(self.states, vector.tolist(), strict=True))

    def invariance(self, law: Target) -> float:
        """Total variation between π P and π: 0 if a step keeps the law."""
        vector = self.as_vector(law)
        return 0.5 * float((vector @ self.matrix - vector).abs().sum())

    def reversibility(self, law: Target) -> float:
        """max |π_i P_ij - π_j P_ji|: 0 if detailed balance holds."""
        flow = self.as_vector(law)[:, None] * self.matrix
        return float((flow - flow.T).abs().max())

    def stationary(self) -> dict[Hashable, float]:
        """The law with π P = π; refused if there are several."""
        count = len(self.states)
        system = np.vstack([self.matrix.numpy().T - np.eye(count), np.ones(count)])
        if np.linalg.matrix_rank(system) < count:
            raise UserError("the chain has several stationary laws: it does not reach all states")
        right = np.zeros(count + 1)
        right[-1] = 1.0
        found = np.linalg.lstsq(system, right, rcond=None)[0]
        return dict(zip(self.states, np.clip(found, 0.0, 1.0).tolist(), strict=True))

    def spectral_gap(self) -> float:
        """1 - |second largest eigenvalue|; 0 for a chain that does not settle."""
        sizes = np.sort(np.abs(np.linalg.eigvals(self.matrix.numpy())))
        return float(max(0.0, 1.0 - sizes[-2])) if len(sizes) > 1 else 1.0

    def distance(self, steps: Count) -> float:
        """The largest total variation from the stationary law after t steps, over all starts."""
        target = self.as_vector(self.stationary())
        power = torch.linalg.matrix_power(self.matrix, as_count("steps", steps))
        return 0.5 * float((power - target).abs().sum(-1).max())


@dataclass(frozen=True, eq=False)
class BoundedKernel(_Rows):
    """The part of a kernel that was followed: M[i, j] <= P[i, j] <= M[i, j] + missing[i].

    What was not followed may lead anywhere, so a law that a step moves by at least 0.1 is certainly
    not kept, and one that is kept by all that was followed is moved by at most Σ π_i missing_i.

    Worked value: M = [[1/2, 1/4], [1/4, 1/2]] misses 1/4 of each row. Half and half is moved by 0
    at least and by 1/4 at most.
    """

    missing: Float[Tensor, " states"] = field(kw_only=True)

    def _repr_html_(self) -> str:
        facts = {"states": len(self.states), "most missing of a row": float(self.missing.max())}
        title = "the part of the transition matrix that was followed"
        return card("Bounds on a kernel", facts_table(facts), heat_map(self.matrix, title=title))

    def bounds(self, before: Any, after: Any) -> tuple[float, float]:
        """The least and the most that the probability of a move can be."""
        i, j = self._index(before), self._index(after)
        return self._within(float(self.matrix[i, j]), float(self.missing[i]))

    def after(self, law: Target, steps: Count = 1) -> dict[Hashable, tuple[float, float]]:
        """The least and the most of each state in π P^t: π M^t, and that plus what it lost."""
        vector = self.as_vector(law)
        lost, off = 0.0, 0.0
        for _ in range(as_count("steps", steps)):
            lost += float(vector @ self.missing)
            off += self.left_out
            vector = vector @ self.matrix
        return {
            x: (max(0.0, p - off), min(1.0, p + lost + off))
            for x, p in zip(self.states, vector.tolist(), strict=True)
        }

    def invariance(self, law: Target) -> tuple[float, float]:
        """The least and the most that the total variation between π P and π can be.

        Σ max(0, π M - π), and that plus Σ π_i missing_i.
        """
        vector = self.as_vector(law)
        over = float((vector @ self.matrix - vector).clamp(min=0).sum())
        return self._within(over, float(vector @ self.missing))

    def reversibility(self, law: Target) -> tuple[float, float]:
        """The least and the most that max |π_i P_ij - π_j P_ji| can be."""
        vector = self.as_vector(law)
        flow = vector[:, None] * self.matrix
        slack = (vector * self.missing)[:, None].expand_as(flow)
        off = self.left_out * (vector[:, None] + vector)
        high, low = flow - flow.T + slack + off, flow - flow.T - slack.T - off
        off_diagonal = ~torch.eye(len(flow), dtype=torch.bool)
        least = torch.maximum(low, -high).clamp(min=0) * off_diagonal
        most = torch.maximum(high, -low) * off_diagonal
        return float(least.max()), float(most.max())

    def _within(self, low: float, missing: float) -> tuple[float, float]:
        return max(0.0, low - self.left_out), min(1.0, low + missing + self.left_out)

    def _index(self, state: Any) -> int:
        name = canonical(state)
        if name not in self.states:
            raise UserError(f"{name!r} is none of the states")
        return self.states.index(name)


def kernel_of(
    step: Callable[[Any], Any], states: Sequence[Any], *, budget: Count = BUDGET
) -> Kernel | BoundedKernel:
    """The exact kernel of `step(state)`, which returns the next state, on these states.

    Where the budget ends before all choices of a step were followed, it is a `BoundedKernel`.

    >>> import random
    >>> from triptych.laws import kernel_of
    >>> kernel = kernel_of(lambda x: random.randrange(2) if x == 0 else 0, [0, 1])
    >>> kernel.matrix.tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    check_callable("step", step, "step(state)")
    given = list(states)
    names = [canonical(state) for state in given]
    if not given or len(set(names)) < len(names):
        raise UserError(f"states has {len(given)} states, {len(set(names))} of them different")
    index = {name: i for i, name in enumerate(names)}
    matrix = torch.zeros(len(given), len(given), dtype=torch.float64)
    missing = torch.zeros(len(given), dtype=torch.float64)
    left_out = 0.0
    paths: dict[Any, dict[Any, tuple[Choice, ...]]] = {}
    for name, state in zip(names, given, strict=True):
        law = law_of(lambda state=state: step(_copied(state)), budget=budget)
        _fill(matrix, index, name, law.probs)
        missing[index[name]] = law.missing if isinstance(law, BoundedLaw) else 0.0
        left_out = max(left_out, law.left_out)
        paths[name] = law.paths
    if missing.any():
        return BoundedKernel(tuple(names), matrix, paths, left_out, missing=missing)
    return Kernel(tuple(names), matrix, paths, left_out)


def _copied(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.clone()
    return state.copy() if isinstance(state, np.ndarray | list | dict) else state


def _fill(
    matrix: Tensor, index: dict[Hashable, int], name: Hashable, probs: dict[Any, float]
) -> None:
    for there, p in probs.items():
        if there not in index:
            raise UserError(f"the step moves {name!r} to {there!r}, which is none of the states")
        matrix[index[name], index[there]] = p
