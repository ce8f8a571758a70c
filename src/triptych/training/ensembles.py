"""Many seeds of one small network as one batched computation.

The weights of all members are stacked and the forward pass is mapped over them, so that a GPU sees
one large product instead of many small ones. Every member has its own data and randomness and ends
where `fit` alone would take it, up to rounding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.training.corpus import Corpus
from triptych.training.loop import History, Sampler, Trainable, check_tokens
from triptych.training.objectives import Objective, Prediction, RowByRow, member_losses
from triptych.training.step import Descent, Recipe, descend


@dataclass(frozen=True)
class Contrast:
    """A penalty: what the network says of a string should not depend on what stands before it.

    weight · mean (T(p ⊕ s) - T(s))², the logits of all tokens of s [li, (2.58)].

    before
        The tokens p of every step, the same for all strings and members.
    """

    before: Callable[[int], Int[Tensor, " tokens"]]
    weight: float


class _Wrapped(nn.Module):
    """A language model as a module, so that its weights can be swapped for stacked ones."""

    def __init__(self, model: Trainable) -> None:
        super().__init__()
        self.net = model.net
        self.token_logits = model.token_logits

    def forward(self, seen: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        return self.token_logits(seen)


def fit_ensemble(
    models: Sequence[Trainable],
    sample: Sampler | Corpus,
    objective: Objective,
    recipe: Recipe,
    rngs: Sequence[TorchRng | int],
    *,
    contrast: Contrast | None = None,
) -> list[History]:
    """Train all models at once, in place; member i draws its data from rngs[i], as `fit` would.

    With a `contrast`, its penalty is a part of every loss. On a GPU, draw from a `Corpus` with an
    objective that is `RowByRow`: then a step asks for the data of all members at once.

    Adafactor and muon (whose steps mix entries of a matrix), compilation, checkpoints and the meter
    are for `fit` alone.
    """
    if len(models) != len(rngs) or not models:
        raise UserError(f"{len(models)} models and {len(rngs)} rngs: give one rng to each model")
    if recipe.optimiser in ("adafactor", "muon"):
        raise UserError("an ensemble trains with adamw, adam or sgd")
    ignored = [name for name in ("compile", "ema", "meter_every") if getattr(recipe, name)]
    ignored += ["autocast"] if recipe.autocast != "none" else []
    if ignored:
        raise UserError(f"an ensemble has no {', '.join(ignored)}: train with fit instead")
    device = next(models[0].net.parameters()).device
    streams = [rng if isinstance(rng, TorchRng) else TorchRng(rng, device) for rng in rngs]
    wrapped = [_Wrapped(model) for model in models]
    stacked, buffers = stack_module_state(list(wrapped))
    trained = {name for name, parameter in wrapped[0].named_parameters() if parameter.requires_grad}
    weights = {name: value.detach().clone() for name, value in stacked.items()}
    parameters = [nn.Parameter(weights[name]) for name in sorted(trained)]
    weights |= dict(zip(sorted(trained), parameters, strict=True))

    def logits_of(weights: dict[str, Tensor], buffers: dict[str, Tensor], seen: Tensor) -> Tensor:
        return functional_call(wrapped[0], {**weights, **buffers}, (seen,))

    def all_logits(seen: Int[Tensor, "members batch t"]) -> Float[Tensor, "members batch t vocab"]:
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels cannot be mapped over members
            return vmap(logits_of, randomness="error")(weights, buffers, seen)

    def loss_at(step: int) -> Float[Tensor, " members"]:
        predictions = _predictions(sample, objective, recipe.batch, streams)
        if step == 0:
            check_tokens(models[0], predictions)
        seen = predictions.seen.unflatten(0, (len(models), recipe.batch))
        logits = all_logits(seen)
        values = member_losses(logits, predictions, recipe.loss)
        if contrast is None:
            return values
        before = contrast.before(step).to(seen.device)
        longer = torch.cat([before.expand(*seen.shape[:2], -1), seen], -1)
        apart = all_logits(longer)[:, :, len(before) :] - logits
        return values + contrast.weight * apart.square().flatten(1).mean(1)

    descent = Descent(recipe, parameters, members=len(models))
    descend(descent, loss_at)
    with torch.no_grad():
        for name, value in zip(sorted(trained), parameters, strict=True):
            for member, module in enumerate(wrapped):
                module.get_parameter(name).copy_(value[member])
    return [History(losses=[step[i] for step in descent.losses]) for i in range(len(models))]


def _predictions(
    sample: Sampler | Corpus, objective: Objective, batch: int, streams: Sequence[TorchRng]
) -> Prediction:
    """What all members predict in a step, their rows one after the other."""
    if isinstance(sample, Corpus) and isinstance(objective, RowByRow):
        return objective.prepare(sample.sample_each(batch, streams).flatten(0, 1))
    draw = sample.sample if isinstance(sample, Corpus) else sample
    parts = zip(*(objective(draw(batch, rng), rng).tensors for rng in streams), strict=True)
    return Prediction.of([torch.cat(part) for part in parts])
