"""The rows of `who_wins`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """One algorithm at one value of its knob: what its strings are and what they cost.

    accuracy      share of balanced strings among all rows asked for
    distance      of all rows to the target, in total variation; floor, that of exact draws
    skew          of the balanced strings alone; None if there is none
    distinct      balanced strings that are different
    generator_calls, verifier_calls   means per row asked for
    """

    algorithm: str
    error: float
    knob: int
    seed: int
    length: int
    strings: int
    returned: int
    accuracy: float
    distance: float
    floor: float
    skew: float | None
    skew_floor: float | None
    distinct: int
    generator_calls: float
    verifier_calls: float
    seconds: float
