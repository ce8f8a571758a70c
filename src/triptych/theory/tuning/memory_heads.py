"""An attention head on the exact masked LM of a memory HMM: Theorem 4.3 of [wei] and its lemmas.

The task is the sign of μᵀ P[M_j* | X = x] for one memory cell j*. Positions whose hidden state is
known to lie in H* = {j*} × S* tell everything: Θ(2) recovers P[M_j*, H_i = (j*, s) | X_-i] from
G_i(x) = P[X_i | X_-i = x_-i] for s in S* (Claim C.3), so that

    score_i = P[H_i in H* | X_-i]       is 1 exactly at those positions (Lemma C.2), and there
    value_i = r_{x,i} μᵀ P[M_j* | x]    with r_{x,i} = P(X_i = x_i | X_-i) > 0 (Lemma C.4).

The inputs R of [wei, (4.3)] are those that have such a position. `initial` is the law of the state
of the first token. The proof uses neither ergodicity nor full support; they are checked because
the theorem assumes them.

Notation
--------
j*   cell      int                      S*   syntax   [syntax], bool
M*   values    [values], bool: all of them in Theorem 4.3, supp μ in Theorem C.6
μ    task      [values]                 W    the columns `emission[value, cell, syntax]`
V̄    the span of the columns (m, j*, s) with m in M*, s not in S*, and (m, j, s) with j ≠ j*
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.adaptation.attention import AttentionHead
from triptych.core.validation import check_count, check_shape, check_tokens
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.theory.conditions import Condition, Conditions
from triptych.theory.tuning import heads
from triptych.theory.tuning.heads import RANK_TOLERANCE, left_inverse, smallest_singular_value

_ENTRIES_AT_ONCE = 2**22  # entries of one block of messages over (memory, hidden state)

# ------------------------------------------------------------------ Assumptions 4.2 and C.5


def recoverable(
    model: MemoryHMM, cell: int, values: Bool[Tensor, " values"] | None = None
) -> Bool[Tensor, " syntax"]:
    """The largest S* for which Assumption 4.2 holds, or C.5 when M* = `values` is given.

    S* is admissible iff in every linear relation Σ a_c c = 0 among all columns of M* × {j*} × S
    and M × (other cells) × S the coefficients of M* × {j*} × S* vanish: such a relation equates a
    vector of the recoverable span with one of V̄, and both are 0 iff the spans are disjoint, all
    coefficients iff the columns are independent. The condition asks for each s alone, so subsets
    and unions of admissible sets are admissible, and the largest is {s : {s} is admissible}.
    """
    chosen = torch.eye(model.syntax, dtype=torch.bool, device=model.device)
    margins = [margin(model, cell, alone, values) for alone in chosen]
    return torch.tensor(margins, device=model.device) > RANK_TOLERANCE


def margin(
    model: MemoryHMM,
    cell: int,
    syntax: Bool[Tensor, " syntax"],
    values: Bool[Tensor, " values"] | None = None,
) -> float:
    """The smallest singular value of the columns of M* × {j*} × S* next to V̄; 0 if there are none.

    That is min |Σ a_c c + v| over unit a and v in V̄: positive iff the columns are independent and
    their span meets V̄ in 0 alone. For S* it is at least min_s margin({s}) / √|S*|.
    """
    wanted, others = _columns(model, cell, syntax, values)
    if wanted.shape[1] == 0:
        return 0.0
    return smallest_singular_value(_complement(others) @ wanted)


def _columns(
    model: MemoryHMM,
    cell: int,
    syntax: Bool[Tensor, " syntax"],
    values: Bool[Tensor, " values"] | None,
) -> tuple[Float[Tensor, "vocab wanted"], Float[Tensor, "vocab others"]]:
    """The columns to recover, in the order (m, s), and those that span V̄."""
    check_cell(model, cell)
    if values is None:
        values = torch.ones(model.values, dtype=torch.bool, device=model.device)
    check_shape("values", values, (model.values,), f"a memory of {model.values} values")
    check_shape("syntax", syntax, (model.syntax,), f"a model of {model.syntax} syntax states")
    mine = model.emission[values, cell]  # [M*, syntax, vocab]
    elsewhere = torch.arange(model.cells, device=model.device) != cell
    others = [mine[:, ~syntax].flatten(0, 1), model.emission[:, elsewhere].flatten(0, 2)]
    return mine[:, syntax].flatten(0, 1).T, torch.cat(others).T


def _complement(columns: Float[Tensor, "vocab columns"]) -> Float[Tensor, "vocab vocab"]:
    """The orthogonal projection onto the complement of the span of the columns."""
    eye = torch.eye(len(columns), dtype=columns.dtype, device=columns.device)
    if columns.shape[1] == 0:
        return eye
    directions, sizes, _ = torch.linalg.svd(columns, full_matrices=False)
    basis = directions[:, sizes > RANK_TOLERANCE * sizes[0]]
    return eye - basis @ basis.T


def conditions(model: MemoryHMM, cell: int) -> Conditions:
    """The assumptions of Theorem 4.3 with their margins."""
    return Conditions(
        "Theorem 4.3: an attention head computes every linear task on P[M_j* | x] on R",
        [nondegeneracy(model, cell, None, "Assumption 4.2"), *regularity(model)],
    )


def nondegeneracy(
    model: MemoryHMM, cell: int, values: Bool[Tensor, " values"] | None, source: str
) -> Condition:
    """Whether some syntax state is recoverable, and the margin of all that are."""
    syntax = recoverable(model, cell, values)
    return Condition(
        f"recoverable hidden states ({source})",
        bool(syntax.any()),
        margin(model, cell, syntax, values),
        "smallest singular value of the recoverable emissions next to all others, 0 if none is",
    )


def regularity(model: MemoryHMM) -> list[Condition]:
    """Assumption 3.2 on the chain of hidden states, each taken to emit a token of its own."""
    own = torch.eye(len(model.initial), dtype=torch.float64, device=model.device)
    return list(heads.conditions(HMM(model.initial, model.transition, own, 1)).conditions[1:])


def require(conditions: Conditions) -> None:
    """Raise, naming what fails, unless all of them hold."""
    failing = [str(condition) for condition in conditions.conditions if not condition.holds]
    if failing:
        raise ValueError(
            f"{conditions.theorem.split(':')[0]} does not apply to this model: {'; '.join(failing)}"
        )


def check_cell(model: MemoryHMM, cell: int) -> None:
    check_count("cell", cell, at_least=0)
    if cell >= model.cells:
        raise ValueError(f"cell is {cell}; this memory has the cells 0..{model.cells - 1}")


# ------------------------------------------------------------------ Claim C.3, Lemmas C.2 and C.4


class Recoverers(NamedTuple):
    """Linear maps of G_i, for M* and S*; rows that are not asked for are 0.

    joint[m, s] · G_i = P(M_j* = m, H_i = (j*, s) | X_-i) for m in M*, s in S*: the Θ(2) of C.3
    hidden[h] · G_i   = P(H_i = h | X_-i) for h in H*: the Θ(1); one row outside H*, the first,
                        has the rest, P(H_i not in H* | X_-i)
    """

    joint: Float[Tensor, "values syntax vocab"]
    hidden: Float[Tensor, "hidden vocab"]


def recoverers(
    model: MemoryHMM,
    cell: int,
    syntax: Bool[Tensor, " syntax"],
    values: Bool[Tensor, " values"] | None = None,
) -> Recoverers:
    """Θ(2) = (P W*)⁺ P with P the projection along V̄, and Θ(1) its sum over memory values.

    Since every column of W sums to 1, 1ᵀG_i is the total probability: 1 minus the rows of H* is
    the row of the rest. When H* is everything there is no rest.
    """
    wanted, others = _columns(model, cell, syntax, values)
    away = _complement(others)
    kept = torch.ones(model.values, dtype=torch.bool, device=model.device)
    kept = kept if values is None else values
    joint = model.emission.new_zeros((model.values, model.syntax, model.vocab_size))
    joint[kept[:, None] & syntax] = left_inverse(away @ wanted) @ away
    hidden = model.emission.new_zeros((model.cells, model.syntax, model.vocab_size))
    hidden[cell] = joint.sum(0)
    hidden = hidden.flatten(0, 1)
    outside = (~recoverable_hidden(model, cell, syntax)).nonzero()[:, 0]
    if len(outside) > 0:
        hidden[outside[0]] = 1.0 - joint.sum((0, 1))
    return Recoverers(joint, hidden)


def recoverable_hidden(
    model: MemoryHMM, cell: int, syntax: Bool[Tensor, " syntax"]
) -> Bool[Tensor, " hidden"]:
    """H* = {j*} × S*, as an indicator on h = j * syntax + s."""
    inside = torch.zeros((model.cells, model.syntax), dtype=torch.bool, device=model.device)
    inside[cell] = syntax
    return inside.flatten()


def attention_head(
    model: MemoryHMM,
    cell: int,
    task: Float[Tensor, " values"],
    syntax: Bool[Tensor, " syntax"],
    values: Bool[Tensor, " values"] | None,
    offsets: Float[Tensor, " length"],
    blank: Float[Tensor, " addressed"],
) -> AttentionHead:
    """The head of Lemmas C.2 and C.4: score_i = P(H_i in H* | X_-i) + offset_i.

    Keys are Θ(1) and a row of zeros, the query is (1_H*, 1), so the last key carries the offset;
    values are Θ(2) in the rows (m, j*, s), mixed by b[m, j*, s] = μ[m]. `blank` is the embedding
    of a position that shows no token.
    """
    check_shape("task", task, (model.values,), f"a memory of {model.values} values")
    found = recoverers(model, cell, syntax, values)
    hidden = recoverable_hidden(model, cell, syntax).to(task.dtype)
    one, none = hidden.new_ones(1), hidden.new_zeros((1, model.vocab_size))
    shape = (model.values, model.cells, model.syntax)
    value = task.new_zeros((*shape, model.vocab_size))
    value[:, cell] = found.joint
    mix = task.new_zeros(shape)
    mix[:, cell] = task[:, None]
    position = task.new_zeros((len(offsets), len(hidden) + 1))
    position[:, -1] = offsets
    return AttentionHead(
        query=torch.cat([hidden, one]),
        key=torch.cat([found.hidden, none]),
        position=position,
        value=value.flatten(0, 2),
        mix=mix.reshape(1, -1),
        embedding=torch.cat([model.emission.flatten(0, 2).T, blank[None]]),
        hard=True,
    )


def witness(
    model: MemoryHMM, cell: int, task: Float[Tensor, " values"], length: int
) -> AttentionHead:
    """The head of Theorem 4.3 for inputs of up to `length` tokens."""
    require(conditions(model, cell))
    offsets = torch.zeros(length, dtype=task.dtype, device=task.device)
    blank = torch.ones_like(model.emission[..., 0]).flatten()
    return attention_head(model, cell, task, recoverable(model, cell), None, offsets, blank)


# ------------------------------------------------------------------ both sides of the theorem


def label_scores(
    model: MemoryHMM, tokens: Int[Tensor, "batch t"], cell: int, task: Float[Tensor, " values"]
) -> Float[Tensor, " batch"]:
    """μᵀ P[M_j* | X = x], whose sign is the label: 0 counts as positive."""
    check_cell(model, cell)
    shown = torch.zeros_like(tokens, dtype=torch.bool)
    return model.with_length(tokens.shape[1]).posteriors(tokens, shown).cell(cell) @ task


@torch.no_grad()
def masked_probs(model: MemoryHMM, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch t v"]:
    """G_i(x) = P[X_i | X_-i = x_-i] at every position."""
    parts = [
        model.soft_masked_probs(model.lift(model.embed(rows))) for rows in blocks(model, tokens)
    ]
    return torch.cat(parts)


@torch.no_grad()
def scores(
    model: MemoryHMM, head: AttentionHead, tokens: Int[Tensor, "batch t"]
) -> Float[Tensor, " batch"]:
    """What the head says of each input: its sign is the predicted label."""
    return head(masked_probs(model, tokens), tokens)[:, 0]


def blocks(model: MemoryHMM, tokens: Int[Tensor, "batch t"]) -> tuple[Tensor, ...]:
    """The rows in blocks whose messages over (memory, hidden state) fit in memory."""
    check_tokens(tokens, model.vocab_size)
    entries = tokens.shape[1] * len(model.assignments) * len(model.initial)
    return tokens.split(max(1, _ENTRIES_AT_ONCE // max(1, entries)))


# ------------------------------------------------------------------ the inputs R of (4.3)


class Supports(NamedTuple):
    """What is possible, without rounding: a probability is positive iff a product of positive
    entries of the model is, however small it would be as a float.

    hidden[b, i, h]   whether P(H_i = h, X_-i = x_-i) > 0
    possible[b]       whether P(X = x) > 0
    """

    hidden: Bool[Tensor, "batch t hidden"]
    possible: Bool[Tensor, " batch"]


def supports(
    model: MemoryHMM,
    tokens: Int[Tensor, "batch t"],
    memories: Bool[Tensor, " assignments"] | None = None,
) -> Supports:
    """Message passing over supports, with the memory limited to `memories` where given."""
    allowed = model.memory.reshape(-1) > 0
    if memories is not None:
        check_shape("memories", memories, tuple(allowed.shape), f"{len(allowed)} assignments")
        allowed = allowed & memories
    cells = torch.arange(model.cells, device=model.device)
    emits = model.emission[model.assignments[allowed], cells].flatten(1, 2) > 0
    found = [_supports_of_block(model, emits, rows) for rows in blocks(model, tokens)]
    return Supports(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _supports_of_block(
    model: MemoryHMM,
    emits: Bool[Tensor, "memories hidden vocab"],
    tokens: Int[Tensor, "batch t"],
) -> Supports:
    length = tokens.shape[1]
    moves = (model.transition > 0).float()
    evidence = emits.transpose(1, 2)[:, tokens]  # [memories, batch, t, hidden]
    start = (model.initial > 0).expand_as(evidence[:, :, 0])
    before, after = [start], [torch.ones_like(start)]
    for t in range(length - 1):
        before.append((before[t] & evidence[:, :, t]).float() @ moves > 0)
    for t in range(length - 1, 0, -1):
        after.append((after[-1] & evidence[:, :, t]).float() @ moves.T > 0)
    both = torch.stack(before, 2) & torch.stack(after[::-1], 2)
    return Supports(both.any(0), (both & evidence)[:, :, 0].any(-1).any(0))


def concentrated(
    model: MemoryHMM,
    supported: Bool[Tensor, "batch t hidden"],
    cell: int,
    syntax: Bool[Tensor, " syntax"],
) -> Bool[Tensor, "batch t"]:
    """Where H_i can be something, and only something in H*."""
    inside = recoverable_hidden(model, cell, syntax)
    return supported.any(-1) & ~(supported & ~inside).any(-1)


def recoverable_positions(
    model: MemoryHMM,
    tokens: Int[Tensor, "batch t"],
    cell: int,
    syntax: Bool[Tensor, " syntax"],
) -> Bool[Tensor, "batch t"]:
    """The i with supp P[H_i | X_-i = x_-i] inside H*; none when x itself is impossible."""
    found = supports(model, tokens)
    return concentrated(model, found.hidden, cell, syntax) & found.possible[:, None]


def recoverable_inputs(
    model: MemoryHMM,
    tokens: Int[Tensor, "batch t"],
    cell: int,
    syntax: Bool[Tensor, " syntax"],
) -> Bool[Tensor, " batch"]:
    """Whether x lies in R of [wei, (4.3)]: it is possible and some position is recoverable."""
    return recoverable_positions(model, tokens, cell, syntax).any(-1)
