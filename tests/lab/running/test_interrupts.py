"""Ctrl-C at any moment: one sentence, exit code 130, no process left, a sound store."""

import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from tests.support.refusals import refused

from triptych.lab.running.discovery import load_study
from triptych.lab.running.engines import local
from triptych.lab.running.interrupts import HeldInterrupts, end_at_once, explain_stop
from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import FILE, Store
from triptych.studies.api.study import Scale

STOPPED = {"Stopped.", "Stopped. What is done is stored; the same command goes on."}
UNITS = 6


@pytest.fixture
def study_file(tmp_path):
    file = tmp_path / "slowly.py"
    file.write_text(
        textwrap.dedent(f"""
            import time
            from dataclasses import dataclass
            from triptych.studies.api.study import Scale, Settings, Study, Unit

            @dataclass(frozen=True)
            class Part(Unit):
                number: int

            @dataclass(frozen=True)
            class Row:
                number: int

            def units(settings):
                return [Part(number, seed=0) for number in range({UNITS})]

            def run(unit, bench):
                time.sleep(0.2)
                yield Row(unit.number)

            STUDY = Study("slowly", "", {{Scale.SMOKE: Settings()}}, units, run, (Row,))
        """)
    )
    return file


def complaints(stderr):
    """What is on standard error next to progress and the one sentence."""
    lines = [line for line in stderr.splitlines() if line and not line.startswith("slowly: ")]
    return [] if len(lines) == 1 and lines[0] in STOPPED else lines


def check_store(folder):
    """The units that are done have their rows, the others wait."""
    if not (folder / FILE).exists():
        return
    with Store.open(folder) as store:
        for unit in store.units("slowly", Scale.SMOKE):
            assert unit.status in ("pending", "done")
            expected = [unit.parameters["number"]] if unit.status == "done" else []
            assert [row["number"] for row in unit.rows] == expected


