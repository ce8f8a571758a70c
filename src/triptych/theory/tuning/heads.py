"""Linear heads on the exact masked LM: Proposition 3.4 and Theorem 3.3 of [wei], and the converse.

The chain is H_0, H_1, … with H_0 ~ `hmm.initial`; tokens are emitted from H_1 on. The task is the
sign of μᵀ P[H_0 | X_1:T = x]. The head sees G_1(∅, x) = P[X_1 | X_2:T+1 = x], the masked LM at a
masked first position. Since P[X_1 | ·] = W P[H_1 | ·] and P[H_1 | X_2:T+1 = x] = r_x D P[H_0 | x]
with D = diag(P[H_1] / P[H_0]), the head b = Wᵀ⁺ D⁻¹ μ computes r_x μᵀ P[H_0 | x], r_x > 0.

The converse: let W be injective on the span of the vectors P[H_1 | x], or not. If it is, some head
computes every task, by the same proof. If not, Σ_x c_x P[H_1 | x] is in the null space of W for
some strings x with independent P[H_1 | x], so Σ_x c_x G_1(x) = 0; the task that gives each of them
the label of the sign of its c_x is computed by no head, because b would have to make the sum
Σ_x c_x b·G_1(x) positive. With two strings, their G_1 are equal and their labels differ.

Notation
--------
μ   task     [states]          b   head   [vocab]          D   [states], the diagonal
W   emissionᵀ, [vocab, states]: the papers' orientation
"""

from dataclasses import replace
from typing import NamedTuple

import networkx
import numpy as np
import scipy.linalg
import scipy.optimize
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.validation import as_device
from triptych.structures.hidden_markov.hmm import HMM
from triptych.theory.conditions import Condition, Conditions

RANK_TOLERANCE = 1e-9
_SOLVER = 1e-6  # by which the linear programme may miss its constraints
_SAME_FEATURES, _DIFFERENT_STATES = 1e-13, 1e-6  # of one pair of inputs


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
    return hmm.with_length(padded.shape[1]).log_posterior(padded, hidden)[:, 0].exp()


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
    """Whether some b with entries in ±1 has b·g ≥ margin on the positive inputs, ≤ -margin else.

    Features are scaled to unit length first: only the sign of b·g matters. A linear programme looks
    for the largest margin, and either answer is checked by arithmetic: "yes" by the head it finds,
    up to a millionth of the margin, "no" by weights c ≥ 0 of sum 1 on the inputs, y = ±1 their
    labels: every b has a margin of at most b · Σ c y g ≤ |Σ c y g|_1.
    """
    signs = torch.where(labels, 1.0, -1.0).double()
    rows = (features / features.norm(dim=1, keepdim=True) * signs[:, None]).cpu().numpy()
    inputs, vocab = rows.shape
    result = scipy.optimize.linprog(  # b / margin, so that the solver's tolerance is far below 1
        np.append(np.zeros(vocab), -1.0),
        A_ub=np.concatenate([-rows, np.ones((inputs, 1))], 1),
        b_ub=np.zeros(inputs),
        bounds=[(-1.0 / margin, 1.0 / margin)] * vocab + [(0.0, 1.0)],
        method="highs",
    )
    if result.status == 0:
        if (rows @ result.x[:vocab]).min() >= 1 - _SOLVER:
            return True
        weights = np.maximum(-result.ineqlin.marginals, 0.0)
        if np.abs(weights @ rows).sum() < margin * weights.sum():
            return False
    raise RuntimeError(
        f"the linear programme was not decided for the margin {margin:g}: {result.message}"
    )


def least_hinge_head(
    features: Float[Tensor, "inputs vocab"], labels: Bool[Tensor, " inputs"]
) -> Float[Tensor, " vocab"]:
    """The b that minimises Σ max(0, 1 - y b·g) over all b, y = ±1: a linear programme.

    A fair competitor where no head computes the task: fewest errors is a harder problem.
    """
    signs = torch.where(labels, 1.0, -1.0).double()
    rows = (features / features.norm(dim=1, keepdim=True) * signs[:, None]).cpu().numpy()
    inputs, vocab = rows.shape
    result = scipy.optimize.linprog(
        np.concatenate([np.zeros(vocab), np.ones(inputs)]),
        A_ub=-np.concatenate([rows, np.eye(inputs)], 1),
        b_ub=-np.ones(inputs),
        bounds=[(None, None)] * vocab + [(0, None)] * inputs,
        method="highs",
    )
    if result.status != 0:
        raise RuntimeError(f"the linear programme was not solved: {result.message}")
    return torch.tensor(result.x[:vocab], dtype=features.dtype, device=features.device)


