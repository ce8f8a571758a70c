"""Complete prompts into a file of rows: what is missing, and only that."""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from triptych.core.validation import UserError, as_count, as_device
from triptych.lab.generating import engines
from triptych.lab.generating.completing import Chunk, failed_row
from triptych.lab.generating.progress import PromptProgress
from triptych.lab.generating.prompts import Prompt
from triptych.lab.generating.rows import Row, RowFile
from triptych.lab.generating.settings import GenerateSettings
from triptych.lab.running.items import Ended, UnitEvent
from triptych.lab.running.progress import duration
from triptych.lab.running.unix import refuse_on_windows

BATCH = 16
"""Prompts that are completed together, where no number is given."""


@dataclass(frozen=True)
class Spread:
    """How the work is done; a text does not depend on it."""

    engine: str = "inline"
    workers: int | None = None
    batch: int = BATCH
    device: str = "cpu"
    ray_address: str | None = None
    trace: bool = False


@dataclass
class Summary:
    """What a run did.

    rows      all rows of the file that belong to the prompts, with those of earlier runs
    made      rows of this run
    seconds   of this run, from when the model was loaded
    loading   seconds before that
    """

    rows: list[Row] = field(default_factory=list)
    made: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    loading: float = 0.0

    @property
    def failed(self) -> int:
        return sum(row["failed"] for row in self.rows)

    @property
    def accepted(self) -> float:
        """The share of all rows that are accepted; 0 where nothing was judged."""
        return sum(bool(row["accepted"]) for row in self.rows) / max(1, len(self.rows))

    @property
    def exit_code(self) -> int:
        """1 if there is no prompt whose text could be made."""
        return int(self.failed == len(self.rows))

    def lines(self) -> list[str]:
        """For the terminal."""
        rows, made = self.rows, self.made
        judged = [row for row in rows if row["accepted"] is not None]
        number = sum(bool(row["accepted"]) for row in rows)
        accepted = f"{number} accepted ({self.accepted:.0%}), " if judged else ""
        first = (
            f"{len(rows)} {'row' if len(rows) == 1 else 'rows'}: {accepted}"
            f"{sum(row['complete'] for row in rows)} complete"
        )
        if self.failed:
            first += f", {self.failed} failed (their `reason` says why)"
        if not made:
            return [first, "Nothing was left to do."]
        total = {name: sum(row["costs"][name] for row in made) for name in made[0]["costs"]}
        rate = total["generated"] / max(self.seconds, 1e-9)
        again = f" for {len(made)} of them" if len(made) < len(rows) else ""
        loading = f", after {duration(self.loading)} of loading" if self.loading >= 1 else ""
        return [
            first,
            f"This run{again}: {total['generator_calls']} generator calls, "
            f"{total['verifier_calls']} verifier questions, {total['generated']} tokens in "
            f"{duration(self.seconds)} ({rate:.3g} tokens/s){loading}",
        ]


def generate(
    prompts: Sequence[Prompt],
    settings: GenerateSettings,
    out: Path,
    spread: Spread,
    *,
    fresh: bool = False,
    retry_failed: bool = False,
    limit: int | None = None,
    progress: PromptProgress | None = None,
) -> Summary:
    """Complete the prompts that have no row yet, the first `limit` of all.

    Rows are written as their batches end. Ctrl-C is raised again; what is written stays.
    """
    _check(spread)
    chosen = prompts if limit is None else prompts[: as_count("--limit", limit, at_least=1)]
    show = progress or PromptProgress(None)
    began = time.monotonic()
    with RowFile(out, settings, fresh=fresh, trace=spread.trace) as file:
        if retry_failed:
            file.drop_failed()
        missing = {str(prompt.id) for prompt in file.missing(prompts)}
        todo = [prompt for prompt in chosen if str(prompt.id) in missing]
        made: list[Row] = []
        loaded: float | None = None
        show.begin(len(todo), len(chosen) - len(todo), settings.model_name)
        try:
            if todo:
                chunks = _chunks(chosen, missing, settings, spread)
                for rows, seconds in _completed(_events(chunks, spread), chunks, settings):
                    if loaded is None:
                        loaded = time.monotonic() - seconds
                        show.loaded(loaded)
                    traces = [
                        {"id": row["id"], "events": row.pop("trace")}
                        for row in rows
                        if "trace" in row
                    ]
                    file.append(rows, traces)
                    made += rows
                    failed = sum(row["failed"] for row in rows)
                    show.done(len(rows), failed, sum(row["costs"]["generated"] for row in rows))
        finally:
            show.end()
        rows = [file.done[str(prompt.id)] for prompt in chosen]
    loaded = loaded or began
    return Summary(rows, made, time.monotonic() - loaded, loaded - began)


