"""Make some bundled units again and compare the rows; rows that agree turn the seal.

A unit can be made again where its kind of device is. Rows agree bit for bit, or, since another CPU
may round otherwise, with numbers that differ by a stated share at most.
"""

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from triptych.core.files import lock_folder
from triptych.core.validation import UserError, as_count, as_number, as_seed
from triptych.lab.results import evidence
from triptych.lab.results.seal import under_seal
from triptych.lab.running.discovery import source_of
from triptych.lab.running.engines.local import run_locally
from triptych.lab.running.fingerprint import Code, code_of, same_study_code
from triptych.lab.running.items import Ended, WorkItem
from triptych.lab.running.progress import Progress, Quiet
from triptych.lab.running.store import StoredUnit
from triptych.studies.api.records import to_json
from triptych.studies.api.study import AnyStudy, short_labels

ROUNDING = 1e-9


class Compared(NamedTuple):
    """A unit that was made again.

    difference
        The largest relative difference of a number; 0 where the rows are the same bit for bit.
    reason
        Why the rows do not agree; "" where they do.
    """

    label: str
    difference: float
    reason: str


class Verified(NamedTuple):
    """A file of evidence.

    skipped
        Why units could not be made again here, with how many.
    recorded
        Units that the file now says today's code makes.
    """

    name: str
    compared: list[Compared]
    skipped: dict[str, int]
    recorded: int

    @property
    def agrees(self) -> bool:
        return bool(self.compared) and not any(each.reason for each in self.compared)


def verify(
    path: Path,
    study: AnyStudy,
    *,
    sample: int = 5,
    seed: int = 0,
    rounding: float = ROUNDING,
    limit_s: float = 300.0,
    workers: int = 1,
    record: bool = True,
    progress: Progress | None = None,
) -> Verified:
    """Make a sample of a file's units again and compare their rows.

    limit_s
        Units that took longer than this are left out. A unit is stopped after ten times as long
        and a minute, since this machine may be slower or busy.
    record
        Where all of them agree, write into the file that today's code makes its units.
    """
    sample = as_count("sample", sample, at_least=1)
    rounding = as_number("rounding", rounding, at_least=0.0, below=1.0)
    limit_s = as_number("limit_s", limit_s, above=0.0)
    kept = evidence.load(path)
    skipped: dict[str, int] = {}
    units = []
    for unit in kept.units:
        why = _not_here(unit, study, limit_s)
        if why:
            skipped[why] = skipped.get(why, 0) + 1
        else:
            units.append(unit)
    chosen = random.Random(as_seed(seed)).sample(units, min(sample, len(units)))
    chosen.sort(key=lambda unit: unit.seconds or 0.0)
    compared = list(_compared(path, kept, study, chosen, rounding, limit_s, workers, progress))
    found = Verified(evidence.called(path), compared, skipped, 0)
    if record and found.agrees:
        found = found._replace(recorded=_record(path, study, code_of(study)))
    return found


def _not_here(unit: StoredUnit, study: AnyStudy, limit_s: float) -> str:
    """Why a unit cannot be made again on this machine; "" if it can."""
    if unit.code is None:
        return "the code that made them is not known"
    if not under_seal(unit, study):
        return "they are of an earlier revision of the study"
    if torch.device(unit.device or "cpu").type == "cuda" and not torch.cuda.is_available():
        return "they were made on a GPU, and there is none here"
    if unit.seconds is None or unit.seconds > limit_s:
        return f"they took longer than {limit_s:g} s"
    return ""


def _compared(
    path: Path,
    kept: evidence.Evidence,
    study: AnyStudy,
    chosen: Sequence[StoredUnit],
    rounding: float,
    limit_s: float,
    workers: int,
    progress: Progress | None,
) -> Iterator[Compared]:
    settings = json.dumps(to_json(evidence.laid_out(kept, study).plan.settings))
    show, source = progress or Quiet(), source_of(study)
    names = short_labels([(unit.parameters, unit.seed) for unit in kept.units])
    labels = {unit.key: name for unit, name in zip(kept.units, names, strict=True)}
    by_key = {unit.key: unit for unit in chosen}
    show.begin(f"{evidence.called(path)}, again", len(chosen), 0, workers)
    with TemporaryDirectory() as cache:
        items = [
            WorkItem(source, u.key, settings, kept.scale.value, u.seed, u.device or "cpu", cache)
            for u in chosen
        ]
        with closing(run_locally(items, workers, 60 + 10 * limit_s)) as events:  # pyright: ignore[reportArgumentType]
            for event in events:
                if not isinstance(event, Ended):
                    show.started(labels[event.key])
                    continue
                show.ended(labels[event.key], event.seconds, event.error)
                if event.rows is None:
                    last = (event.error or "no reason is known").splitlines()[-1]
                    yield Compared(labels[event.key], math.inf, f"it failed: {last}")
                else:
                    yield _compare(labels[event.key], by_key[event.key].rows, event.rows, rounding)
    show.end()


def _compare(
    label: str, old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], rounding: float
) -> Compared:
    if json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
        return Compared(label, 0.0, "")
    if len(old) != len(new):
        return Compared(label, math.inf, f"it has {len(new)} rows instead of {len(old)}")
    worst, where = 0.0, ""
    for before, now in zip(old, new, strict=True):
        for name in dict.fromkeys([*before, *now]):
            apart = difference(before.get(name), now.get(name))
            if apart > worst:
                worst, where = apart, name
    if worst <= rounding:
        return Compared(label, worst, "")
    return Compared(label, worst, f"{where} differs by {worst:.2g}, relatively")


def difference(old: Any, new: Any) -> float:
    """How far two values of rows are apart: 0 if they are equal, inf if they cannot be compared.

    For numbers |a - b| / max(|a|, |b|, 1), so that what is nearly 0 counts absolutely; for lists
    and dictionaries the largest of their parts. Worked: 2.0 and 2.2 are 0.2 / 2.2 = 0.0909 apart.
    """
    if isinstance(old, bool) or isinstance(new, bool):
        return 0.0 if old is new else math.inf
    if isinstance(old, int) and isinstance(new, int):
        return 0.0 if old == new else math.inf
    if isinstance(old, int | float) and isinstance(new, int | float):
        if old == new or (math.isnan(old) and math.isnan(new)):
            return 0.0
        apart = abs(old - new) / max(abs(old), abs(new), 1.0)
        return apart if math.isfinite(apart) else math.inf
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return max(map(difference, old, new), default=0.0)
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        return max((difference(old[name], new[name]) for name in old), default=0.0)
    return 0.0 if type(old) is type(new) and old == new else math.inf


def _record(path: Path, study: AnyStudy, today: Code) -> int:
    """Write the shape of today's code into the units of a file; how many are new."""
    with lock_folder(path.parent):
        kept = evidence.load(path)
        units, count = [], 0
        for unit in kept.units:
            if unit.code and under_seal(unit, study) and unit.code.shape != today.shape:
                count += not same_study_code(unit.code, today)
                unit = unit._replace(code=unit.code._replace(shape=today.shape))
            units.append(unit)
        evidence.write(path, evidence.text(kept._replace(units=units)))
    return count


def evidence_of(study: AnyStudy, where: Path | None = None) -> list[Path]:
    """The files of a study's bundled evidence."""
    found = [
        path
        for path in evidence.files(where or evidence.folder())
        if path.name.split(".")[0] == study.name
    ]
    if not found:
        raise UserError(f"no rows of study {study.name} came with Triptych", parameter="study")
    return found
