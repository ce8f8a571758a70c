"""The largest eigenvalue of a symmetric operator, with a proof that there is no larger one.

A residual shows that an eigenvalue is near a Rayleigh quotient. It does not show that the largest
one was found: Lanczos from one start misses copies, and stops as if it had them all. So the search
goes on with what was found projected away, from fresh random starts, until those prove that
nothing larger is left.

The proof. After k steps from a unit vector b, the polynomial q(x) = Π (x - θ_i) of the Ritz values
has |q(A) b| = β_1 β_2 .. β_k. If A has an eigenvalue λ with the unit eigenvector u, then

    |q(λ)| |<u, b>| ≤ β_1 .. β_k,    so    |<u, b>| ≤ β_1 .. β_k / Π (λ - θ_i)     for λ > θ_1.

The right side falls with λ: from some x on it is below a, and an eigenvalue beyond x needs a start
with |<u, b>| ≤ a. For b uniform on the sphere in m dimensions that has probability at most
a √(2m/π), and a few independent starts must all be so unlucky. No assumption on the spectrum is
made, and an eigenvalue may have any number of copies.

With V the functions found, H = Vᵀ A V with largest eigenvalue μ, r = |A V - V H|, and x as above
for A on the complement of V, the largest eigenvalue of A is in [μ, μ + e],

    e = r² / (μ - x)  if x < μ,   and   e = max(x - μ, 0) + r  always,

because eliminating the complement gives (λ - μ)(λ - x) ≤ r² for every eigenvalue λ > x.

Notation
--------
V   found functions, orthonormal   [size, found]          θ   Ritz values of one start   [steps]
b   a random start                 [size]                 β   lengths of the residuals   [steps]
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Float
from torch import Tensor

CHANCE = 1e-12  # that one proof is wrong
_STARTS = 2  # independent random vectors of one search
_STEPS = 240  # of one search, at most
_LOOK = 5  # steps between two looks at the Ritz values
_SEARCHES = 100
_ENTRIES = 2**27  # held at once: 1 GiB
_ROUNDING = 1e-15  # of the norm: a residual below is not told from 0
_CLOSE = 100.0  # a Ritz vector is kept once its residual is this many times the error allowed
_APART = 0.1  # what a kept vector adds to the span of the others, at least

Operator = Callable[[Float[Tensor, "size columns"]], Float[Tensor, "size columns"]]


class Unproven(ValueError):
    """An eigenvalue could not be computed with a proof."""


class Top(NamedTuple):
    """The largest eigenvalue is in [value, value + error]; `vector` has the quotient `value`."""

    value: float
    vector: Float[Tensor, " size"]
    error: float


def largest_eigenvalue(
    apply: Operator,
    size: int,
    allowed: Callable[[float], float],
    *,
    without: Float[Tensor, "size known"] | None = None,
) -> Top:
    """The largest eigenvalue of A on the complement of `without`, up to `allowed(value)`.

    `without` has orthonormal columns. The starts have a fixed seed; the proof fails with
    probability 1e-12. `Unproven` is raised when the steps do not suffice.
    Worked value: diag(3, 3, 2): 3; without the first axis: 3; without the first two: 2.
    """
    generator = torch.Generator().manual_seed(0)
    nothing = torch.zeros(size, 0, dtype=torch.float64)
    known = nothing if without is None else without
    found, images = nothing, nothing
    for _ in range(_SEARCHES):
        space = torch.cat([known, found], 1)
        left = size - space.shape[1]
        top = _top(found, images) if found.shape[1] else None
        if left == 0:
            if top is None:
                raise ValueError("an operator without dimensions has no eigenvalue")
            return Top(top.value, top.vector, top.residual)
        steps = min(left, _STEPS, max(2 * _LOOK, _ENTRIES // (size * _STARTS)))
        search = _Search(apply, space, steps, generator)
        proven, fresh = _searched(search, top, allowed)
        if proven is not None and top is not None:
            return Top(top.value, top.vector, proven)
        fresh = _independent(_less(fresh, space))
        if fresh.shape[1] == 0:
            break
        found = torch.cat([found, fresh], 1)
        images = torch.cat([images, _less(apply(fresh), known)], 1)
    raise Unproven(
        f"Lanczos has not proven the largest eigenvalue of {size} dimensions after "
        f"{_STARTS} starts of {_STEPS} steps: many eigenvalues are as large"
    )


class _Known(NamedTuple):
    """The largest Rayleigh quotient of the functions found, and r = |A V - V H|."""

    value: float
    vector: Float[Tensor, " size"]
    residual: float


def _top(found: Float[Tensor, "size found"], images: Float[Tensor, "size found"]) -> _Known:
    inner = found.T @ images
    values, mixtures = torch.linalg.eigh(0.5 * (inner + inner.T))
    residual = torch.linalg.matrix_norm(images - found @ inner)  # at least the spectral norm
    return _Known(float(values[-1]), found @ mixtures[:, -1], float(residual))


class _Search:
    """Lanczos from several random starts, side by side, each with its own basis.

    bases[c, j] is the vector after j steps from start c; a start is done when its residual is 0.
    """

    def __init__(
        self,
        apply: Operator,
        space: Float[Tensor, "size d"],
        steps: int,
        generator: torch.Generator,
    ) -> None:
        self.apply, self.space, self.steps = apply, space, steps
        size = len(space)
        start = torch.randn(size, _STARTS, generator=generator, dtype=torch.float64)
        start = _less(_less(start, space) / _less(start, space).norm(dim=0), space)
        self.bases = torch.empty(_STARTS, steps + 1, size, dtype=torch.float64)
        self.bases[:, 0] = (start / start.norm(dim=0)).T
        self.alphas: list[list[float]] = [[] for _ in range(_STARTS)]
        self.betas: list[list[float]] = [[] for _ in range(_STARTS)]
        self.going = list(range(_STARTS))
        self.norm = torch.finfo(torch.float64).tiny  # of A, as far as it was seen
        left = size - space.shape[1]
        self.log_component = math.log(CHANCE) / _STARTS + 0.5 * math.log(math.pi / (2 * left))

    def step(self) -> None:
        """One more vector for every start that is not done."""
        going, j = self.going, len(self.alphas[self.going[0]])
        last = self.bases[going, j].T
        moved = _less(self.apply(last.contiguous()), self.space)
        self.norm = max(self.norm, float(moved.norm(dim=0).max()))
        for place, c in enumerate(going):
            vector, basis = moved[:, place], self.bases[c, : j + 1]
            self.alphas[c].append(float(last[:, place] @ vector))
            for _ in range(2):  # the first time leaves rounding along large components
                vector = vector - (basis @ vector) @ basis
                vector = vector - self.space @ (vector @ self.space)
            beta = float(vector.norm())
            self.betas[c].append(beta)
            self.bases[c, j + 1] = vector / (beta or 1.0)
        self.going = [c for c in going if self.betas[c][-1] > _ROUNDING * self.norm]

    def ritz(self, c: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ritz values of a start, the largest last, their mixtures, and their residuals."""
        values, mixtures = scipy.linalg.eigh_tridiagonal(self.alphas[c], self.betas[c][:-1])
        return values, mixtures, self.betas[c][-1] * np.abs(mixtures[-1])

    def limit(self, c: int, values: np.ndarray) -> float:
        """x: an eigenvalue beyond needs a start with a component of at most a along it."""
        floor = _ROUNDING * self.norm
        wanted = sum(math.log(max(beta, floor)) for beta in self.betas[c]) - self.log_component
        low, high = math.log(floor), math.log(8 * self.norm)
        while high - low > 1e-3:
            middle = 0.5 * (low + high)
            enough = np.log(values[-1] - values + math.exp(middle)).sum() >= wanted
            low, high = (low, middle) if enough else (middle, high)
        return float(values[-1]) + math.exp(high)


