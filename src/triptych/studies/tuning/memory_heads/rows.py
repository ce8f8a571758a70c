"""A trial of heads on data with or without a memory, and what the source published."""

from dataclasses import dataclass
from typing import Literal

from triptych.studies.tuning.shared.trials import OnNetwork

# Figure 3 right of [wei], per cent, means over 5 trials: read from the figure's vector graphics.
STATES = (8, 12, 20, 28)
MEMORY = (99.8, 99.9, 99.9, 97.8)
VANILLA = (83.2, 80.7, 64.4, 66.2)

Data = Literal["memory", "vanilla"]


@dataclass(frozen=True)
class Trial(OnNetwork):
    """A linear and an attention head on one network and task.

    data                 of the pretraining and the task
    kl                   KL(truth ‖ network) at masked positions, in nats
    linear, attention    trained with the paper's recipe
    best_linear          the best linear head on the same features
    """

    data: Data
    kl: float
    linear: float
    best_linear: float
    attention: float

    @property
    def trial(self) -> tuple[str | int, ...]:
        return (self.data, *super().trial)
