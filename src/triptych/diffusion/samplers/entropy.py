"""Entropy: the position whose law has the smallest entropy goes first."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from triptych.core.samplers import OneShot
from triptych.diffusion.choosing import ByPosition, entropies
from triptych.diffusion.promises import attempt, triple


@dataclass(frozen=True)
class Entropy(ByPosition):
    """Reveal the positions with the smallest entropy.

    Worked value: laws (½, ½, 0) and (0.6, 0.2, 0.2) have entropies 0.693 and 0.950: the first goes
    first, though its best token is less probable.
    """

    title = "Smallest entropy"
    promise = "one position a round: the model's law, since the choice sees no drawn token"
    source = "Dream alg=entropy, arXiv:2508.15487"
    when = "as confident positions, for large vocabularies"

    def scores(self, laws: Float[Tensor, "asked vocab"]) -> Float[Tensor, " asked"]:
        """Minus the entropy."""
        return -entropies(laws)


def examples() -> dict[str, OneShot]:
    """One position a round keeps p, however the position is chosen by the laws."""
    p = triple()
    return {
        "one by one": OneShot(attempt(Entropy(), p), p.as_dict()),
        "block by block": OneShot(attempt(Entropy(), p, block_length=2), p.as_dict()),
    }
