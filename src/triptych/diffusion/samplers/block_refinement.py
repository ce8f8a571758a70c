"""Block refinement, as LLaDA2 and diffusers generate: top-k by step, with a threshold and edits.

A round draws a token at every hidden position and keeps those whose probability is above a
threshold; where these are fewer than the round's share, the share of most probable ones (top-k by
step). With an editing threshold a shown token is replaced where another one was drawn with a larger
probability than that. It looks at drawn tokens, as `Confidence` does.
"""

from dataclasses import dataclass

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
class BlockRefinement(Rounds):
    """Keep what is above the threshold, and at least the round's share.

    Worked value: two independent bits, P(x_0 = 1) = 0.1 and P(x_1 = 1) = 0.4. Above 0.5 both 0s are
    kept at once. Of the draws 1 0 only the second is above, so x_0 is drawn again; 0 1 keeps x_0
    alone; 1 1 keeps the share, x_1. So x_0 = 1 has 0.1², and x_1 = 1 has 0.9 · 0.4² + 0.1 · 0.4.
    """

    title = "Block refinement (LLaDA2): top-k by step, threshold, edits"
    promise = "fewer rare tokens than the model, in fewer rounds"
    source = "diffusers BlockRefinementScheduler; LLaDA2; Fast-dLLM, arXiv:2505.22618"
    when = "to reproduce LLaDA2; fewest passes on sure text"
    returns = True

    schedule: str = option("larger first", "how many positions each round reveals at least")
    threshold: float = option(0.95, "probability above which a token is kept", at_least=0)
    editing: float | None = option(None, "probability above which a shown token is replaced")
    degree: float = option(1.0, "temperature of the draws; 0 takes the best token", at_least=0)
    edits: int = option(16, "rounds of edits alone, at most", at_least=0)

    def rounds(self, size: int) -> int:
        """Those that reveal, and those that only edit."""
        return super().rounds(size) + (0 if self.editing is None else self.edits)

    def step(self, run: Denoising, number: int) -> None:
        """Draw, keep, edit."""
        hidden, shown = run.hidden, run.shown
        both = hidden if self.editing is None else hidden | shown
        laws = run.ask(both)
        tempered = temperature(self.degree)(laws)
        drawn = run.draw(tempered, both)
        used = tempered if self.degree > 0 else laws
        scores = dense(used.gather(-1, drawn[:, None])[:, 0].exp(), both)
        tokens = run.tokens.masked_scatter(both, drawn)
        above = hidden & (scores > self.threshold)
        quota = self.quota(run, number)
        enough = (above.sum(-1) >= quota)[:, None]
        now = torch.where(enough, above, highest(scores, hidden, quota))
        edited = torch.zeros_like(now)
        if self.editing is not None:
            edited = shown & (tokens != run.tokens) & (scores > self.editing)
        run.costs.erased += edited.sum(-1)
        run.write(now | edited, tokens[now | edited])
        run.close(~run.hidden.any(-1) & ~edited.any(-1))


def examples() -> dict[str, OneShot]:
    """The worked value; with a threshold of 1 it is top-k by step, as `Confidence`."""
    bits = Table(2, 2, torch.tensor([0.54, 0.36, 0.06, 0.04], dtype=torch.float64).log())
    kept = Table(2, 2, torch.tensor([0.594, 0.396, 0.006, 0.004], dtype=torch.float64).log())
    law = {(0, 0): 0.54, (0, 1): 0.0, (1, 0): 0.0, (1, 1): 0.0}
    for (x, y), chance in {(0, 0): 0.36 * 0.6, (0, 1): 0.36 * 0.4}.items():
        law[x, y] += chance  # drawn 0 1: x_0 is kept, x_1 drawn again
    for y, chance in ((0, 0.06), (1, 0.04)):  # drawn 1 0 and 1 1: x_1 is kept, x_0 drawn again
        law[0, y] += chance * 0.9
        law[1, y] += chance * 0.1
    return {
        "half": OneShot(attempt(BlockRefinement(threshold=0.5), bits), law),
        "top one": OneShot(attempt(BlockRefinement(threshold=1.0), bits), kept.as_dict()),
    }
