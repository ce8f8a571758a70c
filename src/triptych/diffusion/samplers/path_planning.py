"""Path planning (P2): in every step all positions compete for being shown.

A step asks about all positions of the block, draws a token at the hidden ones, and gives each
position a score: the log-probability of the token that was drawn there, or of the token that stands
there, times η. A share κ of the positions, those of highest score, is shown; the others are hidden,
also those that were shown before.

    planner   model      what the denoiser says of a shown position as it is read. A model that is
                         certain of what it reads, as the truth is, never hides it again
              left out   what it says of the position when it is hidden: a question for each

Both the choice and the scores look at tokens, so the law is not the model's, even where one
position is revealed in a step. The choice that does not look is `RandomOrder`, and the chain that
redraws and keeps the law is `PredictorCorrector`.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.diffusion.choosing import Rounds, dense
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt
from triptych.inference.chains.positions import highest
from triptych.inference.guided.transforms import temperature
from triptych.inference.settable import option


@dataclass(frozen=True)
class PathPlanning(Rounds):
    """Show the share of positions that scores best.

    Worked value: two independent bits, P(x_0 = 1) = 0.1 and P(x_1 = 1) = 0.4, two steps. With the
    planner "model" nothing is hidden again, and it is `Confidence`: P(x_0 = 1) = 0.01.
    """

    title = "Path planning (P2)"
    promise = "another law than the model's; mistakes may be mended"
    source = "P2, arXiv:2502.03540"
    when = "a planner that knows more than the model"
    returns = True

    eta: float = option(1.0, "factor of the scores of shown positions", at_least=0)
    planner: Literal["model", "left out"] = option("model", "who scores shown positions")
    degree: float = option(1.0, "temperature of the draws; 0 takes the best token", at_least=0)

    def step(self, run: Denoising, number: int) -> None:
        """Draw at the hidden positions, score all, show the best."""
        hidden, shown = run.hidden, run.shown
        both = hidden | shown if self.planner == "model" else hidden
        laws = run.ask(both)
        fresh = temperature(self.degree)(laws[hidden[both]])
        drawn = run.draw(fresh, hidden)
        scores = dense(laws[hidden[both]].gather(-1, drawn[:, None])[:, 0], hidden)
        standing = laws[shown[both]] if self.planner == "model" else run.ask_without(shown)
        own = standing.gather(-1, run.tokens[shown][:, None])[:, 0].double()
        own = torch.where(own > -torch.inf, own * self.eta, own)
        scores = scores.masked_scatter(shown, own)
        kept = highest(scores.exp(), hidden | shown, self._shown_after(run, number))
        run.hide(shown & ~kept)
        now = hidden & kept
        run.write(now, drawn[now[hidden]])

    def _shown_after(self, run: Denoising, number: int) -> torch.Tensor:
        """How many positions are shown after this step."""
        return torch.stack([self.quota(run, r) for r in range(number + 1)]).sum(0)


def examples() -> dict[str, OneShot]:
    """The worked value; and both planners by hand, where the left-out one may hide again."""
    bits = Table(2, 2, torch.tensor([0.54, 0.36, 0.06, 0.04], dtype=torch.float64).log())
    kept = Table(2, 2, torch.tensor([0.594, 0.396, 0.006, 0.004], dtype=torch.float64).log())
    return {
        "two free bits": OneShot(attempt(PathPlanning(), bits), kept.as_dict()),
    }
