"""The walk of VGB on the tree of prefixes, exactly: mass, speed and what it returns [li, 3.3.1].

Every edge (parent of x, x) has the conductance c(x) = p(x) V(x), and a lazy step follows an edge
with probability ½ c / Σ c. So the walk is a symmetric sparse matrix, and everything about it is
linear algebra. Nodes that it cannot reach from the root are left out.

Conductances are kept as logarithms, and only ratios of edges that meet are taken, so that values
may lie more than e^745 apart. On a tree, elimination from the leaves up needs no subtraction of
what is nearly equal, so that a gap of 1e-200 is as right as one of ½.

Two bounds for values within a factor 1 + ε of the exact ones, exact on the leaves. Exact values add
up, c(x) = Σ c(xy), so each level carries the same total Z, and the stationary weights sum to 2HZ.

    leaf mass   Z / (2 Σ_h Σ_x c(x)) ≥ 1 / (2 (1 + (H - 1)(1 + ε)))          equal for ε = 0
    gap         below an edge of conductance c(x) lies a weight of at most (1 + ε)² (2(H - h) + 1)
                c(x), so every cut has conductance ≥ 1 / (2 (2H - 1)(1 + ε)²), and by Cheeger's
                inequality 1 / gap ≤ 8 (2H - 1)² (1 + ε)⁴

Notation
--------
H   length of the strings, height of the tree        c   conductance [nodes], 0 at the root
w   Σ c of the edges at a node [nodes]                π   stationary law, w / Σ w [nodes]
T   number of steps                                   σ   a value that 1 - λ is compared with
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.logspace import log_normalise
from triptych.core.protocols import Value
from triptych.core.table import Table, all_sequences
from triptych.core.validation import check_count

_LEAST = 1e-300  # a gap below is not computed: floats end at 1e-308


@dataclass(frozen=True, eq=False)
class Walk:
    """The nodes that are reached from the root, level by level, in lexicographic order.

    depth             length of the prefix of each node
    rank              of the prefix among all prefixes of that length
    parent            number of the parent node; 0 for the root
    log_conductance   log c of the edge to the parent, up to a common term; -inf for the root
    """

    vocab_size: int
    length: int
    depth: Int[Tensor, " nodes"]
    rank: Int[Tensor, " nodes"]
    parent: Int[Tensor, " nodes"]
    log_conductance: Float[Tensor, " nodes"]

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
            together - together.max(),
        )

    @property
    def leaves(self) -> Bool[Tensor, " nodes"]:
        return self.depth == self.length

    @property
    def conductance(self) -> Float[Tensor, " nodes"]:
        """c, the largest made 1; one below 1e-308 of that may come out as 0."""
        return self.log_conductance.exp()

    @cached_property
    def log_weights(self) -> Float[Tensor, " nodes"]:
        """log w: the conductance of all edges at a node."""
        own, above = self.log_conductance, self.parent[1:]
        most = own.scatter_reduce(0, above, own[1:], "amax")
        total = (own - most).exp().index_add(0, above, (own[1:] - most[above]).exp())
        return most + total.log()

    @property
    def weights(self) -> Float[Tensor, " nodes"]:
        """π up to a factor: the conductance of all edges at a node."""
        return self.log_weights.exp()

    @property
    def stationary(self) -> Float[Tensor, " nodes"]:
        """π. Worked value, as above: (½, ⅛, ⅜) for the root and the leaves 0 and 1."""
        return self.log_weights.softmax(0)

    @cached_property
    def up(self) -> Float[Tensor, " nodes"]:
        """c(x) / w(x): how likely a move from x goes to its parent; 0 at the root."""
        return (self.log_conductance - self.log_weights).exp()

    @cached_property
    def down(self) -> Float[Tensor, " nodes"]:
        """c(x) / w(parent of x): how likely a move from the parent goes to x; 0 at the root."""
        return (self.log_conductance - self.log_weights[self.parent]).exp()

    def levels(self) -> Iterator[slice]:
        """The nodes of each depth, the root first."""
        ends = torch.cat([torch.zeros(1, dtype=torch.long), self.depth.bincount().cumsum(0)])
        for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            yield slice(start, end)

    def _between(self, up: Float[Tensor, " edges"], down: Float[Tensor, " edges"]) -> Any:
        """½ on the diagonal, `up` at (x, parent of x) and `down` at (parent of x, x), sparse."""
        size = len(self.depth)
        child, parent = np.arange(1, size), self.parent[1:].numpy()
        entries = (np.r_[up.numpy(), down.numpy()], (np.r_[child, parent], np.r_[parent, child]))
        moves = scipy.sparse.csr_array(entries, shape=(size, size))
        return scipy.sparse.csr_array(scipy.sparse.eye_array(size) * 0.5 + moves)

    def transition(self) -> Any:
        """P[x, y] of a lazy step, as a scipy sparse array."""
        return self._between(0.5 * self.up[1:], 0.5 * self.down[1:])

    def symmetric(self) -> Any:
        """√π P / √π, which has the eigenvalues of P."""
        edge = 0.5 * (self.up[1:].sqrt() * self.down[1:].sqrt())
        return self._between(edge, edge)


# ------------------------------------------------------------------ mass and speed


def leaf_mass(walk: Walk) -> float:
    """π(leaves): how often the walk is at a full string. Worked value: height 1: ½."""
    at_leaves = walk.log_weights[walk.leaves]
    return float((at_leaves.logsumexp(0) - walk.log_weights.logsumexp(0)).exp())


def leaf_mass_bound(length: int, epsilon: float) -> float:
    """1 / (2 (1 + (H - 1)(1 + ε))). Worked value: H = 3, ε = ½: 1/8."""
    check_count("length", length, at_least=1)
    return 1 / (2 * (1 + (length - 1) * (1 + epsilon)))


def spectral_gap(walk: Walk) -> float:
    """1 - λ_2 of the lazy step, whose eigenvalues lie in [0, 1]; right to a relative 1e-12.

    By bisection on σ: elimination of I - P - σ I from the leaves up has as many negative pivots as
    there are eigenvalues 1 - λ below σ. With τ the pivot of a node, less its edge upwards and
    divided by its weight,

        τ(x) = -2σ + Σ_y down(y) τ(y) / (τ(y) + up(y))      over the children y of x,

    and the pivot itself has the sign of τ + up. What rounding does to τ(x) is what changing the
    conductances and weights below x by a few units in their last digit does, and that changes
    every 1 - λ by as little, relative to itself (Demmel and Gragg 1993).

    Worked value: one edge moves with ½ from either end: eigenvalues 1 and 0, gap 1. A path of two
    equal edges: 1, ½, 0, gap ½.
    """
    if _eigenvalues_below(walk, _LEAST) > 1:
        raise ValueError(
            f"the gap of the walk is below {_LEAST:g}: a subtree is left so rarely that floats do "
            "not hold it"
        )
    low, high = _LEAST, 2.0
    while high > low * (1 + 4 * sys.float_info.epsilon):
        middle = math.sqrt(low) * math.sqrt(high) if high > 2 * low else 0.5 * (low + high)
        few = _eigenvalues_below(walk, middle) <= 1
        low, high = (middle, high) if few else (low, middle)
    return low


def _eigenvalues_below(walk: Walk, sigma: float) -> int:
    """How many eigenvalues of the lazy walk have 1 - λ < σ; λ = 1 is one of them."""
    up, down, parent = walk.up.numpy(), walk.down.numpy(), walk.parent.numpy()
    tau = np.full(len(up), -2 * sigma)
    negative = 0
    for here in reversed(list(walk.levels())[1:]):
        negative += int((tau[here] + up[here] <= 0).sum())
        with np.errstate(divide="ignore"):  # a pivot of 0 counts as negative, its share is +inf
            ratio = np.divide(up[here], tau[here], out=np.zeros_like(up[here]), where=up[here] > 0)
            share = np.where(down[here] > 0, 1 / (1 + ratio), 0.0)
        tau += np.bincount(parent[here], down[here] * share, len(tau))
    return negative + int(tau[0] < 0)


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
            f"the law has no mass on the leaves, or less than floats hold; a walk needs at least "
            f"{walk.length} steps"
        )
    probs = torch.zeros(walk.vocab_size**walk.length, dtype=torch.float64)
    probs[walk.rank[walk.leaves]] = mass / mass.sum()
    return Table(walk.vocab_size, walk.length, probs.log())


def first_leaf(walk: Walk) -> Table:
    """The law of the first leaf that is reached: what the experiments of the source return.

    A current from the root to the leaves splits as the walk does. Worked value: height 1: the first
    step decides, ∝ c.
    """
    below, through = _conductance_to_leaves(walk)
    log_law = torch.zeros_like(below)
    for here in list(walk.levels())[1:]:
        above = walk.parent[here]
        log_law[here] = log_law[above] + torch.where(
            torch.isneginf(through[here]), -torch.inf, through[here] - below[above]
        )
    logs = torch.full((walk.vocab_size**walk.length,), -torch.inf, dtype=torch.float64)
    logs[walk.rank[walk.leaves]] = log_law[walk.leaves]
    return Table(walk.vocab_size, walk.length, log_normalise(logs))


def steps_to_a_leaf(walk: Walk) -> float:
    """Expected steps until the first leaf. Worked value: height 1: a lazy step leaves with ½: 2.

    A unit of current from the root to the leaves has at x the potential G(x) / w(x), G(x) the
    expected number of moves from x.
    """
    below, _ = _conductance_to_leaves(walk)
    potential = torch.full_like(below, -float(below[0]))
    for here in list(walk.levels())[1:]:
        own = walk.log_conductance[here]
        potential[here] = potential[walk.parent[here]] + own - torch.logaddexp(own, below[here])
    inner = ~walk.leaves
    log_steps = math.log(2) + float((walk.log_weights + potential)[inner].logsumexp(0))
    if log_steps > math.log(sys.float_info.max):
        raise ValueError(
            f"the walk takes e^{log_steps:.6g} steps to a leaf on average, which no float holds"
        )
    return math.exp(log_steps)


def _conductance_to_leaves(
    walk: Walk,
) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Logarithms of the conductance from x to the leaves below it, and from its parent through x.

    Edges one after the other add their resistances, edges side by side their conductances.
    """
    through = walk.log_conductance.clone()
    below = torch.full_like(through, -torch.inf).masked_fill(walk.leaves, torch.inf)
    for here in reversed(list(walk.levels())):
        own = walk.log_conductance[here]
        through[here] = -torch.logaddexp(-own, -below[here])
        above, terms = walk.parent[here], through[here]
        if here.start > 0:
            most = torch.full_like(below, -torch.inf).scatter_reduce(0, above, terms, "amax")
            shift = torch.where(torch.isfinite(most), most, 0.0)
            total = torch.zeros_like(below).index_add(0, above, (terms - shift[above]).exp())
            below = torch.where(torch.isfinite(most), shift + total.log(), below)
    if torch.isneginf(below[0]):
        raise ValueError("no leaf can be reached: every full string has value 0")
    return below, through


def path_relaxation_time(length: int) -> float:
    """2 / (1 - cos(π / 2H)): fair bits and V = 1, by hand.

    A function that is odd under swapping the two halves of the tree, and equal within a level,
    follows a path of H equal edges from a wall at the root to a free end at the leaves.
    """
    return 2 / (1 - math.cos(math.pi / (2 * length)))


def _at_the_root(walk: Walk) -> np.ndarray:
    law = np.zeros(len(walk.depth))
    law[0] = 1.0
    return law
