"""Attention between words when the value matrix is fixed, in closed form [li, 2.1.4.3, 2.1.5.5].

A word attends with weight β to itself, α to other words of its topic and 1 to words of other topics
(before normalisation, per position). In an infinitely long document the attention output and the
loss are then rational functions of (α, β), exact for every finite T, v, τ. Only masked positions
that still show a word count: those that show the mask attend in a way that α and β do not change.

What is masked is itself attended to. Three readings:

    "shared"    masks have the weight of words of other topics: what the network would do
    "ignored"   masks have weight 0
    "printed"   the formulas of the source: weights as if masks had weight 0, outputs as if they had
                their share (its q(x) = c₃ x - p_m p_r c₃ / (T v) needs y_mask = ρ)

The best weights of "ignored" and "printed" agree as T grows; masks that are attended to dilute the
words, and "shared" has γ larger by 1/(1 - ρ), ρ the share of masks (`limit_per_topic`).

Notation
--------
α, β   weights, any shape, one loss for each pair
p₁     frequency of a word of the document after masking,   p₂   of any other word
γ      (v-1)/v α + β/v, the mean weight within a topic
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.theory.topics.uniform_attention import Setting

Reading = Literal["shared", "ignored", "printed"]


@dataclass(frozen=True)
class Value:
    """A value matrix that treats all topics and words alike: its entries by kind.

    The mask's row is 0. mask: the entry of a word's row in the mask's column.
    """

    same_word: float
    same_topic: float
    different_topic: float
    mask: float

    @classmethod
    def blocks(cls, setting: Setting) -> "Value":
        """The optimum of Theorem 2.1.2, with uniform blocks (`topics.ridge_limit`)."""
        c1, c2, c3 = setting.constants
        u = -(c1 * c2 + c3) / (c2**2 + setting.topics * setting.words)
        return cls(u + c3 / setting.words, u + c3 / setting.words, u, -c1 - c2 * u)

    @classmethod
    def diagonal(cls, setting: Setting) -> "Value":
        """D^V of Definition 2.1.2 (`topics.diagonal_optimum`)."""
        c1, _, c3 = setting.constants
        return cls(c3, 0.0, 0.0, -c1)


class _Seen(NamedTuple):
    """Attention output by kind of word, for one kind of query: mass on each word, and how many."""

    itself: Tensor
    neighbour: Tensor
    present: Tensor
    absent: Tensor
    mask: Tensor
    counts: tuple[int, int, int, int]


def attention_loss(
    setting: Setting,
    value: Value,
    alpha: Float[Tensor, "*#pairs"],
    beta: Float[Tensor, "*#pairs"],
    reading: Reading = "shared",
) -> Float[Tensor, "..."]:
    """E over masked positions that show a word of ‖W y - X_j‖², times their share of the masked.

    One loss for each pair of weights, of the shape that α and β have together.

    Worked value, one topic of one word (T = v = τ = 1), p_m = ½, p_c = p_r = ¼, α = β = 1, masks
    ignored: the word is all that is attended to, y = 1, W = c₃ + u; the position shows the word in
    ½ of the masked cases, and the loss is ½ (1 - W)².
    """
    if reading not in ("shared", "ignored", "printed"):
        raise ValueError(f"reading is {reading!r}; it must be 'shared', 'ignored' or 'printed'")
    topics, v, tau = setting.topics, setting.words, setting.drawn
    p2 = setting.replaced
    p1 = setting.left / (v * tau) + p2
    rho = setting.masked if reading == "shared" else 0.0
    alpha, beta = torch.broadcast_tensors(alpha.double(), beta.double())
    one = torch.ones_like(alpha)

    inside = _seen(p1, p2, alpha, beta, rho, v, (tau - 1, topics - tau), p1)
    total = torch.zeros_like(alpha)
    out = _outputs(setting, value, inside, v, reading)
    own, near, present, absent = inside.counts
    base = own * out[0] ** 2 + near * out[1] ** 2 + present * out[2] ** 2 + absent * out[3] ** 2
    kept = setting.p_c + setting.p_r / (topics * v)
    total += kept * (base + one - 2 * out[0])
    total += setting.p_r * (v - 1) / (topics * v) * (base + one - 2 * out[1])
    total += setting.p_r * (tau - 1) / topics * (base + one - 2 * out[2])
    if topics > tau:
        outside = _seen(p1, p2, alpha, beta, rho, v, (tau, topics - tau - 1), p2)
        out = _outputs(setting, value, outside, v, reading)
        own, near, present, absent = outside.counts
        base = own * out[0] ** 2 + near * out[1] ** 2 + present * out[2] ** 2 + absent * out[3] ** 2
        total += setting.p_r * (topics - tau) / topics * (base + one - 2 * out[2])
    return total


def _seen(
    p1: float,
    p2: float,
    alpha: Tensor,
    beta: Tensor,
    rho: float,
    v: int,
    others: tuple[int, int],
    own: float,
) -> _Seen:
    """For a query whose words have frequency `own`; `others`: present and absent topics besides."""
    present, absent = others
    z = own * (beta + (v - 1) * alpha) + v * (p1 * present + p2 * absent) + rho
    return _Seen(
        own * beta / z,
        own * alpha / z,
        p1 / z,
        p2 / z,
        rho / z,
        (1, v - 1, v * present, v * absent),
    )


def _outputs(
    setting: Setting, value: Value, y: _Seen, v: int, reading: Reading
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(W y)_i for the query's word, its neighbours, words of present and of absent topics."""
    own_topic = y.itself + (v - 1) * y.neighbour
    if reading == "printed":
        constant = setting.replaced / setting.left
        if value.same_word == value.same_topic:
            mean = own_topic / v
            each = (mean, mean, y.present, y.absent)
        else:
            each = (y.itself, y.neighbour, y.present, y.absent)
        a, b, c, d = (setting.constants[2] * x - constant for x in each)
        return a, b, c, d
    words = own_topic + y.counts[2] * y.present + y.counts[3] * y.absent

    def output(here: Tensor, topic_mass: Tensor) -> Tensor:
        return (
            value.same_word * here
            + value.same_topic * (topic_mass - here)
            + value.different_topic * (words - topic_mass)
            + value.mask * y.mask
        )

    return (
        output(y.itself, own_topic),
        output(y.neighbour, own_topic),
        output(y.present, v * y.present),
        output(y.absent, v * y.absent),
    )


