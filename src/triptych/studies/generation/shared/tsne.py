"""t-SNE of a few hundred points, exactly and without a tree [van der Maaten and Hinton 2008].

Each point's neighbourhood is a Gaussian of a given perplexity; the plane is found by gradient
descent on KL(P | Q), where Q has Student tails. Quadratic in the points: for pictures of up to a
few thousand of them, on any machine that has torch.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.validation import check_count

_EXAGGERATION, _EXAGGERATED_STEPS = 12.0, 250


def tsne(
    points: Float[Tensor, "n width"], *, perplexity: float = 30.0, steps: int = 750, seed: int = 0
) -> Float[Tensor, "n 2"]:
    """A picture of the points; a function of the arguments alone."""
    check_count("points", len(points), at_least=4)
    if not 1 < perplexity < len(points):
        raise ValueError(f"perplexity is {perplexity}; it must lie between 1 and {len(points)}")
    p = joint_probabilities(points.double(), perplexity)
    generator = torch.Generator().manual_seed(seed)
    y = 1e-4 * torch.randn((len(points), 2), generator=generator, dtype=torch.float64)
    y = y.to(points.device)
    speed, gain = torch.zeros_like(y), torch.ones_like(y)
    rate = max(len(points) / _EXAGGERATION / 4, 50.0)
    for step in range(steps):
        early = step < _EXAGGERATED_STEPS
        gradient = _gradient(p * _EXAGGERATION if early else p, y)
        gain = torch.where(gradient.sign() != speed.sign(), gain + 0.2, gain * 0.8).clamp(min=0.01)
        speed = (0.5 if early else 0.8) * speed - rate * gain * gradient
        y = y + speed
        y = y - y.mean(0)
    return y


def joint_probabilities(
    points: Float[Tensor, "n width"], perplexity: float
) -> Float[Tensor, "n n"]:
    """p_ij = (p_j|i + p_i|j) / 2n, each p_·|i a Gaussian whose entropy is log(perplexity)."""
    distance = torch.cdist(points, points).square()
    n = len(points)
    distance.fill_diagonal_(torch.inf)
    low = torch.zeros(n, 1, dtype=torch.float64, device=points.device)
    high = torch.full_like(low, torch.inf)
    nearest = distance.min(-1, keepdim=True).values
    beta = 1.0 / distance.masked_fill(distance.isinf(), 0.0).mean(-1, keepdim=True).clamp(
        min=1e-300
    )
    for _ in range(64):
        log_p = (-(distance - nearest) * beta).log_softmax(-1)
        p = log_p.exp()
        entropy = -(p * log_p.masked_fill(p == 0, 0.0)).sum(-1, keepdim=True)
        too_wide = entropy > math.log(perplexity)
        low, high = torch.where(too_wide, beta, low), torch.where(too_wide, high, beta)
        beta = torch.where(high.isinf(), beta * 2, (low + high) / 2)
    p = (-(distance - nearest) * beta).softmax(-1)
    return (p + p.T) / (2 * n)


def divergence(p: Float[Tensor, "n n"], y: Float[Tensor, "n 2"]) -> float:
    """KL(P | Q) of a picture."""
    q = _student(y)
    q = q / q.sum()
    inside = p > 0
    return float((p[inside] * (p[inside] / q[inside]).log()).sum())


def _student(y: Float[Tensor, "n 2"]) -> Float[Tensor, "n n"]:
    q = 1 / (1 + torch.cdist(y, y).square())
    return q.fill_diagonal_(0.0)


def _gradient(p: Float[Tensor, "n n"], y: Float[Tensor, "n 2"]) -> Float[Tensor, "n 2"]:
    student = _student(y)
    pull = (p - student / student.sum()) * student
    return 4 * (pull.sum(-1, keepdim=True) * y - pull @ y)
