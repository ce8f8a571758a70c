"""The walk of VGB on the tree of prefixes, exactly: mass, speed and what it returns [li, 3.3.1].

Every edge (parent of x, x) has the conductance c(x) = p(x) V(x), and a lazy step follows an edge
with probability ½ c / Σ c. So the walk is a symmetric sparse matrix, and everything about it is
linear algebra. Nodes that it cannot reach from the root are left out.

Two bounds for values within a factor 1 + ε of the exact ones, exact on the leaves. Exact values add
up, c(x) = Σ c(xy), so each level carries the same total Z, and the stationary weights sum to 2HZ.

    leaf mass   Z / (2 Σ_h Σ_x c(x)) ≥ 1 / (2 (1 + (H - 1)(1 + ε)))          equal for ε = 0
    gap         below an edge of conductance c(x) lies a weight of at most (1 + ε)² (2(H - h) + 1)
                c(x), so every cut has conductance ≥ 1 / (2 (2H - 1)(1 + ε)²), and by Cheeger's
                inequality 1 / gap ≤ 8 (2H - 1)² (1 + ε)⁴

Notation
--------
H   length of the strings, height of the tree        c   conductance [nodes], 0 at the root
π   stationary law [nodes]                            T   number of steps
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.protocols import Value
from triptych.core.table import Table, all_sequences
from triptych.core.validation import check_count

_DENSE = 300  # nodes up to which all eigenvalues are computed


@dataclass(frozen=True, eq=False)
class Walk:
    """The nodes that are reached from the root, level by level, in lexicographic order.

    depth         length of the prefix of each node
    rank          of the prefix among all prefixes of that length
    parent        number of the parent node; 0 for the root
    conductance   of the edge to the parent, up to a common factor; 0 for the root
    """

    vocab_size: int
    length: int
    depth: Int[Tensor, " nodes"]
    rank: Int[Tensor, " nodes"]
    parent: Int[Tensor, " nodes"]
    conductance: Float[Tensor, " nodes"]

    @classmethod
    def of(cls, table: Table, value: Value) -> "Walk":
        """The walk for a model and a process verifier.

        Worked value: fair bits, H = 1, V(0) = 1, V(1) = 3: conductances ½ and 3/2, up to the
        factor 2/3, so a lazy step from the root goes to 0 with 1/8, to 1 with 3/8.
        """
        vocab, kept = table.vocab_size, torch.zeros(1, dtype=torch.long)
        number = torch.zeros(1, dtype=torch.long)  # of each prefix of a level, -1 if not reached
        depth, rank, parent = [kept], [kept], [kept]
        log_c = [torch.full((1,), -torch.inf, dtype=torch.float64)]
        nodes = 1
        for t in range(1, table.length + 1):
            mass = table.log_probs.reshape(vocab**t, -1).logsumexp(-1)
            weight = mass + value.log_value(all_sequences(vocab, t))
            above = number.repeat_interleave(vocab)
            kept = torch.nonzero((above >= 0) & (weight > -torch.inf))[:, 0]
            number = torch.full((vocab**t,), -1).index_copy(
                0, kept, torch.arange(nodes, nodes + len(kept))
            )
            nodes += len(kept)
            depth.append(torch.full_like(kept, t))
            rank.append(kept)
            parent.append(above[kept])
            log_c.append(weight[kept])
        if nodes == 1:
            raise ValueError("every child of the root has value 0: the walk has nowhere to go")
        together = torch.cat(log_c)
        return cls(
            vocab,
            table.length,
            torch.cat(depth),
            torch.cat(rank),
            torch.cat(parent),
            (together - together.max()).exp(),
        )

    @property
    def leaves(self) -> Bool[Tensor, " nodes"]:
        return self.depth == self.length

    @property
    def weights(self) -> Float[Tensor, " nodes"]:
        """π up to a factor: the conductance of all edges at a node."""
        return self.conductance.index_add(0, self.parent, self.conductance)

    @property
    def stationary(self) -> Float[Tensor, " nodes"]:
        """π. Worked value, as above: (½, ⅛, ⅜) for the root and the leaves 0 and 1."""
        return self.weights / self.weights.sum()

    def _between(self, edge: Float[Tensor, " edges"]) -> Any:
        """A symmetric sparse matrix with these entries at (x, parent of x)."""
        child, parent = np.arange(1, len(self.depth)), self.parent[1:].numpy()
        values = edge.numpy()
        entries = (np.r_[values, values], (np.r_[child, parent], np.r_[parent, child]))
        return scipy.sparse.csr_array(entries, shape=(len(self.depth),) * 2)

    def transition(self) -> Any:
        """P[x, y] of a lazy step, as a scipy sparse array."""
        size = len(self.depth)
        moves = scipy.sparse.diags_array(0.5 / self.weights.numpy()) @ self._between(
            self.conductance[1:]
        )
        return scipy.sparse.csr_array(scipy.sparse.eye_array(size) * 0.5 + moves)

    def symmetric(self) -> Any:
        """√π P / √π, which has the eigenvalues of P."""
        root = self.weights.sqrt()
        edge = 0.5 * self.conductance[1:] / (root[1:] * root[self.parent[1:]])
        return scipy.sparse.csr_array(
            scipy.sparse.eye_array(len(self.depth)) * 0.5 + self._between(edge)
        )


# ------------------------------------------------------------------ mass and speed


def leaf_mass(walk: Walk) -> float:
    """π(leaves): how often the walk is at a full string. Worked value: height 1: ½."""
    return float(walk.stationary[walk.leaves].sum())


def leaf_mass_bound(length: int, epsilon: float) -> float:
    """1 / (2 (1 + (H - 1)(1 + ε))). Worked value: H = 3, ε = ½: 1/8."""
    check_count("length", length, at_least=1)
    return 1 / (2 * (1 + (length - 1) * (1 + epsilon)))


def spectral_gap(walk: Walk) -> float:
    """1 - λ_2 of the lazy step, whose eigenvalues lie in [0, 1].

    Worked value: one edge moves with ½ from either end: eigenvalues 1 and 0, gap 1. A path of two
    equal edges: 1, ½, 0, gap ½.
    """
    matrix = walk.symmetric()
    size = matrix.shape[0]
    if size <= _DENSE:
        return float(1 - scipy.linalg.eigh(matrix.toarray(), eigvals_only=True)[-2])
    # Near 1 the eigenvalues crowd; those of (1 + tiny - S)^-1 do not, and a tree has no fill-in.
    found = scipy.sparse.linalg.eigsh(
        matrix.tocsc(), k=2, sigma=1 + 1e-6, v0=np.arange(1.0, size + 1), return_eigenvectors=False
    )
    return float(1 - np.sort(found)[0])


def relaxation_time(walk: Walk) -> float:
    """1 / gap. Worked value: fair bits and V = 1: 2 / (1 - cos(π / 2H)), about 16 H² / π²."""
    return 1 / spectral_gap(walk)


def relaxation_bound(length: int, epsilon: float) -> float:
    """8 (2H - 1)² (1 + ε)⁴. Worked value: H = 2, ε = 1: 8 · 9 · 16 = 1152."""
    check_count("length", length, at_least=1)
    return 8 * (2 * length - 1) ** 2 * (1 + epsilon) ** 4


def mixing_time(walk: Walk, distance: float = 0.25, *, most: int = 1_000_000) -> int:
    """The first T with TV(law after T steps from the root, π) ≤ distance.

    Worked value: one edge, V(0) = V(1): after one lazy step the law is π itself: 1.
    """
    if not 0 < distance < 1:
        raise ValueError(f"distance is {distance}; it must lie strictly between 0 and 1")
    step, target = walk.transition().T.tocsr(), walk.stationary.numpy()
    law = _at_the_root(walk)
    for steps in range(most + 1):
        if 0.5 * np.abs(law - target).sum() <= distance:
            return steps
        law = step @ law
    raise RuntimeError(f"the walk is not within {distance} of its law after {most} steps")


# ------------------------------------------------------------------ what it returns


def after(walk: Walk, steps: int) -> Float[Tensor, " nodes"]:
    """The law of the node after T steps from the root."""
    check_count("steps", steps, at_least=0)
    step, law = walk.transition().T.tocsr(), _at_the_root(walk)
    for _ in range(steps):
        law = step @ law
    return torch.from_numpy(law)


def uniform_on_path(walk: Walk, steps: int) -> Float[Tensor, " nodes"]:
    """The law of y^(i) for i uniform in 1..T, the output that is analysed.

    Worked value, height 1 with equal values, T = 2: laws (½, ¼, ¼) twice.
    """
    check_count("steps", steps, at_least=1)
    step, law = walk.transition().T.tocsr(), _at_the_root(walk)
    total = np.zeros_like(law)
    for _ in range(steps):
        law = step @ law
        total += law
    return torch.from_numpy(total / steps)


def given_leaf(walk: Walk, law: Float[Tensor, " nodes"]) -> Table:
    """The law of the string, given that the node is a leaf."""
    mass = law[walk.leaves]
    if not mass.sum() > 0:
        raise ValueError(
            f"the law has no mass on the leaves; a walk needs at least {walk.length} steps"
        )
    probs = torch.zeros(walk.vocab_size**walk.length, dtype=torch.float64)
    probs[walk.rank[walk.leaves]] = mass / mass.sum()
    return Table(walk.vocab_size, walk.length, probs.log())


def first_leaf(walk: Walk) -> Table:
    """The law of the first leaf that is reached: what the experiments of the source return.

    Where the walk stands inside the tree before that, on average, solves a linear system.
    Worked value: height 1: the first step decides, ∝ c.
    """
    inner = np.flatnonzero(~walk.leaves.numpy())
    outer = np.flatnonzero(walk.leaves.numpy())
    if len(outer) == 0:
        raise ValueError("no leaf can be reached: every full string has value 0")
    step = walk.transition()
    within = step[inner][:, inner]
    system = scipy.sparse.csc_array(scipy.sparse.eye_array(len(inner)) - within.T)
    start = np.zeros(len(inner))
    start[0] = 1.0
    visits = _solved(system, start)
    law = torch.zeros(len(walk.depth), dtype=torch.float64)
    law[torch.from_numpy(outer)] = torch.from_numpy(step[inner][:, outer].T @ visits)
    return given_leaf(walk, law)


def steps_to_a_leaf(walk: Walk) -> float:
    """Expected steps until the first leaf. Worked value: height 1: a lazy step leaves with ½: 2."""
    inner = np.flatnonzero(~walk.leaves.numpy())
    within = walk.transition()[inner][:, inner]
    system = scipy.sparse.csc_array(scipy.sparse.eye_array(len(inner)) - within)
    return float(_solved(system, np.ones(len(inner)))[0])


def path_relaxation_time(length: int) -> float:
    """2 / (1 - cos(π / 2H)): fair bits and V = 1, by hand.

    A function that is odd under swapping the two halves of the tree, and equal within a level,
    follows a path of H equal edges from a wall at the root to a free end at the leaves.
    """
    return 2 / (1 - math.cos(math.pi / (2 * length)))


def _solved(system: Any, right: np.ndarray) -> np.ndarray:
    solution: Any = scipy.sparse.linalg.spsolve(system, right)
    return np.atleast_1d(solution)


def _at_the_root(walk: Walk) -> np.ndarray:
    law = np.zeros(len(walk.depth))
    law[0] = 1.0
    return law
