"""Predictor and corrector for uniform noise, as diffusers' DiscreteDDIMScheduler has it.

The predictor is `UniformAncestral`. A correction takes one position and draws its noisy token again
given all others,

    p_s(z_i = v | z_-i) = α_s p(x_i = v | z_-i) + (1 - α_s)/V,

where the law without position i comes from the answer to the whole canvas: it is divided by
q(z_i | x_i). Redrawing keeps the law p_s of noisy texts, if the position does not depend on its own
token. How it is chosen:

    random                 keeps the law
    lowest_log_margin      Gumbel noise on -(log p(z_i) - log p(best other)) / τ; the default there
    lowest_current_prob    on -log p(z_i) / τ
    lowest_maxprob         on -log max p / τ: the others change with the token, so it looks too
    accepted               as lowest_current_prob, then accepted with min(1, q(i | y) / q(i | z)):
                           keeps the law (Metropolis, Hastings)

The positions of one correction are redrawn from one answer: more than one keeps no law.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import UserError, set_fields
from triptych.diffusion.choosing import dense
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt
from triptych.diffusion.sampler import Keeps, Sampler
from triptych.diffusion.samplers.uniform_ancestral import posterior
from triptych.diffusion.schedules import as_schedule, levels, rounds
from triptych.inference.chains.positions import drawn_positions
from triptych.inference.guided.transforms import temperature
from triptych.inference.settable import option


@dataclass(frozen=True)
class UniformCorrector(Sampler):
    """Draw every token from its posterior, then redraw some given the others.

    Worked value: with one step there is no noise left to correct: the product of the marginals.
    """

    title = "Predictor and corrector, uniform noise"
    promise = "as steps grow: the model's law, by random and accepted; the others break it"
    source = "arXiv:2605.22765; diffusers DiscreteDDIMScheduler.step_correct"
    when = "as uniform ancestral, with few steps"
    noise = "uniform"
    keeps: ClassVar[Keeps] = "as steps grow"

    steps: int = option(32, "steps for each block", at_least=1)
    schedule: str = option("linear", "the share of clean tokens after each step")
    degree: float = option(
        1.0, "temperature of the clean token; 0 takes the most probable", at_least=0
    )
    corrections: int = option(1, "after each step", at_least=0)
    positions: int = option(1, "redrawn in a correction", at_least=1)
    choice: Literal[
        "random", "lowest_log_margin", "lowest_current_prob", "lowest_maxprob", "accepted"
    ] = option("random", "how positions are chosen")
    tau: float = option(1.0, "temperature of the choice; small ones are greedy", at_least=1e-6)

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, schedule=as_schedule(self.schedule))
        if self.choice == "accepted" and self.positions != 1:
            raise UserError(
                f"positions is {self.positions}; a correction that is accepted or refused redraws "
                "one position",
                parameter="positions",
            )

    def rounds(self, size: int) -> int:
        """As many as the schedule has."""
        return rounds(self.schedule, self.steps)

    def step(self, run: Denoising, number: int) -> None:
        """One step of the predictor, then the corrections; the last step leaves no noise."""
        before, after = levels(self.schedule, self.steps)[number : number + 2]
        shown = run.shown
        clean = temperature(self.degree)(run.ask(shown, before))
        run.write(shown, run.draw(posterior(clean, run.tokens[shown], before, after), shown))
        for _ in range(self.corrections if after < 1 else 0):
            self.correct(run, after)

    def correct(self, run: Denoising, survival: float) -> None:
        """One correction at this level of noise."""
        shown = run.shown
        laws = self._conditionals(run, shown, survival)
        weights = self._weights(laws, run.tokens[shown], shown)
        counts = torch.where(run.open, self.positions, 0)
        chosen = drawn_positions(weights, shown, counts, run.rng)
        old, at = run.tokens, chosen[shown]
        run.write(chosen, run.draw(laws[at], chosen))
        if self.choice == "accepted":
            fresh = self._conditionals(run, shown, survival)
            back = self._weights(fresh, run.tokens[shown], shown).log_softmax(-1)
            ratio = (back - weights.log_softmax(-1))[chosen].clamp(max=0).exp()
            accepted = run.draw(torch.stack([1 - ratio, ratio], -1).log(), chosen).bool()
            keep = torch.ones_like(run.open)
            keep[chosen.any(-1)] = accepted
            run.tokens = torch.where(keep[:, None], run.tokens, old)

    def _conditionals(
        self, run: Denoising, shown: Bool[Tensor, "batch length"], survival: float
    ) -> Float[Tensor, "asked vocab"]:
        """log p_s(z_i = · | z_-i) of every shown position."""
        laws = run.ask(shown, survival).double().exp()
        size = laws.shape[-1]
        same = run.tokens[shown][:, None] == torch.arange(size, device=laws.device)
        left_out = laws / (survival * same + (1 - survival) / size)
        left_out = left_out / left_out.sum(-1, keepdim=True)
        return (survival * left_out + (1 - survival) / size).log()

    def _weights(
        self,
        laws: Float[Tensor, "asked vocab"],
        tokens: Int[Tensor, " asked"],
        shown: Bool[Tensor, "batch length"],
    ) -> Float[Tensor, "batch length"]:
        """log weights by which positions are drawn."""
        own = laws.gather(-1, tokens[:, None])
        if self.choice == "random":
            return dense(torch.zeros_like(own[:, 0]), shown)
        if self.choice == "lowest_maxprob":
            return dense(-laws.amax(-1) / self.tau, shown)
        if self.choice == "lowest_log_margin":
            others = laws.scatter(-1, tokens[:, None], -torch.inf)
            return dense((others.amax(-1) - own[:, 0]) / self.tau, shown)
        return dense(-own[:, 0] / self.tau, shown)


def examples() -> dict[str, OneShot]:
    """One correction of half noise on two bits, by sums over all noisy texts."""
    two = Table.random(2, 2, seed=1)
    random = UniformCorrector(steps=2)
    return {"two steps, one correction": OneShot(attempt(random, two), _corrected(two))}


def _corrected(p: Table) -> dict[tuple[int, ...], float]:
    """Two bits, levels 0, ½, 1. The first step makes a product of noisy marginals, m_0 m_1.

    Redrawing z_0 given z_1 makes it m_1(z_1) p_½(z_0 | z_1) = p_½(z): p_½ has the same marginals.
    """
    law = p.as_dict()
    texts = list(law)

    def half(a: int, b: int) -> float:
        return 0.75 if a == b else 0.25

    def noised(z: tuple[int, ...], x: tuple[int, ...]) -> float:
        return law[x] * half(z[0], x[0]) * half(z[1], x[1])

    joint = {z: sum(noised(z, x) for x in texts) for z in texts}
    out = dict.fromkeys(texts, 0.0)
    for z in texts:
        for y in texts:
            chances = [sum(noised(z, x) for x in texts if x[i] == y[i]) for i in range(2)]
            out[y] += chances[0] * chances[1] / joint[z]
    return out
