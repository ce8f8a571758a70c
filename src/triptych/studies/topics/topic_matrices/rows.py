"""The rows of topic_matrices, one class per kind of fact."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from triptych.studies.topics.shared.blocks import OfPair
from triptych.studies.topics.shared.networks import Optimiser
from triptych.training.objectives import LossName

ValueKind = Literal["ridge", "plain", "joint", "coded plain", "coded joint"]
# the same with the one-hot inputs of the authors' code
CODED: dict[ValueKind, ValueKind] = {"plain": "coded plain", "joint": "coded joint"}


@dataclass(frozen=True, kw_only=True)
class TrainedEmbeddings(OfPair):
    """E = W_E' W_E of a network of which everything was trained, at its least held-out loss.

    finished    the held-out loss stopped falling before the steps ran out
    step        when it was least
    held_out    how much it was then; guess: that of a uniform guess
    initial_height  of the diagonal, before training
    """

    finished: bool
    step: int
    held_out: float
    guess: float
    initial_height: float


@dataclass(frozen=True, kw_only=True)
class TiedEmbeddings(OfPair):
    """E of the network as printed, tied and without normalisation, after a number of steps.

    embedding_scale    standard deviation of W_E at the start
    value_diagonality, value_height    of W^V, whose rows and columns are coordinates
    """

    embedding_scale: float
    steps: int
    held_out: float
    value_diagonality: float
    value_height: float


@dataclass(frozen=True, kw_only=True)
class TrainedValue(OfPair):
    """W^V on one-hot words, after the last step and on the way.

    figure      ridge: uniform attention and L2; plain: without L2; joint: W^K and W^Q trained too;
                with "coded" before it: one-hot inputs as in the authors' code
    norm        ‖W^V‖, Frobenius
    path_steps, path_block, path_off, path_spread
                block mean (the diagonal counted), mean and spread between topics at some steps
    """

    figure: ValueKind
    l2: float
    steps: int
    held_out: float
    norm: float
    path_steps: tuple[int, ...]
    path_block: tuple[float, ...]
    path_off: tuple[float, ...]
    path_spread: tuple[float, ...]


@dataclass(frozen=True)
class Diverged:
    """A run whose loss became infinite.

    part    what was trained: embeddings, tied embeddings, or the figure of a value matrix
    """

    part: str
    seed: int
    loss: LossName
    optimiser: Optimiser
    embedding_scale: float | None


@dataclass(frozen=True)
class Descended:
    """Gradient descent on the exact loss of the theorem's documents, without a bias, from near 0.

    to_ridge    largest entry of the difference from argmin L + λ‖W‖²; None without L2
    to_limit    from the closed form for vanishing λ
    to_family   from the nearest of the optima that exist without L2
    excess      loss above the least
    gap         height of a block in the closed form
    """

    seed: int
    l2: float
    drawn: int
    steps: int
    to_ridge: float | None
    to_limit: float
    to_family: float
    excess: float
    gap: float


Row = TrainedEmbeddings | TiedEmbeddings | TrainedValue | Diverged | Descended


class Reading(NamedTuple):
    """What a value matrix was like when its block mean had a given value; step is interpolated."""

    step: float
    block: float
    off: float
    spread: float

    @property
    def ratio(self) -> float:
        return self.block / abs(self.off)


def when_block_mean_is(row: TrainedValue, value: float) -> Reading | None:
    """The first time that the block mean reaches a value, between kept steps; None if it never did.

    Worked value: block means 0, 2, 6 and off-block means 0, -0.2, -0.4 at steps 0, 10, 20 reach 3
    at step 12.5, where the off-block mean is -0.25 and the ratio 12.
    """
    points = list(zip(row.path_steps, row.path_block, row.path_off, row.path_spread, strict=True))
    for before, after in pairwise(points):
        if before[1] < value <= after[1]:
            share = (value - before[1]) / (after[1] - before[1])
            return Reading(*(a + share * (b - a) for a, b in zip(before, after, strict=True)))
    return None


def readings(rows: Sequence[TrainedValue], value: float) -> list[Reading]:
    """Those of the runs that reach the value."""
    found = [when_block_mean_is(row, value) for row in rows]
    return [reading for reading in found if reading is not None]
