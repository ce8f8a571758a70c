"""Linear heads on the exact masked LM: Proposition 3.4 and Theorem 3.3 of [wei], and the converse.

The chain is H_0, H_1, … with H_0 ~ `hmm.initial`; tokens are emitted from H_1 on. The task is the
sign of μᵀ P[H_0 | X_1:T = x]. The head sees G_1(∅, x) = P[X_1 | X_2:T+1 = x], the masked LM at a
masked first position. Since P[X_1 | ·] = W P[H_1 | ·] and P[H_1 | X_2:T+1 = x] = r_x D P[H_0 | x]
with D = diag(P[H_1] / P[H_0]), the head b = Wᵀ⁺ D⁻¹ μ computes r_x μᵀ P[H_0 | x], r_x > 0.

Notation
--------
μ   task     [states]          b   head   [vocab]          D   [states], the diagonal
W   emissionᵀ, [vocab, states]: the papers' orientation
"""

from dataclasses import replace

import networkx
import numpy as np
import scipy.optimize
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.structures.hmm import HMM
from triptych.theory.conditions import Condition, Conditions

RANK_TOLERANCE = 1e-9


def left_inverse(matrix: Float[Tensor, "outcomes causes"]) -> Float[Tensor, "causes outcomes"]:
    """M⁺ with M⁺ M = I, which exists iff the columns are independent [wei, Proposition 3.4]."""
    return torch.linalg.pinv(matrix)


def smallest_singular_value(matrix: Float[Tensor, "outcomes causes"]) -> float:
    """The margin of column independence; 0 when there are more columns than rows."""
    if matrix.shape[1] > matrix.shape[0]:
        return 0.0
    return float(torch.linalg.svdvals(matrix)[-1])


def conditions(hmm: HMM) -> Conditions:
    """The assumptions of Theorem 3.3 with their margins."""
    sigma = smallest_singular_value(hmm.emission.T)
    support = float(hmm.initial.min())
    graph = networkx.from_numpy_array(hmm.transition.cpu().numpy(), create_using=networkx.DiGraph)
    irreducible = networkx.is_strongly_connected(graph)
    ergodic = irreducible and networkx.is_aperiodic(graph)
    return Conditions(
        "Theorem 3.3: a linear head computes every linear task on P[H_0 | x]",
        [
            Condition(
                "non-degeneracy (Assumption 3.1)",
                sigma > RANK_TOLERANCE,
                sigma,
                "smallest singular value of the emission matrix",
            ),
            Condition(
                "full support of H_0 (Assumption 3.2)",
                support > 0,
                support,
                "smallest initial probability",
            ),
            Condition(
                "ergodic chain (Assumption 3.2)",
                ergodic,
                float(ergodic),
                "1 if irreducible and aperiodic",
            ),
        ],
    )


def shift(hmm: HMM) -> Float[Tensor, " states"]:
    """D = P[H_1] / P[H_0], the diagonal of Claim A.1."""
    return (hmm.initial @ hmm.transition) / hmm.initial


def witness(hmm: HMM, task: Float[Tensor, " states"]) -> Float[Tensor, " vocab"]:
    """b = (μ / D) W⁺, the head of the proof of Theorem 3.3."""
    return (task / shift(hmm)) @ left_inverse(hmm.emission.T)


def state_before(hmm: HMM, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch states"]:
    """P[H_0 | X_1:T = x]: the posterior of the state one step before the first token."""
    padded, hidden = _with_hidden_first(tokens)
    return hmm.with_length(padded.shape[1]).posterior(padded, hidden)[:, 0].exp()


def masked_first(hmm: HMM, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch vocab"]:
    """G_1(∅, x) = P[X_1 | X_2:T+1 = x], the masked LM at a masked first position."""
    padded, hidden = _with_hidden_first(tokens)
    first = replace(hmm, initial=hmm.initial @ hmm.transition, length=padded.shape[1])
    return first.masked_log_probs(padded, hidden)[:, 0].exp()


def in_support(hmm: HMM, tokens: Int[Tensor, "batch t"]) -> Bool[Tensor, " batch"]:
    """Whether X_1:T = x has positive probability."""
    first = replace(hmm, initial=hmm.initial @ hmm.transition, length=tokens.shape[1])
    return ~torch.isneginf(first.log_prob(tokens))


def linearly_separable(
    features: Float[Tensor, "inputs vocab"], labels: Bool[Tensor, " inputs"], margin: float
) -> bool:
    """Whether some b has b·g ≥ margin on the positive and ≤ -margin on the negative inputs.

    A linear programme decides it, so "no" is a certificate that no linear head works. Features
    are scaled to unit length first: only the sign of b·g matters.
    """
    signs = torch.where(labels, 1.0, -1.0).double()
    rows = features / features.norm(dim=1, keepdim=True) * signs[:, None]
    result = scipy.optimize.linprog(
        np.zeros(features.shape[1]),
        A_ub=-rows.cpu().numpy(),
        b_ub=-margin * np.ones(len(rows)),
        bounds=(-1.0, 1.0),
        method="highs",
    )
    return bool(result.status == 0)


def twin_states(seed: int, *, device: torch.device | str = "cpu") -> tuple[HMM, Tensor]:
    """An ergodic HMM with |H| = 5 > |X| = 4, and a task on it that no linear head computes.

    States 0 and 1 emit alike (tokens 0 and 3), but 0 leads to state 2 and 1 to state 3, whose
    tokens 1 and 2 tell them apart. Input (1) makes H_0 = 0 certain, input (2) makes H_0 = 1
    certain; G_1 is the same for both, and μ = (1, -1, 0, 0, 0) labels them differently.
    """
    draw = np.random.default_rng(seed)
    twins = np.zeros(4)
    twins[[0, 3]] = draw.dirichlet(np.ones(2))
    transition = np.zeros((5, 5))
    transition[0, 2] = transition[1, 3] = 1.0
    transition[2, [0, 1, 4]] = draw.dirichlet(np.ones(3))  # cycles of 2 and 3 steps: aperiodic
    transition[3, [0, 1, 4]] = draw.dirichlet(np.ones(3))
    transition[4, :2] = draw.dirichlet(np.ones(2))
    emission = np.zeros((5, 4))
    emission[0] = emission[1] = twins
    emission[2, 1] = emission[3, 2] = 1.0
    emission[4, [0, 3]] = draw.dirichlet(np.ones(2))
    hmm = HMM(
        torch.tensor(draw.dirichlet(np.ones(5))).to(device),
        torch.tensor(transition).to(device),
        torch.tensor(emission).to(device),
        length=1,
    )
    return hmm, torch.tensor([1.0, -1.0, 0.0, 0.0, 0.0], dtype=torch.float64, device=device)


def _with_hidden_first(
    tokens: Int[Tensor, "batch t"],
) -> tuple[Int[Tensor, "batch t1"], Bool[Tensor, "batch t1"]]:
    padded = torch.nn.functional.pad(tokens, (1, 0))
    hidden = torch.zeros_like(padded, dtype=torch.bool)
    hidden[:, 0] = True
    return padded, hidden
