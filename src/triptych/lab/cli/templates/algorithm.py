"""Draw each token by its probability times its value: a start for an algorithm of your own.

Change `run` and run `triptych axioms my_algorithm.py`: it enumerates the random choices.
`triptych replay my_algorithm.py` shows a run step by step.
"""

from dataclasses import dataclass

import torch
from triptych.core.decoders import RecomputingDecoder
from triptych.core.logspace import log_normalise
from triptych.core.protocols import Rng
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.inference.guided.algorithm import Algorithm, option
from triptych.inference.guided.generation import Generation
from triptych.verifiers.exact import ExactValue, Rule


@dataclass(frozen=True)
class MyAlgorithm(Algorithm[None]):
    """Draw token t after prefix s with weight p(t | s) V(st)^strength."""

    name = "my_algorithm"
    title = "Tokens weighted by their values"
    promise = "with exact values and strength 1 the law is p(x | accepted)"
    soft = True

    strength: float = option(1.0, "how much the values count", at_least=0)

    def run(self, run: Generation) -> None:
        while len(rows := run.open_rows()):
            laws = run.laws(rows)  # log p(t | s), a row for each prefix s
            prefixes, tokens = torch.ones_like(laws).nonzero(as_tuple=True)
            values = run.child_log_values(rows[prefixes], tokens).reshape(laws.shape)
            weights = torch.where(values.isneginf(), values, laws + self.strength * values)
            stuck = weights.isneginf().all(-1, keepdim=True)  # no token has a value
            drawn = run.choose(log_normalise(torch.where(stuck, laws, weights)), rows)
            run.put(drawn, rows, "draw")


def examples() -> dict[str, OneShot]:
    """Random strings with an even sum: how one is drawn, and the law that is promised."""
    p = Table.random(vocab_size=2, length=3, seed=0)
    even = Rule(lambda x: sum(x) % 2 == 0)
    exact = ExactValue(p, even)

    def draw(rng: Rng) -> tuple[int, ...]:
        result = MyAlgorithm().sample(RecomputingDecoder(p, 1), exact, length=3, rng=rng)
        return result.completions()[0]

    accepted = p.tilt(even.log_value).as_dict()
    return {"even sum": OneShot(draw, accepted)}
