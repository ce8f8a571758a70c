"""What a generation costs, row by row, and what it may cost."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.validation import as_count, as_number


@dataclass
class Costs:
    """What a generation cost: per row, and for the batch as a whole.

    generator_calls   questions put to the model: a token drawn or taken, or a law looked at
    generated         tokens put at the end of a row; the thesis' query complexity C
    erased            tokens taken back
    verifier_calls    prefixes shown to the verifier
    requests          to a model that answers draws; 0 where it answers laws
    drawn             tokens in its answers, those that were thrown away included
    forward_passes    runs of the model, each on a batch: what a parallel machine waits for. The
                      decoder counts them; one that does not is taken to need one a question
    verifier_passes   batched questions to the verifier
    seconds           wall-clock, in all and inside the generator and the verifier
    """

    generator_calls: Int[Tensor, " batch"]
    generated: Int[Tensor, " batch"]
    erased: Int[Tensor, " batch"]
    verifier_calls: Int[Tensor, " batch"]
    requests: Int[Tensor, " batch"]
    drawn: Int[Tensor, " batch"]
    forward_passes: int = 0
    verifier_passes: int = 0
    seconds: float = 0.0
    generator_seconds: float = 0.0
    verifier_seconds: float = 0.0

    @classmethod
    def empty(cls, batch: int, device: torch.device) -> "Costs":
        zero = torch.zeros(batch, dtype=torch.long, device=device)
        more = [zero.clone() for _ in range(5)]
        return cls(zero, more[0], more[1], more[2], more[3], more[4])

    def totals(self) -> dict[str, int | float]:
        """Sums over the rows, by name."""
        return {
            name: int(value.sum()) if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }


@dataclass(frozen=True)
class Budget:
    """The most that a row may cost; None is no limit.

    tokens           that are generated for the row, those of all its candidates together
    verifier_calls   prefixes of the row that are shown to the verifier
    seconds          since the generation began, the same for all rows

    It is looked at before each token. No row has more tokens than its budget. Questions to the
    verifier that belong together, about n candidates or the children of a node, are all asked: the
    last of them may be over the budget.
    """

    tokens: int | None = None
    verifier_calls: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "verifier_calls"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, as_count(name, value, at_least=0))
        if self.seconds is not None:
            seconds = as_number("seconds", self.seconds, at_least=0, finite=False)
            object.__setattr__(self, "seconds", seconds)
