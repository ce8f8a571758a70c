"""Which positions of a row are written next: the best ones, or some that are drawn."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.protocols import Rng, RowRng
from triptych.core.validation import (
    Hidden,
    Numbers,
    UserError,
    as_bool_mask,
    as_floats,
    as_integers,
)

SAME = 1e-9  # scores closer than this are the same, and the leftmost goes first


def highest(scores: Numbers, among: Hidden, counts: Numbers) -> Bool[Tensor, "rows length"]:
    """The positions of highest score in each row, as many as `counts` says.

    Equal ones go from the left; a row that has fewer gives all. Worked value: scores 0.5, 0.9, 0.5,
    0.7 among all but the last, two of them: 0.9 and the first 0.5.
    """
    if isinstance(scores, Tensor) and scores.is_floating_point():
        scores = scores.double()
    scores = as_floats("scores", scores, shape=(None, None), finite=False)
    among, counts = _as_choice(scores, among, counts)
    level = (scores / SAME).round().clamp(min=-1e300).masked_fill(~among, -torch.inf)
    order = level.argsort(dim=-1, descending=True, stable=True)
    place = torch.arange(among.shape[1], device=among.device).expand_as(order)
    rank = torch.empty_like(order).scatter(1, order, place)
    return among & (rank < counts[:, None])


def drawn_positions(
    log_weights: Numbers, among: Hidden, counts: Numbers, rng: Rng
) -> Bool[Tensor, "rows length"]:
    """Positions of each row, drawn one after another without replacement, by their weights.

    So does Gumbel noise: the k highest of log w_i + Gumbel_i have this law (Plackett, Luce). Where
    every weight that is left is 0, the next one is uniform. Worked value: weights 1, 1, 2, two of
    them: the last is among them with ½ + 2 · ¼ · ⅔ = 5/6.
    """
    if isinstance(log_weights, Tensor) and log_weights.is_floating_point():
        log_weights = log_weights.double()
    log_weights = as_floats("log_weights", log_weights, shape=(None, None), finite=False)
    among, counts = _as_choice(log_weights, among, counts)
    counts, chosen = torch.minimum(counts, among.sum(-1)), torch.zeros_like(among)
    while len(rows := torch.nonzero(chosen.sum(-1) < counts)[:, 0]):
        left = (among & ~chosen)[rows]
        law = log_weights[rows].masked_fill(~left, -torch.inf)
        empty = torch.isneginf(law).all(-1, keepdim=True)
        law = torch.where(empty & left, torch.zeros_like(law), law).log_softmax(-1)
        chosen[rows, draw(rng, law, rows)] = True
    return chosen


def draw(
    rng: Rng, laws: Float[Tensor, "draws outcomes"], rows: Int[Tensor, " draws"]
) -> Int[Tensor, " draws"]:
    """One draw from each law; `rows` says whose it is, for an rng with a stream for each row."""
    if isinstance(rng, RowRng):
        return rng.of(rows).categorical(laws)
    return rng.categorical(laws)


def _as_choice(
    scores: Float[Tensor, "rows length"], among: Hidden, counts: Numbers
) -> tuple[Bool[Tensor, "rows length"], Int[Tensor, " rows"]]:
    among = as_bool_mask("among", among, device=scores.device)
    if among.shape != scores.shape:
        raise UserError(
            f"among has shape {tuple(among.shape)} and the scores {tuple(scores.shape)}; they must "
            "be equal",
            parameter="among",
        )
    counts = as_integers("counts", counts, dimensions=1, device=scores.device)
    if len(counts) != len(scores):
        raise UserError(
            f"counts has {len(counts)} numbers for {len(scores)} rows; each row has one",
            parameter="counts",
        )
    return among, counts
