"""Block dynamics on an enumerable distribution, exactly [li, 4.1.2.2, 4.1.2.3].

A step draws a block K ~ p(K | x) and redraws x_K ~ p(x_K | x_-K, K). Given K that is a conditional
expectation, E[f | x_-K, K], so a step is an average of projections,

    (Pf)(x) = Σ_K p(K | x) E[f | x_-K, K],

and no matrix is needed. The chain on x is reversible with respect to p, also when the blocks look
at x: p(x) p(K | x) p(y) p(K | y) / Z is symmetric in x and y. It has no negative eigenvalue, and

    E(f, g) = <f, (I - P) g>_p = E_{(X, K)} Cov(f, g | X_-K, K)              [li, Prop. 4.1.1]
    C       = sup_f Var_p(f) / E(f, f) = 1 / (1 - λ_2)                       [li, Def. 4.1.5]

The kernel on pairs (x, K) that is printed as [li, (4.26)] is in `block_pairs`, times until the
chain has mixed are in `block_mixing`.

Notation
--------
p   the law   [count], sequences in lexicographic order
w   p(x) p(K | x)   [blocks, count]
C   the Poincaré constant
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.csgraph
import scipy.sparse.linalg
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table, places
from triptych.core.validation import check_shape
from triptych.theory.block_sums import BlockSums

DENSE = 1024  # states up to which "auto" takes all eigenvalues
_COLUMNS = 2**24  # entries held at once
_TINY = 1e-5  # gaps below are taken from local covariances,
_SLOW = 1e-3  # among all eigenfunctions whose own 1 - λ is at most this
_MANY = 64  # slow functions that Lanczos is asked for at most
_SMALLEST = 1e-20  # a gap below is not told from rounding, which adds about 1e-31


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
        """p, which every step leaves as it is."""
        return self.table.log_probs.exp()

    @cached_property
    def block_probs(self) -> Float[Tensor, "blocks rows"]:
        """p(K | x); one row for all x if the law does not look at the sequence."""
        if self.masks.adaptive:
            return self.masks.log_prob(self.table.sequences).exp().T.contiguous()
        return self.masks.log_probs.exp()[:, None]

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
        weight = self.stationary * self.block_probs[block]
        return conditional_mean(f, weight, self.blocks[block], self.table.vocab_size)

    def apply(self, f: Float[Tensor, "count *rest"]) -> Float[Tensor, "count *rest"]:
        """Pf: the expectation of f after one step from x."""
        if self.masks.adaptive:
            shape = (-1,) + (1,) * (f.ndim - 1)
            out = torch.zeros_like(f)
            for m in range(len(self.blocks)):
                out += self.block_probs[m].reshape(shape) * self.conditional_mean(f, m)
            return out
        columns = f.reshape(len(f), -1)
        wide = max(1, _COLUMNS // self._sums.entries)
        parts = [self._apply_sums(part) for part in columns.split(wide, dim=1)]
        return torch.cat(parts, dim=1).reshape(f.shape)

    def transition(self) -> Float[Tensor, "count count"]:
        """P[x, y], dense."""
        return self.apply(torch.eye(len(self.stationary), dtype=torch.float64))

    def moved(self, law: Float[Tensor, " count"]) -> Float[Tensor, " count"]:
        """The law after one step from `law`, which must live on the support of p.

        By reversibility that is p · P(law / p). Worked value: from any law on one fair bit, ½, ½.
        """
        p = self.stationary
        check_shape("law", law, tuple(p.shape), "a probability for every sequence")
        if (law[p == 0] != 0).any():
            raise ValueError("the law has mass where p has none: the chain is not defined there")
        density = torch.where(p > 0, law / p.masked_fill(p == 0, 1.0), torch.zeros_like(p))
        return p * self.apply(density)

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

    def _apply_sums(self, f: Float[Tensor, "count columns"]) -> Float[Tensor, "count columns"]:
        mean = self._sums.forward(self.stationary[:, None] * f)
        for total, share in zip(mean, self._shares, strict=True):
            total *= share
        return self._sums.backward(mean)


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
    p = dynamics.stationary
    if not dynamics.masks.adaptive and bool((p > 0).all()):
        return 1  # every position is in some block
    count, label = len(p), np.arange(len(p))
    kept = (p > 0).numpy()
    for m in range(len(dynamics.blocks)):
        inside = ((p * dynamics.block_probs[m]) > 0).numpy()
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
    """√p P / √p on the support, less its eigenvector √p of eigenvalue 1."""
    p = dynamics.stationary
    at = torch.nonzero(p > 0)[:, 0]
    root = p[at].sqrt()
    matrix = root[:, None] * dynamics.transition()[at][:, at] / root
    return 0.5 * (matrix + matrix.T) - root[:, None] * root


def spectrum(dynamics: BlockDynamics) -> Float[Tensor, " support"]:
    """All eigenvalues of P on the support, the largest first.

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

    A gap below 1e-5 loses digits in 1 - λ_2. There the slow eigenvectors only give a subspace, in
    which Var(f) / E(f, f) is maximised with local covariances: right to nine digits for gaps down
    to 1e-20 (eigenvectors are off by about 1e-16, which adds the square of that to the gap). A
    smaller gap is refused. Worked value: two spins with coupling J, singletons: 1 / (1 + e^(2J)).
    """
    p = dynamics.stationary
    at = torch.nonzero(p > 0)[:, 0]
    if len(at) < 2:
        raise ValueError("the law is a point mass: there is nothing to mix")
    dense = method == "dense" or (method == "auto" and len(at) <= DENSE) or len(at) < 16
    values, vectors = (
        torch.linalg.eigh(_symmetric(dynamics)) if dense else _lanczos(dynamics, at, 1)
    )
    f = _functions(vectors[:, -1:], p, at)
    gap = float((p * f[:, 0]) @ (f - dynamics.apply(f))[:, 0])
    if gap > _TINY:
        return gap, f[:, 0]
    few = 8
    while not dense and float(values[0]) >= 1 - _SLOW:
        if few > min(_MANY, len(at) - 1):
            raise ValueError(f"{_MANY} or more functions are slow: use method='dense'")
        values, vectors = _lanczos(dynamics, at, few)
        few *= 2
    f = _functions(vectors[:, values >= 1 - _SLOW], p, at)
    local, overall = dirichlet_form(dynamics, f, f), (p[:, None] * f).T @ f
    gap = float(local.diagonal().min())
    if gap >= _SMALLEST:  # the largest Var(f) / E(f, f) keeps digits that the least inverse loses
        constants, mixtures = scipy.linalg.eigh(overall.numpy(), local.numpy())
        gap, f = 1 / float(constants[-1]), f @ torch.from_numpy(mixtures[:, -1:])
    if gap < _SMALLEST:
        raise ValueError(
            f"the gap is below {_SMALLEST:g} and cannot be told from rounding: the chain hardly "
            "ever leaves some part of the support; take a weaker law or larger blocks"
        )
    return gap, _standardised(f, p)[:, 0]


def _functions(
    vectors: Float[Tensor, "support few"],
    p: Float[Tensor, " count"],
    at: Int[Tensor, " support"],
) -> Float[Tensor, "count few"]:
    """Eigenvectors of the symmetric form as functions of x, of mean 0 and variance 1."""
    f = torch.zeros(len(p), vectors.shape[1], dtype=torch.float64)
    f[at] = vectors / p[at, None].sqrt()
    return _standardised(f, p)


def _standardised(
    f: Float[Tensor, "count few"], p: Float[Tensor, " count"]
) -> Float[Tensor, "count few"]:
    """Of mean 0 and variance 1, and 0 where p is."""
    f = torch.where(p[:, None] > 0, f - p @ f, 0.0)
    return f / (p @ f**2).sqrt()


def _lanczos(
    dynamics: BlockDynamics, at: Int[Tensor, " support"], wanted: int
) -> tuple[Float[Tensor, " wanted"], Float[Tensor, "support wanted"]]:
    """The top eigenvalues, ascending, and their vectors; the start has a fixed seed."""
    p = dynamics.stationary
    root = p[at].sqrt()

    def multiply(vector: np.ndarray) -> np.ndarray:
        v = torch.from_numpy(np.ascontiguousarray(vector.reshape(-1)))
        f = torch.zeros_like(p)
        f[at] = v / root
        return (root * dynamics.apply(f)[at] - root * (root @ v)).numpy()

    size = len(at)
    linear: Any = scipy.sparse.linalg
    operator = linear.LinearOperator((size, size), matvec=multiply, dtype=np.float64)
    start = torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values, vectors = linear.eigsh(
        operator, k=wanted, which="LA", v0=start.numpy(), ncv=min(size, 3 * wanted + 20), tol=1e-12
    )
    order = np.argsort(values)
    return torch.from_numpy(values[order]), torch.from_numpy(vectors[:, order])


def poincare_constant(
    dynamics: BlockDynamics, *, method: Literal["auto", "dense", "lanczos"] = "auto"
) -> float:
    """C = 1 / (1 - λ_2): the best C with Var(f) ≤ C E(f, f); infinite if the chain falls apart.

    Right up to 1e20; a larger finite C is refused, see `slowest`.
    Worked value: two spins with coupling J, singletons: f = s_0 + s_1 has λ = ½(1 + tanh J), so
    C = 1 + e^(2J). N independent positions, singletons: C = N. One block of everything: C = 1.
    """
    if components(dynamics) > 1:
        return math.inf
    return 1 / slowest(dynamics, method=method)[0]


def relaxation_time(dynamics: BlockDynamics) -> float:
    """1 / (1 - the largest |λ| below 1), which is C: no eigenvalue is negative."""
    return poincare_constant(dynamics)
