"""The door of Python's `random`, and of `math` where it is given a continuous draw.

The class `Random` answers by the search while the program runs, so every instance does, whatever
its seed and wherever it is kept.
"""

import contextlib
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from triptych.laws import continuous
from triptych.laws.continuous import Draw, Value
from triptych.laws.doors.whole_numbers import binomial, evenly
from triptych.laws.races import Source
from triptych.laws.search import Search, refuse

_MAX_BITS = 20


def methods(search: Search) -> dict[str, Callable[..., Any]]:
    """What the methods of `Random` are while the door is open; the others are built on these."""

    def uniform(self: Any) -> Draw:
        return continuous.uniform(Source(search, "random.random"))

    def bits(self: Any, k: int) -> int:
        if k > _MAX_BITS:
            raise refuse(
                f"getrandbits({k}) draws one of 2^{k} numbers, more than can be enumerated"
            )
        return evenly(search, 2**k, "random.getrandbits")

    def below(self: Any, n: int) -> int:
        return evenly(search, n, "random")

    def choices(
        self: Any,
        population: Sequence[Any],
        weights: Any = None,
        *,
        cum_weights: Any = None,
        k: int = 1,
    ) -> list[Any]:
        """k things by weight, with replacement."""
        if weights is None and cum_weights is None:
            return [population[evenly(search, len(population), "random.choices")] for _ in range(k)]
        if weights is None:
            totals = [0.0, *cum_weights]
            weights = [b - a for a, b in itertools.pairwise(totals)]
        probs = [float(w) for w in weights]
        if len(probs) != len(population):
            raise ValueError("The number of weights does not match the population")
        total = math.fsum(probs)
        if not 0 < total < math.inf:
            raise ValueError("Total of weights must be greater than zero and finite")
        law = [w / total for w in probs]
        return [population[search.choose(law, "random.choices")] for _ in range(k)]

    def normal(self: Any, mu: Any = 0.0, sigma: Any = 1.0) -> Value:
        return continuous.normal(Source(search, "random.gauss")) * sigma + mu

    def exponential(self: Any, lambd: Any = 1.0) -> Value:
        return continuous.exponential(Source(search, "random.expovariate")) / lambd

    def coins(self: Any, n: int = 1, p: Any = 0.5) -> int:
        return binomial(search, n, p, "random.binomialvariate")

    def keep_seed(self: Any, *args: Any, **kwargs: Any) -> None:
        """All seeds are enumerated."""

    found: dict[str, Callable[..., Any]] = {
        "random": uniform,
        "getrandbits": bits,
        "_randbelow": below,
        "choices": choices,
        "gauss": normal,
        "normalvariate": normal,
        "expovariate": exponential,
        "binomialvariate": coins,
        "seed": keep_seed,
    }
    for name in ("gammavariate", "betavariate", "vonmisesvariate", "weibullvariate", "randbytes"):
        found[name] = _not_followed(f"random.{name}")
    return found


def _not_followed(what: str) -> Callable[..., Any]:
    def draw(*args: Any, **kwargs: Any) -> Any:
        raise refuse(f"{what} draws what does not become a finite choice here")

    return draw


def _of_draws(name: str, function: Callable[[Draw], Value]) -> Callable[..., Any]:
    """A function of `math` that also takes a continuous draw."""
    plain = getattr(math, name)

    def either(value: Any, *more: Any) -> Any:
        if not isinstance(value, Draw):
            return plain(value, *more)
        found = function(value)
        return found / plain(*more) if more else found

    return either


MATH: dict[str, Callable[..., Any]] = {
    "log": _of_draws("log", continuous.log),
    "log2": _of_draws("log2", lambda x: x.log2()),
    "log10": _of_draws("log10", lambda x: x.log10()),
    "log1p": _of_draws("log1p", lambda x: x.log1p()),
    "exp": _of_draws("exp", continuous.exp),
    "expm1": _of_draws("expm1", lambda x: x.expm1()),
    "sqrt": _of_draws("sqrt", lambda x: continuous.power(x, 0.5)),
    "tanh": _of_draws("tanh", lambda x: x.tanh()),
    "fabs": _of_draws("fabs", abs),
}


def _module_functions() -> list[str]:
    """Functions of the module that are methods of its one hidden instance."""
    return [
        name
        for name, value in vars(random).items()
        if isinstance(getattr(value, "__self__", None), random.Random)
    ]


@contextlib.contextmanager
def opened(search: Search) -> Iterator[dict[int, Any]]:
    """The door open; gives what stands for which function, for names that a program imported."""
    kept_class = dict(vars(random.Random))
    kept_module = {name: getattr(random, name) for name in _module_functions()}
    kept_math = {name: getattr(math, name) for name in MATH}
    hidden = kept_module["random"].__self__
    replaced = methods(search)
    try:
        for name, function in replaced.items():
            setattr(random.Random, name, function)
        for name in kept_module:
            setattr(random, name, getattr(hidden, name))
        for name, function in MATH.items():
            setattr(math, name, function)
        swaps = {id(old): getattr(random, name) for name, old in kept_module.items()}
        swaps |= {id(old): MATH[name] for name, old in kept_math.items()}
        yield swaps
    finally:
        for name, function in kept_math.items():
            setattr(math, name, function)
        for name, function in kept_module.items():
            setattr(random, name, function)
        for name in replaced:
            if name in kept_class:
                setattr(random.Random, name, kept_class[name])
            else:
                delattr(random.Random, name)
