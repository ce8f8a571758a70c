"""Iterative refinement (PaDIR, li 4.2.2): all positions are written again, T times.

From a random canvas every step reads the whole block as a hypothesis and writes all of it, the most
probable tokens or a draw of each. It is uniform diffusion whose every step goes all the way to
clean tokens, with no word about how noisy the hypothesis is. Between steps a token that equals its
left neighbour, a stutter, may be replaced. `inference.chains.refinement.refine` is one step of it.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.logspace import point_mass
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.diffusion.denoiser import RefinerDenoiser
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt
from triptych.diffusion.sampler import Sampler
from triptych.inference.chains.refinement import MaskedRefiner, refine, stutters
from triptych.inference.settable import option


@dataclass(frozen=True)
class Refinement(Sampler):
    """Write every position again and again.

    Worked value: a refiner that says (0.6, 0.4) everywhere, whatever it reads: one step without
    draws writes 0 at every position.
    """

    title = "Iterative refinement (PaDIR)"
    promise = "another law than the model's: each step is a product over positions"
    source = "PaDIR; li 4.2.2"
    when = "translation and other texts with one right answer"
    noise = "uniform"

    steps: int = option(4, "times that all is written", at_least=1)
    draws: bool = option(False, "draw each token, instead of the most probable one")
    stutter: Literal["keep", "previous", "random"] = option(
        "keep", "what replaces a token that equals its left neighbour, between steps"
    )

    def rounds(self, size: int) -> int:
        """So many; a row that does not change any more is done before."""
        return self.steps

    def step(self, run: Denoising, number: int) -> None:
        """One pass over the block."""
        shown, read = run.shown, run.tokens
        view = _View(run)
        lengths = torch.full_like(run.sizes, read.shape[1])
        done = refine(view, read, lengths, steps=1, stutter="keep", sample=self.draws, rng=run.rng)
        run.write(shown, done.tokens[shown])
        replaced = torch.zeros_like(shown)
        if self.stutter != "keep" and number + 1 < self.steps:
            replaced = stutters(run.tokens, lengths) & shown
        if self.stutter == "previous":
            run.tokens = torch.where(replaced, read, run.tokens)
        if self.stutter == "random":
            run.noise(replaced)
        if not self.draws:
            run.close((run.tokens == read).all(-1) & ~replaced.any(-1))


@dataclass(frozen=True)
class _View:
    """What the run is told, as a refiner: laws in the block, the tokens themselves elsewhere."""

    run: Denoising

    def log_probs(
        self, hypotheses: Int[Tensor, "batch length"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch length vocab"]:
        """The laws of the open positions."""
        shown = self.run.shown
        laws = self.run.ask(shown)
        every = point_mass(hypotheses, laws.shape[-1], laws.dtype)
        return every.masked_scatter(shown[..., None], laws)


def examples() -> dict[str, OneShot]:
    """One drawn step from a random start: each position given the other, which is uniform."""
    p = Table.random(2, 2, seed=1)
    model = RefinerDenoiser(MaskedRefiner(p), vocab_size=2)
    grid = p.log_probs.exp().reshape(2, 2)
    left = (grid / grid.sum(0, keepdim=True)).mean(1).tolist()
    right = (grid / grid.sum(1, keepdim=True)).mean(0).tolist()
    law = {(a, b): left[a] * right[b] for a in range(2) for b in range(2)}
    one = Refinement(steps=1, draws=True)
    return {"one step": OneShot(attempt(one, model, length=2), law)}
