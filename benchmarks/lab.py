"""What the lab itself costs: start-up of the command line, and two workers against one."""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.timing import seconds
from triptych.core.files import write_text
from triptych.lab.running.discovery import load_study
from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale

Row = dict[str, Any]

BUSY = """
import time
from dataclasses import dataclass
from triptych.studies.api.study import Scale, Settings, Study, Unit

@dataclass(frozen=True)
class Work(Unit):
    pass

@dataclass(frozen=True)
class Worked:
    seed: int

def units(settings):
    return [Work(seed=seed) for seed in range(settings.seeds)]

def run(unit, bench):
    ends, total = time.process_time() + 0.25, 0
    while time.process_time() < ends:
        total += sum(range(1000))
    yield Worked(unit.seed)

SETTINGS = {Scale.SMOKE: Settings(seeds=40)}
STUDY = Study("busy", "Forty units of a quarter of a second.", SETTINGS, units, run, (Worked,))
"""


def run() -> Iterator[Row]:
    yield start_up()
    yield two_workers()


def start_up() -> Row:
    command = [sys.executable, "-m", "triptych", "--help"]
    times = [
        seconds(lambda: subprocess.run(command, capture_output=True, check=True)) for _ in range(9)
    ]
    return {
        "what": "triptych --help",
        "peer": "the bar of 0.5 s",
        "bar": 1.0,
        "ours": statistics.median(times),
        "theirs": 0.5,
        "ratio": 0.5 / statistics.median(times),
        "low": 0.5 / max(times),
        "high": 0.5 / min(times),
    }


def two_workers() -> Row:
    """40 units of 0.25 s of computing: one worker against two."""
    turns = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "busy.py"
        write_text(file, BUSY)
        study = load_study(file)
        for turn in range(3):
            pair = []
            for workers in (2, 1):
                with Store.open(Path(folder) / f"{turn}-{workers}") as store:
                    pair.append(
                        seconds(
                            lambda store=store, workers=workers: run_study(
                                Plan.of(study, Scale.SMOKE), store=store, workers=workers
                            )
                        )
                    )
            turns.append(pair)
    ratios = sorted(one / two for two, one in turns)
    return {
        "what": "a study of 40 units, 2 workers on 2 cores",
        "peer": "1 worker",
        "bar": 1.7,
        "ours": statistics.median(two for two, _ in turns),
        "theirs": statistics.median(one for _, one in turns),
        "ratio": ratios[1],
        "low": ratios[0],
        "high": ratios[-1],
    }
