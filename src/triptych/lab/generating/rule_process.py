"""A rule of the user's own in a process of its own, which can be stopped.

A thread that hangs cannot be ended; a process can, in a Python loop as well as in C code. So every
question goes to a child process, and one that gives no answer in time is killed. The next question
starts a new child. A call that waits inside the kernel (a dead network disk) ends when it returns.
A process that the rule itself has started is the rule's own business.

Parent and child exchange lines of JSON. Questions have numbers, an answer has the number of its
question, and only the process that was started answers: a rule may fork, and what it forks may
return or raise too. Any other line among the answers fails the question, and the process is ended,
so no text ever gets the answer to another one. This module imports nothing heavy, so that a child
starts in a tenth of a second.
"""

import ctypes
import importlib
import importlib.util
import inspect
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any

START_SECONDS = 120.0  # that the file of a rule may take to be imported
_LOOK_SECONDS = 1.0  # between two looks at a child that does not answer: is it there?
_KILL_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux


class RuleFailed(Exception):
    """The rule gave no answer: it raised, hung, died, or answered what is no value."""


class RuleNotThere(ValueError):
    """There is no such file, it cannot be imported, or it has no such function."""


def load_function(place: str, name: str) -> Callable[..., Any]:
    """The function of this name in a Python file or in an installed module.

    A file may import what lies next to it.
    """
    if not place.endswith(".py"):
        return _installed_function(place, name)
    file = Path(place)
    if not file.is_file():
        raise RuleNotThere(f"there is no file {str(file)!r}")
    spec = importlib.util.spec_from_file_location(f"triptych_own_rule_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise RuleNotThere(f"{str(file)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RuleNotThere(f"{str(file)!r} cannot be imported: {in_one_line(error)}") from error
    function = vars(module).get(name)
    if not callable(function):
        known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        listed = f"it has {', '.join(known)}" if known else "it has no function"
        raise RuleNotThere(f"{str(file)!r} has no function {name}; {listed}")
    return function


def _installed_function(module: str, name: str) -> Callable[..., Any]:
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise RuleNotThere(f"{module} cannot be imported: {in_one_line(error)}") from error
    if not callable(found):
        raise RuleNotThere(f"{module} has no function {name}")
    return found


def takes_finished(function: Callable[..., Any]) -> bool:
    """The rule has a parameter `finished`."""
    try:
        return "finished" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False


def as_value(answer: Any) -> float:
    """True, False or a probability as a float; anything else is no answer."""
    number = answer.item() if hasattr(answer, "item") else answer
    if not isinstance(number, Real) or not 0 <= float(number) <= 1:
        raise TypeError(f"the answer is {repr(answer)[:80]}; it must be True, False or 0..1")
    return float(number)


def in_one_line(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")[:300]


class RuleProcess:
    """A rule of a file or of an installed module, asked in a child process.

    timeout   seconds that one question may take; inf is no limit
    told      the rule has a parameter `finished`
    """

    def __init__(self, place: Path | str, name: str, timeout: float) -> None:
        if sys.platform == "win32":
            raise RuleNotThere("a rule in a process of its own needs Unix: use `guide` from Python")
        self.place, self.name, self.timeout = str(place), name, timeout
        self.told = False
        self._child: subprocess.Popen[bytes] | None = None
        self._unread, self._asked = b"", 0
        self._start()

    def __call__(self, text: str, finished: bool = False) -> float:
        if self._child is None or self._child.poll() is not None:
            self._start()
        self._asked += 1
        self._send({"number": self._asked, "text": text, "finished": finished})
        answer = self._receive(self.timeout, f"no answer in {self.timeout:g} seconds")
        if "error" in answer:
            raise RuleFailed(answer["error"])
        return float(answer["value"])

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def _start(self) -> None:
        self.close()
        self._unread, self._asked = b"", 0
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # the child ends when its input does; its standard error is ours
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__, self.place, self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for us; we stop it
        )
        ready = self._receive(START_SECONDS, f"no start in {START_SECONDS:g} seconds")
        if "error" in ready:
            self.close()
            raise RuleNotThere(ready["error"])
        self.told = ready["told"]

    def _send(self, message: dict[str, Any]) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
            self._child.stdin.flush()
        except OSError:
            raise RuleFailed(self._how_it_died()) from None

    def _receive(self, seconds: float, late: str) -> dict[str, Any]:
        """The answer to the latest question; a child that is late or says more is killed."""
        assert self._child is not None
        assert self._child.stdout is not None
        stdout, until = self._child.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self._unread:
            gone = self._child.poll() is not None  # what it forked may keep the pipe open
            waiting = 0.0 if gone else max(0.0, min(_LOOK_SECONDS, until - time.monotonic()))
            if select.select([stdout], [], [], waiting)[0]:
                if not (data := os.read(stdout, 1 << 16)):
                    raise RuleFailed(self._how_it_died())
                self._unread += data
            elif gone:
                raise RuleFailed(self._how_it_died())
            elif time.monotonic() >= until:
                self.close()
                raise RuleFailed(late)
        line, _, self._unread = self._unread.partition(b"\n")
        with suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict) and answer.get("number") == self._asked:
                return answer
        self.close()
        raise RuleFailed(f"something that is no answer stands among its answers: {line[:80]!r}")

    def _how_it_died(self) -> str:
        assert self._child is not None
        try:
            code = self._child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = 0
        self.close()
        if code < 0:
            return f"its process died with signal {-code} ({signal.strsignal(-code)})"
        return f"its process exited with code {code}"


def _answer_questions(place: str, name: str) -> None:
    """What the child does.

    Standard input and output are not the rule's: what it prints goes to standard error, what it
    reads there is nothing, and programs that it starts get neither questions nor answers.
    """
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    with suppress(OSError, AttributeError):  # only Linux has it
        ctypes.CDLL(None).prctl(_KILL_WITH_PARENT, signal.SIGKILL)
    started = os.getpid()

    def send(number: int, message: dict[str, Any]) -> None:
        if os.getpid() != started:  # the rule has forked, and this is what it forked
            os._exit(0)
        answers.write(json.dumps({"number": number, **message}).encode() + b"\n")
        answers.flush()

    try:
        function = load_function(place, name)
    except RuleNotThere as error:
        send(0, {"error": str(error)})
        return
    told = takes_finished(function)
    send(0, {"told": told})
    for line in questions:
        asked = json.loads(line)
        options = {"finished": asked["finished"]} if told else {}
        try:
            answer: dict[str, Any] = {"value": as_value(function(asked["text"], **options))}
        except Exception as error:
            if os.environ.get("TRIPTYCH_DEBUG"):
                traceback.print_exc()
            answer = {"error": in_one_line(error)}
        send(asked["number"], answer)


if __name__ == "__main__":
    _answer_questions(sys.argv[1], sys.argv[2])
