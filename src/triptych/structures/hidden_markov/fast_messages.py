"""Posteriors of a chain's hidden states, fast: in cache-sized blocks, without autograd.

Messages are probabilities, rescaled only as often as the smallest probabilities of the chain
demand, so that no supported entry can underflow unseen; rows that come near are handed to
`messages.log_messages`. See `messages` for the recursions and the notation.
"""

import math
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core import compiled
from triptych.core.logspace import log_matmul, log_normalise
from triptych.structures.hidden_markov import compiled_messages
from triptych.structures.hidden_markov.messages import log_messages


class Smoothed(NamedTuple):
    """log_evidence[b] = log p(all evidence of row b), -inf where impossible.

    log_probs[b, t] = log p(outcome at t | all evidence): the states, or what `readout` makes
    of them; all -inf where the evidence is impossible. The memory is laid out position first.
    """

    log_evidence: Float[Tensor, " batch"]
    log_probs: Float[Tensor, "batch length outcomes"]


BLOCK_BYTES = 12 * 2**20  # one message buffer: small enough to stay near a CPU's cache
GPU_BLOCK_BYTES = 2 * 2**30  # large enough that a GPU has work between two launches
_STRETCH = 1e-100  # between two rescalings, no supported entry shrinks below this
_UNDERFLOW = 1e-290
LOG_SPACE_ENTRIES = 2**20  # of one block of the fallback


