"""Fitting by masked prediction: the maximum pseudolikelihood estimate from data [li, Def. 4.1.2].

The data matter only through how often each sequence was seen under each block, so a fit costs the
same for any number of samples, and many data sets are fitted at once. For a log-linear family the
loss of a data set is

    L(θ) = -Σ_{K,x} c(K, x) log p_θ(x_K | x_-K, K) / Σ c,

a sum of log-partition functions less a linear term, hence convex [li, Prop. 4.3.6]; its Hessian is
the mean of the covariances of T within the contexts (x_-K, K) that were seen. Newton's method and
gradient descent find the same minimiser, where there is one.

There is none when the data are separated: along some direction v every seen x has the largest v·T
of its context, so the loss falls forever. Two exact tests. If λ_min(∇²L) > D ‖∇L‖ at any θ, with D
the largest ‖T(x) - T(x')‖ within a context, the estimate exists and is unique: along a separating
unit v the gap G = max v·T - v·T has Var G ≤ E G² ≤ D E G, so vᵀ∇²L v ≤ D |v·∇L|. Otherwise a linear
programme looks for v.

Notation
--------
c   counts      [repeats, blocks, count]     how often x was seen under block K
θ   parameters  [repeats, d]                 T   features   [count, d]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import linprog
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import all_sequences, places
from triptych.core.validation import check_sequences, check_shape
from triptych.theory.masking.families import LogLinear

_LOG_ZERO = -1e200  # a weight of 0 that never makes nan
_NEWTON_STEPS = 60
_DESCENT_STEPS = 100_000
_HALVINGS = 40
_SEPARATED = 1e-7  # a gain of the linear programme above this is not rounding


class Fit(NamedTuple):
    """One row per data set. Where `exists` is False there is no unique estimate, and θ is nan.

    converged      the gradient reached the tolerance
    gradient_norm  ‖∇L(θ)‖ where the search ended, also where no estimate exists
    """

    theta: Float[Tensor, "repeats d"]
    exists: Bool[Tensor, " repeats"]
    converged: Bool[Tensor, " repeats"]
    gradient_norm: Float[Tensor, " repeats"]
    loss: Float[Tensor, " repeats"]
    steps: Int[Tensor, " repeats"]


class Derivatives(NamedTuple):
    """L, ∇L and ∇²L of each data set."""

    loss: Float[Tensor, " repeats"]
    gradient: Float[Tensor, "repeats d"]
    hessian: Float[Tensor, "repeats d d"]


# ------------------------------------------------------------------ counting


def pair_counts(
    tokens: Int[Tensor, "repeats n length"],
    masks: MaskLaw,
    vocab_size: int,
    drawn: Int[Tensor, "repeats n masks"] | None = None,
) -> Float[Tensor, "repeats blocks count"]:
    """How often each sequence was seen under each block, in every data set.

    `drawn` are the numbers of the blocks that sequence was seen under; None stands for all masks
    of every sequence, weighted by p(K | x). Worked value: tokens (0, 1), (0, 1), blocks of one,
    drawn 1 and 1: c({1}, 01) = 2 and 0 elsewhere; with all masks c({0}, 01) = c({1}, 01) = 1.
    """
    repeats, n, length = tokens.shape
    check_sequences(tokens.reshape(repeats * n, length), vocab_size, masks.length)
    count, blocks = vocab_size**length, len(masks.blocks)
    rank = (tokens * places(vocab_size, length, tokens.device)).sum(-1)
    first = torch.arange(repeats, device=tokens.device)
    if drawn is None:
        seen = torch.bincount(
            (first[:, None] * count + rank).reshape(-1), minlength=repeats * count
        )
        given = masks.log_prob(all_sequences(vocab_size, length, tokens.device)).exp()
        return seen.reshape(repeats, 1, count) * given.T
    check_shape("drawn", drawn, (repeats, n, drawn.shape[-1]), "blocks for every sequence")
    if drawn.numel() and not (int(drawn.min()) >= 0 and int(drawn.max()) < blocks):
        raise ValueError(f"drawn must hold numbers of blocks, 0..{blocks - 1}")
    pair = (first[:, None, None] * blocks + drawn) * count + rank[..., None]
    seen = torch.bincount(pair.reshape(-1), minlength=repeats * blocks * count)
    return seen.reshape(repeats, blocks, count).double()


# ------------------------------------------------------------------ the loss and its derivatives


class _Group(NamedTuple):
    """Blocks of one size: sequences by context. rank[m, context, state] of block rows[m]."""

    rows: Int[Tensor, " m"]
    rank: Int[Tensor, "m contexts states"]
    log_masks: Float[Tensor, "m contexts states"]


@dataclass(frozen=True, eq=False)
class _Problem:
    """A log-linear family under a mask law."""

    family: LogLinear
    masks: MaskLaw

    def __post_init__(self) -> None:
        if self.masks.length != self.family.length:
            raise ValueError(
                f"blocks of {self.masks.length} positions on sequences of {self.family.length}: "
                "the mask law and the family must have the same length"
            )

    @cached_property
    def groups(self) -> list[_Group]:
        vocab, length = self.family.vocab_size, self.family.length
        every = all_sequences(vocab, length)
        log_masks = self.masks.log_prob(every).T
        sizes = self.masks.blocks.sum(1)
        found = []
        for size in sizes.unique().tolist():
            rows = torch.nonzero(sizes == size)[:, 0]
            outside = places(vocab, length) * ~self.masks.blocks[rows]
            context = every @ outside.T  # the same number for all x that agree outside K
            rank = context.T.argsort(dim=1, stable=True)
            given = log_masks[rows].gather(1, rank)
            shape = (len(rows), vocab ** (length - size), vocab**size)
            found.append(_Group(rows, rank.reshape(shape), given.reshape(shape)))
        return found

    def possible(self, group: _Group) -> Bool[Tensor, "m contexts states"]:
        """Can x and K occur together under the model?"""
        return (self.family.base_log_weights[group.rank] + group.log_masks) > -torch.inf

    @cached_property
    def diameter(self) -> float:
        """D: the largest ‖T(x) - T(x')‖ of two sequences that differ within a block only."""
        points = [self.family.features[group.rank] for group in self.groups]
        return max(float(torch.cdist(p, p).max()) for p in points)

    def _seen(
        self, group: _Group, counts: Float[Tensor, "repeats blocks count"]
    ) -> Float[Tensor, "repeats m contexts states"]:
        places_of = group.rank.flatten(1).expand(len(counts), -1, -1)
        return counts[:, group.rows].gather(2, places_of).reshape(-1, *group.rank.shape)

    def _log_law(
        self, group: _Group, theta: Float[Tensor, "repeats d"]
    ) -> Float[Tensor, "repeats m contexts states"]:
        """log p_θ(x_K | x_-K, K)."""
        logits = self.family.base_log_weights + theta @ self.family.features.T
        return (logits[:, group.rank] + group.log_masks).clamp(min=_LOG_ZERO).log_softmax(-1)

    def slope(
        self, theta: Float[Tensor, "repeats d"], counts: Float[Tensor, "repeats blocks count"]
    ) -> tuple[Float[Tensor, " repeats"], Float[Tensor, "repeats d"]]:
        """L and ∇L: expected less seen counts, as means of T."""
        loss = counts.new_zeros(len(theta))
        excess = counts.new_zeros(len(theta), counts.shape[2])
        for group in self.groups:
            seen, log_law = self._seen(group, counts), self._log_law(group, theta)
            loss -= (seen * torch.where(seen > 0, log_law, 0.0)).sum((1, 2, 3))
            expected = seen.sum(-1, keepdim=True) * log_law.exp()
            flat = group.rank.reshape(-1).expand(len(theta), -1)
            excess.scatter_add_(1, flat, (expected - seen).flatten(1))
        total = counts.sum((1, 2))
        return loss / total, excess @ self.family.features / total[:, None]

    def curvature(
        self, theta: Float[Tensor, "repeats d"], counts: Float[Tensor, "repeats blocks count"]
    ) -> Float[Tensor, "repeats d d"]:
        """∇²L: E[T Tᵀ] less the mean of E[T | x_-K, K] E[T | x_-K, K]ᵀ."""
        features = self.family.features
        spread = counts.new_zeros(len(theta), counts.shape[2])
        inner = counts.new_zeros(len(theta), features.shape[1], features.shape[1])
        for group in self.groups:
            law = self._log_law(group, theta).exp()
            often = self._seen(group, counts).sum(-1)  # how often each context was seen
            flat = group.rank.reshape(-1).expand(len(theta), -1)
            spread.scatter_add_(1, flat, (often[..., None] * law).flatten(1))
            by_context = law.flatten(1, 2).transpose(0, 1)
            mean = torch.bmm(by_context, features[group.rank.flatten(0, 1)]).transpose(0, 1)
            inner += (often.flatten(1)[..., None] * mean).transpose(1, 2) @ mean
        outer = (spread[..., None] * features).transpose(1, 2) @ features
        return (outer - inner) / counts.sum((1, 2))[:, None, None]


def derivatives(
    family: LogLinear,
    masks: MaskLaw,
    counts: Float[Tensor, "repeats blocks count"],
    theta: Float[Tensor, "repeats d"],
) -> Derivatives:
    """L, ∇L and ∇²L at θ, for every data set.

    Worked value: one spin in a field, c = (1, 3), at h = 0: L = log 2, ∇L = -(3 - 1)/4 = -½ and
    ∇²L = 1.
    """
    problem = _checked(family, masks, counts)
    return Derivatives(*problem.slope(theta, counts), problem.curvature(theta, counts))


def hessian_at(
    family: LogLinear,
    masks: MaskLaw,
    counts: Float[Tensor, "repeats blocks count"],
    theta: Float[Tensor, "repeats d"],
) -> Float[Tensor, "repeats d d"]:
    """∇²L at any θ: positive semidefinite, which is the convexity of [li, Prop. 4.3.6]."""
    return derivatives(family, masks, counts, theta).hessian


# ------------------------------------------------------------------ fitting


def fit(
    family: LogLinear,
    masks: MaskLaw,
    counts: Float[Tensor, "repeats blocks count"],
    *,
    method: Literal["newton", "gradient"] = "newton",
    tolerance: float = 1e-9,
    start: Float[Tensor, " d"] | None = None,
) -> Fit:
    """The minimiser of L for every data set, from θ = 0 unless `start` says otherwise.

    newton     steps of (∇²L)⁻¹∇L, halved until the loss falls (Armijo, ¼ of the linear promise)
    gradient   steps of 4/D² ∇L: no covariance of T exceeds D²/4, so the loss falls at each

    Both stop at ‖∇L‖ ≤ tolerance, or after 60 and 100000 steps; descent, which is slow to run away,
    does not start on data without an estimate. The truth of the family is not read.

    Worked value: one spin in a field, c = (1, 3): sigmoid(2h) = ¾, h = ½ log 3; with c = (0, 4)
    there is no estimate.
    """
    problem = _checked(family, masks, counts)
    repeats, d = len(counts), family.features.shape[1]
    at = torch.zeros(d, dtype=torch.float64) if start is None else start
    if method == "newton":
        theta, steps = _newton(problem, at.expand(repeats, d), counts, tolerance)
    elif method == "gradient":
        known = [determined(family, masks, own) for own in counts]
        theta, steps = _descend(problem, at.expand(repeats, d), counts, tolerance, known)
    else:
        raise ValueError(f"method is {method!r}; it must be 'newton' or 'gradient'")
    loss, gradient = problem.slope(theta, counts)
    norm = gradient.norm(dim=1)
    curvature = torch.linalg.eigvalsh(problem.curvature(theta, counts))[:, 0]
    exists = curvature > problem.diameter * norm.clamp(min=1e-13)
    for r in torch.nonzero(~exists)[:, 0].tolist():
        exists[r] = determined(family, masks, counts[r])
    theta = torch.where(exists[:, None], theta, torch.nan)
    return Fit(theta, exists, norm <= tolerance, norm, loss, steps)


def fit_tokens(
    family: LogLinear,
    masks: MaskLaw,
    tokens: Int[Tensor, "n length"],
    drawn: Int[Tensor, " n"] | Int[Tensor, "n masks"] | None = None,
    *,
    method: Literal["newton", "gradient"] = "newton",
) -> Fit:
    """`fit` for one data set: sequences and the blocks each was seen under, None for all masks."""
    blocks = drawn if drawn is None else drawn.reshape(1, len(tokens), -1)
    return fit(
        family, masks, pair_counts(tokens[None], masks, family.vocab_size, blocks), method=method
    )


def _newton(
    problem: _Problem,
    start: Float[Tensor, "repeats d"],
    counts: Float[Tensor, "repeats blocks count"],
    tolerance: float,
) -> tuple[Float[Tensor, "repeats d"], Int[Tensor, " repeats"]]:
    """θ and the steps taken; only data sets that are not yet done are looked at."""
    theta, steps = start.clone(), torch.zeros(len(start), dtype=torch.long)
    active = torch.arange(len(theta))
    eye = torch.eye(theta.shape[1], dtype=theta.dtype)
    for _ in range(_NEWTON_STEPS):
        own = counts[active]
        loss, gradient = problem.slope(theta[active], own)
        going = gradient.norm(dim=1) > tolerance
        active, own, loss, gradient = (part[going] for part in (active, own, loss, gradient))
        if not len(active):
            break
        hessian = problem.curvature(theta[active], own)
        # a ridge far below the curvature of any estimate that exists: the step stays defined
        ridge = 1e-13 * hessian.diagonal(dim1=1, dim2=2).sum(1).clamp(min=1e-30)
        step = torch.linalg.solve(hessian + ridge[:, None, None] * eye, gradient)
        promise = (step * gradient).sum(1)
        size = torch.ones_like(loss)
        for _ in range(_HALVINGS):
            trial, _ = problem.slope(theta[active] - size[:, None] * step, own)
            short = ~(trial <= loss - 0.25 * size * promise + 1e-14)
            if not short.any():
                break
            size = torch.where(short, size / 2, size)
        theta[active] -= size[:, None] * step
        steps[active] += 1
    return theta, steps


def _descend(
    problem: _Problem,
    start: Float[Tensor, "repeats d"],
    counts: Float[Tensor, "repeats blocks count"],
    tolerance: float,
    known: Sequence[bool],
) -> tuple[Float[Tensor, "repeats d"], Int[Tensor, " repeats"]]:
    """θ and the steps taken on the data sets that are known to have an estimate."""
    theta, steps = start.clone(), torch.zeros(len(start), dtype=torch.long)
    active = torch.nonzero(torch.tensor(known))[:, 0]
    own = counts[active]
    size = 4 / problem.diameter**2
    for _ in range(_DESCENT_STEPS):
        _, gradient = problem.slope(theta[active], own)
        going = gradient.norm(dim=1) > tolerance
        active, own = active[going], own[going]
        if not len(active):
            break
        theta[active] -= size * gradient[going]
        steps[active] += 1
    return theta, steps


def determined(family: LogLinear, masks: MaskLaw, counts: Float[Tensor, "blocks count"]) -> bool:
    """Do the data have exactly one estimate? By a linear programme, exactly.

    A direction v is bad if v·(T(x) - T(x')) ≥ 0 for every seen x under K and every x' that agrees
    outside K: the loss never rises along it. The programme maximises the sum of these over a box.
    Worked value: a spin seen up and down is determined; one seen up four times is not.
    """
    problem = _checked(family, masks, counts[None])
    rows = []
    for group in problem.groups:
        seen = counts[group.rows].gather(1, group.rank.flatten(1)).reshape(group.rank.shape) > 0
        gaps = (
            family.features[group.rank][..., :, None, :]
            - family.features[group.rank][..., None, :, :]
        )
        rivals = seen[..., :, None] & problem.possible(group)[..., None, :]
        rows.append(gaps[rivals])
    gaps = torch.cat(rows).unique(dim=0)
    d = gaps.shape[1]
    if len(gaps) == 0 or int(torch.linalg.matrix_rank(gaps)) < d:
        return False
    found = linprog(
        -gaps.sum(0).numpy(), A_ub=-gaps.numpy(), b_ub=[0.0] * len(gaps), bounds=[(-1, 1)] * d
    )
    if not found.success:
        raise ValueError(f"the linear programme for separation did not end: {found.message}")
    return -found.fun <= _SEPARATED * float(gaps.abs().max())


def _checked(
    family: LogLinear, masks: MaskLaw, counts: Float[Tensor, "repeats blocks count"]
) -> _Problem:
    wanted = (len(counts), len(masks.blocks), len(family.features))
    check_shape("counts", counts, wanted, "a count per block and sequence")
    if not bool((counts.sum((1, 2)) > 0).all()):
        raise ValueError("a data set without samples has no estimate: every total must be positive")
    return _Problem(family, masks)
