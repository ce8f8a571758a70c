"""Runs that are killed, interrupted or sabotaged: nothing is lost and nothing is doubled."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support import toy_studies
from tests.support.refusals import refused

from triptych.lab.running.database import StoreError
from triptych.lab.running.engines import local
from triptych.lab.running.plan import Plan
from triptych.lab.running.progress import Quiet
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import FILE, Store
from triptych.studies.api.study import Scale

SMOKE = Scale.SMOKE
TOYS = Path(toy_studies.__file__)

RUN = """
import json, sys, time
from pathlib import Path
from triptych.lab.running.discovery import load_study
from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale
if __name__ == "__main__":
    source, folder, options = sys.argv[1:]
    with Store.open(Path(folder)) as store:
        try:
            options = json.loads(options)
            plan = Plan.of(load_study(source), Scale.SMOKE, options.pop("overrides", {}))
            print(*run_study(plan, store=store, **options))
        except KeyboardInterrupt:
            print(time.monotonic())
            raise
"""


@pytest.fixture
def start():
    """Starts runs, each in a process group of its own, and ends what is left of them."""
    started = []

    def one(folder, name, **options):
        run = subprocess.Popen(
            [sys.executable, "-c", RUN, f"{TOYS}:{name}", str(folder), json.dumps(options)],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(run)
        return run

    yield one
    for run in started:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
        run.communicate()


def wait_for(condition, seconds=180.0):
    """Long enough for a busy machine to start Ray, and without making it busier."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"did not happen within {seconds} s")


def count(folder, study, status):
    if not (folder / FILE).exists():
        return 0
    with Store.open(folder) as store:
        return sum(unit.status == status for unit in store.units(study.name, SMOKE))


def interrupt(run):
    """Ctrl-C, as a terminal sends it: to every process of the group. The run ends in 2 seconds.

    What Python needs to end after that, with torch loaded, is not the run's. The clock is that of
    the system, the same in all processes. Returns what was written to standard error.
    """
    interrupted = time.monotonic()
    os.killpg(run.pid, signal.SIGINT)
    stopped, said = run.communicate(timeout=30)
    assert 0.0 < float(stopped) - interrupted < 2.0
    return said


def in_group(leader):
    """The processes of a process group, without the dead ones that nobody has waited for."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = stat.read_text().rpartition(") ")
        except OSError:
            continue
        state, _, group = rest.split()[:3]
        if int(group) == leader and state != "Z":
            found.append(stat.parent.name)
    return found


def expected_rows(folder, study, overrides=None):
    with Store.open(folder) as store:
        run_study(Plan.of(study, SMOKE, overrides or {}), store=store, workers=0)
        return store.rows(study.name, SMOKE)


# Runs that start in milliseconds: a process that has imported everything forks each of them, and
# the engine forks its workers. Every other run is killed with its workers, the rest without them.
KILLER = """
import os, random, signal, sys, time
from pathlib import Path
from triptych.lab.running.engines import local
from triptych.lab.running.discovery import load_study
from triptych.core.files import FolderInUse
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale

