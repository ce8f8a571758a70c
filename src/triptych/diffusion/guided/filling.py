"""Filling the holes of canvases without a verifier: in rounds, in the order of the holes."""

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.diffusion.guided.canvas_decoder import CanvasDecoder
from triptych.inference.guided.generation import Generation


def fill(run: Generation, rows: Int[Tensor, " rows"], steps: int | None) -> Int[Tensor, " filled"]:
    """Draw what is missing in these rows; those that are full then, and within their budget.

    steps   rounds, whose positions are drawn from one answer, independently; None is one position a
            round: the model's own law in the order of the holes
    """
    canvas = run.decoder
    assert isinstance(canvas, CanvasDecoder)
    most = int((run.limits[run.owner[rows]] - canvas.lengths[rows]).max()) if len(rows) else 0
    rounds = min(steps or most, most)
    for number in range(rounds):
        some = rows[canvas.lengths[rows] < run.limits[run.owner[rows]]]
        some = run.within_budget(some)
        if len(some) == 0:
            break
        _round(run, canvas, some, rounds - number)
    rows = rows[canvas.lengths[rows] >= run.limits[run.owner[rows]]]
    return rows[~run.stopped()[rows]]


def _round(run: Generation, canvas: CanvasDecoder, rows: Int[Tensor, " rows"], left: int) -> None:
    owner, lengths = canvas.owner[rows], canvas.lengths[rows]
    counts = (run.limits[run.owner[rows]] - lengths + left - 1) // left
    canvases = canvas.canvases(rows)
    at = torch.zeros_like(canvases.hidden)
    for turn in range(int(counts.max())):
        going = torch.nonzero(counts > turn)[:, 0]
        at[going, canvas.next_place(lengths[going] + turn, owner[going])] = True
    passes = canvas.passes
    laws = run.transformed(canvas.ask(canvases, at, rows), rows[torch.nonzero(at)[:, 0]])
    run.costs.forward_passes += canvas.passes - passes
    index = (at.flatten().cumsum(0) - 1).reshape(at.shape)
    for turn in range(int(counts.max())):
        going = torch.nonzero(counts > turn)[:, 0]
        position = canvas.next_place(lengths[going] + turn, owner[going])
        tokens = run.choose(laws[index[going, position]], rows[going])
        run.put(tokens, rows[going], "draw")
