"""Stop strings: a text ends where one of them stands, and does not hold it."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from triptych.core.protocols import Question
from triptych.core.validation import UserError, as_list, as_text

_REMEMBERED = 100_000


class Stops:
    """What says that a row is over: its text holds a stop string.

    cut   the text of some tokens up to the first stop string

    Worked value: with the stop "b", the text "aabb" is over and reads "aa".
    """

    def __init__(self, stops: Sequence[str], decode: Callable[[Sequence[int]], str]) -> None:
        self.stops, self._decode = stops, decode
        self._known: dict[tuple[int, ...], bool] = {}

    def cut(self, tokens: Sequence[int]) -> str:
        """The text before the first stop string."""
        text = self._decode(tokens)
        places = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        return text[: min(places)] if places else text

    def over(self, asked: Question) -> Bool[Tensor, " rows"]:
        """Rows whose completion holds a stop string."""
        rows, lengths = asked.tokens.tolist(), asked.lengths.tolist()
        said = [
            self._stands_in(tuple(row[start:length]))
            for row, start, length in zip(rows, asked.starts.tolist(), lengths, strict=True)
        ]
        return torch.tensor(said, dtype=torch.bool, device=asked.tokens.device)

    def _stands_in(self, tokens: tuple[int, ...]) -> bool:
        if tokens not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            text = self._decode(tokens)
            self._known[tokens] = any(stop in text for stop in self.stops)
        return self._known[tokens]


class Left:
    """What says that a row is over: nobody waits for it any more, or `stops` says so."""

    def __init__(self, left: Callable[[int], bool], stops: Stops | None) -> None:
        self._left, self._stops = left, stops

    def over(self, asked: Question) -> Bool[Tensor, " rows"]:
        """Rows that nobody waits for, and those that hold a stop string."""
        said = [self._left(row) for row in asked.row.tolist()]
        left = torch.tensor(said, dtype=torch.bool, device=asked.tokens.device)
        return left if self._stops is None else left | self._stops.over(asked)


def as_stops(stop: str | Sequence[str]) -> list[str]:
    """Stop strings, or one of them; none may be empty."""
    given = [stop] if isinstance(stop, str) and stop else [] if stop == "" else stop
    found = [as_text("a stop string", each) for each in as_list("stop", given, "strings")]
    if "" in found:
        raise UserError("stop holds an empty string; every text would end at once")
    return found