local.START_METHOD = "fork"
study, root, kills = load_study(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
moments = random.Random(20)

def attempt(folder):
    while True:
        try:
            with Store.open(folder) as store:
                return run_study(Plan.of(study, Scale.SMOKE), store=store, workers=2)
        except FolderInUse:  # a worker forked from a killed run dies a moment after it
            time.sleep(0.005)

def finished(folder):
    with Store.open(folder) as store:
        units = store.units(study.name, Scale.SMOKE)
    assert all(len(unit.rows) == (2 if unit.status == "done" else 0) for unit in units)
    return {unit.key: (unit.finished_at, unit.rows) for unit in units if unit.status == "done"}

folder, before, killed, whole = root / "0", {}, 0, 0
while killed < kills or before:
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        attempt(folder)
        os._exit(0)
    os.setpgid(child, child)  # whichever of the two comes first
    if killed < kills:
        time.sleep(moments.uniform(0.0, 0.16))
        os.killpg(child, signal.SIGKILL) if killed % 2 else os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    after = finished(folder)
    assert all(after[key] == kept for key, kept in before.items()), "a finished unit was lost"
    if os.WIFSIGNALED(status):
        killed += 1
        before = after
    else:
        assert len(after) == 12
        whole, before = whole + 1, {}
        folder = root / str(whole)
print(killed, whole)
"""


@pytest.mark.slow
def test_fifty_kills_at_random_moments(tmp_path):
    """kill -9: the store opens, finished units stay as they are, the final rows are the same."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", KILLER, f"{TOYS}:SLOW", str(tmp_path), "50"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    killed, whole = map(int, done.stdout.split())
    assert killed == 50
    expected = expected_rows(tmp_path / "expected", toy_studies.SLOW)
    assert len(expected) == 24
    for number in range(whole):
        with Store.open(tmp_path / str(number)) as store:
            assert store.rows("toy/slow", SMOKE) == expected


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_and_is_taken_up(tmp_path, start):
    """The same with the fork server: the run alone is killed, its workers see that and end."""
    study, options = toy_studies.SLOW, {"units": "8", "sleep_s": "0.3"}
    run = start(tmp_path / "run", "SLOW", workers=2, overrides=options)
    wait_for(lambda: count(tmp_path / "run", study, "done") >= 2)
    run.kill()
    run.communicate()
    wait_for(lambda: not in_group(run.pid), seconds=10.0)
    with Store.open(tmp_path / "run") as store:
        summary = run_study(Plan.of(study, SMOKE, options), store=store, workers=2)
        assert summary.skipped >= 2
        assert summary.done + summary.skipped == 8
        rows = store.rows(study.name, SMOKE)
    assert rows == expected_rows(tmp_path / "expected", study, overrides=options)


def test_ctrl_c_stops_within_two_seconds_and_the_next_run_resumes(tmp_path, start):
    study, options = toy_studies.SLOW, {"units": "6", "sleep_s": "0.5"}
    run = start(tmp_path / "run", "SLOW", workers=2, overrides=options)
    wait_for(lambda: count(tmp_path / "run", study, "done") >= 2)
    said = interrupt(run)
    assert said.strip().endswith("KeyboardInterrupt")
    assert said.count("Traceback") == 1, "workers say nothing"
    wait_for(lambda: not in_group(run.pid), seconds=10.0)
    done = count(tmp_path / "run", study, "done")
    assert done < 6
    assert count(tmp_path / "run", study, "pending") == 6 - done
    with Store.open(tmp_path / "run") as store:
        summary = run_study(Plan.of(study, SMOKE, options), store=store, workers=0)
        assert summary[:3] == (6 - done, 0, done)
        rows = store.rows(study.name, SMOKE)
    assert rows == expected_rows(tmp_path / "expected", study, overrides=options)


@pytest.mark.slow
def test_ctrl_c_when_every_unit_is_stuck(tmp_path, start):
    run = start(tmp_path, "STUCK", workers=2)
    wait_for(lambda: count(tmp_path, toy_studies.STUCK, "running") == 2)
    interrupt(run)
    assert count(tmp_path, toy_studies.STUCK, "pending") == 4


def test_a_unit_that_fails_stops_no_other(tmp_path):
    study = toy_studies.FAULTY
    with Store.open(tmp_path) as store:
        summary = run_study(Plan.of(study, SMOKE), store=store, workers=2, limit_s=2.0)
        assert summary[:3] == (3, 7, 0)
        assert summary.nan == ("toy/faulty, fault nan, seed 0: nan in Loss.loss",)
        units = {unit.parameters["fault"]: unit for unit in store.units(study.name, SMOKE)}
        assert [row["kind"] for row in store.rows(study, SMOKE)] == ["Had", "Had", "Had", "Loss"]
        again = run_study(Plan.of(study, SMOKE), store=store, workers=2, retry_failed=False)
        assert again[:3] == (0, 0, 10)
        last = run_study(Plan.of(study, SMOKE), store=store, workers=2, limit_s=1.0)
        assert last[:3] == (0, 7, 3)
    assert "raise ArithmeticError" in units["raises"].error
    assert units["raises"].error.endswith("ArithmeticError: the numbers do not add up")
    assert "row 1, Loss: loss is a Tensor; it must be float" in units["tensor"].error
    assert "row 1 is a dict; study toy/faulty has rows of: Had, Loss" in units["dict"].error
    assert units["exits"].error == "worker exited with code 1 before the unit ended"
    assert units["killed"].error == "worker died with signal 9 (out of memory?)"
    assert units["leaves"].error.endswith("SystemExit: enough")
    assert units["hangs"].error == "exceeded its limit of 2 s"
    assert 2.0 <= units["hangs"].seconds < 4.0


def test_a_disk_that_fills_during_a_run(tmp_path):
    """The run stops with a sentence; with space again, the next one does what is missing."""
    study = toy_studies.STUDY

    class Filler(Quiet):
        ended_units = 0

        def ended(self, unit, seconds, error):
            self.ended_units += 1
            if self.ended_units == 3:
                (pages,) = store._db.execute("PRAGMA page_count").fetchone()
                store._db.execute("CREATE TABLE ballast (x)")
                store._db.execute("INSERT INTO ballast VALUES (zeroblob(1))")
                store._db.execute(
                    "CREATE TRIGGER grow AFTER INSERT ON rows "
                    "BEGIN INSERT INTO ballast VALUES (zeroblob(100000)); END"
                )
                store._db.execute(f"PRAGMA max_page_count = {pages + 4}")

    full = pytest.raises(StoreError, match="is full: free some space")
    with Store.open(tmp_path) as store, full:
        run_study(Plan.of(study, SMOKE), store=store, workers=1, progress=Filler())
    with Store.open(tmp_path) as store:
        store._db.execute("DROP TRIGGER grow")
        assert [unit.status for unit in store.units(study.name, SMOKE)].count("done") == 3
        assert run_study(Plan.of(study, SMOKE), store=store, workers=0)[:3] == (3, 0, 3)
        rows = store.rows(study.name, SMOKE)
    assert rows == expected_rows(tmp_path / "expected", study)


def test_workers_that_cannot_start(tmp_path, monkeypatch):
    """Each of them would consume a unit: the run stops and says what to look for."""
    monkeypatch.setattr(local, "_worker_main", len)  # len(connection) raises in the worker
    with Store.open(tmp_path) as store:
        with refused("reason"):
            run_study(Plan.of(toy_studies.STUDY, SMOKE), store=store, workers=2)
        units = store.units("toy/plain", SMOKE)
    assert {unit.status for unit in units} == {"pending"}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_ctrl_c_on_ray(tmp_path, start):
    run = start(tmp_path, "STUCK", engine="ray", workers=2)
    wait_for(lambda: count(tmp_path, toy_studies.STUCK, "running") == 2)
    time.sleep(1.0)
    os.kill(run.pid, signal.SIGINT)
    run.communicate(timeout=30)
    assert count(tmp_path, toy_studies.STUCK, "pending") == 4
