"""Block Gibbs on a canvas: fill it at once, then hide k positions and fill them again, many times.

A step draws k positions of the block uniformly, hides them, and fills them one after another in a
random order, each given all that is shown: for consistent answers a draw of their joint
conditional, p(x_K | x_-K). This is the k-Gibbs sampler of `inference.chains.gibbs` (in turn, in a
random order) on any denoiser. It leaves the model's law as it is, and goes to it from any start
that the blocks connect; how fast, its Poincaré constant says (docs/masking.md).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.diffusion.choosing import uniform_positions
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt, pair, product, triple
from triptych.diffusion.sampler import Keeps, Sampler
from triptych.inference.settable import option


@dataclass(frozen=True)
class BlockGibbs(Sampler):
    """Fill at once, then redraw blocks.

    Worked value: p uniform on {00, 11}: from any of the four texts one redraw of one position goes
    to 00 or 11, and no redraw of single positions ever leaves these.
    """

    title = "Block Gibbs"
    promise = "as steps grow: the model's law, where blocks connect all texts"
    source = "k-Gibbs sampler, li 4.1.2"
    when = "a text is there and should be moved to the law"
    keeps: ClassVar[Keeps] = "as steps grow"
    returns = True

    steps: int = option(16, "blocks that are redrawn", at_least=0)
    positions: int = option(2, "positions of a block", at_least=1)

    def rounds(self, size: int) -> int:
        """The filling, and the redraws."""
        return 1 + self.steps

    def step(self, run: Denoising, number: int) -> None:
        """Fill everything at once; or hide some positions and fill them in turn."""
        if number == 0:
            run.write(run.hidden, run.draw(run.ask(run.hidden), run.hidden))
            return
        sizes = torch.full_like(run.sizes, self.positions)
        run.hide(uniform_positions(run, run.shown, sizes))
        while bool((left := run.hidden).any()):
            one = uniform_positions(run, left, torch.ones_like(sizes))
            run.write(one, run.draw(run.ask(one), one))


def examples() -> dict[str, OneShot]:
    """Without redraws a product; a block of all is p; the worked value."""
    p, two, twins = triple(), Table.random(2, 2, seed=1), pair()
    return {
        "no redraw": OneShot(attempt(BlockGibbs(steps=0), p), product(p).as_dict()),
        "a block of all": OneShot(attempt(BlockGibbs(steps=1, positions=2), two), two.as_dict()),
        "twins": OneShot(attempt(BlockGibbs(steps=2, positions=1), twins), twins.as_dict()),
    }
