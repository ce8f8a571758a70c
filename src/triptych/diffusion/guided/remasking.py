"""Backtracking to a mask: erase the positions that the verifier blames, and draw them again.

    fill     every hole, in rounds
    ask      the verifier about the full canvas; a text that it accepts is done
    blame    the first position up to which no text is right; masks at it and w positions around,
             where w doubles with every refusal of the row

A canvas keeps what stands behind the mistake, which a prefix that is taken back does not. What is
accepted is right. Its law is not p(x | right): a text is found more often the more wrong ones lie
around it.

The verifier is asked about prefixes of the full text, all of them in one question, and blames the
last position of the shortest one that it refuses. A text that is refused as a whole alone is blamed
at its end.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from triptych.core.protocols import Decoder, Draws, Question, Rng, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table
from triptych.diffusion.guided.any_order import even_sum
from triptych.diffusion.guided.canvas_decoder import CanvasDecoder, needs_canvas
from triptych.diffusion.guided.canvas_verifier import Regular
from triptych.diffusion.guided.filling import fill
from triptych.diffusion.guided.orders import Order, draw_order, in_place
from triptych.inference.guided.algorithm import Algorithm, option
from triptych.inference.guided.asking import as_verifier
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import log_threshold
from triptych.inference.guided.result import Reason, Result


class Info(NamedTuple):
    """refusals   of each row
    erased     positions that each row lost to them
    """

    refusals: Int[Tensor, " batch"]
    erased: Int[Tensor, " batch"]


@dataclass(frozen=True)
class Remasking(Algorithm[Info]):
    """Fill every canvas until the verifier accepts it.

    steps      rounds of a filling; none is one position a round
    tries      fillings of a row at most
    window     positions around the blamed one that are erased with it, at first
    threshold  a text with V below it is refused

    A row that is given up keeps its last text and is not complete.

    Worked value: p uniform on two bits, the language 00 and 11, window 0. A first text 01 or 10 is
    blamed at its end, and drawn again there: half of them are right then.
    """

    title = "Backtracking to a mask"
    promise = "what is accepted is right; its law is not p(x | right)"

    steps: int | None = option(
        None, "rounds of a filling; none is one position a round", at_least=1
    )
    tries: int = option(30, "fillings of a row at most", at_least=1)
    window: int = option(1, "positions around the blamed one that go with it", at_least=0)
    threshold: float = option(0.5, "a text with V below it is refused", at_least=0, at_most=1)
    order: Order = option("left to right", "in which holes are filled")

    @property
    def smallest(self) -> float | None:
        """log V from which a text is accepted."""
        return log_threshold(self.threshold)

    def sample(
        self, decoder: Decoder | Draws, verifier: VerifierLike | None = None, **shared: Any
    ) -> Result[Info]:
        """Complete every canvas of the decoder; see `Algorithm.sample`."""
        canvas = needs_canvas(decoder, self.title)
        known = None if verifier is None else as_verifier(verifier)
        asked = None if known is None else _FullText(known, canvas)
        shared |= {"end_token": None, "ends": None}
        return in_place(super().sample(decoder, asked, **shared), canvas)

    def run(self, run: Generation) -> Info:
        """Fill, ask, erase what is blamed."""
        canvas, rows = needs_canvas(run.decoder, self.title), run.every_row()
        draw_order(run, canvas, self.order)
        refusals, lost = torch.zeros_like(run.owner), torch.zeros_like(run.owner)
        for number in range(self.tries):
            rows = fill(run, rows, self.steps)
            values = run.log_values(rows)
            rows = run.judge(rows, values, values >= log_threshold(self.threshold))
            refusals[rows] += 1
            rows = rows[run.limits[rows] > run.start[rows]]
            if len(rows) == 0 or number + 1 == self.tries:
                break
            holes = self._around(run, canvas, rows, refusals[rows])
            lost[rows] += holes.sum(-1)
            _erase(run, canvas, rows, holes)
        run.stop(rows, Reason.TRIES)
        return Info(refusals, lost)

    def _around(
        self,
        run: Generation,
        canvas: CanvasDecoder,
        rows: Int[Tensor, " rows"],
        refusals: Int[Tensor, " rows"],
    ) -> Bool[Tensor, "rows length"]:
        """Positions to erase: near the blamed one, among those that were holes."""
        verifier = run.verifier
        assert isinstance(verifier, _FullText)
        canvases = canvas.canvases(rows)
        columns = torch.arange(canvases.tokens.shape[1], device=rows.device)
        free = torch.zeros_like(canvases.hidden)
        free.scatter_(1, canvas.place[canvas.owner[rows]], columns >= run.start[rows][:, None])
        free &= columns < canvases.widths[:, None]
        blamed = verifier.blamed(run, rows, self.smallest or 0.0)
        wide = self.window * 2 ** (refusals - 1).clamp(max=40)
        wide = wide + (refusals - 1 if self.window == 0 else 0)
        near = free & ((columns - blamed[:, None]).abs() <= wide[:, None])
        first = torch.where(free, (columns - blamed[:, None]).abs(), len(columns) + 1)
        nearest = free & (first == first.amin(-1, keepdim=True))
        return torch.where(near.any(-1, keepdim=True), near, nearest)


def _erase(
    run: Generation,
    canvas: CanvasDecoder,
    rows: Int[Tensor, " rows"],
    holes: Bool[Tensor, "rows length"],
) -> None:
    """Masks at these positions."""
    for column in torch.nonzero(holes.any(0))[:, 0].tolist():
        some = rows[holes[:, column]]
        canvas.put_last(some, torch.full_like(some, column))
        run.erase(torch.ones_like(some), some, "backtrack")


class _FullText:
    """A verifier that is asked about full canvases, and which prefix it refuses first."""

    def __init__(self, verifier: Any, canvas: CanvasDecoder) -> None:
        self.verifier, self.canvas = verifier, canvas

    def log_values(self, asked: Question) -> Tensor:
        """What the verifier says of the texts, as finished ones."""
        canvases = self.canvas.placed(asked.tokens, asked.lengths, asked.row)
        over = torch.ones_like(asked.over)
        return self.verifier.log_values(
            Question(canvases.tokens, canvases.widths, canvases.starts, over, asked.row)
        )

    def blamed(
        self, run: Generation, rows: Int[Tensor, " rows"], smallest: float
    ) -> Int[Tensor, " rows"]:
        """The last position of the shortest prefix that is refused; the last one, if none is."""
        canvases = self.canvas.canvases(rows)
        found = canvases.widths - 1
        length = canvases.tokens.shape[1]
        ends = torch.arange(1, length + 1, device=rows.device)
        asked = (ends > canvases.starts[:, None]) & (ends <= canvases.widths[:, None])
        who, end = torch.nonzero(asked, as_tuple=True)
        lengths = end + 1
        tokens = canvases.tokens[who].masked_fill(ends > lengths[:, None], -1)
        over = torch.zeros_like(lengths, dtype=torch.bool)
        question = Question(tokens, lengths, canvases.starts[who], over, run.owner[rows[who]])
        run.costs.verifier_calls.index_add_(0, question.row, torch.ones_like(question.row))
        run.costs.verifier_passes += 1
        values = self.verifier.log_values(question)
        refused = torch.zeros_like(asked).masked_scatter(asked, values < smallest)
        first = torch.where(refused, ends - 1, length).amin(-1)
        return torch.minimum(first, found)


def examples() -> dict[str, OneShot]:
    """One try is the model, given that it is right; and two tries, by hand."""
    p, even = Table.random(2, 2, seed=1), Regular(even_sum())
    probs = p.as_dict()
    right = {x: q for x, q in probs.items() if sum(x) % 2 == 0}

    def case(sampler: Remasking, target: dict[tuple[int, ...], float]) -> OneShot:
        def one(rng: Rng) -> tuple[int, ...] | None:
            decoder = CanvasDecoder(p, torch.zeros((1, 2), dtype=torch.long))
            done = sampler.sample(decoder, even, length=2, rng=rng)
            return done.completions()[0] if done.complete[0] else None

        return OneShot(one, {x: q / sum(target.values()) for x, q in target.items()})

    again = dict(right)
    for first in (0, 1):  # the second bit is blamed and drawn again
        wrong = probs[first, 1 - first]
        again[first, first] += wrong * probs[first, first] / (probs[first, 0] + probs[first, 1])
    return {
        "one try": case(Remasking(tries=1), right),
        "two tries": case(Remasking(tries=2, window=0), again),
    }
