"""PyTorch itself: its draws, and its distributions on top of them."""

import torch

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("torch")

LOGITS = [0.5, -0.3, 0.9]
PROBS = [0.45, 0.3, 0.25]
COMPILED = "the draw itself is compiled code, whose law a door takes for granted: draws alone"


@SHELF.add(
    "multinomial",
    promise="indices sampled from the multinomial ... probability distribution located in the corresponding row",
    source="docstring of torch.multinomial",
    note=f"one of three. {COMPILED}",
    entered=False,
)
def multinomial() -> Case:
    probs = torch.tensor(PROBS, dtype=torch.float64)
    return Case(lambda: int(torch.multinomial(probs, 1)), dict(enumerate(PROBS)))


@SHELF.add(
    "multinomial, without replacement",
    promise="when a sample index is drawn for a row, it cannot be drawn again for that row",
    source="docstring of torch.multinomial",
    note=f"two of three, one after another by their weights. {COMPILED}",
    entered=False,
)
def without_replacement() -> Case:
    probs = torch.tensor(PROBS, dtype=torch.float64)
    return Case(
        lambda: tuple(torch.multinomial(probs, 2).tolist()),
        definitions.ordered_without_replacement(PROBS, 2),
    )


@SHELF.add(
    "randperm",
    promise="Returns a random permutation of integers from 0 to n - 1",
    source="docstring of torch.randperm",
    note=f"three integers. {COMPILED}",
    entered=False,
)
def permutation() -> Case:
    orders = definitions.ordered_without_replacement([1.0] * 3, 3)
    return Case(lambda: tuple(torch.randperm(3).tolist()), orders)


@SHELF.add(
    "distributions.Categorical.sample",
    promise="Creates a categorical distribution parameterized by either",
    source="docstring of Categorical",
    note="from logits of three",
)
def categorical() -> Case:
    logits = torch.tensor(LOGITS, dtype=torch.float64)
    return Case(
        lambda: int(torch.distributions.Categorical(logits=logits).sample()),
        definitions.softmax(LOGITS),
    )


@SHELF.add(
    "distributions.Multinomial.sample",
    promise="Creates a Multinomial distribution parameterized by",
    source="docstring of Multinomial",
    note="three draws of three",
)
def counts() -> Case:
    probs = torch.tensor(PROBS, dtype=torch.float64)

    def program() -> tuple[int, ...]:
        return tuple(torch.distributions.Multinomial(3, probs).sample().int().tolist())

    target = definitions.merged(
        definitions.multinomial_resampling(PROBS, 3),
        lambda drawn: tuple(drawn.count(k) for k in range(3)),
    )
    return Case(program, target)


@SHELF.add(
    "nn.functional.gumbel_softmax, hard",
    promise="Sample from the Gumbel-Softmax distribution ... and optionally discretize",
    source="docstring; the discrete law is softmax(logits) at every tau",
    note="three logits, tau 0.5",
    rounding=1e-8,
)
def gumbel_softmax() -> Case:
    logits = torch.tensor(LOGITS, dtype=torch.float64)
    return Case(
        lambda: int(torch.nn.functional.gumbel_softmax(logits, tau=0.5, hard=True).argmax()),
        definitions.softmax(LOGITS),
    )
