"""NumPy itself: the Generator's draws, which are compiled code."""

import numpy as np

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("numpy")

PROBS = [0.45, 0.3, 0.25]
COMPILED = "compiled code: draws alone"


@SHELF.add(
    "Generator.choice, with p",
    promise="The probabilities associated with each entry in a",
    source="docstring of Generator.choice",
    note=f"one of three; {COMPILED}",
    entered=False,
)
def choice() -> Case:
    rng = np.random.default_rng(1)
    return Case(lambda: int(rng.choice(3, p=PROBS)), dict(enumerate(PROBS)))


@SHELF.add(
    "Generator.choice, with p, without replacement",
    promise="Whether the sample is with or without replacement",
    source="docstring of Generator.choice; no law is stated, and this is held against one draw after another",
    note=f"two of three; {COMPILED}",
    entered=False,
)
def without_replacement() -> Case:
    rng = np.random.default_rng(1)
    return Case(
        lambda: tuple(rng.choice(3, 2, replace=False, p=PROBS).tolist()),
        definitions.ordered_without_replacement(PROBS, 2),
    )


@SHELF.add(
    "Generator.permutation",
    promise="Randomly permute a sequence, or return a permuted range",
    source="docstring of Generator.permutation",
    note=f"three integers; {COMPILED}",
    entered=False,
)
def permutation() -> Case:
    rng = np.random.default_rng(1)
    orders = definitions.ordered_without_replacement([1.0] * 3, 3)
    return Case(lambda: tuple(rng.permutation(3).tolist()), orders)


@SHELF.add(
    "Generator.multinomial",
    promise="Draw samples from a multinomial distribution",
    source="docstring of Generator.multinomial",
    note=f"three draws of three; {COMPILED}",
    entered=False,
)
def multinomial() -> Case:
    rng = np.random.default_rng(1)
    target = definitions.merged(
        definitions.multinomial_resampling(PROBS, 3),
        lambda drawn: tuple(drawn.count(k) for k in range(3)),
    )
    return Case(lambda: tuple(rng.multinomial(3, PROBS).tolist()), target)
