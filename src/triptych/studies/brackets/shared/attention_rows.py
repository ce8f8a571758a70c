"""The units and rows of `bracket_attention` and `bracket_training`."""

from dataclasses import dataclass
from typing import NamedTuple

from triptych.studies.api.study import Unit
from triptych.studies.brackets.shared.networks import Data, First, Norm, Positions
from triptych.studies.brackets.shared.spread import Matrix


class Setting(NamedTuple):
    """What the networks of one comparison share."""

    types: int
    max_depth: int
    data: Data
    first: First
    layers: int
    positions: Positions
    norm: Norm
    learning_rate: float
    width: int


@dataclass(frozen=True)
class TrainNetworks(Unit):
    """Networks of one setting, with seeds seed, seed + 1, …, trained at once.

    strings      of the training data;  tested: strings for the accuracy
    sentences    on which patterns are compared, of 19 brackets, as in Table 2.6
    """

    types: int
    max_depth: int
    data: Data
    first: First
    layers: int
    positions: Positions
    norm: Norm
    learning_rate: float
    width: int
    steps: int
    batch: int
    strings: int
    members: int
    tested: int
    sentences: int


@dataclass(frozen=True)
class TrainDuration(Unit):
    """Networks of two standard layers without positions, trained at once for a number of steps.

    The learning rate falls to 0 at the last step, so that other numbers of steps are other runs.
    """

    data: Data
    learning_rate: float
    width: int
    steps: int
    batch: int
    strings: int
    members: int
    tested: int


@dataclass(frozen=True)
class Network:
    """One trained network.

    best, sure      accuracy in distribution: by the largest probability, and by the authors' rule
    likeness        weight of the last layer on the innermost open bracket, on [[[[]]]](((())))
    sampled         the same on sampled sentences
    top             share of their closing brackets where the innermost open one has most weight
    sharpness       Σ A² of the last layer: 1 a row if all weight is on one position
    pattern         of the last layer on [[[[]]]](((()))), after a start token
    """

    seed: int
    types: int
    max_depth: int
    data: Data
    first: First
    layers: int
    positions: Positions
    norm: Norm
    learning_rate: float
    steps: int
    batch: int
    best: float
    sure: float
    likeness: float
    sampled: float
    top: float
    sharpness: float
    pattern: Matrix
    width: int = 50

    @property
    def setting(self) -> Setting:
        return setting_of(self)


@dataclass(frozen=True)
class Sentences:
    """How far the networks of a setting are apart on sampled sentences, in one layer.

    apart           mean over sentences of ‖A - A'‖², for every pair of networks
    by_sentence     mean over pairs, for every sentence
    random          of patterns that are uniform on simplices
    least           accuracy of the worst network
    """

    seed: int
    types: int
    max_depth: int
    data: Data
    first: First
    layers: int
    positions: Positions
    norm: Norm
    learning_rate: float
    steps: int
    batch: int
    layer: int
    apart: Matrix
    by_sentence: tuple[float, ...]
    random: float
    least: float
    width: int = 50

    @property
    def setting(self) -> Setting:
        return setting_of(self)


@dataclass(frozen=True)
class Duration:
    """One network of `TrainDuration`; the fields are as in `Network`."""

    seed: int
    data: Data
    learning_rate: float
    steps: int
    batch: int
    best: float
    likeness: float
    sharpness: float
    pattern: Matrix


Row = Network | Sentences | Duration


def setting_of(of: TrainNetworks | Network | Sentences) -> Setting:
    return Setting(*(getattr(of, name) for name in Setting._fields))
