"""How far apart two tokens of an HMM still say something about each other.

Pretraining must find where the tokens are that tell about a hidden one. In a nearly deterministic
chain every other token does, at any distance; in one that forgets, a few neighbours do, and a
network with a learned vector for every position has to find them at each position again.

Notation
--------
s     stationary law          [states]         A   transition   [states, states], A[i, j] = P(j | i)
J_d   law of (x_t, x_{t+d})   [vocab, vocab]   W   emission     [states, vocab]

    J_d = Wᵀ diag(s) A^d W
"""

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.divergences import kl_divergence
from triptych.core.validation import Count, as_size
from triptych.structures.hidden_markov.hmm import HMM


def information_at_distances(hmm: HMM, up_to: Count) -> Float[Tensor, " up_to"]:
    """Mutual information of x_t and x_{t+d} for d = 1..up_to, in nats, in the stationary chain.

    Worked value: two states that emit a token each and stay with probability ¾ share log 2 - h(¼)
    = 0.1308 nats at d = 1; if they always change, log 2 at every distance.
    """
    up_to = as_size("up_to", up_to)
    law = hmm.stationary()
    alone = law @ hmm.emission
    apart = (alone[:, None] * alone).flatten().log()
    reached = law[:, None] * torch.eye(hmm.states, dtype=law.dtype, device=law.device)
    found = []
    for _ in range(up_to):
        reached = reached @ hmm.transition
        together = hmm.emission.T @ reached @ hmm.emission
        found.append(kl_divergence(together.flatten().log(), apart))
    return torch.stack(found).clamp(min=0.0)


def reach(hmm: HMM, up_to: Count) -> float:
    """The sum of `information_at_distances`, in nats.

    It counts what tokens share with each other several times, so it is no information about x_t;
    it says how many places there are where something can be read.
    """
    return float(information_at_distances(hmm, up_to).sum())
