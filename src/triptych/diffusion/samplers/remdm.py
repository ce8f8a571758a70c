"""ReMDM: ancestral sampling that hides shown tokens again, so that mistakes can be mended.

From level α_t to α_s a shown position is hidden again with probability σ, and a hidden one is
revealed with probability

    (α_s - (1 - σ) α_t) / (1 - α_t),

so that a share α_s is shown on average whatever σ ≤ min(1, (1 - α_s)/α_t) is. Published choices:

    cap       σ = min(η, σ_max)
    rescale   σ = η σ_max
    conf      σ_i = σ_max softmax(-p_i), over the shown positions, where p_i is the probability that
              its token had when it was revealed: unsure tokens are hidden more often
    loop      MDLM up to the level α_on; there σ = η while hidden positions are revealed as fast,
              for the times between t_on and t_off; then MDLM again

With infinitely many steps cap, rescale and loop keep the model's law: which position is hidden does
not depend on what stands there. `conf` looks at it.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import UserError, set_fields
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt, independent, product, subsets, summed, triple
from triptych.diffusion.sampler import Keeps, Sampler
from triptych.diffusion.schedules import as_schedule, levels, rounds
from triptych.inference.settable import option


class Rates(NamedTuple):
    """What one step does: σ, and the chance that a hidden position is revealed."""

    sigma: float
    reveal: float


@dataclass(frozen=True)
class ReMDM(Sampler):
    """Reveal, and hide again.

    Worked value: levels 0, ½, 1 and η = 1 by rescaling: in the second step σ_max = 0, since at the
    end nothing may be hidden. So two steps are MDLM's.
    """

    name: ClassVar[str] = "remdm"
    title = "ReMDM"
    promise = "as steps grow: the model's law, by cap, rescale and loop; conf looks at tokens"
    source = "ReMDM, arXiv:2503.00307"
    when = "many steps are paid for anyway, and mistakes should be mended"
    keeps: ClassVar[Keeps] = "as steps grow"
    returns = True

    steps: int = option(64, "steps for each block", at_least=1)
    schedule: str = option("linear", "the share of positions that is shown after each step")
    rule: Literal["cap", "rescale", "conf", "loop"] = option("cap", "how σ is chosen")
    eta: float = option(0.02, "η of cap, rescale and loop", at_least=0, at_most=1)
    t_on: float = option(0.55, "the loop begins at this time", at_least=0, at_most=1)
    t_off: float = option(0.05, "and ends at this one", at_least=0, at_most=1)
    alpha_on: float = option(0.9, "the share that is shown in the loop", at_least=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, schedule=as_schedule(self.schedule))
        if self.rule == "loop" and not (1 > self.t_on > self.t_off > 0 and 0 < self.alpha_on < 1):
            raise UserError(
                f"t_on is {self.t_on:g}, t_off {self.t_off:g} and alpha_on {self.alpha_on:g}; the "
                "loop needs 1 > t_on > t_off > 0 and alpha_on between 0 and 1",
                parameter="t_on",
            )

    def rounds(self, size: int) -> int:
        """As many as the schedule has."""
        return rounds(self.schedule, self.steps)

    def rates(self, number: int) -> Rates:
        """σ and the chance to be revealed; of `conf`, σ_max and the chance where σ is 0."""
        before, after = levels(self.schedule, self.steps)[number : number + 2]
        sigma = 0.0
        if self.rule == "loop":
            before, after, loops = self._looped(1 - before, 1 - after)
            sigma = self.eta if loops else 0.0
        elif self.rule == "conf":
            return Rates(_most(before, after), _reveal(before, after, 0.0))
        elif before > 0:
            most = _most(before, after)
            sigma = min(self.eta, most) if self.rule == "cap" else self.eta * most
        return Rates(sigma, _reveal(before, after, sigma))

    def _looped(self, t: float, s: float) -> tuple[float, float, bool]:
        """α before and after, for times t > s, and whether this is inside the loop."""
        if t > self.t_on:
            rise = self.alpha_on / (1 - self.t_on)
            return (1 - t) * rise, (1 - s) * rise, False
        if t <= self.t_off:
            fall = (1 - self.alpha_on) / self.t_off
            return 1 - t * fall, 1 - s * fall, False
        return self.alpha_on, self.alpha_on, True

    def step(self, run: Denoising, number: int) -> None:
        """Choose what is hidden again and what is revealed, then ask about that."""
        sigma, reveal = self.rates(number)
        hidden, shown = run.hidden, run.shown
        unsure = self.rule == "conf"
        again = self._unsure(run, shown, sigma) if unsure else run.chance(sigma, shown)
        now = run.chance(reveal, hidden)
        laws = run.ask(now)
        drawn = run.draw(laws, now)
        run.hide(again)
        run.write(now, drawn)
        if unsure:
            sure = laws.gather(-1, drawn[:, None])[:, 0].exp().double()
            run.memory = run.memory.masked_scatter(now, sure).masked_fill(run.masked, 0.0)

    def _unsure(
        self, run: Denoising, shown: Bool[Tensor, "batch length"], most: float
    ) -> Bool[Tensor, "batch length"]:
        """Shown positions, each hidden with σ_max softmax(-p)."""
        weights = (-run.memory).masked_fill(~shown, -torch.inf).softmax(-1)
        chances: Float[Tensor, " shown"] = (weights[shown] * most).clamp(0, 1)
        if len(chances) == 0 or most == 0:
            return torch.zeros_like(shown)
        drawn = run.draw(torch.stack([1 - chances, chances], -1).log(), shown)
        return torch.zeros_like(shown).masked_scatter(shown, drawn.bool())


def _most(before: float, after: float) -> float:
    """σ_max: a larger σ could not be made up for by revealing everything."""
    return min(1.0, (1 - after) / before) if before > 0 else 1.0


def _reveal(before: float, after: float, sigma: float) -> float:
    if before >= 1:
        return 1.0
    return min(1.0, max(0.0, (after - (1 - sigma) * before) / (1 - before)))


def examples() -> dict[str, OneShot]:
    """One step is a product; a step that hides all that is shown and reveals the rest, by hand."""
    p = triple()
    swaps = ReMDM(schedule="0.5,0.5,1", rule="rescale", eta=1.0)
    return {
        "one step": OneShot(attempt(ReMDM(steps=1), p), product(p).as_dict()),
        "all again": OneShot(attempt(swaps, p), _swapped(p).as_dict()),
    }


def _swapped(p: Table) -> Table:
    """Σ_S ⅛ Σ_u Π_{i in S} p(u_i) Π_{j not in S} p(x_j | u_S) Π_{i in S} p(x_i | x_not S)."""
    grid = p.log_probs.exp().reshape([p.vocab_size] * 3)
    total = torch.zeros_like(grid)
    for first in subsets(3):
        rest = [j for j in range(3) if j not in first]
        drawn = independent(grid, first, []) * independent(grid, rest, first) / 8
        total += summed(drawn.expand_as(grid), first) * independent(grid, first, rest)
    return Table(p.vocab_size, 3, total.reshape(-1).log())
