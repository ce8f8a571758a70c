"""What a person sees while studies run: one bar on a terminal, a line per unit elsewhere.

A display can be told of one study, or be opened for a run of many: `with progress_on(...) as show`.
Then it stays from the first study to the last and says how long all of them still take.
"""

import sys
from typing import Any, Protocol, runtime_checkable

from triptych.lab.plain_text import escape, plain
from triptych.lab.running.time_left import TimeLeft


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
        """The study is over, finished or not."""
        ...


@runtime_checkable
class RunProgress(Progress, Protocol):
    """A display for a whole run: opened before its first study, closed after its last."""

    def say(self, sentence: str) -> None:
        """Show a sentence, as a verdict, and go on."""
        ...

    def __enter__(self) -> "RunProgress": ...

    def __exit__(self, *_: object) -> None: ...


def progress_on(
    stream: Stream | None = None, *, quiet: bool = False, time_left: TimeLeft | None = None
) -> RunProgress:
    """The right display for a stream, standard error by default.

    time_left
        What knows how long the whole run takes.
    """
    stream = stream or sys.stderr
    if quiet or stream is None:  # a program without a console has no standard error
        return Quiet()
    return Bar(stream, time_left) if stream.isatty() else Lines(stream, time_left)


class Quiet:
    """Shows nothing."""

    def begin(self, study: str, units: int, skipped: int, workers: int) -> None: ...

    def started(self, unit: str) -> None: ...

    def ended(self, unit: str, seconds: float, error: str | None) -> None: ...

    def end(self) -> None: ...

    def say(self, sentence: str) -> None: ...

    def __enter__(self) -> "Quiet":
        return self

    def __exit__(self, *_: object) -> None: ...


class Lines:
    """One line per unit: for logs and pipes."""

    def __init__(self, stream: Stream, time_left: TimeLeft | None = None) -> None:
        self._stream = stream
        self._time_left = time_left
        self._study = ""
        self._units = self._ended = 0

    def begin(self, study: str, units: int, skipped: int, workers: int) -> None:
        self._study, self._units, self._ended = study, units, 0
        before = f" ({skipped} skipped)" if skipped else ""
        left = ""
        if self._time_left is not None:
            self._time_left.begin(study, units, workers)
            left = _left(self._time_left, "; the whole run: ")
        self._print(f"{study}: {units} {'unit' if units == 1 else 'units'} to run{before}{left}")

    def started(self, unit: str) -> None:
        if self._time_left is not None:
            self._time_left.started(unit)

    def ended(self, unit: str, seconds: float, error: str | None) -> None:
        self._ended += 1
        if self._time_left is not None:
            self._time_left.ended(unit, seconds)
        outcome = "done" if error is None else f"FAILED: {last_line(error)}"
        place = f"[{self._ended}/{self._units}]"
        self._print(f"{self._study}: {place} {unit}: {duration(seconds)}, {outcome}")

    def end(self) -> None:
        if self._time_left is not None:
            self._time_left.end()

    def say(self, sentence: str) -> None:
        self._print(sentence)

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None: ...

    def _print(self, line: str) -> None:
        print(plain(line, lines=False), file=self._stream, flush=True)


class Bar:
    """One bar: the study, its units done and failed, time gone, and the time left of the run."""

    def __init__(self, stream: Stream, time_left: TimeLeft | None = None) -> None:
        self._stream: Any = stream
        self._time_left = time_left
        self._bar: Any = None
        self._task: Any = None
        self._whole_run = False
        self._total = self._done = self._failed = 0

    def begin(self, study: str, units: int, skipped: int, workers: int) -> None:
        """Show the study; skipped units count as done."""
        bar = self._bar or self._open()
        if self._time_left is None or not self._whole_run:
            self._time_left = TimeLeft()
        self._time_left.begin(study, units, workers)
        self._total, self._done, self._failed = units + skipped, skipped, 0
        bar.update(self._task, description=escape(study))
        self._show()

    def started(self, unit: str) -> None:
        if self._time_left is not None:
            self._time_left.started(unit)

    def ended(self, unit: str, seconds: float, error: str | None) -> None:
        """Move the bar; a failed unit also gets a line above it."""
        if self._time_left is not None:
            self._time_left.ended(unit, seconds)
        self._done += 1
        self._failed += error is not None
        self._show()
        if error is not None:
            reason = escape(last_line(error))
            self._bar.console.print(f"[red]failed[/red] {escape(unit, lines=False)}: {reason}")

    def end(self) -> None:
        if self._time_left is not None:
            self._time_left.end()
        if not self._whole_run:
            self._close()

    def say(self, sentence: str) -> None:
        if self._bar is None:
            print(plain(sentence), file=self._stream, flush=True)
        else:
            self._bar.console.print(escape(sentence), highlight=False, soft_wrap=True)

    def __enter__(self) -> "Bar":
        self._whole_run = True
        return self

    def __exit__(self, *_: object) -> None:
        self._whole_run = False
        self._close()

    def _open(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress
        from rich.text import Text

        show = self

        class Left(ProgressColumn):
            """The time left, every second: a unit may take minutes."""

            max_refresh = 1.0

            def render(self, task: Task) -> Text:
                return Text(_left(show._time_left) if show._time_left is not None else "")

        self._bar = RichProgress(
            BarColumn(),
            TimeElapsedColumn(),
            Left(),
            TextColumn("{task.description} {task.fields[units]}", style="dim"),
            console=Console(file=self._stream),
            redirect_stdout=False,
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=1.0, units="")
        return self._bar

    def _show(self) -> None:
        share = self._time_left.share() if self._time_left is not None else None
        if share is None:  # nothing is known of what units cost
            share = self._done / self._total if self._total else 1.0
        failed = f" [red]({self._failed} failed)[/red]" if self._failed else ""
        self._bar.update(self._task, completed=share, units=f"{self._done}/{self._total}{failed}")

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _left(time_left: TimeLeft, before: str = "") -> str:
    """ "about 12 min left"; nothing where nobody knows."""
    seconds = time_left.seconds()
    return f"{before}about {duration(seconds)} left" if seconds else ""


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
    """What an error says, without the way to it: the first line after the last step of the way.

    Some errors go on with advice. Worked value: of "Traceback ...", "  File ...", "    f()",
    "MemoryError: full", "Buy more." it is the fourth line.
    """
    lines = error.strip().splitlines() or ["no message"]
    steps = [place for place, line in enumerate(lines) if line.startswith('  File "')]
    after = lines[steps[-1] + 1 :] if steps else []
    return next((line for line in after if line and not line[0].isspace()), lines[-1])
