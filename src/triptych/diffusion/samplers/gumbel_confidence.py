"""Gumbel confidence, as LLaDA generates: draw at a temperature, keep what the model finds probable.

    x_i = argmax_w log p(w) + T · Gumbel_w,    confidence p(x_i),    the k highest are kept.

The noise makes x_i a draw of p^(1/T), so no Gumbel number is needed here. The confidence is that of
the model at temperature 1. The choice looks at the drawn token, as in `Confidence`; at T = 0, where
nothing is drawn, it is greedy. remasking="random" keeps positions at random instead, which is
`RandomOrder` at this temperature.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.diffusion.choosing import Rounds, dense, uniform_positions
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt, triple
from triptych.inference.chains.positions import highest
from triptych.inference.guided.transforms import temperature
from triptych.inference.settable import option


@dataclass(frozen=True)
class GumbelConfidence(Rounds):
    """Generate as LLaDA does.

    Worked value: two independent bits, P(x_0 = 1) = 0.2 and P(x_1 = 1) = 0.4, T = ½: draws are of
    (16, 1)/17 and (9, 4)/13. x_0 = 1 is never kept in the first round: P(x_0 = 1) = (1/17)².
    """

    title = "Gumbel confidence (LLaDA)"
    promise = "fewer rare tokens than the tempered model, even one position a round"
    source = "LLaDA, arXiv:2502.09992: remasking='low_confidence'"
    when = "to reproduce LLaDA; greedy at temperature 0"

    schedule: str = option("larger first", "how many positions each round reveals")
    degree: float = option(0.0, "temperature of the draws; 0 takes the best token", at_least=0)
    remasking: Literal["low_confidence", "random"] = option(
        "low_confidence", "which positions are hidden again"
    )

    def step(self, run: Denoising, number: int) -> None:
        """Draw everywhere, keep what is probable; or keep positions at random."""
        hidden, quota = run.hidden, self.quota(run, number)
        if self.remasking == "random":
            now = uniform_positions(run, hidden, quota)
            run.write(now, run.draw(temperature(self.degree)(run.ask(now)), now))
            return
        hidden = hidden & (quota > 0)[:, None]
        laws = run.ask(hidden)
        drawn = run.draw(temperature(self.degree)(laws), hidden)
        confidence = dense(laws.gather(-1, drawn[:, None])[:, 0].exp(), hidden)
        now = highest(confidence, hidden, quota)
        run.write(now, drawn[now[hidden]])


def examples() -> dict[str, OneShot]:
    """The worked value by hand; greedy; and random remasking at temperature 1, which keeps p."""
    p = triple()
    bits = Table(2, 2, torch.tensor([0.48, 0.32, 0.12, 0.08], dtype=torch.float64).log())
    rare = 1 / 17
    x_0, x_1 = [1 - rare**2, rare**2], [9 / 13, 4 / 13]
    half = {(a, b): x_0[a] * x_1[b] for a in range(2) for b in range(2)}
    random = GumbelConfidence(degree=1.0, remasking="random")
    return {
        "half": OneShot(attempt(GumbelConfidence(degree=0.5), bits), half),
        "greedy": OneShot(attempt(GumbelConfidence(), bits), {(0, 0): 1.0}),
        "random": OneShot(attempt(random, p), p.as_dict()),
    }
