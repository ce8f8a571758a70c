"""In which order the holes of a canvas are filled, and the way back from that order to the text."""

from dataclasses import replace
from typing import Any, Literal, cast

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.diffusion.guided.canvas_decoder import CanvasDecoder
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.result import Compared, Result, Weighed

Order = Literal["random", "left to right", "right to left"]


def draw_order(run: Generation, canvas: CanvasDecoder, order: Order) -> None:
    """Put the holes of each row in order: uniformly drawn, or from one side."""
    rows = run.every_row()
    if order == "right to left":
        for row in rows.tolist():
            begin, end = int(run.start[row]), int(run.limits[row])
            canvas.place[row, begin:end] = canvas.place[row, begin:end].flip(0)
    if order != "random":
        return
    for turn in range(int((run.limits - run.start).max())):
        left = run.limits - run.start - turn
        going = rows[left > 1]
        if len(going) == 0:
            return
        drawn = run.choose(_uniform(left[going]), going)
        now = run.start[going] + turn
        other = canvas.place[going, now + drawn]
        canvas.place[going, now + drawn] = canvas.place[going, now]
        canvas.place[going, now] = other


def _uniform(sizes: Int[Tensor, " rows"]) -> Tensor:
    """log 1/n on the first n places of each row."""
    places = torch.arange(int(sizes.max()), device=sizes.device) < sizes[:, None]
    return (
        torch.zeros(places.shape, dtype=torch.float64, device=sizes.device)
        .masked_fill(~places, -torch.inf)
        .log_softmax(-1)
    )


def in_place(result: Result[Any], canvas: CanvasDecoder) -> Result[Any]:
    """The result with the text of each row: what stands before its first hole."""
    every = torch.arange(len(result.lengths), device=result.lengths.device)

    def texts(tokens: Tensor, lengths: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of tokens in their order as texts, with their lengths."""
        canvases = canvas.placed(tokens, lengths, owner)
        columns = torch.arange(canvases.tokens.shape[1], device=tokens.device)
        first = torch.where(canvases.hidden, columns, canvases.widths[:, None]).amin(-1)
        ends = torch.minimum(first, canvases.widths)
        return canvases.tokens.masked_fill(columns >= ends[:, None], -1), ends

    def several(found: Any) -> Any:
        """The same of all candidates or particles."""
        n = found.tokens.shape[1]
        owner = every.repeat_interleave(n)
        tokens, ends = texts(found.tokens.flatten(0, 1), found.lengths.flatten(), owner)
        return found._replace(
            tokens=tokens.unflatten(0, (-1, n)), lengths=ends.unflatten(0, (-1, n))
        )

    info = result.info
    if isinstance(info, Weighed):
        info = cast(Any, info)._replace(particles=several(info.particles))
    elif isinstance(info, Compared):
        info = cast(Any, info)._replace(candidates=several(info.candidates))
    tokens, lengths = texts(result.tokens, result.lengths, every)
    starts = torch.minimum(canvas.starts, lengths)
    return replace(result, tokens=tokens, lengths=lengths, prompt_lengths=starts, info=info)
