"""What of a text may be told while it is written: what no algorithm can take back.

Three things are held back: tokens that may still be erased (`Algorithm.settled`), half a character
at the end, and what may become a stop string.
"""

from collections.abc import Callable, Sequence

from triptych.inference.guided.algorithm import AnyAlgorithm
from triptych.inference.guided.result import Event


class Release:
    """The text of one row, told piece by piece.

    read   the text of some tokens, up to a stop string
    told   what was told so far
    """

    def __init__(
        self, algorithm: AnyAlgorithm, read: Callable[[Sequence[int]], str], stop: Sequence[str]
    ) -> None:
        self._algorithm, self._read, self._stop = algorithm, read, stop
        self._settled: tuple[int, ...] = ()
        self._backtracks = 0
        self.told = ""

    def after(self, event: Event) -> str:
        """What may be told now that something happened to the row."""
        self._backtracks += event.action == "backtrack"
        settled = self._algorithm.settled(event, self._backtracks)
        if settled <= len(self._settled):
            return ""
        self._settled = event.tokens[:settled]
        return self._more(self._certain(self._read(self._settled)))

    def rest(self, text: str) -> str:
        """What is left to tell of the finished text."""
        if not text.startswith(self.told):
            raise RuntimeError("what was told of a text does not begin the finished text")
        return self._more(text)

    def _certain(self, text: str) -> str:
        """The text without half a character and without what may become a stop string."""
        text = text.rstrip("\ufffd")
        kept = len(text)
        for stop in self._stop:
            begun = (
                n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text[-n:] == stop[:n]
            )
            kept = min(kept, len(text) - next(begun, 0))
        return text[:kept]

    def _more(self, text: str) -> str:
        if not text.startswith(self.told):
            return ""
        more, self.told = text[len(self.told) :], text
        return more
