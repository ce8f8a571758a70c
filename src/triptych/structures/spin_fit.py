"""Fitting an Ising model: what is maximised, whether it has a maximum, and how sure the end is."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.ragged import as_weights
from triptych.core.validation import (
    Hidden,
    Number,
    Numbers,
    Tokens,
    UserError,
    as_bool_mask,
    as_flag,
    as_masked,
    as_number,
    shown,
)
from triptych.fitting.concave import Slope, Top, certainly_exists, maximise, second_derivative
from triptych.fitting.fit import split_rows
from triptych.fitting.result import Fit, Parameter, Score, warn_unless_converged
from triptych.fitting.search import Search, as_search, as_share
from triptych.structures.spin_data import SpinData

MAX_PARAMETERS = 600
PSEUDO = (
    "what was maximised is the pseudolikelihood, the mean over masks of log p(masked | shown); AIC "
    "and BIC are made of it too and compare nothing with a likelihood"
)
I = TypeVar("I")  # noqa: E741


def fit_spins(
    tokens: Tokens,
    make: Callable[[Tensor, Tensor], I],
    start: Any,
    *,
    hidden: Hidden | None,
    weights: Numbers | None,
    masks: MaskLaw | None,
    pairs: Numbers | None,
    fields: bool,
    prior: Number,
    held_out: Number,
    search: Search | None,
    enumerated: int,
) -> Fit[I]:
    """`Ising.fit`; make(coupling, field) is the structure."""
    rows, unseen = as_masked(tokens, hidden, 2, device="cpu")
    if not rows.numel():
        raise UserError("tokens must have at least one row and one spin", parameter="tokens")
    length = rows.shape[1]
    if start is not None and start.length != length:
        raise UserError(
            f"start has {start.length} spins, and tokens has {length}", parameter="start"
        )
    masks = _as_masks(masks, length, enumerated, bool(unseen.any()))
    data = SpinData(
        rows.masked_fill(unseen, 0),
        unseen,
        as_weights(weights, len(rows)),
        torch.arange(length if as_flag("fields", fields) else 0),
        _as_pairs(pairs, length),
        torch.zeros(length, dtype=torch.float64) if start is None else start.field.to("cpu"),
        torch.zeros((length, length), dtype=torch.float64)
        if start is None
        else start.coupling.to("cpu"),
    )
    if data.size > MAX_PARAMETERS:
        raise UserError(
            f"{data.size} parameters are free; at most {MAX_PARAMETERS} are fitted: say by pairs "
            "which couplings there are",
            parameter="pairs",
        )
    search, share = as_search(search), as_share(held_out)
    precision = as_number("prior", prior, at_least=0, at_most=1e12)
    apart = None
    if share:
        chosen, rest = split_rows(len(rows), share, search.seed)
        data, apart = data.some(rest), data.some(chosen)

    def likelihood(data: SpinData, theta: Tensor) -> tuple[float, Tensor]:
        return data.exact(theta) if masks is None else data.masked(theta, masks)

    def slope(theta: Tensor) -> tuple[float, Tensor]:
        value, gradient = likelihood(data, theta)
        return value - 0.5 * precision * float(theta @ theta), gradient - precision * theta

    def bend(theta: Tensor) -> Tensor:
        if masks is not None:
            found = data.total * data.sandwich(theta, masks)[0]
        elif data.hidden.any():
            return second_derivative(slope, theta)
        else:
            found = data.total * data.covariance(theta)
        return found + precision * torch.eye(data.size, dtype=torch.float64)

    top = _highest(data, slope, bend, search)
    covariance, sentences = _covariance(data, top, slope, masks, precision)
    errors = None if covariance is None else covariance.diagonal().clamp(min=0).sqrt().tolist()
    why = "not computed" if not sentences else "no unique estimate"
    best = top[0].climb
    value = likelihood(data, top[0].theta)[0]
    field, coupling = data.model(top[0].theta)
    notes = () if masks is None else (PSEUDO,)
    found = Fit(
        structure=make(coupling, field),
        log_likelihood=value,
        objective=best.trace[-1],
        rows=len(data.tokens),
        tokens=int((~data.hidden).sum()),
        free_parameters=data.size,
        converged=best.converged and errors is not None,
        steps=best.steps,
        gain=best.gain,
        remaining=best.remaining,
        ended=best.ended,
        trace=tuple(best.trace),
        ends=tuple(one.climb.trace[-1] for one in top),
        parameters=tuple(
            Parameter(name, number, None if errors is None else errors[i], "" if errors else why)
            for i, (name, number) in enumerate(zip(data.names, top[0].theta.tolist(), strict=True))
        ),
        held_out=None
        if apart is None
        else Score(
            likelihood(apart, top[0].theta)[0], len(apart.tokens), int((~apart.hidden).sum())
        ),
        notes=(*notes, *sentences),
    )
    more = f"give it more than max_steps={search.max_steps}"
    warn_unless_converged(found, sentences[0] if sentences else more)
    return found


def _highest(
    data: SpinData, slope: Slope, bend: Callable[[Tensor], Tensor], search: Search
) -> list[Top]:
    """The ends of the starts, the best one first; one start where the objective is concave."""
    begin = data.theta(data.fixed_field, data.fixed_coupling)
    starts = [begin]
    if data.hidden.any():
        generator = torch.Generator().manual_seed(search.seed)
        starts += [
            begin + 0.5 * torch.randn(data.size, generator=generator, dtype=torch.float64)
            for _ in range(search.restarts - 1)
        ]
    ends = [maximise(slope, bend, one, search, data.total) for one in starts]
    return sorted(ends, key=lambda one: -one.climb.trace[-1])


def _covariance(
    data: SpinData,
    top: list[Top],
    slope: Slope,
    masks: MaskLaw | None,
    precision: float,
) -> tuple[Float[Tensor, "d d"] | None, tuple[str, ...]]:
    """The covariance of the estimate, or why it has none."""
    theta, _, curvature = top[0]
    if not data.size:
        return curvature, ()
    values = torch.linalg.eigvalsh(curvature / data.total)
    gradient = slope(theta)[1]
    diameter = 2 * data.size**0.5
    concave = not data.hidden.any()
    proven = certainly_exists(curvature, gradient, diameter)
    if (concave and not proven) or values[0] <= 1e-9 * max(1.0, float(values[-1])):
        flat = int((values <= 1e-9 * max(1.0, float(values[-1]))).sum())
        what = (
            f"in {flat} of {data.size} directions the objective is flat"
            if flat
            else ("the objective is so flat at the end that it may rise forever")
        )
        return None, (
            f"the data have no unique estimate as far as can be told: {what}; a prior helps",
        )
    inverse = torch.linalg.inv(curvature)
    if masks is None:
        return inverse, ()
    hessian, noise = data.sandwich(theta, masks)
    bread = torch.linalg.inv(hessian + precision / data.total * torch.eye(data.size).double())
    return bread @ noise @ bread / data.total, ()


def _as_masks(masks: MaskLaw | None, length: int, enumerated: int, gaps: bool) -> MaskLaw | None:
    if masks is None and length > enumerated:
        masks = MaskLaw.of_size(length, 1)
    if masks is None:
        return None
    if not isinstance(masks, MaskLaw):
        raise UserError(
            f"masks is {shown(masks)}; it must be a MaskLaw, such as MaskLaw.of_size({length}, 1)",
            parameter="masks",
        )
    if masks.length != length:
        raise UserError(
            f"masks hides positions of {masks.length} spins, and tokens has {length}",
            parameter="masks",
        )
    if gaps:
        raise UserError(
            "hidden spins need the exact likelihood: leave masks away, which works up to "
            f"{enumerated} spins",
            parameter="hidden",
        )
    widest = int(masks.blocks.sum(1).max())
    if widest > 10:
        raise UserError(
            f"masks has a block of {widest} spins; a fit enumerates blocks of at most 10",
            parameter="masks",
        )
    return masks


def _as_pairs(pairs: Numbers | None, length: int) -> Tensor:
    """The pairs i < j whose coupling is free."""
    free: Bool[Tensor, "length length"] = torch.ones((length, length), dtype=torch.bool)
    if pairs is not None:
        free = as_bool_mask(
            "pairs", pairs, shape=(length, length), meaning="True where a coupling is free"
        )
        if not torch.equal(free, free.T):
            raise UserError("pairs must be symmetric", parameter="pairs")
    return torch.nonzero(free.triu(1)).T
