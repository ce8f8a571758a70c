"""Random chains that mix permutations: the models of the experiments [wei, D].

Logits are drawn uniformly and softmaxed at a temperature; a cold mixture is nearly one permutation.
"""

import numpy as np

from triptych.core.validation import (
    Count,
    Number,
    UserError,
    as_floats,
    as_number,
    as_size,
    check_can,
    check_room,
)

MAX_OLD_SEED = 2**32 - 1  # of numpy's RandomState


def mixture(
    states: Count, permutations: Count, temperature: Number, draw: np.random.RandomState
) -> np.ndarray:
    """Σ_i m_i P_i with m = softmax(logits / temperature) and P_i random permutations."""
    states, permutations = as_size("states", states), as_size("permutations", permutations)
    check_can("draw", draw, "rand", "permutation")
    check_room("the transition matrix", states, states)
    weights = softmax(draw.rand(permutations) - 0.5, temperature)
    transition = np.zeros((states, states))
    for weight in weights:
        transition += weight * np.eye(states)[draw.permutation(states)]
    return transition


def softmax(logits: np.ndarray, temperature: Number) -> np.ndarray:
    """exp(logits / temperature), normalised along the last dimension."""
    temperature = as_number("temperature", temperature, above=0)
    values = as_floats("logits", logits).numpy()
    if values.ndim == 0 or values.shape[-1] == 0:
        raise UserError("logits has no outcomes: its last dimension is empty", parameter="logits")
    with np.errstate(over="ignore"):  # a difference that is infinitely large weighs 0
        scaled = np.exp((values - values.max(-1, keepdims=True)) / temperature)
    return scaled / scaled.sum(-1, keepdims=True)


def as_temperatures(initial: Number, transition: Number, emission: Number) -> list[float]:
    """The temperatures of π, A and W."""
    given = {"initial": initial, "transition": transition, "emission": emission}
    return [as_number(f"{name}_temperature", value, above=0) for name, value in given.items()]
