"""Sum-product on a chain of hidden states, for any evidence [wei, B].

The evidence at position t is a nonnegative vector e_t over the states: the emission row of the
token shown there, all ones where the token is hidden, or any soft token. With

    before_1 = π          before_{t+1} = (before_t ∘ e_t) A           p(z_t, evidence before t)
    after_L  = 1          after_t = A (e_{t+1} ∘ after_{t+1})         p(evidence after t | z_t)

the posterior is p(z_t | evidence) ∝ before_t ∘ e_t ∘ after_t, and leaving e_t out gives the
message τ_t of [wei, (B.1)].

Three ways to compute it, from obvious to fast:

    log_messages      in log-space; nothing can underflow; the reference
    scaled_messages   in probabilities, rescaled at every step; differentiable
    fast_messages.smooth  in probabilities, in cache-sized blocks, without autograd; checks itself
                      and hands rows at risk of underflow to log_messages

Notation
--------
π   initial      [states]             A   transition   [states, states], A[i, j] = P(j | i)
e   evidence     [batch, length, states]
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from triptych.core.logspace import log_matmul

_SMALLEST_TOTAL = 1e-100  # below it, a product of scaled messages has lost too many digits
_LOG_ZERO = -1e200  # a zero in log-space whose gradient is 0 and not nan


class Messages(NamedTuple):
    """Messages of one sum-product pass, as logarithms.

    before[b, t, z] = log p(z_t = z, evidence at positions < t)
    after[b, t, z]  = log p(evidence at positions > t | z_t = z)
    """

    before: Float[Tensor, "batch length states"]
    after: Float[Tensor, "batch length states"]


def log_messages(
    log_initial: Float[Tensor, " states"],
    log_transition: Float[Tensor, "states states"],
    log_evidence: Float[Tensor, "batch length states"],
) -> Messages:
    """The two recursions of the module docstring, literally."""
    batch, length, _ = log_evidence.shape
    before = [log_initial.expand(batch, -1)]
    for t in range(length - 1):
        before.append(log_matmul((before[t] + log_evidence[:, t])[:, None], log_transition)[:, 0])
    after = [torch.zeros_like(before[0])]
    for t in range(length - 1, 0, -1):
        after.append(log_matmul((after[-1] + log_evidence[:, t])[:, None], log_transition.T)[:, 0])
    return Messages(torch.stack(before, 1), torch.stack(after[::-1], 1))


class ScaledMessages(NamedTuple):
    """Messages as probabilities, each row (b, t) scaled to sum to 1, or all 0 where impossible.

    p(z_t = z, evidence before t)  = exp(log_before[b, t]) before[b, t, z]
    p(evidence after t | z_t = z)  = exp(log_after[b, t])  after[b, t, z]
    """

    before: Float[Tensor, "batch length states"]
    after: Float[Tensor, "batch length states"]
    log_before: Float[Tensor, "batch length"]
    log_after: Float[Tensor, "batch length"]


def scaled_messages(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    evidence: Float[Tensor, "batch length states"],
) -> ScaledMessages:
    """The recursions with every step rescaled; gradients flow to all three arguments.

    A row of mass 0 becomes a row of zeros with log scale -inf and gradient 0, never nan. Entries
    below 1e-308 of the largest in their row are 0: `leave_one_out` sees to the rest.
    """
    batch, length, states = evidence.shape
    start = initial.expand(batch, -1)
    end = torch.full_like(start, 1.0 / states)
    flat = torch.zeros(batch, dtype=evidence.dtype, device=evidence.device)
    at = evidence.unbind(1)  # indexing inside the loop would make the gradient quadratic in length
    before, log_before = [start], [flat]
    for t in range(length - 1):
        message, log_scale = _rescaled((before[t] * at[t]) @ transition)
        before.append(message)
        log_before.append(log_before[t] + log_scale)
    after, log_after = [end], [flat + math.log(states)]
    for t in range(length - 1, 0, -1):
        message, log_scale = _rescaled((after[-1] * at[t]) @ transition.T)
        after.append(message)
        log_after.append(log_after[-1] + log_scale)
    return ScaledMessages(
        torch.stack(before, 1),
        torch.stack(after[::-1], 1),
        torch.stack(log_before, 1),
        torch.stack(log_after[::-1], 1),
    )


class LeaveOneOut(NamedTuple):
    """state[b, t] = τ_t / |τ_t| with τ_t = before_t ∘ after_t, 0 where |τ_t| = 0.

    log_mass[b, t] = log |τ_t|, -inf where it is 0.
    """

    state: Float[Tensor, "batch length states"]
    log_mass: Float[Tensor, "batch length"]


def leave_one_out(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    evidence: Float[Tensor, "batch length states"],
) -> LeaveOneOut:
    """The message τ_t of [wei, (B.1)], normalised, at every t; differentiable.

    Rows where past and future are so far apart that the product of the scaled messages leaves the
    range of floats are computed in log-space, gradients included.
    """
    found, lost = _leave_one_out_scaled(initial, transition, evidence)
    if not lost.any():
        return found
    kept, _ = _leave_one_out_scaled(initial, transition, evidence[~lost])
    rescued = _leave_one_out_in_log_space(initial, transition, evidence[lost])
    where = (~lost).nonzero()[:, 0], lost.nonzero()[:, 0]
    order = torch.cat(where).argsort()
    return LeaveOneOut(
        torch.cat([kept.state, rescued.state])[order],
        torch.cat([kept.log_mass, rescued.log_mass])[order],
    )


def _leave_one_out_scaled(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    evidence: Float[Tensor, "batch length states"],
) -> tuple[LeaveOneOut, Bool[Tensor, " batch"]]:
    """From the scaled messages; and which rows must not be trusted."""
    scaled = scaled_messages(initial, transition, evidence)
    joint = scaled.before * scaled.after
    total = joint.sum(-1)
    log_scale = scaled.log_before + scaled.log_after
    lost = ((total < _SMALLEST_TOTAL) & (log_scale > -torch.inf)).any(1)
    possible = total > 0
    safe = torch.where(possible, total, torch.ones_like(total))
    nothing = torch.full_like(safe, -torch.inf)
    log_mass = torch.where(possible, log_scale + safe.log(), nothing)
    return LeaveOneOut(joint / safe[..., None], log_mass), lost


def _leave_one_out_in_log_space(
    initial: Float[Tensor, " states"],
    transition: Float[Tensor, "states states"],
    evidence: Float[Tensor, "batch length states"],
) -> LeaveOneOut:
    """The same with logarithms; a zero stands as a huge negative number, so that gradients of
    what does not count are 0 and never nan."""
    log_initial, log_transition, log_evidence = (
        torch.where(x > 0, x, torch.ones_like(x)).log().masked_fill(x <= 0, _LOG_ZERO)
        for x in (initial, transition, evidence)
    )
    before, after = log_messages(log_initial, log_transition, log_evidence)
    joint = before + after
    log_total = joint.logsumexp(-1)
    possible = log_total > _LOG_ZERO / 2
    message = (joint - log_total[..., None]).exp() * possible[..., None]
    nothing = torch.full_like(log_total, -torch.inf)
    return LeaveOneOut(message, torch.where(possible, log_total, nothing))


def _rescaled(
    message: Float[Tensor, "batch states"],
) -> tuple[Float[Tensor, "batch states"], Float[Tensor, " batch"]]:
    total = message.sum(-1)
    possible = total > 0
    safe = torch.where(possible, total, torch.ones_like(total))
    impossible = torch.full_like(total, -torch.inf)
    return message / safe[:, None], torch.where(possible, safe.log(), impossible)
