"""The rows of `masking_more`."""

from dataclasses import dataclass

WEAK, PEAKY = 0.05, 0.3  # J of Figures 4.1 and 4.2
BLOCKS = (1, 2, 3, 4)  # k


@dataclass(frozen=True)
class Fitted:
    """Data sets of one size, fitted by k-pseudolikelihood.

    masks              "one" drawn block per sequence, or "all" of them
    errors             ‖θ̂ - θ*‖² of every data set; None where there is no estimate
    largest_gradient   of the loss, at an estimate
    limit              tr Γ_k: n times the error tends to it
    """

    coupling: float
    samples: int
    seed: int
    k: int
    masks: str
    errors: tuple[float | None, ...]
    without_estimate: int
    largest_gradient: float
    limit: float


@dataclass(frozen=True)
class Descended:
    """Newton's method against gradient descent, which the source used, on the same data.

    data_sets   those for which both found an estimate
    gap         largest difference of a parameter; None without such data sets
    steps       of gradient descent, most
    """

    coupling: float
    samples: int
    seed: int
    k: int
    data_sets: int
    gap: float | None
    steps: int


Row = Fitted | Descended
ROWS = (Fitted, Descended)
