"""Draw each token by its probability times its value: a start for an algorithm of your own.

Change `sample` and run `triptych axioms my_algorithm.py`: it enumerates the random choices.
`triptych replay my_algorithm.py` shows a run step by step.
"""

from typing import Any

import torch
from triptych.core.decoders import RecomputingDecoder
from triptych.core.logspace import log_normalise
from triptych.core.protocols import Decoder, Rng, Verifier
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.inference.guided.algorithm import Algorithm, Option
from triptych.inference.guided.generation import Generation, Result
from triptych.verifiers.exact import ExactValue, Rule


def sample(
    decoder: Decoder,
    verifier: Verifier,
    *,
    length: int,
    strength: float = 1.0,
    rng: Rng,
    **shared: Any,
) -> Result:
    """Draw token t after prefix s with weight p(t | s) V(st)^strength."""
    if strength <= 0:
        raise UserError(f"strength is {strength}; it must be above 0")
    run = Generation(decoder, verifier, rng, length, **shared)
    while len(rows := run.open_rows()):
        laws = run.laws(rows)  # log p(t | s), a row for each prefix s
        prefixes, tokens = torch.ones_like(laws).nonzero(as_tuple=True)
        values = run.child_log_values(rows[prefixes], tokens).reshape(laws.shape)
        weights = laws + strength * values
        stuck = weights.isneginf().all(-1, keepdim=True)  # no token has a value
        drawn = run.choose(log_normalise(torch.where(stuck, laws, weights)), rows)
        run.put(drawn, rows, "draw")
    return run.result()


ALGORITHM = Algorithm(
    "my_algorithm",
    "Tokens weighted by their values",
    sample,
    options=(Option("strength", float, 1.0, "how much the values count"),),
    soft=True,
    promise="with exact values and strength 1 the law is p(x | accepted)",
)


def examples() -> dict[str, OneShot]:
    """Random strings with an even sum: how one is drawn, and the law that is promised."""
    p = Table.random(vocab_size=2, length=3, seed=0)
    even = Rule(lambda x: sum(x) % 2 == 0)
    exact = ExactValue(p, even)

    def draw(rng: Rng) -> tuple[int, ...]:
        result = sample(RecomputingDecoder(p, 1), exact, length=3, rng=rng)
        return result.completions()[0]

    accepted = p.tilt(even.log_value).as_dict()
    return {"even sum": OneShot(draw, accepted)}
