"""Ancestral sampling of masks (MDLM): every hidden position is revealed by itself, at its own time.

From noise level α_t to α_s > α_t a hidden position is revealed with probability

    (α_s - α_t) / (1 - α_t),

independently of all others, and its token drawn from p(x_i | shown). Positions that are revealed in
the same step are drawn independently, and that is the only error: with infinitely many steps no two
are. Which positions these are does not depend on the model, so the model is asked only in steps
that reveal something, about rows that do, and the many small steps of a fine schedule cost nothing.

The published program stops at α = 1 - 1e-5 and takes the most probable token where a mask is left;
here the last step goes to α = 1 and draws.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.core.validation import set_fields
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt, independent, product, subsets, triple
from triptych.diffusion.sampler import Keeps, Sampler
from triptych.diffusion.schedules import as_schedule, levels, rounds
from triptych.inference.settable import option


@dataclass(frozen=True)
class Ancestral(Sampler):
    """Reveal every position at a time of its own.

    Worked value: p uniform on {00, 11} in two steps of ½: with ½ both positions are revealed in the
    same step and are independent, so 01 and 10 have ⅛ each.
    """

    title = "Ancestral (MDLM)"
    promise = "as steps grow: the model's law; positions of one step are independent"
    source = "MDLM, arXiv:2406.07524"
    when = "to compare with MDLM; as exact as its steps are many"
    keeps: ClassVar[Keeps] = "as steps grow"

    steps: int = option(64, "steps for each block, most of which may be empty", at_least=1)
    schedule: str = option("linear", "the share of positions that is shown after each step")

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, schedule=as_schedule(self.schedule))

    def rounds(self, size: int) -> int:
        """As many as the schedule has."""
        return rounds(self.schedule, self.steps)

    def step(self, run: Denoising, number: int) -> None:
        """Choose what is revealed, then ask about it."""
        before, after = levels(self.schedule, self.steps)[number : number + 2]
        now = run.chance((after - before) / (1 - before) if before < 1 else 1.0, run.hidden)
        run.write(now, run.draw(run.ask(now), now))


def examples() -> dict[str, OneShot]:
    """One step is the product of the marginals; two steps by a sum over what each reveals."""
    p = triple()
    return {
        "one step": OneShot(attempt(Ancestral(steps=1), p), product(p).as_dict()),
        "two steps": OneShot(attempt(Ancestral(steps=2), p), _by_sets(p, 0.5).as_dict()),
        "levels": OneShot(attempt(Ancestral(schedule="0.3,1"), p), _by_sets(p, 0.3).as_dict()),
    }


def _by_sets(p: Table, share: float) -> Table:
    """Σ_S P(S first) Π_{i in S} p(x_i) Π_{j not in S} p(x_j | x_S), three positions."""
    grid = p.log_probs.exp().reshape([p.vocab_size] * 3)
    total = torch.zeros_like(grid)
    for first in subsets(3):
        rest = [j for j in range(3) if j not in first]
        chance = share ** len(first) * (1 - share) ** len(rest)
        total += chance * independent(grid, first, []) * independent(grid, rest, first)
    return Table(p.vocab_size, 3, total.reshape(-1).log())
