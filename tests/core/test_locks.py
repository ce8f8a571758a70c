"""Locks, and what works where a system has none: Windows cannot be run here, so it is pretended.

A process pretends in two ways: the modules and functions of Unix alone are gone, and then it says
that it is Windows. What Windows itself would do is not known from this.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.command_line import run

from triptych.core import locks
from triptych.core.files import FolderInUse, lock_folder
from triptych.core.locks import Lock, is_alive, lock

WITHOUT_UNIX = """
import os, signal, sys
for name in ("fcntl", "resource", "termios", "grp", "pwd", "pty", "tty"):
    sys.modules[name] = None
for name in ("fork", "forkpty", "getuid", "geteuid", "sched_getaffinity"):
    delattr(os, name) if hasattr(os, name) else None
for name in ("pthread_sigmask", "SIGKILL", "SIGHUP"):
    delattr(signal, name)
"""

MODELS = (
    WITHOUT_UNIX
    + """
import torch
import triptych
from triptych import HMM, TorchRng
from triptych.core.decoders import RecomputingDecoder
from triptych.inference.guided.algorithm import algorithms
from triptych.structures.uniform import Uniform
from triptych.verifiers.exact import Rule
import triptych.guidance.guide

hmm = HMM([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], [[0.8, 0.2], [0.2, 0.8]], 3)
hidden = torch.tensor([[False, True, True]])
print(hmm.log_posterior([[0, 0, 0]], hidden).exp()[0, 0].tolist())
sample = algorithms()["rejection"]().sample
found = sample(RecomputingDecoder(Uniform(2, 3), 4), Rule(lambda x: sum(x) <= 1), length=3,
               rng=TorchRng(0))
print(max(sum(row) for row in found.completions()))
from pathlib import Path
from triptych.core.files import lock_folder, write_text
with lock_folder(Path("here")):
    write_text("here/text", "written")
"""
)

WINDOWS = (
    WITHOUT_UNIX
    + """
import triptych.core.locks as locks
locks.WINDOWS = True
from triptych.__main__ import main
main()
"""
)


def in_a_process(program, *arguments, folder, **environment):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | environment,
    )


def test_models_and_algorithms_work_without_unix(tmp_path):
    """p(z = 0 | x = 0 shown at its place) is 0.8 for an HMM with even states."""
    done = in_a_process(MODELS, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    posterior, largest = map(json.loads, done.stdout.splitlines())
    assert posterior == pytest.approx([0.8, 0.2])
    assert largest <= 1
    assert (tmp_path / "here" / "text").read_text() == "written"


@pytest.mark.slow
def test_a_study_runs_without_unix(tmp_path):
    cache = {"TRIPTYCH_CACHE": str(tmp_path / "cache")}
    small = ["run", "exact_gap", "--scale", "smoke", "--no-report"]
    done = in_a_process(WINDOWS, *small, folder=tmp_path, **cache)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("more", [["--workers", "2"], ["--engine", "ray"]])
def test_what_needs_unix_says_so(tmp_path, monkeypatch, more):
    monkeypatch.setattr("triptych.lab.running.unix.WINDOWS", True)
    small = ["run", "exact_gap", "--scale", "smoke", "--no-report"]
    done = run(*small, *more, "--out", str(tmp_path / "runs"))
    assert done.exit_code == 2
    assert "Windows" in done.stderr


def test_a_lock_is_held_by_one(tmp_path):
    with (tmp_path / "a").open("w") as one, (tmp_path / "a").open("w") as other:
        assert lock(one) is Lock.HELD
        assert lock(other) is Lock.TAKEN
        one.close()
        assert lock(other, wait=True) is Lock.HELD


def test_without_locks_nobody_is_kept_out(tmp_path, monkeypatch):
    with lock_folder(tmp_path), pytest.raises(FolderInUse), lock_folder(tmp_path):
        pass
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr("triptych.core.files.WINDOWS", True)
    with (tmp_path / "a").open("w") as file:
        assert lock(file) is Lock.NONE
    with lock_folder(tmp_path), lock_folder(tmp_path):
        pass
    assert not (tmp_path / "run.lock").exists()


def test_the_file_of_a_lock_goes_where_an_open_file_cannot_be_removed(tmp_path, monkeypatch):
    """As on Windows, where the first attempt is refused and the second follows the closing."""
    refused, unlink = [], Path.unlink

    def stubborn(path, missing_ok=False):
        if not refused:
            refused.append(path)
            raise PermissionError(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr("triptych.core.files.WINDOWS", True)
    monkeypatch.setattr(Path, "unlink", stubborn)
    with lock_folder(tmp_path):
        pass
    assert refused == [tmp_path / "run.lock"]
    assert not (tmp_path / "run.lock").exists()


def test_who_is_alive(monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert is_alive(os.getpid())
    assert not is_alive(child.pid)
    assert not is_alive(-1)
    monkeypatch.setattr(locks, "WINDOWS", True)
    monkeypatch.setattr(os, "kill", None)  # to Windows this question is a Ctrl-C
    assert is_alive(child.pid)
