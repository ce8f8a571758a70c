"""Which sets of positions an attention head can attend to: Lemma C.9 of [wei], for every head.

An attention head with hard attention scores position i by qᵀ(Θ G_i + β_i) = a·G_i + c_i, where a
and every c_i are free, and attends where the score is largest. Lemma C.9 says that some head
attends on every input to

    Î = {i : supp P[H_i | X_-i] inside H*},

the positions that are recoverable without the prompt. A linear programme looks for it:

    largest s  with  score_i = score_j for i, j in Î(x),  score_j + s ≤ score_i for j not in Î(x),
                     a, c in [-1, 1].

If some head attends to Î on all inputs, a multiple of it has s > 0. If s cannot be above 0, none
does, and the multipliers of the programme prove it (`attended_margin`).

Notation
--------
G   probs    [batch, positions, vocab]      Î   wanted   [batch, positions], bool
"""

import numpy as np
import scipy.optimize
import scipy.sparse
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.validation import check_shape
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.theory.tuning import memory_heads, memory_prompts
from triptych.theory.tuning.memory_prompts import Case

_LARGEST = 4.0  # s is a difference of two scores, each at most 2 in size


def attended_margin(
    probs: Float[Tensor, "batch positions vocab"], wanted: Bool[Tensor, "batch positions"]
) -> float:
    """An upper bound of s, by which scores in `wanted` exceed the others on every input.

    0 up to rounding says that no head of this form attends to exactly these sets. Inputs without a
    wanted position say nothing. The bound is proved by arithmetic, whatever the solver did: for
    multipliers y ≥ 0 of the inequalities and w of the equations, s is at most the largest value of
    s - yᵀ(inequalities) - wᵀ(equations) over the box.

    Worked value: one input, G_1 = (1, 0), G_2 = (0, 1), only position 1 wanted: a = (1, -1) and
    c = (1, -1) give the scores 2 and -2, so s = 4. With G_2 = G_1 and one c for both (the same two
    laws at swapped positions in a second input) it is 0.
    """
    batch, positions, vocab = probs.shape
    check_shape("wanted", wanted, (batch, positions), f"{batch} inputs of {positions} positions")
    kept = wanted.any(1)
    law = probs[kept].double().cpu().numpy()
    chosen = wanted[kept].cpu().numpy()
    if len(law) == 0:
        return _LARGEST
    rows = np.arange(len(law))
    place = np.broadcast_to(np.eye(positions), (len(law), positions, positions))
    scored = np.concatenate([law, place], axis=2)  # what (a, c) is multiplied with
    first = chosen.argmax(1)
    less = scored - scored[rows, first][:, None]
    equal = np.unique(less[chosen].round(15), axis=0)
    below = np.unique(less[~chosen].round(15), axis=0)
    unknowns = vocab + positions
    if len(below) == 0:
        return _LARGEST
    result = scipy.optimize.linprog(
        np.append(np.zeros(unknowns), -1.0),
        A_ub=scipy.sparse.csr_matrix(np.concatenate([below, np.ones((len(below), 1))], 1)),
        b_ub=np.zeros(len(below)),
        A_eq=scipy.sparse.csr_matrix(np.concatenate([equal, np.zeros((len(equal), 1))], 1)),
        b_eq=np.zeros(len(equal)),
        bounds=[(-1.0, 1.0)] * unknowns + [(0.0, _LARGEST)],
        method="highs",
    )
    if result.status != 0:
        raise RuntimeError(f"the linear programme was not decided: {result.message}")
    y = np.maximum(-result.ineqlin.marginals, 0.0)
    w = -result.eqlin.marginals
    box = np.abs(y @ below + w @ equal).sum()
    return float(box + _LARGEST * max(0.0, 1.0 - y.sum()))


def prompted_sets(
    case: Case, tokens: Int[Tensor, "batch t"]
) -> tuple[Float[Tensor, "kept t1 vocab"], Bool[Tensor, "kept t1"], Bool[Tensor, "kept t1"]]:
    """G_i(ê(x)), Î and I with the prompt at position 0, on the inputs of Z with a nonempty Î.

    Î   positions whose hidden state is certain to lie in H* without the prompt (C.8)
    I   the same given the prompt: where the head of the proof attends
    Z   the inputs with P(X_-i = x_-i | prompt) > 0 at every i (C.7)
    """
    model, cell, task = case
    values = memory_prompts.relevant(model, task)
    syntax = memory_heads.recoverable(model, cell, values)
    given = memory_prompts.supports(model, tokens, cell, task).hidden
    known = memory_heads.supports(model, tokens).hidden
    before = memory_heads.concentrated(model, known, cell, syntax)
    after = memory_heads.concentrated(model, given, cell, syntax)
    kept = given.any(-1).all(-1) & before.any(-1)
    probs = memory_prompts.masked_probs(model, memory_prompts.prompt(model, cell, task), tokens)
    wanted, attended = (
        torch.nn.functional.pad(where[kept], (1, 0), value=False) for where in (before, after)
    )
    return probs[kept], wanted, attended


def worked_case() -> Case:
    """A model on which no head attends to Î alone; two inputs of length 5 show it.

    Tokens a, b, A, B, K, L; one cell with the values 0, 1, 2, of which μ = (1, -1, 0) counts two;
    hidden states content, filler, marker. Content follows every marker.

        content   (¾, ¼) on a, b for value 0, (¼, ¾) for value 1, (½, ½) for value 2
        filler    A or B for the values 0 and 1, A or L for value 2
        marker    K or L for the values 0 and 1, K for value 2

    In x = LaKaB the B excludes value 2, so L is a marker and the positions 2 and 4 are certain:
    Î = {2, 4}. In x' = LaKaA it does not, and L may be a filler: Î = {4}. With the prompt value 2
    is excluded in both, and G_2 and G_4 are (⅝, ⅜, 0, 0, 0, 0) in both. So a head that attends to
    both positions of x scores them alike, and scores them alike in x' too.
    """
    half, none = 0.5, 0.0
    content = [[0.75, 0.25], [0.25, 0.75], [half, half]]
    rows = [
        [
            [*content[value], none, none, none, none],
            [none, none, half, none if value == 2 else half, none, half if value == 2 else none],
            [none, none, none, none, *((1.0, none) if value == 2 else (half, half))],
        ]
        for value in range(3)
    ]
    emission = torch.tensor(rows, dtype=torch.float64)[:, None]
    third = 1 / 3
    transition = torch.tensor([[third] * 3, [third] * 3, [1.0, 0.0, 0.0]], dtype=torch.float64)
    memory = torch.full((3,), third, dtype=torch.float64)
    initial = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    model = MemoryHMM(memory, initial, transition, emission, length=1)
    return Case(model, 0, torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64))


WORKED_INPUTS = ((5, 0, 4, 0, 3), (5, 0, 4, 0, 2))  # LaKaB and LaKaA
