"""A learning curve down to the exact floor: how far a network is from the truth, step by step.

    curve = learning_curve(truth, steps=1000)    # draws itself in a notebook

The floor is the entropy of the exact conditional laws, which no model can beat. What is above it is
the divergence from the truth, without sampling noise in the targets.
"""

import html
import math
from dataclasses import dataclass, replace
from typing import Any

from triptych.core.display import card, facts_table, number
from triptych.core.protocols import Structure
from triptych.core.randomness import TorchRng
from triptych.core.validation import (
    Count,
    Number,
    UserError,
    as_count,
    as_probability,
    as_seed,
    check_can,
    shown,
)
from triptych.models.language_models import CausalLM, MaskedLM
from triptych.models.transformer import Transformer
from triptych.training.loop import fit, gap_meter
from triptych.training.objectives import masked, next_token
from triptych.training.step import Recipe

_WIDTH, _HEIGHT, _EDGE = 420, 200, 44


@dataclass(frozen=True)
class Curve:
    """steps   where the gap was measured, 0 first
    loss    cross-entropy of the network against the exact laws, nats a token
    floor   their entropy: the least possible loss
    model   the network, trained

    Worked value: Curve((0, 10), (1.5, 1.0), 0.9, None).kl is (0.6, 0.1).
    """

    steps: tuple[int, ...]
    loss: tuple[float, ...]
    floor: float
    model: Any

    @property
    def kl(self) -> tuple[float, ...]:
        """loss - floor: the divergence from the truth."""
        return tuple(loss - self.floor for loss in self.loss)

    def __repr__(self) -> str:
        return (
            f"Curve({self.steps[-1]} steps, loss {self.loss[0]:.4g} to {self.loss[-1]:.4g}, "
            f"floor {self.floor:.4g})"
        )

    def _repr_html_(self) -> str:
        facts = {"floor": self.floor, "loss at the end": self.loss[-1], "above": self.kl[-1]}
        return card(repr(self), _svg(self), facts_table(facts))

    def plot(self, axes: Any = None) -> Any:
        """The curve and the floor on axes of matplotlib, new ones if none are given."""
        if axes is None:
            try:
                from matplotlib import pyplot
            except ImportError as error:
                raise UserError(
                    "plot needs matplotlib: install it, or look at the curve in a notebook",
                    parameter="axes",
                ) from error
            axes = pyplot.figure().gca()
        check_can("axes", axes, "plot", "axhline")
        axes.plot(self.steps, self.loss, label="network")
        axes.axhline(self.floor, linestyle="--", color="gray", label="exact floor")
        axes.set_xlabel("step")
        axes.set_ylabel("nats a token")
        axes.legend()
        return axes


def learning_curve(
    truth: Structure,
    model: CausalLM | MaskedLM | None = None,
    *,
    steps: Count = 500,
    recipe: Recipe | None = None,
    points: Count = 20,
    test_rows: Count = 200,
    rate: Number = 0.15,
    seed: Count = 0,
) -> Curve:
    """Train a model on fresh data of a truth, and measure how far it is at some points.

    Without a model, a small causal transformer that fits the truth. A masked one is trained to
    predict tokens that are hidden at `rate`. A `recipe` takes over from `steps`; what it says about
    measuring is replaced by `points`.
    """
    check_can("truth", truth, "sample", "vocab_size", "length")
    steps, seed = as_count("steps", steps, at_least=1), as_seed(seed)
    points = as_count("points", points, at_least=1)
    rate = as_probability("rate", rate, strictly=True)
    if model is None:
        model = CausalLM(Transformer.for_(truth, seed=seed))
    if not isinstance(model, CausalLM | MaskedLM):
        raise UserError(
            f"model is {shown(model)}; it must be a CausalLM or a MaskedLM", parameter="model"
        )
    causal = isinstance(model, CausalLM)
    objective = next_token(truth)
    if not causal:
        objective = masked(words=truth.vocab_size, p_m=rate, truth=truth)
    recipe = Recipe(steps=steps, learning_rate=3e-3) if recipe is None else recipe
    recipe = replace(recipe, meter_every=max(1, recipe.steps // points))
    device = model.net.device
    held = truth.sample(as_count("test_rows", test_rows, at_least=1), TorchRng(seed + 1, device))
    meter = gap_meter(objective, held, seed)
    model.net.eval()
    first = meter(model)
    history = fit(model, truth.sample, objective, recipe, TorchRng(seed, device), meter=meter)
    measured = [(0, first), *history.gaps]
    return Curve(
        tuple(step for step, _ in measured),
        tuple(gap.loss for _, gap in measured),
        first.bayes_loss,
        model,
    )


def _svg(curve: Curve) -> str:
    """The curve over the floor, with the ends of both axes written on them."""
    low, high = curve.floor, max(curve.loss)
    high = high if high > low else low + 1.0
    last = max(1, curve.steps[-1])

    def at(step: int, loss: float) -> str:
        x = _EDGE + (_WIDTH - _EDGE - 8) * step / last
        y = 8 + (_HEIGHT - _EDGE) * (1 - (loss - low) / (high - low))
        return f"{x:.1f},{y:.1f}"

    finite = [(s, v) for s, v in zip(curve.steps, curve.loss, strict=True) if math.isfinite(v)]
    path = " ".join(at(step, loss) for step, loss in finite)
    floor = f"{at(0, low)} {at(last, low)}"
    style = 'fill="currentColor" font-size="11" font-family="sans-serif"'
    bottom = 8 + _HEIGHT - _EDGE
    texts = [
        (2, 16, number(high)),
        (2, bottom, number(low)),
        (_EDGE, _HEIGHT - 14, "0"),
        (_WIDTH - 60, _HEIGHT - 14, f"step {last}"),
        (_EDGE + 4, bottom - 4, "exact floor"),
    ]
    words = "".join(f'<text x="{x}" y="{y}" {style}>{html.escape(t)}</text>' for x, y, t in texts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}"><title>loss by step</title>'
        f'<polyline points="{floor}" fill="none" stroke="#8a8a8a" stroke-dasharray="5 4"/>'
        f'<polyline points="{path}" fill="none" stroke="#4a90c4" stroke-width="2"/>{words}</svg>'
    )
