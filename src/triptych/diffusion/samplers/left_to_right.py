"""From left to right: each round reveals the first hidden positions.

One position a round is autoregressive decoding by a masked model. With blocks it is the
semi-autoregressive order in its extreme form.
"""

from dataclasses import dataclass
from typing import ClassVar

from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.diffusion.choosing import Rounds
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt, triple
from triptych.diffusion.sampler import Keeps


@dataclass(frozen=True)
class LeftToRight(Rounds):
    """Reveal the first hidden positions.

    Worked value: p uniform on {00, 11}, one position a round: 0 or 1 with ½, then the same.
    """

    title = "From left to right"
    promise = "one position a round: the model's law; several: a product for each round"
    source = "autoregressive order"
    when = "text that is read from the left, or a model that was trained so"
    keeps: ClassVar[Keeps] = "one position a round"

    def step(self, run: Denoising, number: int) -> None:
        """Ask about the first hidden positions alone."""
        hidden = run.hidden
        now = hidden & (hidden.cumsum(-1) <= self.quota(run, number)[:, None])
        run.write(now, run.draw(run.ask(now), now))


def examples() -> dict[str, OneShot]:
    """p itself; and p(x_0) p(x_1) p(x_2 | x_0, x_1)."""
    p = triple()
    grid = p.log_probs.exp().reshape(2, 2, 2)
    first = grid.sum([1, 2])[:, None, None] * grid.sum([0, 2])[None, :, None]
    two = Table(2, 3, (first * grid / grid.sum(2, keepdim=True)).reshape(-1).log())
    return {
        "one by one": OneShot(attempt(LeftToRight(), p), p.as_dict()),
        "two, then one": OneShot(attempt(LeftToRight(schedule="2+1"), p), two.as_dict()),
    }