# A process that has loaded everything forks runs of the program; each starts a fork server of its
# own. The first run says how long it takes until the last unit is done; the others are interrupted
# at moments that are spread over that time and a little more.
SWEEP = """
import json, os, signal, sys, time
from pathlib import Path
from triptych.__main__ import main
from triptych.lab.cli import app as cli
from triptych.lab.results import gathering, report
from triptych.lab.running.discovery import find_studies

find_studies()
study, root, (moments, units) = sys.argv[1], Path(sys.argv[2]), map(int, sys.argv[3:])

def run_in(folder):
    folder.mkdir()
    (folder / "stderr").touch()
    child = os.fork()
    if child:
        return child
    os.setsid()
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY), number)
    sys.argv = f"triptych run {study} --scale smoke --out {folder} --workers 2".split()
    code = 99
    try:
        main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

def in_session(leader):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(") ")[2].split()[:4]
        except OSError:
            continue
        if int(session) == leader and state != "Z":
            found.append(stat.parent.name)
    return found

def ended(child, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None

begin, first = time.monotonic(), run_in(root / "first")
while f"[{units}/{units}]" not in (root / "first" / "stderr").read_text():
    assert ended(first, 0.02) is None
needed = time.monotonic() - begin
os.killpg(first, signal.SIGKILL)
os.waitpid(first, 0)
for number in range(moments):
    folder, moment = root / str(number), 1.2 * needed * (number + 0.5) / moments
    child = run_in(folder)
    code, interrupted = ended(child, moment), False
    if code is None:
        os.killpg(child, signal.SIGINT)
        begin, interrupted = time.monotonic(), True
        code = ended(child, 30)
    waited = time.monotonic() - begin
    deadline = time.monotonic() + 10
    while (left := in_session(child)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    print(json.dumps([moment, interrupted, code, waited, left]), flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_at_any_moment_of_a_run(tmp_path, study_file):
    moments = 10
    done = subprocess.run(
        [sys.executable, "-c", SWEEP, str(study_file), str(tmp_path), str(moments), str(UNITS)],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    interrupted, sentences = 0, set()
    for number, line in enumerate(done.stdout.splitlines()):
        moment, was_interrupted, code, seconds, left = json.loads(line)
        print(f"Ctrl-C after {moment:.2f} s: exit code {code} {seconds:.2f} s later")
        assert left == [], f"{moment} s: processes are left"
        check_store(tmp_path / str(number))
        if not was_interrupted:  # this one was faster than the first
            assert code == 0
            continue
        interrupted += 1
        stderr = (tmp_path / str(number) / "stderr").read_text()
        assert complaints(stderr) == [], f"{moment} s"
        assert code == 130, f"{moment} s: {stderr}"
        sentences |= STOPPED & set(stderr.splitlines())
    assert interrupted >= moments / 2
    assert max(STOPPED, key=len) in sentences
    for number in range(moments):  # all are taken up, and nothing is done twice
        with Store.open(tmp_path / str(number)) as store:
            summary = run_study(
                Plan.of(load_study(study_file), Scale.SMOKE), store=store, workers=0
            )
            assert summary.done + summary.skipped == UNITS
            rows = store.rows("slowly", Scale.SMOKE)
        assert [row["number"] for row in rows] == list(range(UNITS))


def maps(library):
    """The program has just begun to load a library."""

    def reached(run):
        return library in Path(f"/proc/{run.pid}/maps").read_text()

    return reached


def server_loads(run):
    """The fork server has just begun to load what workers need."""
    for child in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split():
        if b"forkserver" in Path(f"/proc/{child}/cmdline").read_bytes():
            return "_multiarray_umath" in Path(f"/proc/{child}/maps").read_text()
    return False


def has_run(run):
    """All units are done, and what remains is the report."""
    return f"[{UNITS}/{UNITS}]" in Path(f"/proc/{run.pid}/fd/2").read_text()


@pytest.mark.parametrize(
    "reached",
    [
        pytest.param(maps("_multiarray_umath"), marks=pytest.mark.slow),
        maps("libtorch_cpu"),
        pytest.param(server_loads, marks=pytest.mark.slow),
        pytest.param(has_run, marks=pytest.mark.slow),
    ],
    ids=["numpy", "torch", "fork server", "report"],
)
def test_ctrl_c_in_every_part_of_the_program(tmp_path, study_file, reached):
    """The program itself, from its first import to the end of the interpreter."""
    command = f"-m triptych run {study_file} --scale smoke --workers 2 --out {tmp_path / 'run'}"
    with (tmp_path / "stderr").open("w") as stderr:
        run = subprocess.Popen(
            [sys.executable, *command.split()],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        while not reached(run):
            assert run.poll() is None, "it ended before"
            time.sleep(0.005)
        os.killpg(run.pid, signal.SIGINT)
        run.wait(timeout=30)
    finally:
        run.kill()
    assert complaints((tmp_path / "stderr").read_text()) == []
    assert run.returncode == 130
    check_store(tmp_path / "run")


PROBED = """
import sys
from triptych.lab.running.engines import local
from triptych.lab.running.discovery import load_study
from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale
from pathlib import Path

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    local.PRELOADED = ["before", *local.PRELOADED, "after"]
    with Store.open(folder / "run") as store:
        run_study(Plan.of(load_study(folder / "slowly.py"), Scale.SMOKE), store=store, workers=1)
"""


@pytest.mark.slow
def test_the_fork_server_always_has_an_answer_to_ctrl_c(tmp_path, study_file):
    """Blocked from its first moment; then it ends the server in silence, while that loads torch."""
    for name in ("before", "after"):
        (tmp_path / f"{name}.py").write_text(
            textwrap.dedent("""
                import signal
                from pathlib import Path

                blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
                ends = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
                Path(__file__).with_suffix(".txt").write_text(f"{blocked=} {ends=}")
            """)
        )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", PROBED, str(tmp_path)],
        check=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert (tmp_path / "before.txt").read_text() == "blocked=True ends=False"
    assert (tmp_path / "after.txt").read_text() == "blocked=False ends=True"


@pytest.mark.parametrize("ignored", [False, True])
def test_ctrl_c_in_the_first_moment_of_the_fork_server(ignored):
    """It ends without a word, or goes on where Ctrl-C is ignored altogether."""
    code = f"""if True:
        import signal
        if {ignored}:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        signal.raise_signal(signal.SIGINT)
        import triptych.lab.running.fork_server  # in a process of multiprocessing.forkserver
        print("goes on")
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    expected = (0, "goes on\n", "") if ignored else (-signal.SIGINT, "", "")
    assert (done.returncode, done.stdout, done.stderr) == expected


