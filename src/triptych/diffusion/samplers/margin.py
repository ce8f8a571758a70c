"""Margin: the position whose two most probable tokens are furthest apart goes first.

It differs from confidence where a law has two strong tokens: 0.5, 0.4, 0.1 is less sure than
0.45, 0.1, 0.1, ...
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from triptych.core.samplers import OneShot
from triptych.diffusion.choosing import ByPosition
from triptych.diffusion.promises import attempt, triple


@dataclass(frozen=True)
class Margin(ByPosition):
    """Reveal the positions with the largest p(best) - p(second).

    Worked value: laws (0.5, 0.4, 0.1) and (0.46, 0.27, 0.27) have margins 0.1 and 0.19: the second
    goes first, though its best token is less probable.
    """

    title = "Largest margin"
    promise = "one position a round: the model's law, since the choice sees no drawn token"
    source = "arXiv:2502.06768; Dream alg=topk_margin"
    when = "as confident positions, where two tokens compete"

    def scores(self, laws: Float[Tensor, "asked vocab"]) -> Float[Tensor, " asked"]:
        """The best probability minus the second."""
        if laws.shape[-1] == 1:
            return laws[:, 0].exp()
        best = laws.topk(2, dim=-1).values.exp()
        return best[:, 0] - best[:, 1]


def examples() -> dict[str, OneShot]:
    """One position a round keeps p, however the position is chosen by the laws."""
    p = triple()
    return {
        "one by one": OneShot(attempt(Margin(), p), p.as_dict()),
        "block by block": OneShot(attempt(Margin(), p, block_length=2), p.as_dict()),
    }
