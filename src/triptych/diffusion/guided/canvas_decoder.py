"""A canvas as a decoder: its holes in some order, one after another, as tokens that are appended.

A denoiser that is asked about one hole at a time, in an order σ, is an autoregressive model,

    p_σ(x) = Π_k p(x_{σ_k} | what is shown, x_{σ_1}, ..., x_{σ_{k-1}}),

and for consistent answers p_σ is p(x | shown) in every order. So the algorithms of guided
generation run on canvases as they stand, with their promises about p_σ: the tree of prefixes is the
tree of canvases, and to erase the last tokens is to put masks back.

A row's tokens stand in the order of its `place`: what is shown at first, from the left, and then
the holes. From left to right, behind a prompt, that is the text itself.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.decoders import PAD, Prefixes
from triptych.core.validation import (
    Count,
    Hidden,
    Numbers,
    Tokens,
    UserError,
    as_list,
    as_masked,
    as_size,
)
from triptych.diffusion.denoiser import Canvas, Denoiser, as_denoiser
from triptych.inference.answers import check_answer


class Canvases(NamedTuple):
    """Canvases that somebody is asked about.

    tokens   what stands there, 0 at a hole and beyond a row's width
    hidden   the holes
    widths   positions of each row
    starts   where the completion of each row begins; the prompt stands before it
    """

    tokens: Int[Tensor, "rows length"]
    hidden: Bool[Tensor, "rows length"]
    widths: Int[Tensor, " rows"]
    starts: Int[Tensor, " rows"]


class CanvasDecoder(Prefixes):
    """A batch of canvases whose holes are filled one after another.

    model         a denoiser, or what `as_denoiser` makes one of; of masks
    tokens, hidden   the rows and their holes
    widths        positions of each row; None: all columns are
    starts        where each row's completion begins; None: at its first hole
    reads         positions that the model is shown, if more than there are: the others are holes
                  that nobody fills. None: as wide as the row
    place         the position of each token of a row, for the rows of the batch; copies of a row
                  share them, by `owner`

    Worked value: the canvas ?1? from left to right has the token 1 at first, and places 1, 0, 2.
    """

    def __init__(
        self,
        model: object,
        tokens: Tokens,
        hidden: Hidden | None = None,
        *,
        widths: Numbers | None = None,
        starts: Numbers | None = None,
        reads: Count | None = None,
    ) -> None:
        self.lm: Denoiser = as_denoiser(model)
        if hidden is None:
            rows = torch.as_tensor(tokens)
            hidden = torch.ones(rows.shape, dtype=torch.bool, device=rows.device)
        tokens, hidden = as_masked(tokens, hidden, self.lm.vocab_size)
        if tokens.numel() == 0:
            raise UserError(
                f"tokens have shape {tuple(tokens.shape)}; a canvas needs rows and positions",
                parameter="tokens",
            )
        batch, length = tokens.shape
        self.reads = None if reads is None else as_size("reads", reads, at_least=length)
        super().__init__(batch, self.lm.vocab_size, length, tokens.device)
        columns = torch.arange(length, device=tokens.device)
        full = torch.full((batch,), length, device=tokens.device)
        self.widths = full if widths is None else torch.as_tensor(widths, device=tokens.device)
        within = columns < self.widths[:, None]
        hidden = hidden & within
        first = torch.where(hidden, columns, length).amin(-1)
        self.starts = torch.minimum(first, self.widths)
        if starts is not None:
            self.starts = torch.as_tensor(starts, device=tokens.device)
        # what is shown, then the holes, then what is beyond the row's width
        rank = hidden.long() * (length + 1) + (~within).long() * 3 * (length + 1)
        self.place = (rank + columns).argsort(-1)
        self.owner = torch.arange(batch, device=tokens.device)
        self._passes = [0]
        shown = (within & ~hidden).sum(-1)
        ordered = tokens.gather(1, self.place)
        ordered = ordered.masked_fill(columns >= shown[:, None], PAD)
        self.extend(ordered[:, : int(shown.max())])

    @property
    def passes(self) -> int:
        """Questions to the denoiser so far, each about a batch, by this decoder and its forks."""
        return self._passes[0]

    def fork(self, rows: Numbers) -> "CanvasDecoder":
        """A new decoder whose row i is a copy of row `rows[i]`; they share orders and counts."""
        rows = self._chosen(rows)
        copy = self._copy_rows(rows)
        copy.owner = self.owner[rows]
        return copy

    # ------------------------------------------------------------------ canvases

    def canvases(self, rows: Int[Tensor, " rows"] | None = None) -> Canvases:
        """The rows as canvases."""
        rows = self._chosen(rows)
        return self.placed(self.tokens[rows], self._lengths[rows], self.owner[rows])

    def placed(
        self,
        ordered: Int[Tensor, "rows t"],
        lengths: Int[Tensor, " rows"],
        owner: Int[Tensor, " rows"],
    ) -> Canvases:
        """Tokens in the order of rows of the batch, as canvases."""
        place = self.place[owner]
        columns = torch.arange(place.shape[1], device=place.device)
        known = columns < lengths[:, None]
        padded = torch.nn.functional.pad(ordered, (0, place.shape[1] - ordered.shape[1]))
        tokens = torch.zeros_like(place).scatter(1, place, padded.masked_fill(~known, 0))
        shown = torch.zeros_like(known).scatter(1, place, known)
        widths = self.widths[owner]
        hidden = ~shown & (columns < widths[:, None])
        return Canvases(tokens, hidden, widths, self.starts[owner])

    def next_place(
        self, lengths: Int[Tensor, " rows"], owner: Int[Tensor, " rows"]
    ) -> Int[Tensor, " rows"]:
        """The position of the next token of rows of these lengths."""
        return self.place[owner].gather(1, lengths[:, None])[:, 0]

    def put_next(self, rows: Int[Tensor, " rows"], position: Int[Tensor, " rows"]) -> None:
        """Make a hole of each row the next one in its order."""
        self._swap(rows, position, self._lengths[rows])

    def put_last(self, rows: Int[Tensor, " rows"], position: Int[Tensor, " rows"]) -> None:
        """Make a token of each row the last one, so that `rollback` takes it back first."""
        self._swap(rows, position, self._lengths[rows] - 1)

    def _swap(
        self,
        rows: Int[Tensor, " rows"],
        position: Int[Tensor, " rows"],
        turn: Int[Tensor, " rows"],
    ) -> None:
        """Swap a position of each row with what stands at this turn, with its token."""
        owner = self.owner[rows]
        now = (self.place[owner] == position[:, None]).long().argmax(-1)
        other = self.place[owner, turn]
        self.place[owner, turn], self.place[owner, now] = position, other
        room = max(int(turn.max()), int(now.max())) + 1
        if room > self._tokens.shape[1]:
            more = room - self._tokens.shape[1]
            self._tokens = torch.nn.functional.pad(self._tokens, (0, more), value=PAD)
        first, second = self._tokens[rows, turn].clone(), self._tokens[rows, now].clone()
        self._tokens[rows, turn], self._tokens[rows, now] = second, first

    # ------------------------------------------------------------------ laws

    def next_log_probs(self, rows: Numbers | None = None) -> Float[Tensor, "_ vocab"]:
        """log p(· | the canvas) at the next hole of each row."""
        rows = self._asked(rows)
        canvases = self.canvases(rows)
        at = torch.zeros_like(canvases.hidden)
        position = self.next_place(self._lengths[rows], self.owner[rows])
        at[torch.arange(len(rows), device=rows.device), position] = True
        return self.ask(canvases, at, rows)

    def ask(
        self,
        canvases: Canvases,
        at: Bool[Tensor, "rows length"],
        rows: Int[Tensor, " rows"],
    ) -> Float[Tensor, "asked vocab"]:
        """log p(x_i = · | canvas) at some positions, row by row; rows of one width in one pass."""
        found = torch.zeros((int(at.sum()), self.vocab_size), dtype=torch.float64, device=at.device)
        whose = torch.nonzero(at)[:, 0]
        columns = torch.arange(at.shape[1], device=at.device)
        read = canvases.widths if self.reads is None else torch.full_like(rows, self.reads)
        for width in read.unique().tolist():
            same = read == width
            beyond = columns >= canvases.widths[same][:, None]
            tokens, hidden = canvases.tokens[same], canvases.hidden[same] | beyond
            tokens, hidden = _wide(tokens, width, 0), _wide(hidden, width, True)
            owner, none = self.owner[rows[same]], torch.zeros_like(hidden)
            canvas = Canvas(tokens, hidden, none, None, 0, width, owner)
            answer = self.lm.clean_log_probs(canvas, _wide(at[same], width, False))
            places = int(at[same].sum())
            name = type(self.lm).__name__
            check_answer(answer, (places, self.vocab_size), at.device, name)
            found[same[whose]] = answer.double()
            self._passes[0] += 1
        return found


def _wide(values: Tensor, width: int, fill: int | bool) -> Tensor:
    """The first columns, or more of one value."""
    more = width - values.shape[1]
    return torch.nn.functional.pad(values, (0, more), value=fill) if more > 0 else values[:, :width]


def canvas_decoder(
    model: object,
    prompts: Sequence[Sequence[Count]],
    more: Count,
    *,
    reads: Count | None = None,
    device: Any = "cpu",
) -> CanvasDecoder:
    """Prompts of tokens, each with `more` holes behind it."""
    rows = [as_list("a prompt", row, "tokens") for row in prompts]
    more = as_size("more", more)
    widths = torch.tensor([len(row) + more for row in rows], device=device)
    length = int(widths.max())
    tokens = torch.tensor([row + [0] * (length - len(row)) for row in rows], device=device)
    begun = torch.tensor([len(row) for row in rows], device=device)
    hidden = torch.arange(length, device=device) >= begun[:, None]
    return CanvasDecoder(model, tokens, hidden, widths=widths, starts=begun, reads=reads)


def needs_canvas(decoder: object, what: str) -> CanvasDecoder:
    """The decoder, if it is one of canvases."""
    if not isinstance(decoder, CanvasDecoder):
        raise UserError(
            f"{what} writes on a canvas, and the decoder is a {type(decoder).__name__}; make a "
            "CanvasDecoder(denoiser, tokens, hidden), or pass a CanvasLM to guide",
            parameter="decoder",
        )
    if len(decoder.owner.unique()) < len(decoder.owner):
        raise UserError(
            "the decoder has copies of a row, which share their order; make a CanvasDecoder with a "
            "row for each",
            parameter="decoder",
        )
    return decoder
