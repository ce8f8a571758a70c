"""What a person sees while prompts are completed: a bar on a terminal, a line now and then."""

import os
import time
from typing import Any

from triptych.lab.running.progress import Stream, duration

LINE_SECONDS = 10.0  # between two lines, where nobody watches


def hide_bars() -> None:
    """The bars of transformers and of the hub would stand among our lines."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        from transformers.utils import logging
    except ModuleNotFoundError:
        return  # the model says what is missing
    logging.disable_progress_bar()


class PromptProgress:
    """Prompts done, tokens per second and time left, counted from when the model is loaded.

    Told in this order: begin, loaded, done*, end. On a terminal it is a bar; elsewhere the first
    line, the last one, and one every ten seconds.
    """

    def __init__(self, stream: Stream | None) -> None:
        self._stream: Any = stream
        self._bar: Any = None
        self._task: Any = None
        self._total = self._before = self._done = self._failed = self._tokens = 0
        self._began = self._shown = 0.0

    def begin(self, prompts: int, before: int, model: str) -> None:
        """`prompts` are to be completed; `before` more were completed by an earlier run."""
        self._total, self._before = prompts, before
        self._done = self._failed = self._tokens = 0
        self._began = self._shown = time.monotonic()
        if self._stream is None:
            return
        if not self._stream.isatty():
            already = f" ({before} are done)" if before else ""
            loading = f"; loading {model} ..." if prompts else ""
            self._print(
                f"{prompts} {'prompt' if prompts == 1 else 'prompts'} to complete{already}{loading}"
            )
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("prompts"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}{task.fields[failed]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[rate]}", style="dim"),
            console=Console(file=self._stream),
        )
        self._bar.start()
        self._task = self._bar.add_task(
            "", total=prompts + before, completed=before, failed="", rate=f"loading {model} ..."
        )

    def loaded(self, at: float) -> None:
        """The model was there at this time of the monotonic clock."""
        self._began = at

    def done(self, prompts: int, failed: int, tokens: int) -> None:
        """This many more prompts are done, `failed` of them without a text."""
        self._done += prompts
        self._failed += failed
        self._tokens += tokens
        if self._bar is not None:
            self._bar.update(
                self._task,
                advance=prompts,
                failed=f" [red]({self._failed} failed)[/red]" if self._failed else "",
                rate=self._rate(),
            )
        elif self._stream is not None:
            last = self._done == self._total
            if last or time.monotonic() - self._shown >= LINE_SECONDS:
                self._shown = time.monotonic()
                failed_ = f", {self._failed} failed" if self._failed else ""
                self._print(
                    f"{self._before + self._done}/{self._before + self._total} prompts{failed_}, "
                    f"{self._rate()}"
                )

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _rate(self) -> str:
        """Worked value: 50 tokens in 2 s for 1 of 3 prompts: 25 tokens/s, about 4.0 s left."""
        passed = max(time.monotonic() - self._began, 1e-9)
        rate = f"{self._tokens / passed:.3g} tokens/s"
        left = passed / max(self._done, 1) * (self._total - self._done)
        return f"{rate}, about {duration(left)} left" if left else rate

    def _print(self, line: str) -> None:
        print(f"generate: {line}", file=self._stream, flush=True)