def _searched(
    search: _Search, top: _Known | None, allowed: Callable[[float], float]
) -> tuple[float | None, Float[Tensor, "size fresh"]]:
    """The error that is proven for `top`, or Ritz vectors to keep before the next search."""
    for step in range(1, search.steps + 1):
        search.step()
        ended = step == search.steps or not search.going
        if step % _LOOK and not ended:
            continue
        looks = [search.ritz(c) for c in range(_STARTS)]
        if top is not None:
            limits = [search.limit(c, values) for c, (values, _, _) in enumerate(looks)]
            error = _error(top, max(limits))
            if error <= allowed(top.value):
                return error, search.space[:, :0]
        best = max(values[-1] for values, _, _ in looks)
        best = best if top is None else max(best, top.value)
        goal = max(_CLOSE * allowed(best), 10 * _ROUNDING * search.norm)
        if ended or all(residuals[-1] <= goal for _, _, residuals in looks):
            kept = [
                search.bases[c, : len(values)].T @ torch.from_numpy(mixtures[:, residuals <= goal])
                for c, (values, mixtures, residuals) in enumerate(looks)
            ]
            return None, torch.cat(kept, 1)
    raise AssertionError("a search ends with its last step")


def _error(top: _Known, limit: float) -> float:
    """e, from r and the limit x of the rest."""
    simple = max(limit - top.value, 0.0) + top.residual
    if limit >= top.value:
        return simple
    return min(simple, top.residual**2 / (top.value - limit))


def _less(
    vectors: Float[Tensor, "size columns"], space: Float[Tensor, "size d"]
) -> Float[Tensor, "size columns"]:
    """Without their components in the space, twice: a single time leaves rounding."""
    for _ in range(2 if space.shape[1] else 0):
        vectors = vectors - space @ (space.T @ vectors)
    return vectors


def _independent(vectors: Float[Tensor, "size many"]) -> Float[Tensor, "size few"]:
    """An orthonormal basis of the span, less directions that the vectors hardly have."""
    if vectors.shape[1] == 0:
        return vectors
    left, sizes, _ = torch.linalg.svd(vectors, full_matrices=False)
    return left[:, sizes > _APART]