def _check(spread: Spread) -> None:
    if spread.engine not in engines.ENGINES:
        known = ", ".join(engines.ENGINES)
        raise UserError(
            f"there is no engine {spread.engine!r}; the engines are {known}", parameter="spread"
        )
    if spread.engine != "inline":
        refuse_on_windows(f"the engine {spread.engine}", "give --engine inline")
    as_count("--batch", spread.batch, at_least=1)
    if spread.workers is not None:
        as_count("--workers", spread.workers, at_least=1)
        if spread.engine == "inline" and spread.workers > 1:
            raise UserError(
                f"--workers is {spread.workers} and the engine inline has one; give --engine local",
                parameter="spread",
            )
    if spread.ray_address is not None and spread.engine != "ray":
        raise UserError("--ray-address is for --engine ray")
    as_device(spread.device, name="--device", here=spread.engine != "ray")


def _workers(spread: Spread) -> int:
    """Each worker holds a model, so there are few unless more are asked for."""
    if spread.engine == "inline":
        return 1
    if spread.workers is not None:
        return spread.workers
    return 1 if spread.device != "cpu" and spread.engine == "local" else min(2, _cores())


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _chunks(
    prompts: Sequence[Prompt], missing: set[str], settings: GenerateSettings, spread: Spread
) -> list[Chunk]:
    """The batches of all prompts, without what is done.

    Prompts that were together in an interrupted run are together again: in floats a model's
    answers depend a little on the batch.
    """
    text = json.dumps(settings.as_json())
    workers = _workers(spread)
    threads = max(1, _cores() // workers) if spread.engine == "local" else None
    chunks = []
    for start in range(0, len(prompts), spread.batch):
        batch = prompts[start : start + spread.batch]
        members = tuple((each.id, each.prompt) for each in batch if str(each.id) in missing)
        if members:
            key = str(start)
            chunks.append(Chunk(key, text, spread.device, members, spread.trace, threads))
    return chunks


def _events(chunks: Sequence[Chunk], spread: Spread) -> Iterator[UnitEvent]:
    workers = _workers(spread)
    if spread.engine == "ray":
        return engines.run_on_ray(chunks, workers, spread.ray_address)
    if spread.engine == "local":
        return engines.run_in_processes(chunks, workers)
    return engines.run_inline(chunks)


def _completed(
    events: Iterator[UnitEvent], chunks: Sequence[Chunk], settings: GenerateSettings
) -> Iterator[tuple[list[Row], float]]:
    """The rows and the seconds of every chunk that ends; the rows of one that failed say why."""
    by_key = {chunk.key: chunk for chunk in chunks}
    with closing(events):  # pyright: ignore[reportArgumentType]
        for event in events:
            if not isinstance(event, Ended):
                continue
            if event.rows is not None:
                yield event.rows, event.seconds
                continue
            error = event.error or "no reason is known"
            kind, _, sentence = error.partition(": ")
            if kind == "UserError":
                raise UserError(sentence)
            print(f"triptych: a batch failed: {error}", file=sys.stderr, flush=True)
            reason = f"the model failed: {error[:300]}"
            prompts = [Prompt(*each) for each in by_key[event.key].prompts]
            yield [failed_row(settings, prompt, reason) for prompt in prompts], event.seconds
