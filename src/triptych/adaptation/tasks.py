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

from triptych.core.validation import check_count

MOST_DRAWS = 1000


@dataclass(frozen=True, eq=False)
class Task:
    """Worked value: weights [[1, 0], [0, 1]] label P = (0.6, 0.4) with 0 and (0.3, 0.7) with 1."""

    weights: Float[Tensor, "classes states"]
    draws: int = 1

    def labels(self, posterior: Float[Tensor, "batch states"]) -> Int[Tensor, " batch"]:
        """argmax_c of the scores; the smallest c on a tie."""
        scores = posterior @ self.weights.T.to(posterior)
        return (scores == scores.amax(-1, keepdim=True)).long().argmax(-1)


def sparse_weights(states: int, seed: int | list[int], *, entries: int = 6) -> Tensor:
    """Two rows over the states with N(0, 1) at `entries` places drawn with replacement."""
    draw = np.random.RandomState(seed)
    places = draw.choice(2 * states, size=entries)
    flat = np.zeros(2 * states)
    flat[places] = draw.randn(entries)
    return torch.tensor(flat.reshape(2, states))


def draw_task(
    posterior: Float[Tensor, "batch states"], *, seed: int, entries: int = 6
) -> tuple[Task, Int[Tensor, " batch"]]:
    """A task under which the given inputs have both labels, and their labels.

    The first draw is that of the authors' code for this seed (their vanilla experiment); a
    degenerate one is drawn again.
    """
    check_count("entries", entries, at_least=1)
    states = posterior.shape[1]
    for attempt in range(MOST_DRAWS):
        weights = sparse_weights(states, seed if attempt == 0 else [seed, attempt], entries=entries)
        task = Task(weights.to(posterior), attempt + 1)
        labels = task.labels(posterior)
        if labels.min() != labels.max():
            return task, labels
    raise ValueError(
        f"{MOST_DRAWS} draws of the task gave all {len(posterior)} inputs one label: "
        f"give more inputs, or a model whose {states} posteriors differ more"
    )


def majority_rate(labels: Int[Tensor, " batch"]) -> float:
    """The accuracy of always saying the most frequent label."""
    return float(torch.bincount(labels).max()) / len(labels)
