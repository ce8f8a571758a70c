"""Expected counts of a chain given what is shown: the E-step of Baum and Welch, for a whole batch.

    first[i]     = Σ_b w_b p(z_1 = i | row b)
    pairs[i, j]  = Σ_b w_b Σ_t p(z_t = i, z_{t+1} = j | row b)
    emitted[x, i] = Σ_b w_b Σ_{t : symbol x stands at t} p(z_t = i | row b)

With before, after and e of `messages`, p(z_t = i, z_{t+1} = j | row) is proportional to
(before_t ∘ e_t)_i A_ij (e_{t+1} ∘ after_{t+1})_j. The sum over rows and positions is one product of
matrices for each position; what A adds is the same everywhere and is multiplied in at the end.

A symbol is a row of the evidence table. The number after the last one says that the row is over:
what stands there is evidence of nothing and is not counted, so that rows may differ in length.
Rows that come near underflow are handed to `log_counts`, which is the reference.

Notation
--------
w   weights   [batch]      how often a row counts
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core import compiled
from triptych.structures.hidden_markov import compiled_messages, fast_messages
from triptych.structures.hidden_markov.fast_messages import Buffers, Rescaling
from triptych.structures.hidden_markov.messages import log_messages


class ChainCounts(NamedTuple):
    """log_evidence[b] = log p(row b); the counts of the module docstring, over rows that can be."""

    log_evidence: Float[Tensor, " batch"]
    first: Float[Tensor, " states"]
    pairs: Float[Tensor, "states states"]
    emitted: Float[Tensor, "symbols states"]


@torch.no_grad()
def chain_counts(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    table: Float[Tensor, "symbols states"],
    symbols: Int[Tensor, "batch length"],
    weights: Float[Tensor, " batch"],
) -> ChainCounts:
    """The expected counts, fast; evidence e_t = table[symbols[b, t]], none where the row is over.

    Worked value: one row of one position, π = (¼, ¾), e = (1, ⅓): p(row) = ½, first = (½, ½).
    """
    with_end = torch.cat([table, torch.ones_like(table[:1])])
    rescale = Rescaling.for_chain(initial, transition, with_end)
    if rescale is None:
        at_risk = torch.ones(len(symbols), dtype=torch.bool, device=initial.device)
        found = _no_counts(initial, table, len(symbols))
    elif compiled.is_used() and initial.device.type == "cpu":
        log_evidence, counts, at_risk = compiled_messages.count_rows(
            initial, transition, with_end, symbols, weights, rescale.every, rescale.floor
        )
        found = ChainCounts(log_evidence, *counts)
    else:
        found, at_risk = _counts_in_blocks(initial, transition, with_end, symbols, weights, rescale)
    if at_risk.any():
        slow = log_counts(initial, transition, table, symbols[at_risk], weights[at_risk])
        found.log_evidence[at_risk] = slow.log_evidence
        sums = (a + b for a, b in zip(found[1:], slow[1:], strict=True))
        found = ChainCounts(found.log_evidence, *sums)
    return found


@torch.no_grad()
def log_counts(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    table: Float[Tensor, "symbols states"],
    symbols: Int[Tensor, "batch length"],
    weights: Float[Tensor, " batch"],
) -> ChainCounts:
    """The same from messages in log-space, as the definition says; nothing can underflow."""
    batch, length = symbols.shape
    states = len(initial)
    found = _no_counts(initial, table, batch)
    with_end = torch.cat([table, torch.ones_like(table[:1])]).log()
    rows = max(1, fast_messages.LOG_SPACE_ENTRIES // (length * states * states))
    for part in torch.arange(batch, device=symbols.device).split(rows):
        own, inside = symbols[part], symbols[part] < len(table)
        evidence = with_end[own]
        before, after = log_messages(initial.log(), transition.log(), evidence)
        joint = before + evidence
        total = joint[:, -1].logsumexp(-1)
        found.log_evidence[part] = total
        possible = total > -torch.inf
        scale = torch.where(possible, total, 0.0)[:, None, None]
        weight = (weights[part] * possible)[:, None] * inside
        posterior = (joint + after - scale).exp() * weight[..., None]
        found.first.add_(posterior[:, 0].sum(0))
        found.emitted.index_add_(0, own[inside], posterior[inside])
        ahead = evidence + after - scale
        between = joint[:, :-1, :, None] + transition.log() + ahead[:, 1:, None, :]
        found.pairs.add_((between.exp() * weight[:, 1:, None, None]).sum((0, 1)))
    return found


def _no_counts(initial: Tensor, table: Tensor, batch: int) -> ChainCounts:
    states = len(initial)
    shapes = (batch,), (states,), (states, states), tuple(table.shape)
    return ChainCounts(*(initial.new_zeros(shape) for shape in shapes))


def _counts_in_blocks(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    table: Float[Tensor, "symbols states"],
    symbols: Int[Tensor, "batch length"],
    weights: Float[Tensor, " batch"],
    rescale: Rescaling,
) -> tuple[ChainCounts, Tensor]:
    """By torch, a block of rows at a time; and which rows are at risk, which are not counted."""
    batch, length = symbols.shape
    states, past = len(initial), len(table) - 1
    found = _no_counts(initial, table, batch)
    at_risk = torch.zeros(batch, dtype=torch.bool, device=initial.device)
    on_cpu = initial.device.type == "cpu"
    budget = fast_messages.BLOCK_BYTES if on_cpu else fast_messages.GPU_BLOCK_BYTES
    rows = max(1, budget // (8 * length * states))
    buffers = Buffers.make(length, min(rows, batch), states, initial)
    for first in range(0, batch, rows):
        block = slice(first, min(first + rows, batch))
        _count_block(
            initial, transition, table, symbols[block], weights[block], rescale, buffers, past,
            found._replace(log_evidence=found.log_evidence[block]), at_risk[block],
        )  # fmt: skip
    emitted = found.emitted[:-1]
    return found._replace(pairs=found.pairs * transition, emitted=emitted), at_risk


def _count_block(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    table: Float[Tensor, "symbols states"],
    symbols: Int[Tensor, "rows length"],
    weights: Float[Tensor, " rows"],
    rescale: Rescaling,
    buffers: Buffers,
    past: int,
    found: ChainCounts,
    at_risk: Tensor,
) -> None:
    """Add the counts of a block to `found`, without the factor A of its pairs."""
    rows, length = symbols.shape
    joint, ahead = buffers.joint[:, :rows], buffers.ahead[:rows]
    evidence = torch.index_select(
        table, 0, symbols.T.reshape(-1), out=buffers.evidence[: rows * length]
    ).view(length, rows, -1)
    evidence_at, joint_at = evidence.unbind(0), joint.unbind(0)
    scales = fast_messages.pass_forward(
        initial, transition, evidence_at, joint_at, buffers.message[:rows], rescale, at_risk,
        found.log_evidence,
    )  # fmt: skip
    message = buffers.message[:rows]
    message.masked_fill_(at_risk[:, None], 0.0)  # they could hold what is no number
    weights = weights.masked_fill(at_risk, 0.0)
    weight_at = (weights[:, None] * (symbols != past)).T.unsqueeze(-1).unbind(0)
    backward = transition.T.contiguous()
    for t in range(length - 1, -1, -1):
        if not rescale.dense:
            fast_messages.forget_excluded(message, joint_at[t])
        torch.mul(evidence_at[t], message, out=ahead)
        joint_at[t].mul_(message)
        if t == 0:
            break
        if t in scales:  # joint_t was divided by it, joint_{t-1} was not
            ahead /= scales[t].masked_fill(scales[t] == 0, 1.0)
        torch.mm(ahead, backward, out=message)
        ahead *= weight_at[t]
        found.pairs.addmm_(joint_at[t - 1].T, ahead)
    joint *= weights[:, None]
    found.first.add_(joint[0].sum(0))
    found.emitted.index_add_(0, symbols.T.reshape(-1), joint.reshape(length * rows, -1))
