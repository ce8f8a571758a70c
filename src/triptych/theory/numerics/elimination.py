"""How slowly a reversible chain mixes, by eliminating its states without a subtraction.

Let one state 0 be the ground, A = I - P on the other states, and p reversible for P. For functions
f that vanish at the ground, E(f, f) = Σ p f (A f), so the Poincaré constant

    C = sup_f Var_p(f) / E(f, f) = λ_max(K B K),    B = D^½ A⁻¹ D^-½,   K = (I - u uᵀ)^½,

where D = diag(p) and u = √p on those states, and K = I - u uᵀ / (1 + √p_0).

A⁻¹ has no negative entry, and elimination finds each of them to rounding, relative to itself, with
additions, products and quotients alone (Grassmann, Taksar and Heyman): without state k, a move
into k becomes the move out of it, and what leaves k is added up and never taken from 1. Moves of
probability 1e-200 count. So an eigenvalue solver, whose error is a share of about n 2⁻⁵² of the
norm of B for n states, gives the first digits of C, however large it is: that norm is at most
C / p_0, because Var(f) ≥ p_0 E f², and the ground is the likeliest state, p_0 ≥ 1/n.

A = (I - L) Δ (I - U), and by reversibility D^½ L D^-½ is the transpose of D^½ U D^-½. Its entries
are √(L_ik U_ki): they need no power of p, so that p may span more than what floats do.

Notation
--------
P   moves   [states, states], P[x, y] = P(x → y); the diagonal is not read
G   √(L_ik U_ki) below the diagonal   [rest, rest]       Δ   what leaves a state   [rest]
B   (I - G)⁻ᵀ Δ⁻¹ (I - G)⁻¹           [rest, rest]       u   √p                    [rest]
"""

import math
import sys
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.theory.numerics.top_eigenvalue import Top, Unproven, largest_eigenvalue

PROVEN = 1e-9  # relative error of C that is asked for
_PANEL = 128  # states eliminated at once
_COLUMNS = 1024  # columns updated at once, so that no second matrix is held
_LEAST = 1e-290  # what leaves a state, at least: below, digits are lost


@dataclass(frozen=True, eq=False)
class Grounded:
    """The elimination of every state but the ground.

    lower     -G below the diagonal; what stands elsewhere is not read
    scale     the smallest entry of Δ; B is held as B · scale, of ordinary size
    leaving   Δ / scale
    root      u
    """

    lower: Float[Tensor, "rest rest"]
    scale: float
    leaving: Float[Tensor, " rest"]
    root: Float[Tensor, " rest"]
    ground_root: float

    def solve(self, vectors: Float[Tensor, "rest columns"]) -> Float[Tensor, "rest columns"]:
        """B · scale times the vectors."""
        inner = _triangular(self.lower, vectors)
        return _triangular(self.lower, inner / self.leaving[:, None], transposed=True)

    def centred(self, vectors: Float[Tensor, "rest columns"]) -> Float[Tensor, "rest columns"]:
        """K times the vectors."""
        return vectors - torch.outer(self.root, self.root @ vectors) / (1 + self.ground_root)

    def apply(self, vectors: Float[Tensor, "rest columns"]) -> Float[Tensor, "rest columns"]:
        """K B K · scale times the vectors."""
        return self.centred(self.solve(self.centred(vectors)))

    def matrix(self) -> Float[Tensor, "rest rest"]:
        """K B K · scale."""
        inverse = _triangular(self.lower, torch.eye(len(self.leaving), dtype=torch.float64))
        green = inverse.T @ (inverse / self.leaving[:, None])
        out = self.centred(self.centred(green).T)
        return 0.5 * (out + out.T)

    def slow_function(self, vector: Float[Tensor, " rest"]) -> tuple[Float[Tensor, " rest"], float]:
        """√p f on the other states and at the ground, for f of mean 0 and variance 1.

        `vector` is an eigenvector y of K B K; f vanishes at the ground before it is centred, and
        there √p f = B K y.
        """
        f = self.solve(self.centred(vector[:, None]))[:, 0]
        mean = float(self.root @ f)
        rest, ground = f - mean * self.root, -mean * self.ground_root
        size = math.hypot(float(rest.norm()), ground)
        return rest / size, ground / size