# ------------------------------------------------------------------ bounds and minimisers


class Bounds(NamedTuple):
    """λ₁ .. λ₅ of Theorems 2.1.3 and 2.1.5."""

    lambda_1: float
    lambda_2: float
    lambda_3: float
    lambda_4: float
    lambda_5: float


def bounds(setting: Setting) -> Bounds:
    """The constants of the two theorems.

    Worked value: p_m = ½, p_c = p_r = ¼, v = 17, so a = 5/8 and p_m p_r = 1/8:
    λ₁ = (3/4)(11/8)/(5/4) = 33/40, λ₂ = 100 · 6 = 600, λ₃ = (3/4) 17/100, λ₅ = 1/10, and
    λ₄ = (5/8) / (4 - 2 + 3/8) · (3/4)/(1/8) · 17 = 510/19.
    """
    a, v = setting.left, setting.words
    random = setting.p_m * setting.p_r
    lost = 1 - a
    return Bounds(
        (a + random) * (1 + lost) / (2 * a),
        100 * (a / random + 1),
        (a + random) * v / 100,
        a / ((v - 1) ** 0.5 - 2 + lost) * (1 - setting.masked) / random * v,
        1 / ((v - 1) * a) if v > 1 else float("inf"),
    )


def within_assumptions(setting: Setting) -> bool:
    """Whether v, p_m, p_c and p_r are as Assumptions 2.1.3 and 2.1.4 want them.

    p_m < ½, 0 < p_c = p_r < ½ and v > (1/a + 1)² + 1. Worked value: p_m = 0.15, p_c = p_r = 0.1 has
    a = 0.865 and asks for v > 5.65. That τ and T/τ are large is for the caller to say.
    """
    alike = setting.p_c == setting.p_r and 0 < setting.p_c < 0.5
    return setting.p_m < 0.5 and alike and setting.words > (1 / setting.left + 1) ** 2 + 1


