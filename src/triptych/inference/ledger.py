"""What a generation cost: questions, tokens and seconds."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.validation import (
    Count,
    as_count,
    as_device,
    as_integers,
    as_number,
    as_size,
)


@dataclass
class Ledger:
    """What a generation cost: per row, and for the batch as a whole.

    generator_calls   questions put to the model: a token drawn or taken, or a law looked at
    generated         tokens put at the end of a row; the thesis' query complexity C
    erased            tokens taken back
    verifier_calls    prefixes shown to the verifier
    forward_passes    batched questions to the decoder: what a parallel machine waits for
    verifier_passes   the same for the verifier
    seconds           wall-clock, in all and inside the generator and the verifier
    """

    generator_calls: Int[Tensor, " batch"]
    generated: Int[Tensor, " batch"]
    erased: Int[Tensor, " batch"]
    verifier_calls: Int[Tensor, " batch"]
    forward_passes: int = 0
    verifier_passes: int = 0
    seconds: float = 0.0
    generator_seconds: float = 0.0
    verifier_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in ("generator_calls", "generated", "erased", "verifier_calls"):
            setattr(self, name, as_integers(name, getattr(self, name), dimensions=1))
        for name in ("forward_passes", "verifier_passes"):
            setattr(self, name, as_count(name, getattr(self, name)))
        for name in ("seconds", "generator_seconds", "verifier_seconds"):
            setattr(self, name, as_number(name, getattr(self, name), at_least=0))

    @classmethod
    def empty(cls, batch: Count, device: torch.device | str) -> "Ledger":
        """Nothing was asked yet."""
        size, device = as_size("batch", batch, at_least=0), as_device(device)
        zero = torch.zeros(size, dtype=torch.long, device=device)
        return cls(zero, zero.clone(), zero.clone(), zero.clone())

    def totals(self) -> dict[str, int | float]:
        """Sums over the rows, by name."""
        return {
            name: int(value.sum()) if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }
