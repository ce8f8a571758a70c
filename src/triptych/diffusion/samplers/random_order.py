"""Random order: each round reveals positions drawn uniformly, each token from its own law.

One position a round is the any-order sampler: the law of the model, whatever the order. It is what
ancestral sampling becomes with infinitely many steps, without the empty ones (the first-hitting
sampler of Zheng et al.). LLaDA calls it remasking="random".
"""

from dataclasses import dataclass
from typing import ClassVar

from triptych.core.samplers import OneShot
from triptych.diffusion.choosing import Rounds, uniform_positions
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.promises import attempt, pair_then_one, product, triple
from triptych.diffusion.sampler import Keeps


@dataclass(frozen=True)
class RandomOrder(Rounds):
    """Reveal positions in a random order.

    Worked value: p uniform on {00, 11}. One position a round: p. Both in one round: each of the
    four texts with ¼.
    """

    title = "Random order"
    promise = "one position a round: the model's law; several: a product for each round"
    source = "MDLM limit; first-hitting sampler, arXiv:2409.02908; LLaDA remasking='random'"
    when = "the plain choice: exact one by one, a known loss in fewer rounds"
    keeps: ClassVar[Keeps] = "one position a round"

    def step(self, run: Denoising, number: int) -> None:
        """Choose, then ask about these positions alone."""
        now = uniform_positions(run, run.hidden, self.quota(run, number))
        run.write(now, run.draw(run.ask(now), now))


def examples() -> dict[str, OneShot]:
    """p itself; the product of the marginals; a mean over pairs."""
    p = triple()
    return {
        "one by one": OneShot(attempt(RandomOrder(), p), p.as_dict()),
        "all at once": OneShot(attempt(RandomOrder(steps=1), p), product(p).as_dict()),
        "two, then one": OneShot(
            attempt(RandomOrder(schedule="2+1"), p), pair_then_one(p).as_dict()
        ),
        "block by block": OneShot(attempt(RandomOrder(), p, block_length=2), p.as_dict()),
    }
