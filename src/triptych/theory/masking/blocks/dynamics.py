"""Block dynamics on an enumerable distribution, exactly [li, 4.1.2.2, 4.1.2.3].

A step draws a block K ~ p(K | x) and redraws x_K ~ p(x_K | x_-K, K). Given K that is a conditional
expectation, E[f | x_-K, K], so a step is an average of projections,

    (Pf)(x) = Σ_K p(K | x) E[f | x_-K, K],

and no matrix is needed. The chain on x is reversible with respect to p, also when the blocks look
at x: p(x) p(K | x) p(y) p(K | y) / Z is symmetric in x and y. It has no negative eigenvalue, and

    E(f, g) = <f, (I - P) g>_p = E_{(X, K)} Cov(f, g | X_-K, K)              [li, Prop. 4.1.1]
    C       = sup_f Var_p(f) / E(f, f) = 1 / (1 - λ_2)                       [li, Def. 4.1.5]

The kernel on pairs (x, K) that is printed as [li, (4.26)] is in `block_pairs`, times until the
chain has mixed are in `block_mixing`, the matrix is made in `block_moves`.

Notation
--------
p   the law   [count], sequences in lexicographic order
w   p(x) p(K | x)   [blocks, count]
C   the Poincaré constant
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table, places
from triptych.core.validation import check_shape
from triptych.theory.masking.blocks.moves import block_conditional, block_moves, block_sum
from triptych.theory.masking.blocks.sums import BlockSums
from triptych.theory.numerics.elimination import dense_constant, eliminated, lanczos_constant
from triptych.theory.numerics.top_eigenvalue import Unproven, largest_eigenvalue

DENSE = 1024  # states up to which "auto" takes the whole matrix
ELIMINATED = 2**14  # states up to which a matrix is held at all
_COLUMNS = 2**24  # entries held at once
_TINY = 1e-5  # a gap below loses too many digits in 1 - λ_2
_PROVEN = 1e-9  # relative error of the gap that is asked for
_LOG_RANGE = -600.0  # log-probabilities below are never made probabilities


@dataclass(frozen=True, eq=False)
class BlockDynamics:
    """The chain that redraws blocks of `masks` from the conditionals of `table`.

    Worked value: one fair bit and the block {0}: every step draws afresh, P = ½ everywhere.
    """

    table: Table
    masks: MaskLaw

    def __post_init__(self) -> None:
        if self.masks.length != self.table.length:
            raise ValueError(
                f"blocks of {self.masks.length} positions on sequences of {self.table.length}"
            )

    @cached_property
    def stationary(self) -> Float[Tensor, " count"]:
        """p, which every step leaves as it is; a probability below 1e-308 may come out as 0."""
        return self.table.log_probs.exp()

    @cached_property
    def support(self) -> Bool[Tensor, " count"]:
        """Where p is positive, also where floats do not hold it."""
        return self.table.log_probs > -torch.inf

    @cached_property
    def block_probs(self) -> Float[Tensor, "blocks rows"]:
        """p(K | x); one row for all x if the law does not look at the sequence."""
        return self.log_block_probs.exp()

    @cached_property
    def log_block_probs(self) -> Float[Tensor, "blocks rows"]:
        """log p(K | x)."""
        if self.masks.adaptive:
            return self.masks.log_prob(self.table.sequences).T.contiguous()
        return self.masks.log_probs[:, None]

    @cached_property
    def wide(self) -> bool:
        """Whether p spans more than floats do, so that all sums must start from logarithms."""
        blocks = self.log_block_probs
        least = blocks.masked_fill(torch.isneginf(blocks), 0.0).amin(0) + self.table.log_probs
        return bool((least[self.support] < _LOG_RANGE).any())

    @property
    def blocks(self) -> Bool[Tensor, "blocks length"]:
        return self.masks.blocks

    def conditional_mean(
        self, f: Float[Tensor, "count *rest"], block: int
    ) -> Float[Tensor, "count *rest"]:
        """E[f(X) | x_-K, K] as a function of x; 0 where x_-K and K do not occur together.

        Worked value: two bits with p = (½, ⅓, 0, ⅙) in lexicographic order, K = {1} with a law
        that does not look at x: f = x_1 has mean 2/5 given x_0 = 0 and 1 given x_0 = 1.
        """
        if self.wide:
            given = self.conditional(block).reshape((-1,) + (1,) * (f.ndim - 1))
            return block_sum(given * f, self.blocks[block], self.table.vocab_size)
        weight = self.stationary * self.block_probs[block]
        return conditional_mean(f, weight, self.blocks[block], self.table.vocab_size)

    def conditional(self, block: int) -> Float[Tensor, " count"]:
        """p(x_K | x_-K, K) as a function of x, from logarithms; 0 where x and K never meet."""
        if self._conditionals is not None:
            return self._conditionals[block]
        return self._conditional(block)

    def _conditional(self, block: int) -> Float[Tensor, " count"]:
        log_weight = self.table.log_probs + self.log_block_probs[block]
        return block_conditional(log_weight, self.blocks[block], self.table.vocab_size)

    @cached_property
    def _conditionals(self) -> Float[Tensor, "blocks count"] | None:
        """The conditionals of all blocks, where they fit."""
        if len(self.blocks) * len(self.support) > _COLUMNS:
            return None
        return torch.stack([self._conditional(m) for m in range(len(self.blocks))])

    def apply(self, f: Float[Tensor, "count *rest"]) -> Float[Tensor, "count *rest"]:
        """Pf: the expectation of f after one step from x."""
        if self.masks.adaptive or self.wide:
            shape = (-1,) + (1,) * (f.ndim - 1)
            out = torch.zeros_like(f)
            for m in range(len(self.blocks)):
                out += self.block_probs[m].reshape(shape) * self.conditional_mean(f, m)
            return out
        columns = f.reshape(len(f), -1)
        wide = max(1, _COLUMNS // self._sums.entries)
        p = self.stationary[:, None]
        parts = [self._spread(p * part) for part in columns.split(wide, dim=1)]
        return torch.cat(parts, dim=1).reshape(f.shape)

    def transition(self) -> Float[Tensor, "count count"]:
        """P[x, y], dense; small entries are as right as large ones."""
        every = torch.arange(len(self.stationary))
        if self.masks.adaptive:
            return self.apply(torch.eye(len(every), dtype=torch.float64))
        return block_moves(self.table, self.masks, every, every)

    def moved(self, law: Float[Tensor, " count"]) -> Float[Tensor, " count"]:
        """The law after one step from `law`, which must live on the support of p.

        What the law gives to (x_-K, K) is spread as p(x_K | x_-K, K). Worked value: from any law
        on one fair bit, ½, ½.
        """
        check_shape("law", law, tuple(self.support.shape), "a probability for every sequence")
        if (law[~self.support] != 0).any():
            raise ValueError("the law has mass where p has none: the chain is not defined there")
        if self.masks.adaptive or self.wide:
            out, vocab = torch.zeros_like(law), self.table.vocab_size
            for m, block in enumerate(self.blocks):
                around = block_sum(self.block_probs[m] * law, block, vocab)
                out += around * self.conditional(m)
            return out
        return self.stationary * self._spread(law[:, None])[:, 0]

    @cached_property
    def _sums(self) -> BlockSums:
        return BlockSums.of(self.blocks, self.table.vocab_size)

    @cached_property
    def _shares(self) -> list[Tensor]:
        """p(K) / p(x_-K) for the blocks of every size; 0 where x_-K does not occur."""
        probs, found = self.block_probs[:, 0], []
        totals = self._sums.forward(self.stationary[:, None])
        for total, numbers in zip(totals, self._sums.numbers, strict=True):
            safe = total.masked_fill(total == 0, 1.0)
            found.append(torch.where(total > 0, probs[numbers, None, None] / safe, 0.0))
        return found

    def _spread(self, f: Float[Tensor, "count columns"]) -> Float[Tensor, "count columns"]:
        """Σ_K p(K) / p(x_-K) Σ_{x_K} f."""
        sums = self._sums.forward(f)
        return self._sums.backward(
            [total * share for total, share in zip(sums, self._shares, strict=True)]
        )


def conditional_mean(
    f: Float[Tensor, "count *rest"],
    weight: Float[Tensor, " count"],
    block: Bool[Tensor, " length"],
    vocab_size: int,
) -> Float[Tensor, "count *rest"]:
    """Σ_{x_K} w f / Σ_{x_K} w, spread over all x that agree outside K; 0 where Σ w = 0."""
    length, rest = len(block), f.shape[1:]
    axes = [i for i in range(length) if block[i]]
    if not axes:
        return torch.where((weight > 0).reshape((-1,) + (1,) * len(rest)), f, torch.zeros_like(f))
    grid = [vocab_size] * length
    w = weight.reshape(grid + [1] * len(rest))
    total = w.sum(axes, keepdim=True)
    mean = (w * f.reshape(*grid, *rest)).sum(axes, keepdim=True) / total.masked_fill(
        total == 0, 1.0
    )
    return mean.expand(*grid, *rest).reshape(f.shape)


# ------------------------------------------------------------------ the Dirichlet form


def dirichlet_form(
    dynamics: BlockDynamics, f: Float[Tensor, "count a"], g: Float[Tensor, "count b"]
) -> Float[Tensor, "a b"]:
    """E(f, g) = E_{(X, K)} Cov(f, g | X_-K, K), for every pair of columns [li, Prop. 4.1.1].

    Every term is a product of deviations from a local mean, so that small values are right in
    relative precision. Worked value: two fair bits, singletons, f = g = x_0: with probability ½
    the block is {0} and the variance ¼, so ⅛.
    """
    out = torch.zeros(f.shape[1], g.shape[1], dtype=torch.float64)
    for m in range(len(dynamics.blocks)):
        weight = (dynamics.stationary * dynamics.block_probs[m])[:, None]
        first = f - dynamics.conditional_mean(f, m)
        second = first if g is f else g - dynamics.conditional_mean(g, m)
        out += (weight * first).T @ second
    return out


def dirichlet_form_of_moves(
    dynamics: BlockDynamics, f: Float[Tensor, "count a"], g: Float[Tensor, "count b"]
) -> Float[Tensor, "a b"]:
    """½ Σ_{x, y} p(x) P(x, y) (f(x) - f(y)) (g(x) - g(y)), from the matrix P [li, Def. 4.1.4]."""
    flow = dynamics.stationary[:, None] * dynamics.transition()
    moved_f, moved_g = f[:, None] - f, g[:, None] - g
    return 0.5 * torch.einsum("xy,xya,xyb->ab", flow, moved_f, moved_g)


# ------------------------------------------------------------------ gap and spectrum


def components(dynamics: BlockDynamics) -> int:
    """Number of parts of the support between which the chain never moves.

    Worked value: two bits that are always equal, redrawn one at a time: 2 parts, 00 and 11.
    """
    count = len(dynamics.support)
    label, kept = np.arange(count), dynamics.support.numpy()
    if not dynamics.masks.adaptive and kept.all():
        return 1  # every position is in some block
    for m in range(len(dynamics.blocks)):
        seen = dynamics.table.log_probs + dynamics.log_block_probs[m]
        inside = (seen > -torch.inf).numpy()
        here = label[inside]
        group = outside(dynamics, m).numpy()[inside] + count
        graph = scipy.sparse.coo_array(
            (np.ones(len(here)), (here, group)), shape=(2 * count, 2 * count)
        )
        found = scipy.sparse.csgraph.connected_components(graph, directed=False)[1]
        label = np.unique(found[label], return_inverse=True)[1]
        if len(np.unique(label[kept])) == 1:
            return 1
    return len(np.unique(label[kept]))


def outside(dynamics: BlockDynamics, block: int) -> Int[Tensor, " count"]:
    """A number for x_-K, the same for sequences that agree outside the block."""
    place = places(dynamics.table.vocab_size, dynamics.table.length)
    return dynamics.table.sequences @ place.masked_fill(dynamics.blocks[block], 0)


def _symmetric(dynamics: BlockDynamics) -> Float[Tensor, "support support"]:
    """√p P / √p on the support, less its eigenvector √p of eigenvalue 1.

    By reversibility its entries are √(P(x, y) P(y, x)), which needs no quotient of tiny p.
    """
    at = torch.nonzero(dynamics.support)[:, 0]
    root = (0.5 * dynamics.table.log_probs[at]).exp()
    matrix = dynamics.transition()[at][:, at].sqrt()
    return matrix * matrix.T - root[:, None] * root


def spectrum(dynamics: BlockDynamics) -> Float[Tensor, " support"]:
    """All eigenvalues of P on the support, the largest first; each is right to about 1e-13.

    Worked value: two spins with coupling J, singletons: 1, ½(1 + tanh J), ½(1 - tanh J), 0.
    """
    rest = torch.linalg.eigvalsh(_symmetric(dynamics)).flip(0)
    nearest_zero = int(rest.abs().argmin())  # what was 1 before it was taken out
    others = torch.cat([rest[:nearest_zero], rest[nearest_zero + 1 :]])
    return torch.cat([torch.ones(1, dtype=torch.float64), others])


def slowest(
    dynamics: BlockDynamics, *, method: Literal["auto", "dense", "lanczos"] = "auto"
) -> tuple[float, Float[Tensor, " count"]]:
    """The gap 1 - λ_2 and a function of mean 0 and variance 1 that attains it.

    The gap is proven to a relative error of 1e-6; it is right to 1e-9 as a rule. Up to 1024
    states, and for "dense", it comes from the matrix by an elimination without subtractions
    (`elimination`); beyond, and for "lanczos", from the operator (`top_eigenvalue`), and where that
    cannot prove it, as for gaps below 1e-5, from the elimination, up to 2^14 states (2 GB and a
    minute or more). Otherwise `Unproven` is raised.
    Worked value: two spins with coupling J, singletons: 1 / (1 + e^(2J)).
    """
    gap, scaled = _gap(dynamics, method)
    f = scaled * (-0.5 * dynamics.table.log_probs.masked_fill(~dynamics.support, 0.0)).exp()
    if not bool(torch.isfinite(f).all()):
        raise Unproven(
            f"the gap is {gap:.6g}, but the slowest function of variance 1 has values that floats "
            "do not hold: it lives where p is below 1e-600"
        )
    return gap, f


def _gap(dynamics: BlockDynamics, method: str) -> tuple[float, Float[Tensor, " count"]]:
    """The gap, and √p f for the slowest function f, of length 1."""
    states = int(dynamics.support.sum())
    if states < 2:
        raise ValueError("the law is a point mass: there is nothing to mix")
    dense = method == "dense" or (method == "auto" and states <= DENSE) or states < 16
    if not dense and not dynamics.wide:
        try:
            return _lanczos(dynamics)
        except Unproven:
            if states > ELIMINATED:
                raise
    if states > ELIMINATED:
        why = "its law spans more than floats do" if dynamics.wide else "method is 'dense'"
        raise Unproven(
            f"the chain has {states} states, and {why}: that takes a matrix, which is held for up "
            f"to {ELIMINATED} states"
        )
    return _eliminated(dynamics, dense=dense)


def _lanczos(dynamics: BlockDynamics) -> tuple[float, Float[Tensor, " count"]]:
    """From the operator √p P / √p, without a matrix."""
    p, on = dynamics.stationary, dynamics.support
    root = p[on].sqrt()[:, None]

    def apply(vectors: Float[Tensor, "size columns"]) -> Float[Tensor, "size columns"]:
        f = torch.zeros(len(p), vectors.shape[1], dtype=torch.float64)
        f[on] = vectors / root
        return root * dynamics.apply(f)[on]

    def allowed(value: float) -> float:
        if value > 1 - _TINY:
            raise Unproven(
                f"the gap is below {_TINY:g}, which rounding hides from Lanczos without a matrix; "
                f"such gaps are proven up to {ELIMINATED} states only: take a weaker law, larger "
                "blocks or fewer positions"
            )
        return _PROVEN * (1 - value)

    top = largest_eigenvalue(apply, len(root), allowed, without=root / root.norm())
    scaled = torch.zeros_like(p)
    scaled[on] = top.vector
    return 1 - top.value, scaled


def _eliminated(dynamics: BlockDynamics, *, dense: bool) -> tuple[float, Float[Tensor, " count"]]:
    """From the matrix, by elimination of every state but the likeliest."""
    log_probs, vocab = dynamics.table.log_probs, dynamics.table.vocab_size
    ground = int(log_probs.argmax())
    on = dynamics.support.clone()
    on[ground] = False
    rest = torch.nonzero(on)[:, 0]
    # with blocks of one position, no two states of the first kind are neighbours: no fill-in
    kind = dynamics.table.sequences[rest].sum(1) % vocab
    rest = rest[kind.argsort(stable=True)]
    if dynamics.masks.adaptive:
        every = dynamics.transition()
        moves, to_ground = every[rest][:, rest], every[rest, ground]
    else:
        end = torch.tensor([ground])
        moves = block_moves(dynamics.table, dynamics.masks, rest, rest)
        to_ground = block_moves(dynamics.table, dynamics.masks, rest, end)[:, 0]
    root = (0.5 * log_probs).exp()
    grounded = eliminated(moves, to_ground, root[rest], float(root[ground]))
    top = dense_constant(grounded) if dense else lanczos_constant(grounded)
    scaled = torch.zeros_like(root)
    scaled[rest], scaled[ground] = grounded.slow_function(top.vector)
    return 1 / top.value, scaled


def poincare_constant(
    dynamics: BlockDynamics, *, method: Literal["auto", "dense", "lanczos"] = "auto"
) -> float:
    """C = 1 / (1 - λ_2): the best C with Var(f) ≤ C E(f, f); infinite if the chain falls apart.

    Proven to a relative error of 1e-6, or refused with a sentence (`Unproven`), see `slowest`.
    Worked value: two spins with coupling J, singletons: f = s_0 + s_1 has λ = ½(1 + tanh J), so
    C = 1 + e^(2J). N independent positions, singletons: C = N. One block of everything: C = 1.
    """
    if components(dynamics) > 1:
        return math.inf
    return 1 / _gap(dynamics, method)[0]


def relaxation_time(dynamics: BlockDynamics) -> float:
    """1 / (1 - the largest |λ| below 1), which is C: no eigenvalue is negative."""
    return poincare_constant(dynamics)
