"""A decoder whose rows are over after a number of lines: the stopping rule of every method."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

TextOf = Callable[[Sequence[int]], str]


class LineDecoder:
    """A `Decoder` around another one; a row is over when it has written `lines` lines.

    Blank lines do not count. `breaks[token]` says that a token's text has a line break in it.
    """

    def __init__(
        self, decoder: Any, text_of: TextOf, breaks: Bool[Tensor, " vocab"], lines: int
    ) -> None:
        self._inner, self._text_of, self._breaks, self._lines = decoder, text_of, breaks, lines
        self._start = decoder.lengths
        self._over = torch.zeros_like(self._start, dtype=torch.bool)
        self.used = False

    @property
    def vocab_size(self) -> int:
        return self._inner.vocab_size

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        return self._inner.lengths

    @property
    def tokens(self) -> Int[Tensor, "batch t"]:
        return self._inner.tokens

    @property
    def layer(self) -> int:
        return self._inner.layer

    @property
    def passes(self) -> int:
        return self._inner.passes

    @property
    def slots_run(self) -> int:
        return self._inner.slots_run

    def over(self) -> Bool[Tensor, " batch"]:
        return self._over.clone()

    def next_log_probs(self, rows: Int[Tensor, " rows"] | None = None) -> Float[Tensor, "_ vocab"]:
        return self._inner.next_log_probs(rows)

    def hidden_state(self, rows: Int[Tensor, " rows"] | None = None) -> Float[Tensor, "_ width"]:
        return self._inner.hidden_state(rows)

    def append(
        self, tokens: Int[Tensor, " rows"], rows: Int[Tensor, " rows"] | None = None
    ) -> None:
        self._inner.append(tokens, rows)
        every = torch.arange(len(self._over), device=self._over.device) if rows is None else rows
        self._count(every[self._breaks[tokens]])

    def rollback(self, counts: Int[Tensor, " batch"]) -> None:
        self._inner.rollback(counts)
        self._count(torch.nonzero(self._over & (counts > 0))[:, 0])

    def fork(self, rows: Int[Tensor, " copies"]) -> "LineDecoder":
        copy = object.__new__(LineDecoder)
        copy.__dict__.update(self.__dict__)
        copy._inner = self._inner.fork(rows)
        copy._start, copy._over = self._start[rows], self._over[rows]
        copy.used = False
        return copy

    def _count(self, rows: Int[Tensor, " rows"]) -> None:
        """Say which of these rows are over."""
        if len(rows) == 0:
            return
        tokens, lengths = self._inner.tokens[rows].tolist(), self._inner.lengths[rows].tolist()
        starts = self._start[rows].tolist()
        over = [
            whole_lines(self._text_of(row[start:end])) >= self._lines
            for row, start, end in zip(tokens, starts, lengths, strict=True)
        ]
        self._over[rows] = torch.tensor(over, device=rows.device)


def whole_lines(text: str) -> int:
    """How many lines of a text have an end and are not blank.

    Worked value: 2 in "\\na\\n\\nb\\nc": a and b.
    """
    return sum(bool(line.strip()) for line in text.split("\n")[:-1])
