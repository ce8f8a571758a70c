"""Python's own `random`, whose methods are Python on top of `random()` and `getrandbits()`."""

import random

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("python")

WEIGHTS = [0.45, 0.3, 0.25]


@SHELF.add(
    "random.choices, weights",
    promise="Return a k sized list of population elements chosen with replacement",
    source="docstring of random.choices",
    note="two of three",
)
def choices() -> Case:
    law = dict(enumerate(WEIGHTS))
    return Case(
        lambda: tuple(random.choices(range(3), WEIGHTS, k=2)), definitions.product(law, law)
    )


@SHELF.add(
    "random.sample",
    promise="Chooses k unique random elements from a population sequence",
    source="docstring of random.sample; all orders alike",
    note="two of four",
)
def sample() -> Case:
    return Case(
        lambda: tuple(random.sample(range(4), 2)),
        definitions.ordered_without_replacement([1.0] * 4, 2),
    )


@SHELF.add(
    "random.shuffle",
    promise="Shuffle list x in place",
    source="docstring of random.shuffle; all orders alike",
    note="three items",
)
def shuffle() -> Case:
    def program() -> tuple[int, ...]:
        items = [0, 1, 2]
        random.shuffle(items)
        return tuple(items)

    return Case(program, definitions.ordered_without_replacement([1.0] * 3, 3))
