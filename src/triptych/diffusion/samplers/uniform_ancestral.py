"""Ancestral sampling of uniform noise (D3PM, UDLM, discrete DDIM): every token from its posterior.

From noise level α_t to α_s > α_t, with a = α_t / α_s, a token is drawn from

    Σ_w p(x_i = w | z) q(z_s | z_t, w),
    q(z_s | z_t, w) ∝ (a [z_s = z_t] + (1 - a)/V) (α_s [z_s = w] + (1 - α_s)/V).

Published programs draw w first and then one of three routes: w, z_t, or a uniform token. That is
the same law with more draws. Tokens are independent given z, so a step errs as an ancestral step of
masks does, and less, the smaller it is.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import set_fields
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt, product, triple
from triptych.diffusion.sampler import Keeps, Sampler
from triptych.diffusion.schedules import as_schedule, levels, rounds
from triptych.inference.guided.transforms import temperature
from triptych.inference.settable import option


@dataclass(frozen=True)
class UniformAncestral(Sampler):
    """Draw every token from its posterior, again and again.

    Worked value: one step goes from noise that tells nothing to clean tokens: the product of the
    marginals.
    """

    title = "Ancestral, uniform noise (D3PM, discrete DDIM)"
    promise = "as steps grow: the model's law"
    source = "D3PM, arXiv:2107.03006; UDLM, arXiv:2412.10193; diffusers DiscreteDDIMScheduler"
    when = "a model of uniform noise, with its level"
    noise = "uniform"
    keeps: ClassVar[Keeps] = "as steps grow"

    steps: int = option(32, "steps for each block", at_least=1)
    schedule: str = option("linear", "the share of clean tokens after each step")
    degree: float = option(
        1.0, "temperature of the clean token; 0 takes the most probable", at_least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, schedule=as_schedule(self.schedule))

    def rounds(self, size: int) -> int:
        """As many as the schedule has."""
        return rounds(self.schedule, self.steps)

    def step(self, run: Denoising, number: int) -> None:
        """One question about all positions, one draw for each."""
        before, after = levels(self.schedule, self.steps)[number : number + 2]
        shown = run.shown
        clean = temperature(self.degree)(run.ask(shown, before))
        run.write(shown, run.draw(posterior(clean, run.tokens[shown], before, after), shown))


def posterior(
    clean: Float[Tensor, "places vocab"],
    tokens: Int[Tensor, " places"],
    before: float,
    after: float,
) -> Float[Tensor, "places vocab"]:
    """log Σ_w p(w) q(z_s | z_t, w), for levels α_t = before and α_s = after.

    Worked value: V = 2, z_t = 0, p = (½, ½), from ½ to ¾: a = ⅔, p(w) / q(0 | w) = (⅔, 2), and 0
    stays with (⅔ + ⅙) (¾ · ⅔ + ⅛ · 8/3) = ⅚ · ⅚ = 25/36.
    """
    size, same = clean.shape[-1], torch.arange(clean.shape[-1], device=tokens.device)
    same = tokens[:, None] == same
    ratio = before / after if after > 0 else 0.0
    weights = clean.exp().double() / (before * same + (1 - before) / size)
    routes = after * weights + (1 - after) / size * weights.sum(-1, keepdim=True)
    law = (ratio * same + (1 - ratio) / size) * routes
    return (law / law.sum(-1, keepdim=True)).log()


def examples() -> dict[str, OneShot]:
    """One step is the product of the marginals; two steps by sums over all noisy texts."""
    p, two = triple(), Table.random(2, 2, seed=1)
    half = UniformAncestral(steps=2)
    return {
        "one step": OneShot(attempt(UniformAncestral(steps=1), p), product(p).as_dict()),
        "two steps": OneShot(attempt(half, two), _two_steps(two)),
    }


def _two_steps(p: Table) -> dict[tuple[int, ...], float]:
    """Two bits, levels 0, ½, 1. After one step each token is its marginal with half noise."""
    law = p.as_dict()
    texts = list(law)

    def half(a: int, b: int) -> float:
        return 0.75 if a == b else 0.25

    one = [[sum(q for x, q in law.items() if x[i] == v) for v in range(2)] for i in range(2)]
    noisy = [[sum(one[i][v] * half(z, v) for v in range(2)) for z in range(2)] for i in range(2)]
    out = dict.fromkeys(texts, 0.0)
    for z in texts:
        weight = {x: q * half(z[0], x[0]) * half(z[1], x[1]) for x, q in law.items()}
        total = sum(weight.values())
        for y in texts:
            chances = [sum(q for x, q in weight.items() if x[i] == y[i]) for i in range(2)]
            out[y] += noisy[0][z[0]] * noisy[1][z[1]] * chances[0] * chances[1] / total**2
    return out
