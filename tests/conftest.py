import gc
import os
import signal
import subprocess
import sys

import jaxtyping
import pytest
import torch
from tests.support import shape_checks

shape_checks.install()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a job in the background starts with
    signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)  # tiny tensors: threads cost ten times what they save


@pytest.fixture(autouse=True)
def _one_thread():
    assert torch.get_num_threads() == 1


@pytest.fixture(autouse=True)
def _checked_calls_are_counted_anew():
    shape_checks.begin_test()


@pytest.fixture(autouse=True)
def _interrupts_as_before():
    """The program's `main` makes Ctrl-C end the process; the next test must not inherit that."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if "cuda" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no GPU on this machine"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """A test that needs a machine without a GPU runs in a process that sees none."""
    if "no_gpu" not in pyfuncitem.keywords or not torch.cuda.is_available():
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    done = subprocess.run(
        [*command, pyfuncitem.nodeid],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        cwd=pyfuncitem.config.rootpath,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return True


def pytest_collection_finish():
    """Modules and tests stay to the end: a collection of garbage need not look at them again.

    It would look at millions of objects, for most of a second, after every unit that fails.
    From here on no bytecode is written: Python takes that of a user's file for current if the file
    was edited in the same second and kept its size, as some tests do.
    """
    gc.freeze()
    sys.dont_write_bytecode = True


@pytest.fixture
def unchecked_shapes():
    """Switch the run-time shape checks off, as they are for a user."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
