"""markovify: sentences of a Markov chain."""

from typing import Any

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("markovify")

CORPUS = [["a", "b"], ["a", "c"], ["a", "b"], ["c"]]


@SHELF.add(
    "Chain.walk",
    promise="Given a state, choose the next item at random",
    source="docstring of Chain.move; in proportion to how often it followed, as build says",
    note="four runs of the letters a, b, c; order 1",
)
def walk() -> Case:
    from markovify import Chain

    chain = Chain(CORPUS, 1)

    def program() -> tuple[str, ...]:
        return tuple(chain.walk())

    counts: dict[Any, dict[Any, int]] = {}
    for run in CORPUS:
        for before, after in zip(["", *run], [*run, None], strict=True):
            counts.setdefault(before, {}).setdefault(after, 0)
            counts[before][after] += 1
    found: definitions.Law = {}
    open_walks = {("",): 1.0}
    while open_walks:
        walk, p = open_walks.popitem()
        for after, q in definitions.normalised(counts[walk[-1]]).items():
            if after is None:
                found[walk[1:]] = found.get(walk[1:], 0.0) + p * q
            else:
                open_walks[*walk, after] = p * q
    return Case(program, found)
