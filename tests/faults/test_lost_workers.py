"""A unit whose worker or machine is lost on Ray runs again elsewhere, a few times."""

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support import toy_studies

from triptych.lab.running.discovery import load_study
from triptych.lab.running.engines import ray as ray_engine
from triptych.lab.running.plan import Plan
from triptych.lab.running.progress import Quiet
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale

SMOKE = Scale.SMOKE
TOYS = Path(toy_studies.__file__)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed"
)


def errors():
    return ray_engine.import_ray().exceptions


# What Ray raises when the unit is not to blame, and when nothing but the unit or the setup is.
LOST = {
    "worker killed": lambda: errors().WorkerCrashedError(),
    "out of memory": lambda: errors().OutOfMemoryError("the memory is full"),
    "node gone": lambda: errors().NodeDiedError("the node is gone"),
    "raylet gone": lambda: errors().LocalRayletDiedError(),
    "rows gone": lambda: errors().ObjectLostError("ab" * 28, None, ""),
    "owner gone": lambda: errors().OwnerDiedError("ab" * 28, None, ""),
}
NOT_LOST = {
    "exception": lambda: errors().RayTaskError("begin_and_run", "ValueError: no", ValueError("no")),
    "environment": lambda: errors().RuntimeEnvSetupError("no such package"),
}


class OneMachine:
    """Ray as far as the engine uses it, in this process: units run when somebody asks for them.

    `losses` are the errors of the first attempts at a unit, in order. `late` ones come with the
    rows of the unit, the others before it can say that it began, each after some seconds.
    """

    def __init__(self, losses, *, late):
        self.exceptions = errors()
        self.losses, self.late, self.seconds = losses, late, 0.0
        self.attempts = []

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return {"CPU": 2.0}

    def remote(self, **options):
        assert options["max_retries"] == 0, "the engine counts, not Ray"

        class Function:
            @staticmethod
            def remote(item):
                number = self.attempts.count(item.key)
                self.attempts.append(item.key)
                first = item.key == self.attempts[0]
                error = self.losses[number] if first and number < len(self.losses) else None
                return self.stream(item, error)

        return lambda function: Function

    def stream(self, item, error):
        for ended in ray_engine.begin_and_run(item):
            lost = error is not None and (ended is not None or not self.late)
            if lost:
                time.sleep(self.seconds)
            yield error if lost else ended

    def wait(self, streams, num_returns, timeout):
        return streams[:1], streams[1:]

    def get(self, item):
        if isinstance(item, Exception):
            raise item
        return item

    def cancel(self, stream, force):
        raise AssertionError("nothing is cancelled here")


class Names(Quiet):
    def __init__(self):
        self.told = []

    def started(self, unit):
        self.told.append(("started", unit))

    def ended(self, unit, seconds, error):
        self.told.append(("ended", unit))


def run_with(folder, monkeypatch, losses, *, late):
    cluster, progress = OneMachine(losses, late=late), Names()
    monkeypatch.setattr(ray_engine, "import_ray", lambda: cluster)
    with Store.open(folder) as store:
        summary = run_study(
            Plan.of(toy_studies.STUDY, SMOKE),
            store=store,
            engine="ray",
            progress=progress,
            workers=2,
        )
        units = store.units("toy/plain", SMOKE)
    assert len(progress.told) == len(set(progress.told)) == 12, "each is told once"
    assert units[0].key == cluster.attempts[0]
    others = [unit.key for unit in units[1:]]
    assert [key for key in cluster.attempts if key in others] == others, "once each"
    return summary, units, cluster.attempts


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", LOST)
def test_a_lost_unit_runs_again(tmp_path, monkeypatch, kind, late):
    losses = [LOST[kind]() for _ in range(ray_engine.MAX_ATTEMPTS - 1)]
    summary, units, attempts = run_with(tmp_path / "ray", monkeypatch, losses, late=late)
    assert summary[:3] == (6, 0, 0)
    assert attempts.count(units[0].key) == ray_engine.MAX_ATTEMPTS == 3
    assert attempts[-1] == units[0].key, "after those that wait already"
    with Store.open(tmp_path / "expected") as store:
        run_study(Plan.of(toy_studies.STUDY, SMOKE), store=store, workers=0)
        assert [unit.rows for unit in store.units("toy/plain", SMOKE)] == [u.rows for u in units]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", LOST)
