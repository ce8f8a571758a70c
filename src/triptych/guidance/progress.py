"""A line that says how far a generation is, in a terminal and in a notebook."""

import sys
import time
from types import TracebackType

_WIDTH = 24


class Bar:
    """Prompts that are done, and tokens per second, on standard error.

    Worked value: 6 of 24 prompts have a quarter of the bar.
    """

    def __init__(self, total: int, *, shown: bool) -> None:
        self.total, self.shown = total, shown
        self._done, self._tokens, self._began = 0, 0, time.perf_counter()

    def __enter__(self) -> "Bar":
        self._write()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.shown:
            print(file=sys.stderr, flush=True)

    def add(self, prompts: int, tokens: int) -> None:
        """This many more prompts are done."""
        self._done, self._tokens = self._done + prompts, self._tokens + tokens
        self._write()

    def line(self) -> str:
        """The bar as text."""
        full = _WIDTH * self._done // max(1, self.total)
        rate = self._tokens / max(time.perf_counter() - self._began, 1e-9)
        bar = "#" * full + "." * (_WIDTH - full)
        return f"guide [{bar}] {self._done}/{self.total} prompts, {rate:.3g} tokens/s"

    def _write(self) -> None:
        if self.shown:
            print(f"\r{self.line()}", end="", file=sys.stderr, flush=True)
