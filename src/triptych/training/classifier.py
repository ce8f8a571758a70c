"""Training of a classifier: cross-entropy on examples given once, epoch after epoch."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.training.recorded import RecordedSteps
from triptych.training.step import Descent, Recipe, descend


def train_classifier(
    scores: Callable[[Int[Tensor, " rows"]], Float[Tensor, "rows classes"]],
    labels: Int[Tensor, " batch"] | Float[Tensor, "batch classes"],
    parameters: list[nn.Parameter],
    recipe: Recipe,
    rng: TorchRng,
) -> list[float]:
    """Minimise the cross-entropy of `scores(rows)` against labels[rows], epoch after epoch.

    A label is a class or, as a float, a law on the classes. Every epoch goes through the examples
    in a new random order, in whole batches; returns the loss of every step. `recipe.autocast` and
    `recipe.compile` are for scores on a GPU.
    """
    if labels.is_floating_point():
        check_laws(labels)
    else:
        check_labels(labels)
    n = len(labels)
    classes = labels.shape[1] if labels.is_floating_point() else int(labels.max()) + 1
    recipe = replace(recipe, batch=min(recipe.batch, n))

    def batches() -> Iterator[Int[Tensor, " rows"]]:
        while True:
            device = rng.generator.device
            order = torch.randperm(n, generator=rng.generator, device=device).to(labels.device)
            yield from order[: n - n % recipe.batch].split(recipe.batch)

    on_gpu = all(parameter.is_cuda for parameter in parameters)
    recorded = recipe.recorded and on_gpu

    def cast() -> AbstractContextManager[object]:
        """Half precision on a GPU; on a CPU it would be slower."""
        if recipe.autocast == "none" or not on_gpu:
            return nullcontext()
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=not recorded)

    answer = torch.compile(scores) if recipe.compile and on_gpu else scores

    def loss_of(rows: Int[Tensor, " rows"]) -> Float[Tensor, ""]:
        with cast():
            found = answer(rows)
        if found.shape[1] < classes or (labels.is_floating_point() and found.shape[1] > classes):
            raise UserError(
                f"the labels are of {classes} classes and scores of {found.shape[1]}",
                parameter="labels",
            )
        found = found.float() if found.dtype == torch.bfloat16 else found
        return F.cross_entropy(found, labels[rows])

    data = batches()
    descent = Descent(recipe, parameters, recorded=recorded)
    if recipe.recorded:
        steps = RecordedSteps(descent, lambda inputs: loss_of(inputs[0]))
        for step in range(recipe.steps):
            steps.step(step, [next(data)])
        descent.settle(recipe.steps)
    else:
        descend(descent, lambda _: loss_of(next(data)))
    return descent.losses


def check_labels(labels: Int[Tensor, " batch"]) -> None:
    """There are labels of at least two kinds, none negative."""
    if len(labels) == 0 or labels.min() < 0 or labels.min() == labels.max():
        raise UserError(
            "a classifier needs labels 0, 1, … of at least two kinds", parameter="labels"
        )


def check_laws(labels: Float[Tensor, "batch classes"]) -> None:
    """Every row is a law on the classes, and not all of them are sure of one and the same class."""
    off = (labels.sum(-1) - 1).abs()
    if len(labels) == 0 or not ((labels >= 0).all() and (off < 1e-5).all()):
        raise UserError(
            "labels given as floats must be laws on the classes: rows that sum to 1",
            parameter="labels",
        )
    if (labels.amin(0) == 1).any():
        raise UserError(
            "a classifier needs at least two classes; these labels are all sure of the same one",
            parameter="labels",
        )
