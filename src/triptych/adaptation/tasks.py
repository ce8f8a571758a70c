"""Downstream labels from exact posteriors: two sparse rows of weights, and the larger score wins.

    label(x) = argmax_c Σ_z weights[c, z] P[z | x], ties to 0            [wei, D]

Six entries of the weights are drawn with replacement, so that at most six are not zero. A draw
under which all inputs have one label is drawn again, and how often is part of the task.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.validation import (
    Count,
    Numbers,
    UserError,
    as_count,
    as_floats,
    as_integers,
    as_seed,
    as_size,
    check_room,
    set_fields,
)

MOST_DRAWS = 1000


@dataclass(frozen=True, eq=False)
class Task:
    """Worked value: weights [[1, 0], [0, 1]] label P = (0.6, 0.4) with 0 and (0.3, 0.7) with 1."""

    weights: Float[Tensor, "classes states"]
    draws: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.weights, Tensor) or not self.weights.is_floating_point():
            weights = as_floats("weights", self.weights)
            set_fields(self, weights=weights)
        if self.weights.ndim != 2 or 0 in self.weights.shape:
            shape = tuple(self.weights.shape)
            raise UserError(
                f"weights has shape {shape}; it must be [classes, states]", parameter="weights"
            )
        set_fields(self, draws=as_count("draws", self.draws, at_least=1))

    def labels(self, posterior: Float[Tensor, "batch states"]) -> Int[Tensor, " batch"]:
        """argmax_c of the scores; the smallest c on a tie."""
        posterior = _as_posterior(posterior)
        if posterior.shape[1] != self.weights.shape[1]:
            raise UserError(
                f"posterior has {posterior.shape[1]} states; the weights of this task have "
                f"{self.weights.shape[1]}",
                parameter="posterior",
            )
        scores = posterior @ self.weights.T.to(posterior)
        return (scores == scores.amax(-1, keepdim=True)).long().argmax(-1)


def sparse_weights(states: Count, seed: Count | list[int], *, entries: Count = 6) -> Tensor:
    """Two rows over the states with N(0, 1) at `entries` places drawn with replacement."""
    states, entries = as_size("states", states), as_size("entries", entries)
    check_room("the weights", 2, states)
    seeds = seed if isinstance(seed, list) else [seed]
    clean = [as_seed(part, at_most=2**32 - 1) for part in seeds]
    draw = np.random.RandomState(clean if isinstance(seed, list) else clean[0])
    places = draw.choice(2 * states, size=entries)
    flat = np.zeros(2 * states)
    flat[places] = draw.randn(entries)
    return torch.tensor(flat.reshape(2, states))


def draw_task(
    posterior: Float[Tensor, "batch states"], *, seed: Count, entries: Count = 6
) -> tuple[Task, Int[Tensor, " batch"]]:
    """A task under which the given inputs have both labels, and their labels.

    The first draw is that of the authors' code for this seed (their vanilla experiment); a
    degenerate one is drawn again.
    """
    posterior = _as_posterior(posterior)
    seed, entries = as_seed(seed, at_most=2**32 - 1), as_size("entries", entries)
    states = posterior.shape[1]
    for attempt in range(MOST_DRAWS):
        weights = sparse_weights(states, seed if attempt == 0 else [seed, attempt], entries=entries)
        task = Task(weights.to(posterior), attempt + 1)
        labels = task.labels(posterior)
        if labels.min() != labels.max():
            return task, labels
    raise UserError(
        f"{MOST_DRAWS} draws of the task gave all {len(posterior)} inputs one label: "
        f"give more inputs, or a model whose {states} posteriors differ more",
        parameter="posterior",
    )


def majority_rate(labels: Int[Tensor, " batch"]) -> float:
    """The accuracy of always saying the most frequent label."""
    labels = as_integers("labels", labels, dimensions=1)
    if len(labels) == 0 or labels.min() < 0:
        raise UserError("labels must be 0, 1, …, at least one of them", parameter="labels")
    return float(torch.bincount(labels).max()) / len(labels)


def _as_posterior(posterior: Numbers) -> Float[Tensor, "batch states"]:
    """Rows of numbers, in the precision they have."""
    if isinstance(posterior, Tensor) and posterior.is_floating_point():
        as_floats("posterior", posterior.detach().double())
    else:
        posterior = as_floats("posterior", posterior)
    if posterior.ndim != 2 or 0 in posterior.shape:
        raise UserError(
            f"posterior has shape {tuple(posterior.shape)}; it must be [batch, states], not empty",
            parameter="posterior",
        )
    return posterior
