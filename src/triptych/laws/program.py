"""`law_of`: the exact law of a program of torch, numpy or Python's random, as it stands.

The program runs once for every sequence of choices that it can make. All that it draws is answered
by the search. What draws elsewhere is noticed: the program is then no function of its choices.
"""

import contextlib
import math
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any, no_type_check

import torch

from triptych.core.enumeration import Dropped
from triptych.core.errors import UserError
from triptych.core.validation import Count, Number, as_count, as_number, check_callable
from triptych.laws.doors import numpy_random, python_random, swapped
from triptych.laws.doors.torch_door import TorchDoor
from triptych.laws.law import BoundedLaw, Law
from triptych.laws.outcomes import canonical, is_tensor_with
from triptych.laws.search import Choice, Refused, Search, Site, as_user_error
from triptych.laws.watching import Watch, imports_with

BUDGET = 20_000
CUTOFF = 1e-15
ROUNDING = 1e-14  # a missing mass of this size is the rounding of sums of probabilities
_FRUITLESS = 100  # runs without any outcome, after which there will be none


def law_of(
    program: Callable[..., Any],
    *args: Any,
    budget: Count = BUDGET,
    cutoff: Number = CUTOFF,
    max_choices: Count = 10_000,
    **kwargs: Any,
) -> Law | BoundedLaw:
    """The law of `program(*args, **kwargs)`: exact, or with bounds where the budget ended.

    The program runs at most `budget` times, the likeliest choices first. Branches of less
    probability than `cutoff`, or of more than `max_choices` choices, are dropped. What was not
    followed is the mass `missing` of a `BoundedLaw`; a `Law` has none.

    P(first of two uniforms is larger) is 1/2:

    >>> import torch
    >>> law_of(lambda: torch.rand(2).argmax()).probs
    {0: 0.5, 1: 0.5}
    """
    check_callable("program", program, "program(*args)")
    budget = as_count("budget", budget, at_least=1)
    cutoff = as_number("cutoff", cutoff, at_least=0)
    max_choices = as_count("max_choices", max_choices, at_least=1)
    search = Search(cutoff, budget, max_choices)
    probs: dict[Hashable, float] = {}
    paths: dict[Hashable, tuple[Choice, ...]] = {}
    likeliest: dict[Hashable, float] = {}
    with _Doors(search, program, args, kwargs) as doors:
        while search.unfinished and search.runs < budget:
            if not probs and search.runs == _FRUITLESS:
                break
            search.begin()
            outcome = doors.run()
            if outcome is _DROPPED:
                continue
            probs[outcome] = probs.get(outcome, 0.0) + search.mass
            if search.mass > likeliest.get(outcome, 0.0):
                likeliest[outcome] = search.mass
                paths[outcome] = search.choices()
            if search.runs <= 1:
                doors.check_replay(outcome)
    missing = search.missing + search.waiting_mass
    if not probs:
        raise UserError(
            f"the program never returned within the budget: a run stopped after {search.used} "
            f"choices, the last at {search.longest}; it may draw without end"
        )
    total = math.fsum(probs.values()) + missing
    assert abs(total - 1) < 1e-9, f"probabilities sum to {total}"
    if missing > ROUNDING:
        return BoundedLaw(probs, missing, paths, search.left_out, search.runs)
    return Law(probs, 0.0, paths, search.left_out + missing, search.runs)


_DROPPED = object()
_REPLAYS = 20
_REPLAY_SECONDS = 0.25


class _Doors(contextlib.AbstractContextManager["_Doors"]):
    """The program with all doors open, to be run again and again."""

    def __init__(
        self, search: Search, program: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> None:
        self.search, self.program = search, program
        self.torch = TorchDoor(search)
        self.watch = Watch(program, args, kwargs)
        self.args, self.kwargs = args, kwargs
        self.patches = contextlib.ExitStack()
        self.kinds = numpy_random.Kinds.of(search)
        self.closed = False

    def __enter__(self) -> "_Doors":
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(_as_user_errors())
        self.stack.enter_context(self.watch)
        self.stack.callback(self._close)
        stand_in = self._open()
        self.program = stand_in(self.program) or self.program
        self.stack.enter_context(swapped.in_program(self.program, stand_in))
        self.stack.enter_context(imports_with(self.paused))
        self.args = swapped.in_arguments(self.args, stand_in)
        self.kwargs = swapped.in_arguments(self.kwargs, stand_in)
        return self

    def __exit__(self, *problem: Any) -> bool | None:
        return self.stack.__exit__(*problem)

    def _open(self) -> swapped.StandIn:
        names = self.patches.enter_context(python_random.opened(self.search))
        generators = self.patches.enter_context(numpy_random.opened(self.kinds))
        return lambda value: names.get(id(value)) or generators(value)

    def _close(self) -> None:
        self.patches.close()

    @contextlib.contextmanager
    @no_type_check
    def paused(self) -> Iterator[None]:
        """The doors closed: a module that is loaded draws as it always does."""
        if self.closed:  # a module that is loaded by one that is being loaded
            yield
            return
        self.closed = True
        self._close()
        try:
            yield
        finally:
            self._open()
            self.closed = False

    def run(self) -> Any:
        """The canonical outcome of one run."""
        self.torch.begin()
        try:
            with self.torch:
                outcome = self.program(*self.args, **self.kwargs)
        except Dropped:
            return _DROPPED
        except Exception as problem:
            self._explain(problem)
            raise
        self.watch.check_arguments()
        if is_tensor_with(outcome, self.torch.cells.has_draws):
            raise Refused(
                "the program returns a tensor of continuous draws, which has no finite law; return "
                "what it decides with them",
                _result_of(self.program),
            )
        return canonical(outcome)

    def _explain(self, problem: Exception) -> None:
        text = str(problem)
        if "CUDA" in text and not torch.cuda.is_available():
            raise UserError(
                f"the program asks for a GPU, and this machine has none: {text}"
            ) from problem
        problem.add_note(
            "this run made these choices: " + "; ".join(map(str, self.search.choices()))
        )

    def check_replay(self, outcome: Hashable) -> None:
        """The first run again, some times: the same choices must lead to the same outcome."""
        node, mass, runs = self.search.node, self.search.mass, self.search.runs
        end = time.perf_counter() + _REPLAY_SECONDS
        for k in range(_REPLAYS):
            if k >= 2 and time.perf_counter() > end:
                break
            self.search.restart(mass, node)
            again = self.run()
            if again is _DROPPED or again != outcome:
                raise UserError(
                    "the program is not a function of its choices: the same choices gave "
                    f"{outcome!r} and then {again!r}; it may read the clock, keep something "
                    "between runs, or draw from a generator that is not seen here"
                )
        self.search.runs = runs


def _result_of(program: Callable[..., Any]) -> Site:
    code = getattr(program, "__code__", None)
    if code is None:
        return Site("the result", 0, getattr(program, "__name__", type(program).__name__))
    return Site(code.co_filename, code.co_firstlineno, code.co_name)


@contextlib.contextmanager
def _as_user_errors() -> Iterator[None]:
    try:
        yield
    except Refused as refused:
        raise as_user_error(refused) from None
