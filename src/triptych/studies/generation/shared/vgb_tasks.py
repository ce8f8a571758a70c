"""What the studies of VGB walk on: models with outcomes, and values off by a known factor."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.protocols import Value
from triptych.core.streams import hashed_uniform
from triptych.core.table import Table
from triptych.structures.constraints import AllZeros, EvenParity, SomeZero
from triptych.structures.uniform import Uniform
from triptych.verifiers.exact import ExactValue
from triptych.verifiers.noisy import WithinFactor


class FewOnes:
    """τ(x) = 2^-(number of tokens that are not 0): every position counts alike."""

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]:
        return -math.log(2) * (prefix > 0).sum(-1).double()


@dataclass(frozen=True)
class RandomTilt:
    """log τ uniform on (-3, 0], for every full string by itself."""

    seed: int

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]:
        return -3 * hashed_uniform(self.seed, prefix)


TASKS = ("some zero", "all zeros", "parity", "few ones", "random", "three letters")
DRAWN = ("random", "three letters")  # their model and outcome depend on the seed


def task(name: str, height: int, seed: int) -> tuple[Table, Value]:
    """A model p and an outcome τ; the target is p τ, normalised."""
    if name in DRAWN:
        vocab = 2 if name == "random" else 3
        return Table.random(vocab, height, seed=seed), RandomTilt(seed)
    outcomes: dict[str, Value] = {
        "some zero": SomeZero(height),
        "all zeros": AllZeros(height),
        "parity": EvenParity(height),
        "few ones": FewOnes(),
    }
    return Table.of(Uniform(2, height)), outcomes[name]


def off_by(epsilon: float, table: Table, outcome: Value, seed: int) -> WithinFactor:
    """V* times 1 + ε or its inverse, by a coin for each prefix; exact on full strings."""
    exact = ExactValue(table, outcome)
    return WithinFactor(exact, epsilon, seed, length=table.length, extremes=True)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Slope of the line of least squares. Worked value: (0, 1), (1, 2), (2, 6) have slope 5/2."""
    x, y = np.transpose(points)
    return float(np.polyfit(x, y, 1)[0])


def trials(found: Mapping[tuple[str, int], float]) -> list[float]:
    """Means over the tasks of each seed, from numbers by task and seed.

    The tasks of a seed share its errors, so that a seed is one independent trial, however many
    tasks there are. A seed that lacks a task is left out. Worked value: tasks a, b with 1, 3 under
    seed 0 and 2, 6 under seed 1 are two trials, 2 and 4.
    """
    tasks, seeds = {name for name, _ in found}, sorted({seed for _, seed in found})
    complete = [seed for seed in seeds if all((name, seed) in found for name in tasks)]
    return [float(np.mean([found[name, seed] for name in sorted(tasks)])) for seed in complete]
