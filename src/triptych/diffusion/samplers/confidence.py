"""Confidence: draw a token at every hidden position, keep the most probable (MaskGIT, Dream).

The rule looks at the token that was drawn. A rare token is drawn, is not kept, and is drawn again
in the next round; so rare tokens come out less often than the model says, even one position a
round. That is why confident samplers lose diversity: they sample another law, a sharper one.
`ConfidentPosition` chooses by the laws alone and keeps the law.

    choice    top       the most probable tokens are kept
              gumbel    log p + T · Gumbel, where T falls to 0 with the rounds (MaskGIT)
              softmax   positions drawn with weights exp(p / T) without replacement (Dream alg_temp)
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.diffusion.choosing import Rounds, dense
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt
from triptych.inference.chains.positions import drawn_positions, highest
from triptych.inference.guided.transforms import temperature
from triptych.inference.settable import option


@dataclass(frozen=True)
class Confidence(Rounds):
    """Keep the drawn tokens that are most probable.

    Worked value: two independent bits, P(x_0 = 1) = 0.1 and P(x_1 = 1) = 0.4, one position a round.
    x_0 = 1 has probability 0.1, less than any token of x_1, so it is never kept in the first round
    and must be drawn twice: P(x_0 = 1) = 0.01.
    """

    title = "Confident tokens (MaskGIT, Dream)"
    promise = "fewer rare tokens than the model, even one position a round"
    source = "MaskGIT, arXiv:2202.04200; Dream alg=maskgit_plus"
    when = "never for its law; to reproduce MaskGIT and Dream"

    degree: float = option(
        1.0, "temperature of the draws and their probabilities; 0 takes the best", at_least=0
    )
    choice: Literal["top", "gumbel", "softmax"] = option("top", "how positions are chosen")
    choice_degree: float = option(4.5, "temperature of gumbel and softmax", at_least=1e-6)

    def step(self, run: Denoising, number: int) -> None:
        """Draw everywhere, keep some."""
        hidden, quota = run.hidden, self.quota(run, number)
        hidden = hidden & (quota > 0)[:, None]
        laws = run.ask(hidden)
        tempered = temperature(self.degree)(laws)
        drawn = run.draw(tempered, hidden)
        used = tempered if self.degree > 0 else laws
        scores = dense(used.gather(-1, drawn[:, None])[:, 0], hidden)
        now = self._choose(run, scores, hidden, number)
        run.write(now, drawn[now[hidden]])

    def _choose(
        self,
        run: Denoising,
        scores: Float[Tensor, "batch length"],
        hidden: Bool[Tensor, "batch length"],
        number: int,
    ) -> Bool[Tensor, "batch length"]:
        quota = self.quota(run, number)
        rounds = max(map(self.rounds, run.sizes.tolist()))
        degree = self.choice_degree
        if self.choice == "gumbel":
            degree *= 1 - (number + 1) / rounds
        if self.choice == "top" or degree <= 0:
            return highest(scores.exp(), hidden, quota)
        weights = (scores if self.choice == "gumbel" else scores.exp()) / degree
        every = quota >= hidden.sum(-1)
        some = torch.where(every, 0, quota)
        return hidden & every[:, None] | drawn_positions(weights, hidden, some, run.rng)


def examples() -> dict[str, OneShot]:
    """The worked value, and Gumbel noise on it, by hand.

    With T = 1 in the first of two rounds and weights p of the drawn tokens: x_0 is kept with
    p_0 / (p_0 + p_1), else it is drawn again.
    """
    bits = Table(2, 2, torch.tensor([0.54, 0.36, 0.06, 0.04], dtype=torch.float64).log())
    first, second = (0.9, 0.1), (0.6, 0.4)
    law = torch.zeros(2, 2, dtype=torch.float64)
    for x, p in enumerate(first):
        for y, q in enumerate(second):
            for z in range(2):
                law[x, z] += p * q * p / (p + q) * second[z]
                law[z, y] += p * q * q / (p + q) * first[z]
    noisy = Table(2, 2, law.reshape(-1).log())
    kept = Table(2, 2, torch.tensor([0.594, 0.396, 0.006, 0.004], dtype=torch.float64).log())
    gumbel = Confidence(choice="gumbel", choice_degree=2.0)
    return {
        "two free bits": OneShot(attempt(Confidence(), bits), kept.as_dict()),
        "gumbel": OneShot(attempt(gumbel, bits), noisy.as_dict()),
    }