class Defeat(NamedTuple):
    """A task that no linear head computes, and the proof.

    task      μ, with largest entry ±1
    inputs    the strings x of the proof: two when G_1 is equal on them, more when it is not
    weights   c with Σ_x c_x G_1(x) = 0 and Σ_x |c_x| = 2, positive where the label is 1 and
              negative where it is 0
    """

    task: Float[Tensor, " states"]
    inputs: Int[Tensor, "inputs t"]
    weights: Float[Tensor, " inputs"]


def defeating_task(hmm: HMM, tokens: Int[Tensor, "batch t"]) -> Defeat | None:
    """A task no linear head computes on these strings; None when W loses nothing of their states.

    Two strings where two of them have equal G_1 and different states; else a combination of
    independent strings in the null space of W. Needs a distance for every pair of strings.
    """
    tokens = tokens[in_support(hmm, tokens)]
    if len(tokens) == 0:
        return None
    states = state_before(hmm, tokens) * shift(hmm)
    states = states / states.sum(1, keepdim=True)  # P[H_1 | x]
    chosen = _equal_features(states, states @ hmm.emission)
    if chosen is None:  # one string more than the rank of W is dependent after W
        rank = int((torch.linalg.svdvals(hmm.emission) > RANK_TOLERANCE).sum())
        chosen = _independent_rows(states)[: rank + 1]
    basis = states[chosen]
    left, sigma, _ = torch.linalg.svd(basis @ hmm.emission)
    dependent = torch.ones(len(basis), dtype=torch.bool, device=hmm.device)
    dependent[: len(sigma)] = sigma <= RANK_TOLERANCE
    if not dependent.any():
        return None
    weights = left[:, -1]
    counted = weights.abs() > RANK_TOLERANCE  # the others take no part in the combination
    weights, basis = weights[counted], basis[counted]
    task = (torch.linalg.pinv(basis) @ weights.sign()) * shift(hmm)  # (μ/D)·P[H_1 | x] = ±1
    return Defeat(
        task / task.abs().max(), tokens[chosen][counted], 2 * weights / weights.abs().sum()
    )


def _equal_features(
    states: Float[Tensor, "batch states"], features: Float[Tensor, "batch vocab"]
) -> Int[Tensor, " pair"] | None:
    """Two rows with equal features whose states differ most, if there are any."""
    apart = torch.cdist(states, states, p=float("inf"))
    apart[torch.cdist(features, features, p=float("inf")) > _SAME_FEATURES] = 0.0
    if apart.max() < _DIFFERENT_STATES:
        return None
    return torch.stack(torch.unravel_index(apart.argmax(), apart.shape))


def _independent_rows(states: Float[Tensor, "batch states"]) -> Int[Tensor, " rank"]:
    """Rows that span all of them, well conditioned first."""
    factors = scipy.linalg.qr(states.T.cpu().numpy(), mode="r", pivoting=True)
    triangle, order = np.asarray(factors[0]), np.asarray(factors[-1])
    rank = int((np.abs(np.diagonal(triangle)) > RANK_TOLERANCE).sum())
    return torch.tensor(order[:rank], dtype=torch.long, device=states.device)


def twin_states(seed: int, *, device: torch.device | str = "cpu") -> tuple[HMM, Tensor]:
    """An ergodic HMM with |H| = 5 > |X| = 4, and a task on it that no linear head computes.

    States 0 and 1 emit alike (tokens 0 and 3), but 0 leads to state 2 and 1 to state 3, whose
    tokens 1 and 2 tell them apart. Input (1) makes H_0 = 0 certain, input (2) makes H_0 = 1
    certain; G_1 is the same for both, and μ = (1, -1, 0, 0, 0) labels them differently.
    """
    draw, device = np.random.default_rng(seed), as_device(device)
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
