"""Confident positions: the position whose law has the largest maximum goes first, then it is drawn.

This is the corrected form of `Confidence`, which draws first and keeps the tokens that came out
probable. Looking at the law alone costs nothing in speed and keeps the model's law.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from triptych.core.samplers import OneShot
from triptych.diffusion.choosing import ByPosition
from triptych.diffusion.promises import attempt, triple


@dataclass(frozen=True)
class ConfidentPosition(ByPosition):
    """Reveal the positions that are most certain.

    Worked value: two independent bits, P(x_0 = 1) = 0.1 and P(x_1 = 1) = 0.4: x_0 goes first, and
    P(x_0 = 1) stays 0.1. `Confidence` makes it 0.01.
    """

    title = "Confident positions (corrected confidence)"
    promise = "one position a round: the model's law, since the choice sees no drawn token"
    source = "the corrected form of MaskGIT; close to the moment sampler, arXiv:2510.04525"
    when = "instead of confidence: sure positions first, and the law is kept"

    def scores(self, laws: Float[Tensor, "asked vocab"]) -> Float[Tensor, " asked"]:
        """max_w p(x_i = w)."""
        return laws.amax(-1).exp()


def examples() -> dict[str, OneShot]:
    """One position a round keeps p, however the position is chosen by the laws."""
    p = triple()
    return {
        "one by one": OneShot(attempt(ConfidentPosition(), p), p.as_dict()),
        "block by block": OneShot(attempt(ConfidentPosition(), p, block_length=2), p.as_dict()),
    }
