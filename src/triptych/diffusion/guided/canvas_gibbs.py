"""Gibbs on canvases with a verifier: redraw some positions, and keep the new text by its value.

    fill      every hole, from p_σ in the order of the holes
    redraw    k positions K of the completion, uniformly drawn: masks, then x'_K ~ p(· | x_-K)
    keep      x' with probability min(1, V(x') / V(x)); any x' where V(x) = 0

For consistent answers the move is reversible with respect to p(x | shown) V(x): the proposal is
exact Gibbs for p, so p cancels in the ratio, and V is left. The verifier is asked about full
canvases alone, so it need not know anything of holes. A start with V = 0 is left as soon as a move
finds something better.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from triptych.core.protocols import Decoder, Draws, Rng, VerifierLike
from triptych.core.samplers import OneShot
from triptych.core.table import Table, all_sequences
from triptych.diffusion.guided.any_order import even_sum
from triptych.diffusion.guided.canvas_decoder import CanvasDecoder, needs_canvas
from triptych.diffusion.guided.canvas_verifier import CanvasVerifier, Regular, on_canvas
from triptych.diffusion.guided.filling import fill
from triptych.diffusion.guided.orders import in_place
from triptych.inference.guided.algorithm import Algorithm, option
from triptych.inference.guided.asking import as_verifier
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.result import Result


class Info(NamedTuple):
    """kept    how many redraws of each row were kept
    right   the step after which V of each row was above 0 first; 0 is the start, -1 never
    """

    kept: Int[Tensor, " batch"]
    right: Int[Tensor, " batch"]


@dataclass(frozen=True)
class CanvasGibbs(Algorithm[Info]):
    """Fill every canvas, then redraw blocks of it.

    steps       redraws
    positions   that a redraw hides, at most

    What is erased counts old tokens of redraws that were kept, and new ones of those that were not.

    Worked value: p uniform on two bits, V = 1 for 00 and ½ for 01, 0 for others, a redraw of both:
    from 00 the next is 00 with ¼ + ½ + ¼ · ½ = ⅞, as 01 is kept with ½; from 01 it is 00 with ¼.
    So the chain rests at ⅔ and ⅓.
    """

    title = "Gibbs on canvases"
    promise = (
        "as steps grow: p(x) V(x), normalised, for consistent answers, where blocks connect all "
        "texts with V > 0"
    )
    soft = True
    probability = False

    steps: int = option(32, "redraws", at_least=0)
    positions: int = option(2, "positions that a redraw hides, at most", at_least=1)

    def sample(
        self, decoder: Decoder | Draws, verifier: VerifierLike | None = None, **shared: Any
    ) -> Result[Info]:
        """Complete every canvas of the decoder; see `Algorithm.sample`."""
        canvas = needs_canvas(decoder, self.title)
        asked: Any = verifier
        if verifier is not None:
            known = verifier if isinstance(verifier, CanvasVerifier) else as_verifier(verifier)
            asked = None if known is None else on_canvas(known, canvas)
        shared |= {"end_token": None, "ends": None}
        return in_place(super().sample(decoder, asked, **shared), canvas)

    def run(self, run: Generation) -> Info:
        """Fill, then redraw."""
        canvas, every = needs_canvas(run.decoder, self.title), run.every_row()
        kept, right = torch.zeros_like(run.owner), torch.full_like(run.owner, -1)
        rows = fill(run, every, None)
        values = torch.full_like(run.start, -torch.inf, dtype=torch.float64)
        values[rows] = run.log_values(rows)
        right[rows[~torch.isneginf(values[rows])]] = 0
        rows = rows[run.limits[rows] > run.start[rows]]
        for number in range(self.steps):
            rows = run.within_budget(rows)
            if len(rows) == 0:
                break
            counts = (run.limits - run.start)[rows].clamp(max=self.positions)
            old = _hide(run, canvas, rows, counts)
            full = fill(run, rows, None)
            new = run.log_values(rows[torch.isin(rows, full)])
            said = torch.full_like(values[rows], -torch.inf)
            said[torch.isin(rows, full)] = new
            accepted = _accepted(run, rows, values[rows], said) & torch.isin(rows, full)
            _put_back(run, canvas, rows[~accepted], counts[~accepted], old[~accepted])
            run.count("erased", rows, counts)
            values[rows] = torch.where(accepted, said, values[rows])
            run.hear(rows, values[rows])
            kept[rows] += accepted.long()
            first = (right[rows] < 0) & ~torch.isneginf(values[rows])
            right[rows[first]] = number + 1
        return Info(kept, right)


def _hide(
    run: Generation,
    canvas: CanvasDecoder,
    rows: Int[Tensor, " rows"],
    counts: Int[Tensor, " rows"],
) -> Int[Tensor, "rows most"]:
    """Put masks at positions that are drawn, last in a random order; what stood there."""
    most = int(counts.max())
    old = torch.full((len(rows), most), -1, device=rows.device)
    canvases = canvas.canvases(rows)
    columns = torch.arange(canvases.tokens.shape[1], device=rows.device)
    free = torch.zeros(canvases.tokens.shape, dtype=torch.bool, device=rows.device)
    holes = columns >= run.start[rows][:, None]
    free.scatter_(1, canvas.place[canvas.owner[rows]], holes)
    free &= columns < canvases.widths[:, None]
    for turn in range(most):
        going = torch.nonzero(counts > turn)[:, 0]
        flat = torch.zeros(free[going].shape, dtype=torch.float64, device=rows.device)
        law = flat.masked_fill(~free[going], -torch.inf).log_softmax(-1)
        position = run.choose(law, rows[going])
        free[going, position] = False
        some = rows[going]
        canvas.put_last(some, position)
        last = canvas.lengths[some] - 1
        old[going, turn] = canvas.tokens[some].gather(1, last[:, None])[:, 0]
        back = torch.zeros_like(canvas.lengths)
        back[some] = 1
        canvas.rollback(back)
    return old


def _put_back(
    run: Generation,
    canvas: CanvasDecoder,
    rows: Int[Tensor, " rows"],
    counts: Int[Tensor, " rows"],
    old: Int[Tensor, "rows most"],
) -> None:
    """What stood there before."""
    missing = run.limits[rows] - canvas.lengths[rows]  # of rows whose budget ended in between
    back = torch.zeros_like(canvas.lengths)
    back[rows] = counts - missing
    canvas.rollback(back)
    for turn in range(int(counts.max()) if len(counts) else 0):
        going = torch.nonzero(counts > turn)[:, 0]
        token = old[going, counts[going] - 1 - turn]
        canvas.append(token, rows[going])


def _accepted(
    run: Generation,
    rows: Int[Tensor, " rows"],
    before: Tensor,
    after: Tensor,
) -> Bool[Tensor, " rows"]:
    """min(1, V(x') / V(x)), drawn where it is neither 0 nor 1."""
    ratio = torch.where(torch.isneginf(before), 0.0, after - before).clamp(max=0.0)
    accepted = ratio >= 0
    open_ = torch.nonzero(~accepted & ~torch.isneginf(ratio))[:, 0]
    if len(open_):
        law = torch.stack([torch.log1p(-ratio[open_].exp()), ratio[open_]], -1)
        accepted[open_] = run.choose(law.log_softmax(-1), rows[open_]).bool()
    return accepted


def law(p: Table, values: Tensor, steps: int, positions: int) -> dict[tuple[int, ...], float]:
    """The exact law on a blank canvas: p times the matrix of a redraw, `steps` times.

    values   V of every row, in the order of the table. Slow and obvious.
    """
    rows = [tuple(row) for row in all_sequences(p.vocab_size, p.length).tolist()]
    probs, k = p.as_dict(), min(positions, p.length)
    worth = dict(zip(rows, values.tolist(), strict=True))
    blocks = list(combinations(range(p.length), k))
    now = dict(probs)
    for _ in range(steps):
        after = dict.fromkeys(rows, 0.0)
        for x, mass in now.items():
            for block in blocks:
                alike = [
                    y for y in rows if all(y[i] == x[i] or i in block for i in range(p.length))
                ]
                total = sum(probs[y] for y in alike)
                for y in alike:
                    chance = mass / len(blocks) * probs[y] / total
                    keep = 1.0 if worth[x] == 0 else min(1.0, worth[y] / worth[x])
                    after[y] += chance * keep
                    after[x] += chance * (1 - keep)
        now = after
    return now


def examples() -> dict[str, OneShot]:
    """The matrix of a redraw, for a hard verifier and for a soft one."""
    p, even = Table.random(2, 3, seed=0), Regular(even_sum())
    hard = even.automaton.accepts(all_sequences(2, 3)).double()
    two = Table.random(2, 2, seed=1)
    soft = torch.tensor([1.0, 0.5, 0.25, 0.0], dtype=torch.float64)

    def case(sampler: CanvasGibbs, model: Table, verifier: Any, values: Tensor) -> OneShot:
        def one(rng: Rng) -> tuple[int, ...]:
            decoder = CanvasDecoder(model, torch.zeros((1, model.length), dtype=torch.long))
            done = sampler.sample(decoder, verifier, length=model.length, rng=rng)
            return done.completions()[0]

        return OneShot(one, law(model, values, sampler.steps, sampler.positions))

    return {
        "no redraw": case(CanvasGibbs(steps=0), p, even, hard),
        "one redraw of one": case(CanvasGibbs(steps=1, positions=1), p, even, hard),
        "two redraws, soft": case(CanvasGibbs(steps=2, positions=1), two, _Soft(), soft),
        "a redraw of both, soft": case(CanvasGibbs(steps=1), two, _Soft(), soft),
    }


class _Soft:
    """1, ½, ¼ and 0 for 00, 01, 10 and 11."""

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        values = torch.tensor([1.0, 0.5, 0.25, 0.0], dtype=torch.float64)
        return values[prefix[:, 0] * 2 + prefix[:, 1]].log()
