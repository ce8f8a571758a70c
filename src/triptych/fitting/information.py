"""Standard errors of rows of probabilities: the observed information, and what is not identified.

Each free group is moved in coordinates φ in which the information of complete data (hidden states
included) is the identity: with n_g choices made of group g and U a basis of what is orthogonal to
√p,

    d logit = diag(p)^-½ U φ / √n_g          dp = diag(p)^½ U φ / √n_g

The observed information H, minus the second derivative of the objective, then has eigenvalues that
say which share of the information is there: 1 where the data are complete, 0 along a direction that
changes nothing. 1 less the smallest is the rate at which EM converges. An entry that moves along a
direction with a share below 1e-6 is not identified. The others have the variance of J H⁻¹ Jᵀ.

H is the difference quotient of exact gradients, two passes over the data for each free parameter.
Entries whose expected count is below 1e-3 are at the boundary: they are kept at their value.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.fitting.result import ZERO
from triptych.fitting.rows import Expected, Groups, Parameters, RowModel

MAX_PARAMETERS = 400
BOUNDARY = 1e-3  # an expected count below it: the probability is 0 as far as the data tell
SHARE = 1e-6  # of the complete information, below which a direction is not identified
_STEP = 1e-3  # in φ: a thousandth of a standard error of complete data


class Errors(NamedTuple):
    """standard_errors  {part: [rows, outcomes]}, nan where there is none
    why                 {part: [rows][outcomes]}: why there is none, "" where there is one
    least_share         the smallest share of information of a direction; 1 with complete data
    sentence            what is to be said about all of them, or ""
    """

    standard_errors: Parameters
    why: dict[str, list[list[str]]]
    least_share: float | None
    sentence: str


class _Piece(NamedTuple):
    """A free group, and its coordinates: dp = jacobian φ, d logit = jacobian φ / p."""

    part: str
    group: int
    open: Tensor
    jacobian: Float[Tensor, "open d"]


def errors(model: RowModel, parameters: Parameters, groups: Groups, *, wanted: bool) -> Errors:
    """Standard errors at a maximum, or a sentence that says why there are none."""
    found = {part: torch.full_like(p, torch.nan) for part, p in parameters.items()}
    if not wanted:
        none = {
            part: [[ZERO if x == 0 else "not computed" for x in row] for row in p.tolist()]
            for part, p in parameters.items()
        }
        return Errors(found, none, None, "standard errors were not asked for")
    why, pieces = _pieces(parameters, model.expected(parameters), groups)
    d = sum(piece.jacobian.shape[1] for piece in pieces)
    if d > MAX_PARAMETERS:
        sentence = (
            f"standard errors were not computed: {d} parameters are free, and "
            f"{MAX_PARAMETERS} are the most"
        )
        return Errors(found, _filled(why, "not computed"), None, sentence)
    if d == 0:
        return Errors(found, why, None, "")
    information = _information(model, parameters, groups, pieces, d)
    shares, vectors = torch.linalg.eigh(information)
    seen = shares > SHARE
    scaled = vectors[:, seen] / shares[seen].sqrt()
    unseen, at = vectors[:, ~seen], 0
    for part, group, chosen, jacobian in pieces:
        own = slice(at, at + jacobian.shape[1])
        at += jacobian.shape[1]
        error = (jacobian @ scaled[own]).norm(dim=1)
        hidden = (jacobian @ unseen[own]).norm(dim=1) > 1e-4 * jacobian.norm(dim=1)
        rows = torch.nonzero(groups.of[part] == group)[:, 0].tolist()
        for k, outcome in enumerate(torch.nonzero(chosen)[:, 0].tolist()):
            for row in rows:
                if hidden[k]:
                    why[part][row][outcome] = "not identified"
                else:
                    found[part][row, outcome] = error[k]
    count = int((~seen).sum())
    sentence = ""
    if count:
        sentence = (
            f"{count} of {d} directions are not identified: along them the data say less than a "
            "millionth of what complete data would"
        )
    if (shares < -1e-3).any():
        sentence = "this is no maximum: the objective still curves upward, so errors mean little"
    return Errors(found, why, float(shares[0]), sentence)


def _filled(why: dict[str, list[list[str]]], reason: str) -> dict[str, list[list[str]]]:
    return {part: [[text or reason for text in row] for row in rows] for part, rows in why.items()}


def _pieces(
    parameters: Parameters, expected: Expected, groups: Groups
) -> tuple[dict[str, list[list[str]]], list[_Piece]]:
    why: dict[str, list[list[str]]] = {}
    pieces = []
    for part, values in parameters.items():
        p = groups.one_of_each(part, values)
        counts = groups.gather(part, expected.counts[part]) + groups.extra[part]
        texts = [[""] * values.shape[1] for _ in p]
        for g in range(len(p)):
            zero, often = groups.zero[part][g], counts[g]
            low = ~zero & ((often < BOUNDARY) | (p[g] <= 0))
            chosen = ~zero & ~low
            reason = "fixed" if not groups.free[part] else ""
            if not reason and float(often.sum()) < BOUNDARY:
                reason = "not identified"  # nothing in the data chose from this row
            texts[g] = [
                ZERO if z else reason or ("at 0" if b else "" if alone > 1 else "at 1")
                for z, b, alone in zip(
                    zero.tolist(), low.tolist(), [int(chosen.sum())] * len(zero), strict=True
                )
            ]
            if reason or int(chosen.sum()) < 2:
                continue
            root = p[g][chosen].sqrt()
            basis = torch.linalg.qr(
                torch.cat([root[:, None], torch.eye(len(root), dtype=torch.float64)], 1)[:, :-1]
            ).Q[:, 1:]
            jacobian = root[:, None] * basis / often[chosen].sum().sqrt()
            pieces.append(_Piece(part, g, chosen, jacobian))
        why[part] = [list(texts[g]) for g in groups.of[part].tolist()]
    return why, pieces


def _information(
    model: RowModel, parameters: Parameters, groups: Groups, pieces: list[_Piece], d: int
) -> Float[Tensor, "d d"]:
    """H in the coordinates φ, symmetric."""
    columns = []
    for at in range(len(pieces)):
        for k in range(pieces[at].jacobian.shape[1]):
            slopes = []
            for sign in (1.0, -1.0):
                moved = _moved(parameters, groups, pieces[at], sign * _STEP, k)
                slopes.append(_slope(model.expected(moved), moved, groups, pieces, parameters))
            columns.append((slopes[1] - slopes[0]) / (2 * _STEP))
    found = torch.stack(columns, 1)
    return 0.5 * (found + found.T)


def _moved(
    parameters: Parameters, groups: Groups, piece: _Piece, step: float, k: int
) -> Parameters:
    """One coordinate further: p exp(d logit), normalised over the entries that move."""
    rows = groups.of[piece.part] == piece.group
    values = parameters[piece.part].clone()
    p = values[rows][0]
    inner = p[piece.open]
    total = inner.sum()
    moved = inner * (step * piece.jacobian[:, k] / inner).exp()
    p = p.clone()
    p[piece.open] = moved * (total / moved.sum())
    values[rows] = p
    return parameters | {piece.part: values}


def _slope(
    expected: Expected,
    moved: Parameters,
    groups: Groups,
    pieces: list[_Piece],
    parameters: Parameters,
) -> Float[Tensor, " d"]:
    """The gradient of the objective in φ: Σ (c̃ - p Σ c̃) d logit."""
    found = []
    for part, group, chosen, jacobian in pieces:
        weights = groups.weights(part, expected)[group][chosen]
        p = groups.one_of_each(part, moved[part])[group][chosen]
        centred = weights - p / p.sum() * weights.sum()
        at = groups.one_of_each(part, parameters[part])[group][chosen]
        found.append((jacobian / at[:, None]).T @ centred)
    return torch.cat(found)