def limit_per_topic(setting: Setting, reading: Reading = "shared") -> float:
    """lim γ*/τ for uniform blocks, and lim β*/(v τ) for the diagonal, as τ → ∞ and τ/T → 0.

    A query of the document puts the share g = γ / (γ + r τ) on its own topic, r = 1/a with masks
    and (1 - ρ)/a without. What depends on γ to leading order is p_c (1 - 2 g/(a v) + g²/(a² v)):
    least at g = a, where the prediction sums to 1, so γ = a r τ / (1 - a). With the diagonal it is
    p_c ((1 - b/a)² + (v - 1)(c/a)²), b and c the shares of the word and of each neighbour: 0 at
    b = a, c = 0. So the best weights grow like τ, whatever T.

    Worked value: a = 5/8, ρ = ¼: 1/(1 - a) = 8/3 with masks, (¾)(8/3) = 2 without.
    """
    seen = 1.0 if reading == "shared" else 1 - setting.masked
    return seen / (1 - setting.left)


class Minimum(NamedTuple):
    """The best weights found, the loss there, and the mean weight within a topic."""

    alpha: float
    beta: float
    loss: float
    gamma: float


def minimiser(setting: Setting, value: Value, reading: Reading = "shared") -> Minimum:
    """The (α, β) of least loss: a grid over 1e-6 .. 1e12, and Newton's method from its best point.

    Uniform blocks make the loss depend on γ alone: there α = β = γ is returned. For other values
    the best β at α = 0 competes; it is the answer where the loss grows with α there.
    """
    v = setting.words
    if value.same_word == value.same_topic:
        gamma, loss = _along(lambda x: attention_loss(setting, value, x, x, reading))
        return Minimum(gamma, gamma, loss, gamma)

    def loss_at(alpha: Tensor, beta: Tensor) -> Tensor:
        return attention_loss(setting, value, alpha, beta, reading)

    axis = _GRID.exp()
    losses = loss_at(axis[:, None], axis[None])
    i, j = divmod(int(losses.argmin()), len(axis))
    none, least = _along(lambda x: loss_at(torch.zeros_like(x), x))
    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(loss_at(zero, torch.tensor(none, dtype=torch.float64)), zero)[0]
    corner = Minimum(0.0, none, least, none / v)
    if slope >= 0 and least <= float(losses.min()) + _ROUNDING:
        return corner
    alpha, beta = _newton(loss_at, torch.stack([axis[i], axis[j]]))
    loss, gamma = float(loss_at(alpha, beta)), float((v - 1) / v * alpha + beta / v)
    return min(Minimum(float(alpha), float(beta), loss, gamma), corner, key=lambda m: m.loss)


_ROUNDING = 1e-14  # of a loss: along α = 0 it is flat
_GRID = torch.linspace(-6, 12, 181, dtype=torch.float64) * math.log(10)


def _along(loss_at: Callable[[Tensor], Tensor]) -> tuple[float, float]:
    """The weight of least loss on a line, and the loss: ever finer grids in its logarithm."""
    points, reach = _GRID, float(_GRID[1] - _GRID[0])
    for _ in range(5):  # each spans a cell on either side of the best, in 61 points
        centre = points[loss_at(points.exp()).argmin()]
        points = centre + reach * torch.linspace(-1, 1, 61, dtype=torch.float64)
        reach /= 30
    losses = loss_at(points.exp())
    return float(points[losses.argmin()].exp()), float(losses.min())


def _newton(
    loss_at: Callable[[Tensor, Tensor], Tensor], start: Float[Tensor, "2"]
) -> Float[Tensor, "2"]:
    """A stationary (α, β) downhill from the start, by Newton's method in α and log β.

    The loss is so flat in α that its values say nothing where its gradient still does.
    """
    x = torch.stack([start[0], start[1].log()])
    for _ in range(60):
        x = x.detach().requires_grad_()
        gradient = torch.autograd.grad(loss_at(x[0], x[1].exp()), x, create_graph=True)[0]
        curvature = torch.stack([torch.autograd.grad(g, x, retain_graph=True)[0] for g in gradient])
        x = x.detach()
        unit = torch.stack([x[0] + 1e-3 * x[1].exp(), torch.ones_like(x[1])])
        scale, axes = torch.linalg.eigh(curvature * unit[:, None] * unit)
        step = -axes @ ((axes.T @ (gradient.detach() * unit)) / scale.abs())
        x = x + step.clamp(-0.9, 1.0) * unit
        x[0].clamp_(min=0)
        if not step.abs().max() > 1e-8:
            break
    return torch.stack([x[0], x[1].exp()])
