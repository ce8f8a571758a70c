"""The search through all choices of a program that knows nothing of it: the likeliest branch first.

A program is run again and again. Each run answers the first choices as decided before, and from
there on with the likeliest outcome; the others wait for later runs. A program whose runs reach
another choice under the same answers is no function of its choices, and is refused.
"""

import heapq
import itertools
import sys
from dataclasses import dataclass
from types import CodeType
from typing import NamedTuple

from triptych.core.enumeration import Choices, Dropped
from triptych.core.errors import UserError

_PATHS_THROUGH = ("/triptych/laws/", "/torch/", "/numpy/", "/scipy/")
_CONTRACTS = "/triptych/laws/contracts/"  # have samplers, which are programs like any other
_PYTHONS_OWN = ("random.py", "bisect.py", "heapq.py", "contextlib.py", "_jit_internal.py")


class Site(NamedTuple):
    """The place of a draw: the innermost line that is neither ours nor torch's nor numpy's."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        name = self.file.rsplit("/site-packages/", 1)[-1]
        return f"{name}:{self.line}, in {self.function}"


_OURS: dict[CodeType, bool] = {}


def _passes_through(code: CodeType) -> bool:
    known = _OURS.get(code)
    if known is None:
        file = code.co_filename.replace("\\", "/")
        last = file.rsplit("/", 1)[-1]
        known = any(part in file for part in _PATHS_THROUGH) and _CONTRACTS not in file
        known = known or (last in _PYTHONS_OWN and "site-packages" not in file)
        known = known or "/jaxtyping/" in file or file.startswith(("<frozen", "<@beartype"))
        _OURS[code] = known
    return known


def site() -> Site:
    """The line of the program that is drawing, or doing something with what it drew."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _passes_through(frame.f_code):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


class Refused(BaseException):
    """Carries a refusal through a program that catches its own errors; `law_of` raises its text."""

    def __init__(self, text: str, where: Site) -> None:
        super().__init__(text)
        self.text, self.where = text, where

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


def refuse(text: str) -> Refused:
    """To be raised: what cannot be made finite, with the line of the program that asks for it."""
    return Refused(text, site())


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of a run: what drew, where, and which of the possible outcomes came."""

    what: str
    where: Site
    outcome: int
    probability: float

    def __str__(self) -> str:
        return f"{self.what} gave {self.outcome} (p = {self.probability:.4g}) at {self.where}"


class _Node(NamedTuple):
    """A decided choice and all before it; later runs must meet the same one."""

    parent: "_Node | None"
    choice: Choice
    possible: int


class Search(Choices):
    """Every sequence of choices of a program, the likeliest first; `done` has what was reached."""

    def __init__(self, cutoff: float, max_runs: int, max_choices: int) -> None:
        super().__init__(cutoff, max_runs, max_choices)
        self.count = itertools.count()
        self.heap: list[tuple[float, int, _Node | None]] = [(-1.0, next(self.count), None)]
        self.runs = 0
        self.longest: Site | None = None
        self.left_out = 0.0  # the most that any run left out, in total variation

    @property
    def unfinished(self) -> bool:
        return bool(self.heap)

    @property
    def waiting_mass(self) -> float:
        return sum((-mass for mass, _, _ in self.heap), 0.0)

    def begin(self) -> None:
        """Take the likeliest branch that waits."""
        mass, _, node = heapq.heappop(self.heap)
        self.restart(-mass, node)

    def restart(self, mass: float, node: _Node | None) -> None:
        self.runs += 1
        self.mass, self.node, self.left_out_here = mass, node, 0.0
        self.path: list[_Node] = []
        while node is not None:
            self.path.append(node)
            node = node.parent
        self.path.reverse()
        self.used = 0

    def choices(self) -> tuple[Choice, ...]:
        """The choices of this run until now."""
        return tuple(node.choice for node in self.path[: self.used])

    def leave_out(self, amount: float) -> None:
        """Count a small number that a program adds against log(0) and the law does without."""
        self.left_out_here += amount
        self.left_out = max(self.left_out, self.left_out_here)

    def choose(self, probs: list[float], what: str = "categorical") -> int:
        """The outcome of a choice: as decided, or the likeliest one."""
        where = site()
        if self.used < len(self.path):
            node = self.path[self.used]
            self._check_same(node, probs, what, where)
            self.used += 1
            return node.choice.outcome
        drawn = max(range(len(probs)), key=probs.__getitem__)
        if not probs[drawn] > 0:
            raise refuse(f"{what} has no outcome with a probability above 0")
        mass = self.mass
        for k, p in enumerate(probs):
            if p > 0 and k != drawn:
                node = _Node(self.node, Choice(what, where, k, p), len(probs))
                self._keep(mass * p, node)
        node = _Node(self.node, Choice(what, where, drawn, probs[drawn]), len(probs))
        self.mass = mass * probs[drawn]
        self.node = node
        self.path.append(node)
        self.used += 1
        if self.mass < self.cutoff or self.used > self.max_choices:
            self.longest = where
            self.missing += self.mass
            raise Dropped
        return drawn

    def _keep(self, mass: float, node: _Node) -> None:
        if mass < self.cutoff:
            self.missing += mass
        else:
            heapq.heappush(self.heap, (-mass, next(self.count), node))

    def _check_same(self, node: _Node, probs: list[float], what: str, where: Site) -> None:
        before = node.choice
        same = before.what == what and before.where == where and node.possible == len(probs)
        if same and abs(probs[before.outcome] - before.probability) <= 1e-12:
            return
        raise Refused(
            f"the program is not a function of its choices: after the same {self.used} of them it "
            f"came to '{before.what}' at {before.where} in one run and to '{what}' in another, or "
            "to other probabilities there; it may read the clock, keep something between runs, "
            "change what it was given, or draw from a generator that is not seen here",
            where,
        )


def as_user_error(refused: Refused) -> UserError:
    return UserError(str(refused))
