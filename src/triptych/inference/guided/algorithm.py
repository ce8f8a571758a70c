"""A guided algorithm as a value: a frozen dataclass of its options, with `run`.

    @dataclass(frozen=True)
    class Rejection(Algorithm[Info]):
        title = "Rejection sampling"
        promise = "an accepted string has the law p(x | accepted), exactly"

        attempts: int = option(100, "strings drawn for a row at most", at_least=1)

        def run(self, run: Generation) -> Info: ...

`algorithms()` finds the classes of this package, and those that installed packages name in the
entry point group `triptych.algorithms`. Commands, replays, hooks and tests read the fields. A new
algorithm is a new file here, or one of your own.
"""

import functools
import inspect
import pkgutil
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, ClassVar, Generic, Literal, NotRequired, TypedDict, TypeVar

from triptych.core.display import name_of
from triptych.core.protocols import Decoder, Draws, Ends, OfModel, VerifierLike
from triptych.core.randomness import RngLike
from triptych.core.validation import EndTokens, UserError
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.generation import Generation
from triptych.inference.guided.options import Lengths
from triptych.inference.guided.result import Action, Event, InfoT, Result
from triptych.inference.guided.transforms import Transform
from triptych.inference.settable import Option as Option
from triptych.inference.settable import Settable
from triptych.inference.settable import Setting as Setting
from triptych.inference.settable import option as option

AlgorithmT = TypeVar("AlgorithmT", bound="Algorithm[Any]")
Needs = Literal["draws", "log_probs", "top_laws", "laws"]
"""What an algorithm asks a model for: `laws` are whole laws of the next token, the others are what
a model that answers draws may give (`core.protocols.Gives`)."""
_NEEDED: Mapping[str, str] = {
    "draws": "draws",
    "log_probs": "the log-probabilities of what is drawn",
    "top_laws": "the likeliest tokens of a law with their log-probabilities",
    "laws": "whole laws of the next token",
}
GROUP = "triptych.algorithms"
"""Of entry points, by which an installed package brings algorithms."""


class Shared(TypedDict):
    """What `sample` takes in every algorithm."""

    length: Lengths
    rng: RngLike
    end_token: NotRequired[EndTokens | None]
    transform: NotRequired[Transform | None]
    record: NotRequired[bool]
    budget: NotRequired[Budget | None]
    ends: NotRequired[Ends | None]
    listen: NotRequired[Callable[[Event], None] | None]


@dataclass(frozen=True)
class Algorithm(Settable, Generic[InfoT]):
    """A guided algorithm with its options.

    soft         it uses values V between 0 and 1; the others need a yes or a no
    probability  the verifier must answer probabilities, log V ≤ 0
    needs_verifier   it makes no sense without one
    needs        what it asks a model for; a model in this process gives everything
    """

    soft: ClassVar[bool] = False
    probability: ClassVar[bool] = True
    needs_verifier: ClassVar[bool] = True
    needs: ClassVar[Needs] = "laws"

    @abstractmethod
    def run(self, run: Generation) -> InfoT:
        """Complete the rows of a generation, and say what there is to say besides."""
        raise NotImplementedError

    @property
    def smallest(self) -> float | None:
        """log V from which a finished row is accepted; None accepts every V > 0."""
        return None

    def sample(
        self,
        decoder: Decoder | Draws,
        verifier: VerifierLike | None = None,
        *,
        length: Lengths,
        end_token: EndTokens | None = None,
        transform: Transform | None = None,
        record: bool = False,
        budget: Budget | None = None,
        ends: Ends | None = None,
        listen: Callable[[Event], None] | None = None,
        rng: RngLike,
    ) -> Result[InfoT]:
        """Complete every row of the decoder.

        length      tokens of a full row, prompt included; or a number for each row
        end_token   a row that draws it, or one of them, is finished
        transform   of the model's laws; None leaves them
        record      keep a trace of all that happens
        budget      what a row may cost; None is no limit
        ends        what says which rows are over, as stop strings do
        listen      is told every event as it happens
        rng         a seed, or where the draws come from
        """
        run = Generation(
            decoder,
            verifier,
            rng,
            length,
            end_token,
            transform,
            record,
            probability=self.probability,
            smallest=self.smallest,
            budget=budget,
            ends=ends,
            listen=listen,
        )
        if run.draws:
            self.check_gives(run.drawing())
            run.weigh = self.needs == "log_probs"
        return run.result(self.run(run))

    @property
    def settles(self) -> tuple[Action, ...]:
        """Events after which all tokens of their row stay as they are."""
        return ()

    def settled(self, event: Event, backtracks: int) -> int:
        """How many tokens of a row stay as they are, whatever happens after this event.

        backtracks   events "backtrack" of the row so far, this one with them

        0 is always right: nothing is known before the row is done. `held_back` bounds what is left.
        """
        return len(event.tokens) if event.action in self.settles else 0

    @property
    def held_back(self) -> int | None:
        """How many tokens at the end of a growing row may still change, at most; None: all."""
        return 0 if self.settles else None

    def check_gives(self, draws: Draws) -> None:
        """A model that answers draws gives what this algorithm asks for; a `UserError` if not."""
        if self.needs in draws.gives:
            return
        lm = draws.lm if isinstance(draws, OfModel) else draws
        others = [name for name, each in algorithms().items() if each.needs in draws.gives]
        raise UserError(
            f"{self.name} needs {_NEEDED[self.needs]}; {name_of(lm)}, as it is asked here, gives "
            f"{' and '.join(_NEEDED[each] for each in sorted(draws.gives))} alone, with which "
            f"{', '.join(others)} run",
            parameter="decoder",
        )

    def of_text(self: AlgorithmT, decode: Callable[[Sequence[int]], str]) -> AlgorithmT:
        """The same where tokens are text: an algorithm that reads completions overrides it."""
        return self


AnyAlgorithm = Algorithm[Any]


def algorithm_of(module: ModuleType) -> type[AnyAlgorithm] | None:
    """The algorithm that a module defines, if it does."""
    found = [
        each
        for each in vars(module).values()
        if inspect.isclass(each)
        and issubclass(each, Algorithm)
        and each.__module__ == module.__name__
        and each is not Algorithm
    ]
    if len(found) > 1:
        names = " and ".join(each.__name__ for each in found)
        raise UserError(
            f"{module.__name__} has the algorithms {names}; a file has one", parameter="module"
        )
    return found[0] if found else None


@functools.cache
def algorithms() -> dict[str, type[AnyAlgorithm]]:
    """Every algorithm by its name: those of this package, then those of installed packages.

    One that cannot be loaded, or has a name that is taken, is left out with a warning.
    """
    package = import_module(__package__ or "triptych.inference.guided")
    found: dict[str, type[AnyAlgorithm]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        own = algorithm_of(import_module(f"{package.__name__}.{module.name}"))
        if own is not None:
            found[own.name] = own
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            loaded = entry.load()
            if not (inspect.isclass(loaded) and issubclass(loaded, Algorithm)):
                raise UserError("it is no class of Algorithm")
            loaded.options()
        except Exception as error:
            _leave_out(entry.value, f"it cannot be loaded: {type(error).__name__}: {error}")
            continue
        if loaded.name in found:
            _leave_out(entry.value, f"there is an algorithm {loaded.name} already")
        else:
            found[loaded.name] = loaded
    return found


def _leave_out(value: str, why: str) -> None:
    warnings.warn(f"the algorithm {value} of an installed package: {why}", stacklevel=3)
