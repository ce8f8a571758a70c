"""`kernel_of`: the exact transition matrix of a step of a Markov chain, and what follows from it.

Notation
--------
P       matrix   states x states, P[i, j] = probability that a step moves state i to state j
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
from triptych.laws.law import BoundedLaw, Law, Target, Worst
from triptych.laws.outcomes import as_probs, canonical
from triptych.laws.program import BUDGET, law_of
from triptych.laws.search import Choice


@dataclass(frozen=True, eq=False)
class Kernel:
    """A transition matrix with the names of its states.

    Worked value: P = [[1/2, 1/2], [1, 0]] has the stationary law (2/3, 1/3), is reversible under
    it, and its spectral gap is 1 - |-1/2| = 1/2.
    """

    states: tuple[Hashable, ...]
    matrix: Float[Tensor, "states states"]
    paths: dict[Any, dict[Any, tuple[Choice, ...]]] = field(default_factory=dict, repr=False)

    def _repr_html_(self) -> str:
        facts = {"states": len(self.states), "spectral gap": self.spectral_gap()}
        return card("Kernel", facts_table(facts), heat_map(self.matrix, title="transition matrix"))

    def as_vector(self, law: Target) -> Float[Tensor, " states"]:
        """Probabilities of the states, in their order."""
        probs = as_probs("law", law)
        unknown = [x for x in probs if x not in self.states and probs[x] > 0]
        if unknown:
            raise UserError(f"the law has {unknown[0]!r}, which is none of the states")
        return torch.tensor([probs.get(x, 0.0) for x in self.states], dtype=torch.float64)

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

    def worst(self, law: Target) -> Worst:
        """The state whose probability a step changes most, with the likeliest way into it."""
        before = self.as_vector(law)
        after = before @ self.matrix
        j = int((after - before).abs().argmax())
        i = int((before * self.matrix[:, j]).argmax())
        there = self.states[j]
        path = self.paths.get(self.states[i], {}).get(there, ())
        return Worst(there, float(after[j]), float(before[j]), path)


def kernel_of(
    step: Callable[[Any], Any], states: Sequence[Any], *, budget: Count = BUDGET
) -> Kernel:
    """The exact kernel of `step(state)`, which returns the next state, on these states.

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
    paths: dict[Any, dict[Any, tuple[Choice, ...]]] = {}
    for name, state in zip(names, given, strict=True):
        law = law_of(lambda state=state: step(_copied(state)), budget=budget)
        if isinstance(law, BoundedLaw):
            raise UserError(
                f"a mass of {law.missing:.3g} of the step from {name!r} was not followed within "
                "the budget, so its row of the kernel is not known"
            )
        _fill(matrix, index, name, law)
        paths[name] = law.paths
    return Kernel(tuple(names), matrix, paths)


def _copied(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.clone()
    return state.copy() if isinstance(state, np.ndarray | list | dict) else state


def _fill(matrix: Tensor, index: dict[Hashable, int], name: Hashable, law: Law) -> None:
    for there, p in law.probs.items():
        if there not in index:
            raise UserError(f"the step moves {name!r} to {there!r}, which is none of the states")
        matrix[index[name], index[there]] = p
