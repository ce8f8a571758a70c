"""Maximising a smooth function of a few numbers, with its exact gradient; and how sure the end is.

For laws whose logits are linear in the parameters. With everything shown the objective is concave,
and L-BFGS finds its one maximum where there is one. The data may have none: along a separating
direction the likelihood rises forever. The end is proven to be near the one maximum when the
smallest curvature there is larger than the gradient can be along such a direction.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from triptych.fitting.climb import Climb
from triptych.fitting.search import Search

Slope = Callable[[Float[Tensor, " d"]], tuple[float, Float[Tensor, " d"]]]
"""The objective and its gradient."""


class Top(NamedTuple):
    """theta    where the search ended
    climb       how; its parameters are empty
    curvature   minus the second derivative there
    """

    theta: Float[Tensor, " d"]
    climb: Climb
    curvature: Float[Tensor, "d d"]


def maximise(
    slope: Slope,
    bend: Callable[[Float[Tensor, " d"]], Float[Tensor, "d d"]],
    start: Float[Tensor, " d"],
    search: Search,
    rows: float,
) -> Top:
    """L-BFGS from `start`; bend(theta) is minus the second derivative."""
    climb = Climb({})
    first, _ = slope(start)
    climb.trace.append(first)
    seen: dict[bytes, float] = {}

    def downhill(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = slope(torch.from_numpy(x.copy()))
        seen.clear()
        seen[x.tobytes()] = value
        return -value / rows, -gradient.numpy() / rows

    def note(x: np.ndarray) -> None:
        known = seen.get(x.tobytes())
        climb.trace.append(-downhill(x)[0] * rows if known is None else known)

    done = minimize(
        downhill, start.numpy(), jac=True, method="L-BFGS-B", callback=note,
        options={"maxiter": search.max_steps, "gtol": 1e-9, "ftol": 0.0, "maxcor": 30,
                 "maxfun": 20 * search.max_steps},
    )  # fmt: skip
    theta = torch.from_numpy(np.array(done.x))
    curvature = bend(theta)
    value, gradient = slope(theta)
    climb.log_likelihood = value
    lowest = float(torch.linalg.eigvalsh(curvature)[0]) if len(theta) else 1.0
    norm = float(gradient.norm())
    climb.remaining = 0.5 * norm**2 / lowest if lowest > 0 else float("inf")
    climb.converged = climb.remaining <= search.tolerance * rows and climb.steps < search.max_steps
    climb.ended = f"the slope is {norm / rows:.2g} a row"
    return Top(theta, climb, curvature)


def second_derivative(slope: Slope, theta: Float[Tensor, " d"]) -> Float[Tensor, "d d"]:
    """Minus ∇² of the objective, by central differences of its exact gradient."""
    step, columns = 1e-4, []
    for i in range(len(theta)):
        move = torch.zeros_like(theta)
        move[i] = step
        columns.append((slope(theta - move)[1] - slope(theta + move)[1]) / (2 * step))
    found = torch.stack(columns, 1) if columns else theta.new_zeros((0, 0))
    return 0.5 * (found + found.T)


def certainly_exists(
    curvature: Float[Tensor, "d d"], gradient: Float[Tensor, " d"], diameter: float
) -> bool:
    """Whether there is one maximum: the smallest curvature exceeds D ‖∇‖ [li, 4.1.2].

    D is the largest distance of two features that the objective compares. Along a separating unit
    v the gap G = max v·T - v·T has Var G ≤ D E G, so vᵀHv ≤ D |v·∇|.
    """
    return bool(torch.linalg.eigvalsh(curvature)[0] > diameter * gradient.norm())
