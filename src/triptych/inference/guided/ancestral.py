"""Ancestral sampling: x_{t+1} ~ p(· | x_≤t), until every row is finished.

With a transform this is nucleus, top-k or temperature sampling, and with `argmax` greedy decoding.
"""

from dataclasses import dataclass
from typing import Unpack

import torch

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Decoder, Draws, Rng, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.inference.guided.algorithm import Algorithm, Shared
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.result import Action, Result
from triptych.inference.guided.transforms import nucleus


@dataclass(frozen=True)
class Ancestral(Algorithm[None]):
    """Complete every row. A verifier is never asked: it may stand there to be left out."""

    title = "Ancestral sampling"
    promise = "the model's own law; the verifier is never asked"
    needs_verifier = False
    needs = "draws"

    @property
    def settles(self) -> tuple[Action, ...]:
        """A token that was drawn stays."""
        return ("draw",)

    def run(self, run: Generation) -> None:
        """Draw token after token."""
        while len(rows := run.open_rows()):
            run.draw(rows, run.unjudged)


def sample(
    decoder: Decoder | Draws, verifier: VerifierLike | None = None, **shared: Unpack[Shared]
) -> Result[None]:
    """Complete every row; see `Ancestral`."""
    return Ancestral().sample(decoder, verifier, **shared)


def examples() -> dict[str, OneShot]:
    """The model's own law; and with a nucleus, the product of the truncated next-token laws."""
    p = Table.random(vocab_size=3, length=3, seed=0)

    def one(rng: Rng) -> tuple[int, ...]:
        return sample(RecomputingDecoder(p, 1), length=3, rng=rng).completions()[0]

    def cut(rng: Rng) -> tuple[int, ...]:
        decoder = RecomputingDecoder(p, 1)
        return sample(decoder, length=3, transform=nucleus(0.6), rng=rng).completions()[0]

    return {
        "whole law": OneShot(one, p.as_dict()),
        "nucleus": OneShot(cut, _product_of(p, 0.6)),
    }


def _product_of(p: Table, mass: float) -> dict[tuple[int, ...], float]:
    """Every string's product of next-token laws, each cut by hand to its nucleus."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(p.length):
        longer: dict[tuple[int, ...], float] = {}
        for prefix, weight in law.items():
            probs = p.next_token_log_probs(torch.tensor([prefix]).long().reshape(1, -1))[0].exp()
            kept, total = [], 0.0
            for token in sorted(range(p.vocab_size), key=lambda k: -probs[k]):
                if total >= mass:
                    break
                kept.append(token)
                total += float(probs[token])
            for token in kept:
                longer[(*prefix, token)] = weight * float(probs[token]) / total
        law = longer
    return law
