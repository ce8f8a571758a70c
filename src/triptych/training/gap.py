"""The gap meter: how far a network is from the truth, in nats, without sampling noise in targets.

On sequences drawn from the truth, the network's cross-entropy against the exact conditional laws
splits into the entropy of those laws, which nobody can beat, and the divergence from them:

    loss = bayes_loss + kl
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.divergences import entropy, kl_divergence
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import UserError
from triptych.training.objectives import Objective, Prediction


class Gap(NamedTuple):
    """Mean over the scored positions, in nats.

    loss         cross-entropy of the network against the exact conditionals
    bayes_loss   the entropy of the exact conditionals: the smallest possible loss
    kl           KL(truth ‖ network) = loss - bayes_loss
    """

    loss: float
    bayes_loss: float
    kl: float


@torch.no_grad()
def measure(
    token_logits: Callable[[Int[Tensor, "batch length"]], Float[Tensor, "batch length vocab"]],
    objective: Objective,
    tokens: Int[Tensor, "batch length"],
    rng: RngLike,
) -> Gap:
    """The gap of a network on given sequences; `objective` must have exact targets."""
    return measure_on(token_logits, objective(tokens, as_rng(rng, tokens.device)))


@torch.no_grad()
def measure_on(
    token_logits: Callable[[Int[Tensor, "batch length"]], Float[Tensor, "batch length vocab"]],
    prediction: Prediction,
) -> Gap:
    """The gap of a network where `prediction` asks it, against the exact laws that it holds."""
    if prediction.law is None:
        raise UserError("the gap needs an objective with exact targets: pass truth=structure")
    log_q = F.log_softmax(token_logits(prediction.seen).double(), -1)[prediction.scored]
    log_p = prediction.law[prediction.scored]
    if len(log_p) == 0:
        raise UserError("no position was scored: give more sequences or hide more tokens")
    kl, bayes = kl_divergence(log_p, log_q).mean().item(), entropy(log_p).mean().item()
    return Gap(bayes + kl, bayes, kl)
