"""Verifiers that are asked about canvases, and how those of prefixes are.

    on a canvas    `CanvasVerifier`   about any canvas, with holes: `Regular` is one, and exact
    of a prefix    `Verifier`         about the text before the first hole, and about full canvases.
                   Its early no is right on a canvas too: what stands before the first hole stays.
                   Holes before what is written hide the rest from it, so in a random order it says
                   nearly nothing until the canvas is full.

`OnCanvas` puts either between a generation, whose tokens stand in the order in which holes are
filled, and the canvas. From left to right behind a prompt a verifier of prefixes needs nothing: the
canvas is a prefix, and a mask of an engine is exact.
"""

from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.protocols import Question, ReadsOver, Verifier
from triptych.core.validation import UserError, set_fields, shown
from triptych.diffusion.guided.automaton import Automaton
from triptych.diffusion.guided.canvas_decoder import CanvasDecoder, Canvases


@runtime_checkable
class CanvasVerifier(Protocol):
    """log V of canvases with holes: -inf where no filling is right."""

    def canvas_log_values(self, asked: Canvases) -> Float[Tensor, " rows"]: ...


@runtime_checkable
class CanvasMasks(CanvasVerifier, Protocol):
    """One whose values are 0 and 1, and that says which tokens may stand at a hole."""

    def canvas_masks(
        self, asked: Canvases, at: Int[Tensor, " rows"]
    ) -> Bool[Tensor, "rows vocab"]: ...


@dataclass(frozen=True, eq=False)
class Regular:
    """The completions of a regular language, which are asked about on a canvas or as prefixes.

    On a canvas both answers are exact: some filling of the holes is in the language, at this width.
    About a prefix the width is not known: V is 1 where some longer row is in the language.

    Worked value: of rows of even sum, the canvas 11 has V = 1, the canvas 10 V = 0, the canvas 1?
    V = 1, and there 1 alone may follow. As a prefix, 1 has V = 1, as a finished row V = 0.
    """

    automaton: Automaton
    _alive: Bool[Tensor, " states"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.automaton, Automaton):
            raise UserError(
                f"automaton is {shown(self.automaton)}; it must be an Automaton",
                parameter="automaton",
            )
        set_fields(self, _alive=self.automaton.alive)

    def canvas_log_values(self, asked: Canvases) -> Float[Tensor, " rows"]:
        """0 where the holes can be filled, -inf elsewhere."""
        fine = torch.zeros(len(asked.widths), dtype=torch.float64, device=asked.tokens.device)
        for same, tokens, hidden in _alike(asked):
            fine[same] = self.automaton.completable(tokens, hidden).double()
        return fine.log()

    def canvas_masks(self, asked: Canvases, at: Int[Tensor, " rows"]) -> Bool[Tensor, "rows vocab"]:
        """Tokens that may stand at a hole of each row."""
        size = (len(asked.widths), self.automaton.vocab_size)
        found = torch.zeros(size, dtype=torch.bool, device=asked.tokens.device)
        for same, tokens, hidden in _alike(asked):
            column = at[same] - asked.starts[same]
            allowed = self.automaton.allowed(tokens, hidden)
            found[same] = allowed[torch.arange(len(same), device=at.device), column]
        return found

    # ------------------------------------------------------------------ of prefixes

    @property
    def reads_over(self) -> bool:
        """A finished row must be in the language as it stands."""
        return True

    def log_values(self, asked: Question) -> Float[Tensor, " rows"]:
        """0 where the completion, or a longer one, is in the language."""
        state = self._states(asked)
        good = torch.where(asked.over[:, None], self.automaton.accepting, self._alive)
        fine = (state >= 0) & good.gather(1, state.clamp(min=0)[:, None])[:, 0]
        return fine.double().log()

    def masks(self, asked: Question) -> Bool[Tensor, "rows vocab"]:
        """Tokens after which the completion can become one of the language."""
        state = self._states(asked)
        after = self.automaton.following[state.clamp(min=0)]
        return (after >= 0) & self._alive[after.clamp(min=0)] & (state >= 0)[:, None]

    def _states(self, asked: Question) -> Int[Tensor, " rows"]:
        """Where the automaton stands after each completion; -1 where it refused."""
        following = self.automaton.following
        state = torch.full_like(asked.lengths, self.automaton.start)
        for t in range(asked.tokens.shape[1]):
            inside = (t >= asked.starts) & (t < asked.lengths) & (state >= 0)
            after = following[state.clamp(min=0), asked.tokens[:, t].clamp(min=0)]
            state = torch.where(inside, after, state)
        return state


class OnCanvas:
    """A verifier between rows in the order of their holes and canvases."""

    def __init__(self, verifier: CanvasVerifier | Verifier, decoder: CanvasDecoder) -> None:
        self.verifier, self.decoder = verifier, decoder
        self.graded = not isinstance(verifier, CanvasMasks)

    @property
    def reads_over(self) -> bool:
        """One of prefixes may read it; a canvas says itself whether it is full."""
        if isinstance(self.verifier, CanvasVerifier):
            return False
        return isinstance(self.verifier, ReadsOver) and self.verifier.reads_over

    def log_values(self, asked: Question) -> Float[Tensor, " rows"]:
        """What the verifier says of each canvas; of one of prefixes, what it says of its text."""
        canvases = self._canvases(asked)
        if isinstance(self.verifier, CanvasVerifier):
            return self.verifier.canvas_log_values(canvases)
        return self.verifier.log_values(text_question(canvases, asked))

    def _canvases(self, asked: Question) -> Canvases:
        return self.decoder.placed(asked.tokens, asked.lengths, asked.row)


class MasksOnCanvas(OnCanvas):
    """One that says of every hole which tokens may stand there."""

    def masks(self, asked: Question) -> Bool[Tensor, "rows vocab"]:
        """Tokens that may stand at the next hole of each row."""
        assert isinstance(self.verifier, CanvasMasks)
        at = self.decoder.next_place(asked.lengths, asked.row)
        return self.verifier.canvas_masks(self._canvases(asked), at)


def on_canvas(verifier: CanvasVerifier | Verifier, decoder: CanvasDecoder) -> OnCanvas:
    """The verifier, with masks where it has some on canvases."""
    kind = MasksOnCanvas if isinstance(verifier, CanvasMasks) else OnCanvas
    return kind(verifier, decoder)


def text_question(canvases: Canvases, asked: Question) -> Question:
    """The question about the text before each row's first hole; over, where there is no hole."""
    columns = torch.arange(canvases.tokens.shape[1], device=canvases.tokens.device)
    first = torch.where(canvases.hidden, columns, canvases.widths[:, None]).amin(-1)
    lengths = torch.minimum(first, canvases.widths)
    tokens = canvases.tokens.masked_fill(columns >= lengths[:, None], -1)
    starts = torch.minimum(canvases.starts, lengths)
    over = lengths == canvases.widths
    return replace(
        asked, tokens=tokens, lengths=lengths, starts=starts, over=over, decoder=None, at=None
    )


def _alike(
    asked: Canvases,
) -> list[tuple[Int[Tensor, " same"], Int[Tensor, "same t"], Bool[Tensor, "same t"]]]:
    """Completions of one width at a time: their places, their tokens, their holes."""
    found = []
    sizes = torch.stack([asked.starts, asked.widths], -1)
    for start, width in sizes.unique(dim=0).tolist():
        same = torch.nonzero((sizes == torch.tensor([start, width]).to(sizes)).all(-1))[:, 0]
        found.append((same, asked.tokens[same, start:width], asked.hidden[same, start:width]))
    return found