def test_a_unit_that_is_lost_every_time_fails(tmp_path, monkeypatch, kind, late):
    losses = [LOST[kind]() for _ in range(9)]
    summary, units, attempts = run_with(tmp_path, monkeypatch, losses, late=late)
    assert summary[:3] == (5, 1, 0)
    assert attempts.count(units[0].key) == 3
    first, *_, last = units[0].error.splitlines()
    on_worker = kind in ("worker killed", "out of memory")
    assert first.startswith("worker died (out of memory?): " if on_worker else "machine lost: ")
    assert last == "tried 3 times; its worker or machine was lost each time"


@pytest.mark.parametrize("kind", NOT_LOST)
def test_what_would_happen_again_is_not_tried_again(tmp_path, monkeypatch, kind):
    summary, units, attempts = run_with(tmp_path, monkeypatch, [NOT_LOST[kind]()], late=True)
    assert summary[:3] == (5, 1, 0)
    assert attempts.count(units[0].key) == 1
    assert "tried" not in units[0].error


def test_the_limit_holds_for_each_attempt(tmp_path, monkeypatch):
    """The time of an attempt that was lost does not count: nothing is cancelled."""
    cluster = OneMachine([LOST["node gone"]()], late=True)
    cluster.seconds = 0.3
    monkeypatch.setattr(ray_engine, "import_ray", lambda: cluster)
    with Store.open(tmp_path) as store:
        summary = run_study(
            Plan.of(toy_studies.STUDY, SMOKE), store=store, engine="ray", workers=2, limit_s=0.2
        )
    assert summary[:3] == (6, 0, 0)
    assert len(cluster.attempts) == 7


def test_a_killed_local_worker_fails_its_unit(tmp_path):
    """At the first attempt: a full memory would be filled again. The next run tries it again."""
    file = tmp_path / "killed.py"
    file.write_text(
        textwrap.dedent("""
            import os, signal
            from dataclasses import dataclass
            from pathlib import Path
            from triptych.studies.api.study import Scale, Settings, Study, Unit

            @dataclass(frozen=True)
            class Part(Unit):
                number: int

            @dataclass(frozen=True)
            class Row:
                number: int

            def units(settings):
                return [Part(number, seed=0) for number in range(2)]

            def run(unit, bench):
                with Path(__file__).with_suffix(".txt").open("a") as begun:
                    begun.write(f"{unit.number}\\n")
                if unit.number == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield Row(unit.number)

            STUDY = Study("killed", "", {Scale.SMOKE: Settings()}, units, run, (Row,))
        """)
    )
    with Store.open(tmp_path / "run") as store:
        for skipped in (0, 1):
            summary = run_study(Plan.of(load_study(file), SMOKE), store=store, workers=1)
            assert summary[:3] == (1 - skipped, 1, skipped)
    assert file.with_suffix(".txt").read_text().split() == ["0", "1", "0"]


CLUSTER = """
import sys, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from triptych.lab.running.progress import Quiet
from triptych.lab.running.discovery import load_study
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale

source, folder = sys.argv[1], Path(sys.argv[2])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
machines = [cluster.add_node(num_cpus=1) for _ in range(2)]
ray.init(address=cluster.address, log_to_driver=False)

def begun():
    file = folder / "begun"
    return [line.split()[1] for line in file.read_text().splitlines()] if file.exists() else []

class SwitchOff(Quiet):
    started_units = 0

    def started(self, unit):
        self.started_units += 1
        if self.started_units == 2:  # a unit waits at the gate on each of the two
            while len(pids := begun()) < 2:
                time.sleep(0.05)
            cluster.remove_node(machines[0], allow_graceful=False)
            while all(Path("/proc", pid).exists() for pid in pids):
                time.sleep(0.05)
            (folder / "open").touch()

with Store.open(folder) as store:
    summary = run_study(
        Plan.of(load_study(source), Scale.SMOKE, {"folder": str(folder)}),
        store=store,
        engine="ray",
        progress=SwitchOff(),
    )
print(*summary[:3])
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.slow
def test_a_machine_that_is_switched_off_during_a_run(tmp_path):
    """Two machines with a unit each and a third that only leads them; one is switched off."""
    run = subprocess.Popen(
        [sys.executable, "-c", CLUSTER, f"{TOYS}:GATED", str(tmp_path)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        told, complaints = run.communicate(timeout=240)
    finally:
        with suppress(ProcessLookupError):  # Ray's own, when something went wrong
            os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 0, complaints[-3000:]
    assert "4 0 0" in told.splitlines()
    with Store.open(tmp_path) as store:
        assert [row["number"] for row in store.rows("toy/gated", SMOKE)] == list(range(4))
    begun = sorted(int(line.split()[0]) for line in (tmp_path / "begun").read_text().splitlines())
    assert begun in ([0, 0, 1, 2, 3], [0, 1, 1, 2, 3]), "one of them twice"
