"""Studies are found by name, by module and by file, here and in another process."""

import dataclasses
import json
from pathlib import Path

import pytest
from tests.support import toy_studies
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.lab.running.discovery import find_studies, load_study, source_of
from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale

SMOKE = Scale.SMOKE
TOYS = Path(toy_studies.__file__)


def rows_of(folder, study=toy_studies.STUDY, scale=SMOKE, **options):
    with Store.open(folder) as store:
        summary = run_study(Plan.of(study, scale), store=store, **options)
        assert summary.failed == 0
        return json.dumps(store.rows(study.name, scale))


def test_studies_are_found_by_name(tmp_path):
    assert all(name == study.name for name, study in find_studies().items())
    assert load_study("tests.support.toy_studies") is toy_studies.STUDY
    assert load_study("tests.support.toy_studies:FAULTY") is toy_studies.FAULTY
    assert source_of(toy_studies.BUSY) == "tests.support.toy_studies:BUSY"
    loaded = load_study(f"{TOYS}:BUSY")
    assert loaded is not toy_studies.BUSY
    assert source_of(loaded) == f"{TOYS.resolve()}:BUSY"
    with refused("path"):
        load_study(tmp_path / "nothing.py")
    with pytest.raises(UserError, match="there is no module nothing_here"):
        load_study("nothing_here")
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(UserError, match=r"it needs a line STUDY = Study\(...\)"):
        load_study(tmp_path / "empty.py")
    with refused("study"):
        source_of(dataclasses.replace(toy_studies.STUDY, name="toy/nameless"))


OWN = """
from dataclasses import dataclass
from triptych.studies.api.study import Scale, Settings, Study, Unit

@dataclass(frozen=True)
class Count(Unit):
    number: int

@dataclass(frozen=True)
class Counted:
    number: int
    units: int

def units(settings):
    return [Count(number, seed=0) for number in range(3)]

def run(unit, bench):
    import sizes_of_mine
    yield Counted(unit.number, sizes_of_mine.UNITS)

STUDY = Study("mine", "How many?", {Scale.SMOKE: Settings()}, units, run, (Counted,))
"""


def test_a_users_own_file_may_import_what_lies_beside_it(tmp_path):
    (tmp_path / "sizes_of_mine.py").write_text("UNITS = 3\n")
    (tmp_path / "mine.py").write_text(OWN)
    rows = json.loads(rows_of(tmp_path / "run", study=load_study(tmp_path / "mine.py"), workers=1))
    assert rows == [{"kind": "Counted", "number": number, "units": 3} for number in range(3)]