@torch.no_grad()
def smooth(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    table: Float[Tensor, "symbols states"],
    symbols: Int[Tensor, "batch length"],
    readout: Float[Tensor, "states outcomes"] | None = None,
) -> Smoothed:
    """Posterior of every hidden state, evidence e_t = table[symbols[b, t]].

    `readout` turns states into outcomes: log Σ_z p(z_t = z | evidence) readout[z, ·].
    Probabilities are right to rounding down to 1e-250; smaller ones may come back as 0 (log -inf).
    """
    batch, length = symbols.shape
    states = len(initial)
    outcomes = states if readout is None else readout.shape[1]
    out = _empty(initial, length, batch, outcomes)
    log_evidence = _empty(initial, batch)
    rescale = Rescaling.for_chain(initial, transition, table)
    if rescale is None:
        at_risk = torch.ones(batch, dtype=torch.bool, device=initial.device)
    elif compiled.is_used() and initial.device.type == "cpu":
        log_evidence, at_risk = compiled_messages.smooth_rows(
            initial, transition, table, symbols, readout, rescale.every, rescale.floor, out
        )
    else:
        at_risk = torch.zeros(batch, dtype=torch.bool, device=initial.device)
        budget = BLOCK_BYTES if initial.device.type == "cpu" else GPU_BLOCK_BYTES
        rows = max(1, budget // (8 * length * states))
        buffers = Buffers.make(length, min(rows, batch), states, initial)
        for first in range(0, batch, rows):
            block = slice(first, min(first + rows, batch))
            log_evidence[block], at_risk[block] = _smooth_block(
                initial, transition, table, symbols[block], readout, rescale, buffers, out[:, block]
            )
    if at_risk.any():
        slow = _smooth_in_log_space(initial, transition, table, symbols[at_risk], readout)
        log_evidence[at_risk] = slow.log_evidence
        out[:, at_risk] = slow.log_probs.transpose(0, 1)
    return Smoothed(log_evidence, out.transpose(0, 1))


class Rescaling(NamedTuple):
    """every: steps between rescalings. floor: a rescaled positive entry below it is at risk.

    One step multiplies a supported entry by at least `shrink`, so an entry that stood at
    `floor` or above is still representable after `every` steps: no false zero can arise.
    dense: every probability is positive, so that no message has a zero to tell apart.
    """

    every: int
    floor: float
    dense: bool

    @classmethod
    def for_chain(cls, initial: Tensor, transition: Tensor, table: Tensor) -> "Rescaling | None":
        """None when single probabilities are too extreme for any rescaling to serve."""
        shrink = _smallest_positive(transition) * min(1.0, _smallest_positive(table))
        if shrink < 1e-150 or _smallest_positive(initial) < 1e-150:
            return None
        every = max(1, min(32, int(math.log(_STRETCH) / min(math.log(shrink), -1e-9))))
        dense = all(bool((part > 0).all()) for part in (initial, transition, table))
        return cls(every, _UNDERFLOW / min(shrink**every, 1.0), dense)


def _smallest_positive(values: Tensor) -> float:
    return values.masked_fill(values <= 0, torch.inf).min().item()


class Buffers(NamedTuple):
    """Memory shared by all blocks of a call, and on a CPU by all calls of a thread.

    Touching fresh pages took as long as the arithmetic, so up to 24 MB are kept per thread.
    """

    joint: Float[Tensor, "length rows states"]
    evidence: Float[Tensor, "length_rows states"]
    message: Float[Tensor, "rows states"]
    ahead: Float[Tensor, "rows states"]

    @classmethod
    def make(cls, length: int, rows: int, states: int, like: Tensor) -> "Buffers":
        large, small = length * rows * states, rows * states
        need = 2 * (large + small)
        flat = getattr(_KEPT, "flat", None) if like.device.type == "cpu" else None
        if flat is None or len(flat) < need:
            flat = _empty(like, need)
            if like.device.type == "cpu" and 8 * need <= 2 * BLOCK_BYTES + 2**21:
                _KEPT.flat = flat
        joint, evidence, message, ahead = flat[:need].split([large, large, small, small])
        return cls(
            joint.view(length, rows, states),
            evidence.view(length * rows, states),
            message.view(rows, states),
            ahead.view(rows, states),
        )


_KEPT = threading.local()


def _empty(like: Tensor, *shape: int) -> Tensor:
    """Uninitialised memory; on a CPU through numpy, which asks for huge pages.

    Touching fresh small pages took longer than all the arithmetic: 24 ms against 6 ms for the
    64 MB of a 1000 x 128 x 64 posterior.
    """
    if like.device.type != "cpu":
        return like.new_empty(shape)
    return torch.from_numpy(np.empty(shape, dtype=np.float64))


def _smooth_block(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    table: Float[Tensor, "symbols states"],
    symbols: Int[Tensor, "rows length"],
    readout: Float[Tensor, "states outcomes"] | None,
    rescale: Rescaling,
    buffers: Buffers,
    out: Float[Tensor, "length rows outcomes"],
) -> tuple[Float[Tensor, " rows"], Bool[Tensor, " rows"]]:
    """Fill `out` with log-posteriors; return log-evidence and which rows are at risk."""
    rows, length = symbols.shape
    evidence = torch.index_select(
        table, 0, symbols.T.reshape(-1), out=buffers.evidence[: rows * length]
    ).view(length, rows, -1)
    joint, message, ahead = buffers.joint[:, :rows], buffers.message[:rows], buffers.ahead[:rows]
    # Lists of views: indexing a tensor in the loop costs as much as the arithmetic.
    evidence_at, joint_at = evidence.unbind(0), joint.unbind(0)
    log_evidence = torch.zeros(rows, dtype=initial.dtype, device=initial.device)
    at_risk = torch.zeros(rows, dtype=torch.bool, device=initial.device)

    scales = pass_forward(
        initial, transition, evidence_at, joint_at, message, rescale, at_risk, log_evidence
    )
    backward = transition.T.contiguous()
    for t in range(length - 1, 0, -1):  # message = after_t, ahead = e_t ∘ after_t
        if not rescale.dense:
            forget_excluded(message, joint_at[t])
        joint_at[t].mul_(message)
        torch.mul(evidence_at[t], message, out=ahead)
        torch.mm(ahead, backward, out=message)
        if t in scales:  # joint_t was divided by it, joint_{t-1} was not
            message /= scales[t].masked_fill(scales[t] == 0, 1.0)
    if not rescale.dense:
        forget_excluded(message, joint_at[0])
    joint_at[0].mul_(message)

    if readout is None:
        torch.log(joint, out=out)
    else:
        torch.log(joint @ readout, out=out)
    return log_evidence, at_risk


def pass_forward(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    evidence_at: Sequence[Float[Tensor, "rows states"]],
    joint_at: Sequence[Float[Tensor, "rows states"]],
    message: Float[Tensor, "rows states"],
    rescale: Rescaling,
    at_risk: Bool[Tensor, " rows"],
    log_evidence: Float[Tensor, " rows"],
) -> dict[int, Float[Tensor, "rows 1"]]:
    """joint_t = before_t ∘ e_t for every t; where it was rescaled, what was divided out.

    `message` ends as 1 / total, which begins the backward pass with the scales of this one: then
    joint_t ∘ after_t sums to 1 at every t without another pass over the data. What underflows
    there has posterior mass below 1e-280, because joint_t ≤ 1.
    """
    message.copy_(initial.expand(len(message), -1))  # before_{t+1}, in a buffer that stays cached
    scales: dict[int, Tensor] = {}
    for t in range(len(joint_at) - 1):
        torch.mul(message, evidence_at[t], out=joint_at[t])
        if (t + 1) % rescale.every == 0:
            scales[t] = rescale_in_place(joint_at[t], rescale, at_risk)
            log_evidence += scales[t][:, 0].log()
        torch.mm(joint_at[t], transition, out=message)
    torch.mul(message, evidence_at[-1], out=joint_at[-1])
    total = joint_at[-1].sum(-1, keepdim=True)
    log_evidence += total[:, 0].log()
    message.copy_((1.0 / total.masked_fill(total == 0, torch.inf)).expand_as(message))
    return scales


def forget_excluded(
    message: Float[Tensor, "rows states"], joint: Float[Tensor, "rows states"]
) -> None:
    """Drop from `after` the states that past and present exclude.

    Their likelihood of the future is unbounded relative to the others and would overflow. It is
    never needed: a state that is possible at t - 1 leads to none of them with evidence at t.
    """
    message.masked_fill_(joint == 0, 0.0)


def rescale_in_place(
    message: Float[Tensor, "rows states"], rescale: Rescaling, at_risk: Bool[Tensor, " rows"]
) -> Float[Tensor, "rows 1"]:
    """Scale rows to sum to 1 (rows of zeros stay); return what was divided out."""
    total = message.sum(-1, keepdim=True)
    if rescale.dense:
        message /= total
        if message.numel() and message.amin() < rescale.floor:
            at_risk |= (message < rescale.floor).any(-1)
    else:
        message /= total.masked_fill(total == 0, 1.0)
        small = (message > 0) & (message < rescale.floor)
        if small.any():
            at_risk |= small.any(-1)
    return total


def _smooth_in_log_space(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    table: Float[Tensor, "symbols states"],
    symbols: Int[Tensor, "rows length"],
    readout: Float[Tensor, "states outcomes"] | None,
) -> Smoothed:
    """The reference, a block of rows at a time."""
    rows = max(1, LOG_SPACE_ENTRIES // (symbols.shape[1] * len(initial)))
    blocks = []
    for part in symbols.split(rows):
        log_evidence = table.log()[part]
        before, after = log_messages(initial.log(), transition.log(), log_evidence)
        joint = before + log_evidence + after
        log_probs = log_normalise(joint)
        if readout is not None:
            log_probs = torch.cat([log_matmul(at, readout.log()) for at in log_probs.split(1)])
        blocks.append(Smoothed(joint[:, -1].logsumexp(-1), log_probs))
    return Smoothed(*(torch.cat(parts) for parts in zip(*blocks, strict=True)))


class Filtered(NamedTuple):
    """log_evidence[b] = log p(evidence); log_next[b, …, z] = log p(next state = z | evidence)."""

    log_evidence: Float[Tensor, " batch"]
    log_next: Float[Tensor, "batch *positions states"]


@torch.no_grad()
def filter_forward(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    table: Float[Tensor, "symbols states"],
    symbols: Int[Tensor, "batch t"],
) -> Filtered:
    """The forward pass alone: what a prefix says about the state that follows it."""
    batch, length = symbols.shape
    rescale = Rescaling.for_chain(initial, transition, table)
    log_evidence = torch.zeros(batch, dtype=initial.dtype, device=initial.device)
    at_risk = torch.full_like(log_evidence, rescale is None, dtype=torch.bool)
    message = initial.expand(batch, -1)
    if rescale is not None:
        for t in range(length):
            message = message * table[symbols[:, t]]
            if (t + 1) % rescale.every == 0 or t == length - 1:
                log_evidence += rescale_in_place(message, rescale, at_risk)[:, 0].log()
            message = message @ transition
    log_next = log_normalise(message.log())
    if at_risk.any():
        message = initial.log().expand(int(at_risk.sum()), -1)
        for t in range(length):
            message = message + table.log()[symbols[at_risk, t]]
            log_evidence[at_risk] = message.logsumexp(-1)
            message = log_matmul(message[:, None], transition.log())[:, 0]
        log_next[at_risk] = log_normalise(message)
    return Filtered(log_evidence, log_next)


@torch.no_grad()
def predict_everywhere(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    table: Float[Tensor, "symbols states"],
    symbols: Int[Tensor, "batch length"],
) -> Filtered:
    """One forward pass: log p(z_i | evidence before i) at every i, and log p(all evidence).

    `log_next` has shape [batch, length, states] here. Rescaled at every step; rows where a
    supported entry came near underflow are computed again in log-space.
    """
    batch, length = symbols.shape
    log_evidence = torch.zeros(batch, dtype=initial.dtype, device=initial.device)
    chain = Rescaling.for_chain(initial, transition, table)
    at_risk = torch.full_like(log_evidence, chain is None, dtype=torch.bool)
    every_step = Rescaling(1, chain.floor if chain else 0.0, dense=False)
    message, before = initial.expand(batch, -1), []
    for t in range(length):
        before.append(message)
        filtered = message * table[symbols[:, t]]
        log_evidence = log_evidence + rescale_in_place(filtered, every_step, at_risk)[:, 0].log()
        message = filtered @ transition
    log_before = torch.stack(before, 1).log()
    if at_risk.any():
        evidence = table.log()[symbols[at_risk]]
        exact = log_messages(initial.log(), transition.log(), evidence)
        log_before[at_risk] = log_normalise(exact.before)
        log_evidence[at_risk] = (exact.before[:, -1] + evidence[:, -1]).logsumexp(-1)
    return Filtered(log_evidence, log_before)