def eliminated(
    moves: Float[Tensor, "rest rest"],
    to_ground: Float[Tensor, " rest"],
    root: Float[Tensor, " rest"],
    ground_root: float,
) -> Grounded:
    """Eliminate the states in their order; `moves` is overwritten.

    `moves` are those between the states, `to_ground` those to the ground, `root` is √p. Where the
    ground is reached so rarely that floats do not hold it, `Unproven` is raised.
    Worked value: one state besides the ground, left with probability q: Δ = (q), B = (1/q).
    """
    count, out = len(moves), to_ground.clone()
    leaving = torch.zeros(count, dtype=torch.float64)
    for start in range(0, count, _PANEL):
        end = min(start + _PANEL, count)
        here, rest = slice(start, end), slice(end, count)
        inside = moves[here, here].clone()
        away = out[here] + moves[here, rest].sum(1)
        leaving[here] = _panel_eliminated(inside, away)
        moves[here, here] = inside
        into, onto = inside.tril(-1), inside.triu(1)  # L and U among these states
        rows = end + torch.nonzero((moves[rest, here] > 0).any(1))[:, 0]  # few in a sparse matrix
        columns = end + torch.nonzero((moves[here, rest] > 0).any(0))[:, 0]
        onward = _triangular(-into, moves[here, columns]) / leaving[here, None]
        back = _triangular(-onto.T, moves[rows, here].T).T
        out[rows] += back @ (_triangular(-into, out[here, None])[:, 0] / leaving[here])
        for chosen, part in zip(columns.split(_COLUMNS), onward.split(_COLUMNS, 1), strict=True):
            _added(moves, rows, chosen, back @ part)
        moves[rows, here] = back / leaving[here]
        moves[here, columns] = onward
    for start in reversed(range(0, count, _COLUMNS)):  # rows above are still needed as they are
        end = min(start + _COLUMNS, count)
        onward = moves[:end, start:end].sqrt()
        moves[start:end, :end] = -moves[start:end, :end].sqrt() * onward.T
    scale = float(leaving.min())
    return Grounded(moves, scale, leaving / scale, root, ground_root)


def _added(
    matrix: Float[Tensor, "rest rest"],
    rows: Int[Tensor, " rows"],
    columns: Int[Tensor, " columns"],
    values: Float[Tensor, "rows columns"],
) -> None:
    """Add to these rows and columns, both increasing; a whole rectangle needs no copy."""
    if len(rows) and len(columns):
        ranges = [slice(int(at[0]), int(at[-1]) + 1) for at in (rows, columns)]
        if (rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1) == values.shape:
            matrix[ranges[0], ranges[1]] += values
        else:
            matrix[rows[:, None], columns] += values


def _panel_eliminated(
    inside: Float[Tensor, "panel panel"], away: Float[Tensor, " panel"]
) -> Float[Tensor, " panel"]:
    """What leaves each state once those before it are gone; L and U take the place of `inside`."""
    leaving = np.zeros(len(inside))
    work, out = inside.numpy(), away.numpy()
    for k in range(len(work)):
        onward = work[k, k + 1 :]
        leaving[k] = out[k] + onward.sum()
        if not leaving[k] >= _LEAST:
            raise Unproven(
                f"a part of the support is left with a probability below {_LEAST:g} a step: its "
                "gap is too small for floats; take a weaker law or larger blocks"
            )
        back = work[k + 1 :, k] / leaving[k]
        work[k + 1 :, k + 1 :] += np.outer(back, onward)
        out[k + 1 :] += back * out[k]
        work[k + 1 :, k] = back
        work[k, k + 1 :] = onward / leaving[k]
    return torch.from_numpy(leaving)


def _triangular(
    lower: Float[Tensor, "rest rest"],
    vectors: Float[Tensor, "rest columns"],
    *,
    transposed: bool = False,
) -> Float[Tensor, "rest columns"]:
    """The solution of (I + lower) x = vectors, or of its transpose; reads below the diagonal."""
    matrix = lower.T if transposed else lower
    return torch.linalg.solve_triangular(matrix, vectors, upper=transposed, unitriangular=True)


# ------------------------------------------------------------------ the Poincaré constant


def dense_constant(grounded: Grounded) -> Top:
    """C = λ_max(K B K) from the whole matrix.

    It is at least the quotient that is returned. It is at most 1 + 1e-9 times that, because
    μ(1 + 1e-9) I - K B K has a Cholesky factor.
    """
    matrix = grounded.matrix()
    vector = torch.linalg.eigh(matrix)[1][:, -1]
    value = float(vector @ (matrix @ vector) / (vector @ vector))
    least = (1 + PROVEN) * torch.eye(len(matrix), dtype=torch.float64) - matrix / value
    if int(torch.linalg.cholesky_ex(least)[1]):
        raise Unproven(
            f"the Poincaré constant is larger than {value / grounded.scale:.6g}, which the "
            "eigenvalue solver calls the largest"
        )
    return _unscaled(Top(value, vector, PROVEN * value), grounded.scale)


def lanczos_constant(grounded: Grounded) -> Top:
    """C = λ_max(K B K) by Lanczos on the factors."""
    size, scale = len(grounded.leaving), grounded.scale
    top = largest_eigenvalue(grounded.apply, size, lambda value: PROVEN * value)
    return _unscaled(top, scale)


def _unscaled(top: Top, scale: float) -> Top:
    if top.value > scale * sys.float_info.max:
        raise Unproven("the Poincaré constant is larger than what floats hold, about 1e308")
    return Top(top.value / scale, top.vector, top.error / scale)
