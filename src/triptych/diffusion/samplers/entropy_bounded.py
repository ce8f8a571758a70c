"""Entropy-bounded unmasking (EB): as many positions in a step as their entropies allow.

Positions are ranked, and the longest beginning U of the ranking is revealed for which

    Σ_{i in U} H_i - max_{i in U} H_i ≤ γ.

The left side bounds what drawing U independently loses: Σ H_i - H(x_U) ≤ Σ H_i - max H_i. So one
step loses at most γ nats. At γ = 0 all but one of the positions are certain, and the law is the
model's own, often in fewer steps than positions.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.diffusion.choosing import dense, entropies
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt, pair, product, triple
from triptych.diffusion.sampler import Keeps, Sampler
from triptych.inference.chains.positions import SAME
from triptych.inference.guided.transforms import temperature
from triptych.inference.settable import option


@dataclass(frozen=True)
class EntropyBounded(Sampler):
    """Reveal all positions whose entropies stay under a bound.

    Worked value: p uniform on {00, 11}: both entropies are log 2 = 0.693. With γ = 0.5 one position
    is revealed, then the other is certain: p. With γ = 0.7 both are, independently.
    """

    title = "Entropy bounded (EB)"
    promise = "a step loses at most gamma nats; gamma = 0: the model's law"
    source = "EB-Sampler, arXiv:2505.24857"
    when = "the number of passes should follow the text; gamma is what a pass may lose"
    keeps: ClassVar[Keeps] = "one position a round"

    gamma: float = option(0.1, "nats that a step may lose", at_least=0)
    order: Literal["entropy", "confidence", "margin"] = option(
        "entropy", "how positions are ranked"
    )
    degree: float = option(
        1.0, "temperature of the draws; 0 takes the most probable token", at_least=0
    )

    def rounds(self, size: int) -> int:
        """At most one for each position."""
        return size

    def step(self, run: Denoising, number: int) -> None:
        """Reveal the longest beginning of the ranking that the bound allows."""
        hidden = run.hidden
        laws = run.ask(hidden)
        entropy = entropies(laws)
        now = bounded(
            dense(self._scores(laws, entropy), hidden), dense(entropy, hidden), self.gamma
        )
        run.write(now, run.draw(temperature(self.degree)(laws[now[hidden]]), now))

    def _scores(
        self, laws: Float[Tensor, "asked vocab"], entropy: Float[Tensor, " asked"]
    ) -> Float[Tensor, " asked"]:
        if self.order == "entropy":
            return -entropy
        best = laws.topk(min(2, laws.shape[-1]), dim=-1).values.exp()
        return best[:, 0] - (best[:, -1] if self.order == "margin" else 0.0)


def bounded(
    scores: Float[Tensor, "batch length"], entropy: Float[Tensor, "batch length"], gamma: float
) -> Bool[Tensor, "batch length"]:
    """The longest beginning of the ranking with Σ H - max H ≤ γ; -inf is not ranked.

    Worked value: entropies 0.3, 0.1, 0.2 by entropy, γ = 0.3: 0.1 and 0.2 lose 0.1, all three 0.3.
    """
    ranked = scores > -torch.inf
    level = (scores / SAME).round().clamp(min=-1e300).masked_fill(~ranked, -torch.inf)
    order = level.argsort(dim=-1, descending=True, stable=True)
    sorted_entropy = entropy.masked_fill(~ranked, 0.0).gather(-1, order)
    lost = sorted_entropy.cumsum(-1) - sorted_entropy.cummax(-1).values
    taken = (lost <= gamma + SAME).long().cummin(-1).values.bool()
    return torch.zeros_like(ranked).scatter(-1, order, taken) & ranked


def examples() -> dict[str, OneShot]:
    """γ = 0 keeps p; a large γ is one product; between them the worked value."""
    p, twins = triple(), pair()
    sure = Table(2, 3, _copied(twins).log())
    return {
        "nothing lost": OneShot(attempt(EntropyBounded(gamma=0.0), p), p.as_dict()),
        "copies": OneShot(attempt(EntropyBounded(gamma=0.0), sure), sure.as_dict()),
        "everything": OneShot(attempt(EntropyBounded(gamma=9.0), p), product(p).as_dict()),
        "half a nat": OneShot(attempt(EntropyBounded(gamma=0.5), twins), twins.as_dict()),
        "more": OneShot(attempt(EntropyBounded(gamma=0.7), twins), product(twins).as_dict()),
    }


def _copied(twins: Table) -> Float[Tensor, " 8"]:
    """The law of (x_0, x_1, x_0)."""
    law = torch.zeros(2, 2, 2, dtype=torch.float64)
    for (a, b), prob in twins.as_dict().items():
        law[a, b, a] = prob
    return law.reshape(-1)
