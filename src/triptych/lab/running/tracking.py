"""Numbers of a unit while it runs, as losses by step: in a CSV file or for TensorBoard.

`bench.track(step, loss=...)` in a study hands them over. Nothing is written unless the run is told
to (`triptych run --track csv`), and rows never depend on it.
"""

import csv
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from triptych.core.errors import UserError
from triptych.core.validation import as_count
from triptych.studies.api.study import unit_text

Kind = Literal["csv", "tensorboard"]
FOLDER = "tracked"
_LONGEST = 80  # of a name of a file that a person reads


@runtime_checkable
class Tracker(Protocol):
    """Where the numbers of one unit go."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class CsvTracker:
    """A file with a line for each number: step,name,value."""

    def __init__(self, place: Path) -> None:
        path = place.with_name(place.name + ".csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", newline="", encoding="utf-8", buffering=1)
        self._lines = csv.writer(self._file, lineterminator="\n")
        self._lines.writerow(["step", "name", "value"])

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        self._lines.writerows([step, name, repr(value)] for name, value in numbers.items())

    def close(self) -> None:
        self._file.close()


class TensorBoardTracker:
    """A folder of events; `tensorboard --logdir runs/tracked` shows those of all units."""

    def __init__(self, place: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        for old in place.glob("events.out.tfevents.*"):  # of an attempt that failed
            old.unlink()
        self._writer = SummaryWriter(str(place))

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


_TRACKERS: dict[str, type[CsvTracker] | type[TensorBoardTracker]] = {
    "csv": CsvTracker,
    "tensorboard": TensorBoardTracker,
}


def tracker(kind: str, place: Path) -> Tracker:
    """A tracker of this kind that writes to a file or folder of this name."""
    check(kind)
    return _TRACKERS[kind](place)


def check(kind: str) -> None:
    """Refuse a kind that there is not, or whose package is missing."""
    if kind not in _TRACKERS:
        raise UserError(
            f"there is no tracker {kind!r}; the trackers are {' and '.join(get_args(Kind))}",
            parameter="track",
        )
    if kind == "tensorboard" and find_spec("tensorboard") is None:
        raise UserError(
            'tracking for TensorBoard needs tensorboard: pip install "triptych[trackers]", or use '
            "--track csv",
            parameter="track",
        )


def place_of(folder: Path, study: str, parameters: Mapping[str, Any], seed: int, key: str) -> Path:
    """Where the numbers of a unit go: a name that a person reads, told apart by its key.

    Worked value: the unit a=1, seed=3 with the key 0123456789abcdef of the study mine goes to
    runs/tracked/mine/a=1_seed=3_01234567.
    """
    text = re.sub(r"[^A-Za-z0-9=._-]+", "_", unit_text(parameters, seed)).strip("_.")
    return folder / FOLDER / study.replace("/", ".") / f"{text[:_LONGEST]}_{key[:8]}"


def checked(step: Any, numbers: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
    """A step and its numbers as plain ones; a tensor of one number is one."""
    if not numbers:
        raise UserError(
            "track needs a number with a name, as bench.track(step, loss=0.5)", parameter="numbers"
        )
    found = {}
    for name, value in numbers.items():
        try:
            found[name] = float(value)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"track was given {name}={value!r}, which is no number", parameter=name
            ) from error
    return as_count("step", step, at_least=0), found
