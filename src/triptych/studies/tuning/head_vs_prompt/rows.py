"""A trial of head against prompt, and what the source published."""

from dataclasses import dataclass

from triptych.studies.tuning.shared.trials import OnNetwork

# Figure 3 left of [wei], per cent, means over 20 trials: read from the figure's vector graphics.
HIDDEN = (4, 8, 10, 15, 25, 30)
PROMPT = (99.7, 97.0, 93.0, 87.0, 74.8, 75.1)
HEAD = (94.0, 84.0, 79.7, 74.6, 66.1, 66.2)


@dataclass(frozen=True)
class Trial(OnNetwork):
    """A linear head, and a soft prompt with such a head, on one network and task.

    kl             KL(truth ‖ network) at masked positions, in nats
    head, prompt   trained with the paper's recipe
    best_head      the best linear head on the same features
    best_prompt    the same prompt with the best linear head after it; None where not measured
    prompt_train   accuracy of the prompt on its training set; prompt_loss: its last losses, nats
    """

    kl: float
    head: float
    best_head: float
    prompt: float
    best_prompt: float | None
    prompt_train: float
    prompt_loss: float

    @property
    def gain(self) -> float:
        return self.prompt - self.head
