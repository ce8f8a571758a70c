"""The units and rows of `bracket_length`."""

from dataclasses import dataclass

from triptych.studies.api.study import Unit
from triptych.studies.brackets.shared.contrasts import Penalty
from triptych.studies.brackets.shared.networks import Data


@dataclass(frozen=True)
class TrainBalance(Unit):
    """Networks with the minimal first layer (2.55), with seeds seed, seed + 1, …, trained at once.

    strings     of the training data
    tested      strings for the accuracy in distribution;  long_tested: strings of 500 brackets
    """

    types: int
    max_depth: int
    data: Data
    penalty: Penalty
    learning_rate: float
    width: int
    steps: int
    batch: int
    strings: int
    members: int
    tested: int
    long_tested: int


@dataclass(frozen=True)
class Balanced:
    """One trained network.

    violation               mean of ‖S‖ / P over pairs and queries, as printed [li, 2.2.3.3]
    violation_programmed    the worst pair of each query, as in the authors' code; None in rows of
                            the first revision
    best, sure              accuracy in distribution, by the largest probability and by the authors'
                            rule, which asks for 0.8 of the closing mass
    long_best, long_sure    of the brackets number 400 to 500 of prefixes
    """

    seed: int
    types: int
    max_depth: int
    data: Data
    penalty: Penalty
    learning_rate: float
    steps: int
    batch: int
    violation: float
    best: float
    sure: float
    long_best: float
    long_sure: float
    violation_programmed: float | None = None
