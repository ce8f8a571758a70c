"""A gateway in a process of its own, as a user starts it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

START_SECONDS = 120


class Started:
    """A process of `triptych gateway`, with the lines that it printed."""

    def __init__(self, *arguments, environment=None, errors=None):
        command = [sys.executable, "-m", "triptych", "gateway", *map(str, arguments)]
        self.process = subprocess.Popen(
            command,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=errors or subprocess.DEVNULL,
            text=True,
        )
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("print("):
                break
        else:
            raise AssertionError(f"it did not start: {self.lines}")
        self.base = next(line.split()[2] for line in self.lines if line.startswith("Listening on"))
        self.wait()

    def wait(self):
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(OSError), urllib.request.urlopen(self.url("/health")):
                return
            time.sleep(0.05)
        raise AssertionError("it does not answer")

    def url(self, path):
        return self.base.removesuffix("/v1") + path

    @property
    def port(self):
        return int(self.base.split(":")[-1].split("/")[0])

    def metric(self, name):
        with urllib.request.urlopen(self.url("/metrics")) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"triptych_{name}"))

    def stop(self, how=signal.SIGTERM, seconds=60):
        """The exit code after a signal, and what it still printed."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        rest = "" if self.process.stdout.closed else self.process.stdout.read()
        self.process.stdout.close()
        return self.process.wait(timeout=seconds), rest


@contextlib.contextmanager
def started(*arguments, **options):
    gateway = Started(*arguments, **options)
    try:
        yield gateway
    finally:
        gateway.stop(signal.SIGKILL)


RULE = """
import time

def slow(text):
    time.sleep(0.05)
    return True

def loud(text):
    raise ValueError("a secret word: " + text)
"""


def write_rule(folder: Path) -> Path:
    file = folder / "rule.py"
    file.write_text(RULE)
    return file
