"""The engines: the same rows from each, and what they cost."""

import importlib.util
import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from tests.support import toy_studies

from triptych.core.validation import UserError
from triptych.lab.running import fork_server
from triptych.lab.running.engines import local
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


def test_without_ray_the_error_says_what_to_install(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match="pip install 'ray>=2.40,<3'"):
        run_study(Plan.of(toy_studies.STUDY, SMOKE), store=store, engine="ray")
    units = store.units("toy/plain", SMOKE)
    assert {unit.status for unit in units} == {"pending"}


RAY = """
import json, sys
from pathlib import Path
from triptych.lab.running.discovery import load_study
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale
toys, folder = sys.argv[1:]
with Store.open(Path(folder)) as store:
    plain, faulty = load_study(toys), load_study(toys + ":FAULTY")
    # Once on a cluster that the engine starts itself, once on one that is there.
    run_study(Plan.of(plain, Scale.LAPTOP), store=store, engine="ray", workers=2)
    import ray
    assert not ray.is_initialized()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    run_study(Plan.of(faulty, Scale.SMOKE), store=store, engine="ray", limit_s=2.0)
    assert ray.is_initialized()
    ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_ray_gives_the_same_rows(tmp_path):
    """In a process of its own: Ray leaves threads and warnings behind."""
    subprocess.run(
        [sys.executable, "-c", RAY, str(TOYS), str(tmp_path / "ray")],
        check=True,
        timeout=600,
        capture_output=True,
    )
    expected = rows_of(tmp_path / "0", scale=Scale.LAPTOP, workers=0)
    with Store.open(tmp_path / "ray") as store:
        assert json.dumps(store.rows("toy/plain", Scale.LAPTOP)) == expected
        units = {unit.parameters["fault"]: unit for unit in store.units("toy/faulty", SMOKE)}
    done = {fault for fault, unit in units.items() if unit.status == "done"}
    assert done == {"none", "none ", "nan"}
    assert "ArithmeticError: the numbers do not add up" in units["raises"].error
    assert units["hangs"].error == "exceeded its limit of 2 s"
    for fault in ("killed", "exits"):  # a worker that ends is lost, whoever ended it
        assert units[fault].error.startswith("worker died")
        assert units[fault].error.endswith(
            "tried 3 times; its worker or machine was lost each time"
        )


@pytest.mark.slow
def test_two_workers_give_nearly_twice_the_throughput(tmp_path):
    """≥ 1.7 times one worker on 40 units. The best of three each: the machine may be shared."""
    rows_of(tmp_path / "warm", workers=2)  # the fork server is up

    def seconds(name, workers):
        with Store.open(tmp_path / name) as store:
            return run_study(Plan.of(toy_studies.BUSY, SMOKE), store=store, workers=workers).seconds

    times = [(seconds(f"one {i}", 1), seconds(f"two {i}", 2)) for i in range(3)]
    one, two = (min(column) for column in zip(*times, strict=True))
    print(f"1 worker {one:.2f} s, 2 workers {two:.2f} s: {one / two:.2f} times")
    assert one / two >= 1.7


@pytest.mark.slow
def test_the_labs_own_cost_is_small(tmp_path):
    """Under 5 % of a unit that takes a second: 50 ms of everything that is not the unit."""
    rows_of(tmp_path / "warm", workers=1)
    with Store.open(tmp_path / "run") as store:
        started = time.perf_counter()
        run_study(Plan.of(toy_studies.SLOW, SMOKE, {"units": "50"}), store=store, workers=1)
        wall = time.perf_counter() - started
        inside = sum(unit.seconds or 0 for unit in store.units("toy/slow", SMOKE))
    overhead = (wall - inside) / 50
    print(f"{1000 * overhead:.1f} ms per unit")
    assert overhead < 0.05


def test_modules_are_preloaded_once(monkeypatch):
    monkeypatch.setattr(local, "PRELOADED", ["a", "b"])
    local.preload(["b", "c"])
    local.preload(["c"])
    assert local.PRELOADED == ["a", "b", "c"]


def test_the_fork_server_loads_all_that_a_worker_needs():
    """A worker that is forked from the preloaded modules imports none of Triptych or torch."""
    assert local.PRELOADED[0] == fork_server.__name__, "first: it decides about Ctrl-C"
    assert local._worker_main.__module__ in local.PRELOADED
    script = f"""
        import sys
        for name in {local.PRELOADED}:
            __import__(name)
        before = set(sys.modules)
        from triptych.lab.running.engines.local import _worker_main
        from triptych.lab.running.worker import run_item
        print(sorted(set(sys.modules) - before), "torch" in before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[] True\n"
