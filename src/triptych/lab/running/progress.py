"""What a person sees while a study runs: a bar on a terminal, a line per unit elsewhere."""

import sys
import time
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stream(Protocol):
    """What is needed of a text file to write progress to it."""

    def write(self, text: str, /) -> Any: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...


@runtime_checkable
class Progress(Protocol):
    """Told what happens, in this order: begin, (started, ended)*, end; then perhaps again."""

    def begin(self, study: str, units: int, skipped: int, workers: int) -> None:
        """`units` are to be run; `skipped` more have run before."""
        ...

    def started(self, unit: str) -> None: ...

    def ended(self, unit: str, seconds: float, error: str | None) -> None: ...

    def end(self) -> None:
        """The run is over, finished or not."""
        ...


def progress_on(stream: Stream | None = None, *, quiet: bool = False) -> Progress:
    """The right display for a stream, standard error by default."""
    stream = stream or sys.stderr
    if quiet or stream is None:  # a program without a console has no standard error
        return Quiet()
    return Bar(stream) if stream.isatty() else Lines(stream)


class Quiet:
    """Shows nothing."""

    def begin(self, study: str, units: int, skipped: int, workers: int) -> None: ...

    def started(self, unit: str) -> None: ...

    def ended(self, unit: str, seconds: float, error: str | None) -> None: ...

    def end(self) -> None: ...


class Lines:
    """One line per unit: for logs and pipes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._study = ""
        self._units = self._ended = 0

    def begin(self, study: str, units: int, skipped: int, workers: int) -> None:
        self._study, self._units, self._ended = study, units, 0
        before = f" ({skipped} skipped)" if skipped else ""
        self._print(f"{study}: {units} {'unit' if units == 1 else 'units'} to run{before}")

    def started(self, unit: str) -> None: ...

    def ended(self, unit: str, seconds: float, error: str | None) -> None:
        self._ended += 1
        outcome = "done" if error is None else f"FAILED: {last_line(error)}"
        place = f"[{self._ended}/{self._units}]"
        self._print(f"{self._study}: {place} {unit}: {duration(seconds)}, {outcome}")

    def end(self) -> None: ...

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class Bar:
    """A bar per study with units done and failed, time gone and time left."""

    def __init__(self, stream: Stream) -> None:
        self._stream: Any = stream
        self._bar: Any = None
        self._task: Any = None
        self._units = self._done = self._failed = 0
        self._began = 0.0

    def begin(self, study: str, units: int, skipped: int, workers: int) -> None:
        """Open the bar; skipped units count on it."""
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._units, self._done, self._failed = units, 0, 0
        self._began = time.monotonic()
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}{task.fields[failed]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", style="dim"),
            console=Console(file=self._stream),
        )
        self._bar.start()
        self._task = self._bar.add_task(
            escape(study), total=units + skipped, completed=skipped, failed="", left=""
        )

    def started(self, unit: str) -> None: ...

    def ended(self, unit: str, seconds: float, error: str | None) -> None:
        """Move the bar; a failed unit also gets a line above it."""
        from rich.markup import escape

        self._done += error is None
        self._failed += error is not None
        ended = self._done + self._failed
        left = (time.monotonic() - self._began) / ended * (self._units - ended)
        self._bar.update(
            self._task,
            advance=1,
            failed=f" [red]({self._failed} failed)[/red]" if self._failed else "",
            left=f"about {duration(left)} left" if left else "",
        )
        if error is not None:
            self._bar.console.print(f"[red]failed[/red] {escape(unit)}: {escape(last_line(error))}")

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def duration(seconds: float) -> str:
    """A time for people: 0.02 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def last_line(error: str) -> str:
    """What an error says, without the way to it."""
    return error.strip().splitlines()[-1] if error.strip() else "no message"
