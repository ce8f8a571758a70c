"""Tokens that were drawn before they are needed, and why nothing changes by that.

A request to a server costs a way there and back, so several tokens are drawn at once. An algorithm
takes them one by one, as if each were drawn then. What it does not take is thrown away.

The law stays. Let s be a row and y_1, ..., y_m the tokens that wait for it, drawn at s. Say that
they are *fresh*: given all that the algorithm has seen, y_1 has law p(· | s), y_2 has law
p(· | s y_1), and so on, and they are independent of what waits for other rows. Then a token that is
taken has the law of one that is drawn at that moment. It remains to see that whatever waits is
fresh, by induction on what happens:

    asked       tokens just drawn by the model are fresh: that is how a model draws
    taken       y_1 is put at the end of s. Given s and y_1, the rest is fresh at s y_1
    refused     a verifier looks at y_1 alone, or draws of its own: y_2, ..., y_m decide nothing,
                and so what is kept of the row, and where it turns, is independent of them given
                the tokens before them
    erased      what waits at a longer prefix is thrown away. What waits at a shorter one was never
                looked at: it is fresh there when the row comes back
    forked      one copy keeps what waits, the others have nothing: no two rows share a draw

So whoever keeps the longest accepted beginning of m tokens that were drawn at once has the law of
drawing one by one, and `Algorithm.sample` has the same law with any number of tokens a request. The
tests enumerate it. A row that was refused f times at one place asks for 2^(f-1) independent tokens
there, at most `Draws.ahead`, and takes the first that is accepted: they wait at s, each fresh.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.protocols import Drawn


class _Stretch:
    """Tokens in order with their log-probabilities; `before` must stand before the first."""

    __slots__ = ("before", "log_probs", "tokens")

    def __init__(self, before: int | None, tokens: list[int], log_probs: list[float]) -> None:
        self.before, self.tokens, self.log_probs = before, tokens, log_probs


class Ahead:
    """What waits for each row, by the length at which it begins.

    Worked value: tokens 5, 7 that were drawn at length 3 give 5 there, and 7 at length 4 as long as
    the fourth token is that 5.
    """

    def __init__(self, rows: int) -> None:
        self._waiting: list[dict[int, list[_Stretch]]] = [{} for _ in range(rows)]

    def lacking(
        self, rows: Sequence[int], lengths: Sequence[int], last: Sequence[int]
    ) -> list[int]:
        """Places of those rows for which nothing waits where they stand."""
        return [
            place
            for place, (row, length, token) in enumerate(zip(rows, lengths, last, strict=True))
            if not self._here(row, length, token)
        ]

    def add(self, rows: Sequence[int], lengths: Sequence[int], drawn: Drawn) -> int:
        """Tokens that were drawn for rows at these lengths; how many they are."""
        many = 0
        every = zip(rows, lengths, drawn.tokens.tolist(), drawn.log_probs.tolist(), strict=True)
        for row, length, tokens, log_probs in every:
            count = sum(token >= 0 for token in tokens)
            many += count
            stretch = _Stretch(None, tokens[:count], log_probs[:count])
            self._waiting[row].setdefault(length, []).append(stretch)
        return many

    def take(
        self, rows: Int[Tensor, " rows"], lengths: Sequence[int]
    ) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
        """The next token of each row, and its log-probability; something must wait for it."""
        tokens, log_probs = [], []
        for row, length in zip(rows.tolist(), lengths, strict=True):
            waiting = self._waiting[row]
            stretch = waiting[length].pop(0)
            tokens.append(stretch.tokens[0])
            log_probs.append(stretch.log_probs[0])
            if len(stretch.tokens) > 1:
                rest = _Stretch(stretch.tokens[0], stretch.tokens[1:], stretch.log_probs[1:])
                waiting[length + 1] = [rest]
            else:
                waiting.pop(length + 1, None)
        device = rows.device
        return (
            torch.tensor(tokens, dtype=torch.long, device=device),
            torch.tensor(log_probs, dtype=torch.float64, device=device),
        )

    def forget(self, row: int, length: int) -> None:
        """Throw away what waits for a row at this length."""
        self._waiting[row].pop(length, None)

    def erased(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """Rows that have these lengths now: what waits beyond is thrown away."""
        for row, length in zip(rows, lengths, strict=True):
            waiting = self._waiting[row]
            for place in [place for place in waiting if place > length]:
                del waiting[place]

    def moved(self, rows: Sequence[int]) -> "Ahead":
        """What waits for the copies of some rows: the first copy of each has it."""
        other, given = Ahead(len(rows)), set[int]()
        for place, row in enumerate(rows):
            if row not in given:
                given.add(row)
                other._waiting[place] = self._waiting[row]
                self._waiting[row] = {}
        return other

    def _here(self, row: int, length: int, last: int) -> bool:
        waiting = self._waiting[row]
        fitting = [each for each in waiting.get(length, ()) if each.before in (None, last)]
        waiting.pop(length, None)
        if fitting:
            waiting[length] = fitting
        return bool(fitting)
