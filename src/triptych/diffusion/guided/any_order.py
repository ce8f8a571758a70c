"""Guided generation over orders of unmasking: any algorithm of prefixes, on the tree of canvases.

A row draws an order σ of its holes, uniformly, and then the algorithm runs on p_σ as on any
autoregressive model (`canvas_decoder`): particles weigh canvases, Algorithm 2 walks on their tree,
backtracking puts masks back. What the algorithm promises about a model p holds about p_σ, for every
σ; the law of what comes out is the mean over orders. For consistent answers p_σ is p(x | shown) in
every order, and the promise is about that.
"""

from dataclasses import dataclass, field
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.protocols import Decoder, Draws, Rng, Verifier, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import UserError, shown
from triptych.diffusion.guided.automaton import Automaton
from triptych.diffusion.guided.canvas_decoder import CanvasDecoder, needs_canvas
from triptych.diffusion.guided.canvas_verifier import (
    CanvasVerifier,
    Regular,
    on_canvas,
)
from triptych.diffusion.guided.orders import Order, draw_order, in_place
from triptych.inference.guided import particles
from triptych.inference.guided.algorithm import Algorithm, AnyAlgorithm, option
from triptych.inference.guided.asking import as_verifier
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.particles import Particles
from triptych.inference.guided.rejection import Rejection
from triptych.inference.guided.result import Result


@dataclass(frozen=True)
class AnyOrder(Algorithm[Any]):
    """Run an algorithm of prefixes on canvases, in an order of the holes.

    algorithm   of guided generation, as Particles(n=8) or Vgb(steps=200)

    An end token has no meaning of its own here: every hole is filled, and what stands behind an end
    token is part of the canvas. In the result tokens stand where they belong; a trace shows them in
    the order in which they were written.

    Worked value: p uniform on {00, 11} and a verifier that refuses 1 at the first position. From
    right to left the second hole is drawn first, as 1 with ½; then nothing may follow for an
    algorithm that does not look ahead, and one that weighs particles keeps 00 alone.
    """

    title = "Any order"
    promise = "that of the algorithm, about the model in the order of the holes"
    soft = True
    probability = False

    order: Order = option("random", "in which holes are filled")
    algorithm: AnyAlgorithm = field(default_factory=lambda: Particles(n=8))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.algorithm, Algorithm) or isinstance(self.algorithm, AnyOrder):
            raise UserError(
                f"algorithm is {shown(self.algorithm)}; it must be one of guided generation, as "
                "Particles(n=8)",
                parameter="algorithm",
            )

    @property
    def smallest(self) -> float | None:
        """That of the algorithm."""
        return self.algorithm.smallest

    def sample(
        self, decoder: Decoder | Draws, verifier: VerifierLike | None = None, **shared: Any
    ) -> Result[Any]:
        """Complete every canvas of the decoder; see `Algorithm.sample`."""
        canvas = needs_canvas(decoder, self.title)
        asked: Any = verifier
        if verifier is not None:
            if not isinstance(verifier, CanvasVerifier):
                verifier = cast(Verifier, as_verifier(verifier))
            asked = on_canvas(verifier, canvas)
        shared |= {"end_token": None, "ends": None}
        result = super().sample(decoder, asked, **shared)
        return in_place(result, canvas)

    def run(self, run: Generation) -> Any:
        """Draw an order for each row, then do what the algorithm does."""
        draw_order(run, needs_canvas(run.decoder, self.title), self.order)
        run.probability = self.algorithm.probability
        return self.algorithm.run(run)


def even_sum() -> Automaton:
    """Rows of bits of even sum."""
    return Automaton(torch.tensor([[0, 1], [1, 0]]), torch.tensor([True, False]))


def examples() -> dict[str, OneShot]:
    """Whole canvases that are refused until one is right, in any order; and particles that are
    followed by hand, from the right."""
    hard = Regular(even_sum())

    def case(sampler: AnyOrder, p: Table, target: dict[tuple[int, ...], float]) -> OneShot:
        def one(rng: Rng) -> tuple[int, ...] | None:
            decoder = CanvasDecoder(p, torch.zeros((1, p.length), dtype=torch.long))
            done = sampler.sample(decoder, hard, length=p.length, rng=rng)
            return done.completions()[0] if done.complete[0] else None

        return OneShot(one, {x: q / sum(target.values()) for x, q in target.items()})

    three, two = Table.random(2, 3, seed=0), Table.random(2, 2, seed=1)
    flipped = Table(2, 2, two.log_probs.reshape(2, 2).T.reshape(-1))
    followed = particles.law(flipped, _EvenInTheEnd(), 2, 2, ess=1.0)
    return {
        "rejection in a random order": case(
            AnyOrder("random", Rejection(attempts=1)),
            three,
            {x: q for x, q in three.as_dict().items() if sum(x) % 2 == 0},
        ),
        "two particles from the right": case(
            AnyOrder("right to left", Particles(n=2, ess=1.0)),
            two,
            {x[::-1]: q for x, q in followed.items()},
        ),
    }


class _EvenInTheEnd:
    """Rows of two bits of even sum, and everything before."""

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        odd = (prefix.sum(-1) % 2 == 1) & torch.tensor(prefix.shape[1] == 2)
        return torch.zeros(len(prefix), dtype=torch.float64).masked_fill(odd, -torch.inf)
