"""A soft prompt and an attention head on a memory HMM: Theorems 4.6 and C.6 of [wei].

The model reads (u, e(x_1), …, e(x_t)) with the prompt

    u[m, j, s] = 1 if m_j* in M* = supp μ, else 0                                    (C.6)

Message passing treats u as the emission of a fake token z̃ that stands first (Lemma C.7), so every
later position is answered as if M_j* were known to lie in M*. Hence the columns of W for the other
values of cell j* no longer matter, and Assumption C.5 asks less than 4.2. With a stationary chain,

    value_i = r_{x,i} μᵀ P[M_j* | x],   r_{x,i} = P(X_i = x_i | z̃, X_-i) / P(M_j* in M* | x)

and where (z̃, x) is impossible the value and μᵀ P[M_j* | x] are both 0. Theorem 4.6 is the case of
one cell.

Two steps of the published proof need care; the theorem stands.

- The prompt's own position is not conditioned on the prompt, so Claim C.10 says nothing of it, and
  Θ(1) G_1 can be larger than 1: columns outside M* are arbitrary. The offset -2 does not always
  keep the attention away from it (`tests/test_memory_theory.py` has a model where it reads the
  prompt and answers wrongly). G_1 is a mixture of columns of W, so -2 minus the largest score of a
  column does: `prompt_offset`.
- The attended set I contains Î, the positions recoverable without the prompt, but may be larger:
  the prompt can rule out the memories that left a hidden state open. The value is right at all
  of I, since its formula asks only that supp P[H_i | z̃, X_-i] lies in H*; so the head is right
  also on inputs outside R that have such a position.

Notation
--------
u    prompt    [lifted]                 G    soft_masked_probs, [batch, 1 + t, vocab]
M*   values    [values], bool           H*, S*, V̄ as in `memory_heads`, with this M*
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.adaptation.attention import AttentionHead
from triptych.core.validation import as_device, check_shape
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.theory.conditions import Condition, Conditions
from triptych.theory.tuning import memory_heads

STATIONARITY_TOLERANCE = 1e-9
PUBLISHED_OFFSET = -2.0


class MemoryPromptWitness(NamedTuple):
    """The prompt (C.6), the head that goes with it, and the S* it reads."""

    prompt: Float[Tensor, " lifted"]
    head: AttentionHead
    syntax: Bool[Tensor, " syntax"]


def relevant(model: MemoryHMM, task: Float[Tensor, " values"]) -> Bool[Tensor, " values"]:
    """M* = supp μ."""
    check_shape("task", task, (model.values,), f"a memory of {model.values} values")
    if not (task != 0).any():
        raise ValueError("the task is 0 for every memory value; it needs a value that counts")
    return task != 0


def relevant_memories(
    model: MemoryHMM, cell: int, task: Float[Tensor, " values"]
) -> Bool[Tensor, " assignments"]:
    """Whether m_j* lies in M*, for every assignment m."""
    memory_heads.check_cell(model, cell)
    return relevant(model, task)[model.assignments[:, cell]]


def conditions(model: MemoryHMM, cell: int, task: Float[Tensor, " values"]) -> Conditions:
    """The assumptions of Theorem C.6, which is Theorem 4.6 for one cell, with their margins."""
    one = model.cells == 1
    residual = float((model.initial @ model.transition - model.initial).abs().sum())
    return Conditions(
        f"Theorem {'4.6' if one else 'C.6'}: a soft prompt and an attention head compute "
        "the task on P[M_j* | x] on R",
        [
            memory_heads.nondegeneracy(
                model, cell, relevant(model, task), f"Assumption {'4.5' if one else 'C.5'}"
            ),
            *memory_heads.regularity(model),
            Condition(
                "stationarity (Assumption 4.4)",
                residual <= STATIONARITY_TOLERANCE,
                residual,
                "distance between the law of the first hidden state and that of the next",
            ),
        ],
    )


def prompt(model: MemoryHMM, cell: int, task: Float[Tensor, " values"]) -> Float[Tensor, " lifted"]:
    """The u of (C.6): 1 where m_j* lies in supp μ."""
    keep = relevant_memories(model, cell, task).to(model.memory.dtype)
    return keep[:, None].expand(-1, len(model.initial)).flatten()


def prompt_offset(
    model: MemoryHMM, cell: int, syntax: Bool[Tensor, " syntax"], values: Bool[Tensor, " values"]
) -> float:
    """What is added to the score of the prompt so that it is at most -2, below all others.

    G_1 is 0 or a mixture of columns of W, so its score without offset is at most the largest
    1_H*ᵀ Θ(1) c over columns c. For columns inside M* that is at most 1.
    """
    joint = memory_heads.recoverers(model, cell, syntax, values).joint.sum((0, 1))
    return PUBLISHED_OFFSET - max(0.0, float((model.emission @ joint).max()))


def witness(
    model: MemoryHMM, cell: int, task: Float[Tensor, " values"], length: int
) -> MemoryPromptWitness:
    """The prompt and the head of Theorem C.6 for inputs of up to `length` tokens.

    The head sees 1 + length positions; the value at the prompt would use φ(u).
    """
    memory_heads.require(conditions(model, cell, task))
    values, u = relevant(model, task), prompt(model, cell, task)
    syntax = memory_heads.recoverable(model, cell, values)
    offsets = torch.zeros(1 + length, dtype=task.dtype, device=task.device)
    offsets[0] = prompt_offset(model, cell, syntax, values)
    blank = model.lower(u)
    head = memory_heads.attention_head(model, cell, task, syntax, values, offsets, blank)
    return MemoryPromptWitness(u, head, syntax)


# ------------------------------------------------------------------ the prompted model


def prompted(
    model: MemoryHMM, prompt: Float[Tensor, " lifted"], tokens: Int[Tensor, "batch t"]
) -> Float[Tensor, "batch t1 lifted"]:
    """ê(x) = (u, η(e(x_1)), …, η(e(x_t)))."""
    first = prompt.expand(len(tokens), 1, -1)
    return torch.cat([first, model.lift(model.embed(tokens))], dim=1)


def symbols(model: MemoryHMM, tokens: Int[Tensor, "batch t"]) -> Int[Tensor, "batch t1"]:
    """What stands at each position for the head: no token at the prompt, then the tokens."""
    return torch.nn.functional.pad(tokens, (1, 0), value=model.vocab_size)


@torch.no_grad()
def masked_probs(
    model: MemoryHMM, prompt: Float[Tensor, " lifted"], tokens: Int[Tensor, "batch t"]
) -> Float[Tensor, "batch t1 vocab"]:
    """G_i(ê(x)) at the prompt and at every token; 0 where (z̃, x)_-i is impossible."""
    parts = [
        model.soft_masked_probs(prompted(model, prompt, rows))
        for rows in memory_heads.blocks(model, tokens)
    ]
    return torch.cat(parts)


@torch.no_grad()
def scores(
    model: MemoryHMM, witness: MemoryPromptWitness, tokens: Int[Tensor, "batch t"]
) -> Float[Tensor, " batch"]:
    """What the head says of each prompted input: its sign is the predicted label."""
    probs = masked_probs(model, witness.prompt, tokens)
    return witness.head(probs, symbols(model, tokens))[:, 0]


def supports(
    model: MemoryHMM, tokens: Int[Tensor, "batch t"], cell: int, task: Float[Tensor, " values"]
) -> memory_heads.Supports:
    """What is possible given the prompt, at the tokens alone; without rounding.

    The prompt says nothing of the hidden states and the chain is stationary, so it only limits
    the memory.
    """
    return memory_heads.supports(model, tokens, relevant_memories(model, cell, task))


# ------------------------------------------------------------------ models of the theorems


class Case(NamedTuple):
    """A model, the cell j* that is asked about, and the task μ on it."""

    model: MemoryHMM
    cell: int
    task: Float[Tensor, " values"]


def random_case(
    cells: int,
    values: int,
    *,
    contents: int,
    prompted: bool,
    sparse_memory: bool,
    seed: int,
    device: torch.device | str = "cpu",
) -> Case:
    """A random model for Theorem 4.3, or, when `prompted`, one that only Theorem C.6 covers.

    supp μ has `values` values; a prompted case has one more value in the memory. Cell j* has
    `contents` syntax states that form S*, a filler and a marker; each other cell has as many,
    all fillers.

        contents   random laws on the first tokens: |supp μ| · contents of them and one for each
                   filler law, as many dimensions as needed, too few for one more value
        fillers    mixtures of two laws (one law for one cell) on the same tokens, so dependent,
                   and overlapping; in cell j* the same for every value
        marker     two tokens of its own; only contents of cell j* come after it

    The value outside supp μ makes the filler of j* emit also the marker's second token, so that
    the prompt settles hidden states that were open, and a last token, impossible with the prompt.
    With `sparse_memory` some assignments (for one cell: a value, if three count) have mass 0.
    """
    draw, device = np.random.default_rng(seed), as_device(device)
    every = values + prompted
    syntax, cell = contents + 2, int(draw.integers(cells))
    filler, marker = contents, contents + 1
    counting = draw.permutation(every)[:values]
    laws_of_fillers = 1 if cells == 1 else 2
    shared = values * contents + laws_of_fillers
    emission = np.zeros((every, cells, syntax, shared + 2 + prompted))

    def laws(*shape: int) -> np.ndarray:
        return 0.9 * draw.dirichlet(np.full(shared, 0.4), size=shape) + 0.1 / shared

    mixtures = draw.dirichlet(np.ones(laws_of_fillers), size=(every, cells, syntax))
    mixtures[:, cell] = mixtures[0, cell]
    emission[..., :shared] = mixtures @ laws(laws_of_fillers)
    emission[:, cell, :contents, :shared] = laws(every, contents)
    emission[:, cell, marker] = 0.0
    emission[:, cell, marker, shared : shared + 2] = draw.dirichlet(np.ones(2))
    if prompted:
        other = np.setdiff1d(np.arange(every), counting)
        emission[other, cell, filler] *= 0.5
        emission[other, cell, filler, shared + 1 :] = 0.25
    hidden = cells * syntax
    content = cell * syntax + np.arange(contents)
    possible = draw.random((hidden, hidden)) < 0.7
    possible[:, content] = possible[content] = True  # ergodic, whatever else is missing
    possible[cell * syntax + marker] = np.isin(np.arange(hidden), content)
    transition = np.where(possible, draw.gamma(1.0, size=(hidden, hidden)), 0.0)
    transition /= transition.sum(1, keepdims=True)
    initial = _stationary(transition) if prompted else draw.dirichlet(np.ones(hidden))
    memory = draw.dirichlet(np.ones(every**cells)).reshape((every,) * cells)
    if sparse_memory and cells > 1:
        kept = draw.random(memory.shape) < 0.6
        kept[(np.arange(every),) * cells] = True  # every value of every cell stays possible
        memory = memory * kept / (memory * kept).sum()
    elif sparse_memory and values > 2:
        memory[counting[2]] = 0.0
        memory /= memory.sum()
    task = np.zeros(every)
    task[counting] = draw.normal(size=values)
    task[counting[:2]] = np.abs(task[counting[:2]]) * [1.0, -1.0]  # both labels are possible
    parts = [torch.tensor(p).to(device) for p in (memory, initial, transition, emission)]
    return Case(MemoryHMM(*parts, length=1), cell, torch.tensor(task).to(device))


def _stationary(transition: np.ndarray) -> np.ndarray:
    """The π with π A = π and Σ π = 1."""
    count = len(transition)
    equations = np.vstack([transition.T - np.eye(count), np.ones(count)])
    solution = np.linalg.lstsq(equations, np.append(np.zeros(count), 1.0), rcond=None)[0]
    return solution / solution.sum()