def test_in_another_process_importing_the_module_changes_nothing():
    importlib.import_module("triptych.lab.running.fork_server")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def press():
    signal.raise_signal(signal.SIGINT)


def interrupted(action):
    """Whether an action, done with interrupts held, ended with one and nothing else to tell."""
    caught = None
    try:
        with HeldInterrupts() as interrupts:
            action(interrupts)
    except KeyboardInterrupt as error:
        caught = error
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return caught is not None and (caught.__context__ is None or caught.__suppress_context__)


def test_held_interrupts_wait():
    steps = []

    def to_the_end(interrupts):
        press()
        steps.append("held to the end")

    def to_the_next_release(interrupts):
        with interrupts.released():
            steps.append("released")
        press()
        steps.append("held to the next release")
        with interrupts.released():
            steps.append("never")

    def not_at_all(interrupts):
        with interrupts.released():
            press()
            steps.append("never")

    assert interrupted(to_the_end)
    assert interrupted(to_the_next_release)
    assert interrupted(not_at_all)
    assert not interrupted(lambda interrupts: steps.append("nothing comes"))
    assert steps == [
        "held to the end",
        "released",
        "held to the next release",
        "nothing comes",
    ]


def test_interrupts_are_held_when_another_thread_takes_the_signal():
    """As the thread that draws a progress bar does: the system may choose any of them."""
    stop, steps = threading.Event(), []
    other = threading.Thread(target=stop.wait)
    other.start()

    def action(interrupts):
        signal.pthread_kill(other.ident, signal.SIGINT)
        time.sleep(0.05)
        steps.append("held")

    try:
        assert interrupted(action)
    finally:
        stop.set()
        other.join()
    assert steps == ["held"]


def test_an_error_gives_way_to_the_interrupt():
    """Ctrl-C ends the fork server, too, and the failure that follows from it is not the news."""

    def action(interrupts):
        press()
        raise EOFError

    assert interrupted(action)


def test_two_interrupts_are_one():
    def action(interrupts):
        try:
            with interrupts.released():
                press()
        finally:
            press()

    assert interrupted(action)


def test_an_ignored_interrupt_stays_ignored():
    """As in a program that a shell script starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        end_at_once()
        with explain_stop(), HeldInterrupts() as interrupts, interrupts.released():
            press()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_beside_the_main_thread_nothing_is_changed():
    errors = []

    def work():
        try:
            end_at_once()
            with explain_stop(), HeldInterrupts() as interrupts, interrupts.released():
                pass
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == []


def test_the_sentence_and_the_exit_code(capsys):
    with pytest.raises(SystemExit) as info, explain_stop():
        press()
    assert info.value.code == 130
    assert complaints(capsys.readouterr().err) == []


def test_a_fork_server_that_dies_at_its_start(tmp_path, study_file, monkeypatch):
    """It is started again a few times; then a sentence, and no unit is to blame."""
    starts = []

    def start(context, work):
        starts.append(context)
        raise EOFError("unexpected EOF")

    monkeypatch.setattr(local, "_start_worker", start)
    with Store.open(tmp_path / "run") as store:
        with refused("reason"):
            run_study(Plan.of(load_study(study_file), Scale.SMOKE), store=store, workers=2)
        assert {unit.status for unit in store.units("slowly", Scale.SMOKE)} == {"pending"}
    assert len(starts) == local.MAX_FAILED_STARTS == 3
