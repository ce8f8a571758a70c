"""The door of numpy: `Generator`, `RandomState` and the functions of `np.random`.

Methods of numpy's generators cannot be exchanged, so the generators are: those that a program
makes, is given, or keeps in its module, its closure or its own attributes.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from triptych.laws import continuous
from triptych.laws.continuous import Draw, Value
from triptych.laws.doors import whole_numbers
from triptych.laws.doors.draw_arrays import as_array
from triptych.laws.races import Source
from triptych.laws.search import Search, refuse

_SUM = 1e-8  # how far from 1 numpy lets probabilities sum


class _Draws:
    """What both kinds of generators draw."""

    search: Search

    # ---- continuous

    def _filled(self, size: Any, what: str, make: Callable[[Source], Value]) -> Any:
        if size is None:
            return make(Source(self.search, what))
        shape = _shape(size)
        return as_array([make(Source(self.search, what)) for _ in range(math.prod(shape))], shape)

    def random(self, size: Any = None, *args: Any, **kwargs: Any) -> Any:
        return self._filled(size, "np.random", continuous.uniform)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        low, high = _number(low, "low"), _number(high, "high")
        return self._filled(
            size, "np.uniform", lambda s: continuous.uniform(s) * (high - low) + low
        )

    def standard_exponential(self, size: Any = None, *args: Any, **kwargs: Any) -> Any:
        return self._filled(size, "np.exponential", continuous.exponential)

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        if np.ndim(scale):
            return self._filled(np.shape(scale), "np.exponential", continuous.exponential) * scale
        scale = _number(scale, "scale")
        return self._filled(size, "np.exponential", lambda s: continuous.exponential(s) * scale)

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        if np.ndim(loc):
            return self._filled(np.shape(loc), "np.gumbel", continuous.gumbel) * scale + loc
        loc, scale = _number(loc, "loc"), _number(scale, "scale")
        return self._filled(size, "np.gumbel", lambda s: continuous.gumbel(s) * scale + loc)

    def standard_normal(self, size: Any = None, *args: Any, **kwargs: Any) -> Any:
        return self._filled(size, "np.normal", continuous.normal)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        loc, scale = _number(loc, "loc"), _number(scale, "scale")
        return self._filled(size, "np.normal", lambda s: continuous.normal(s) * scale + loc)

    # ---- whole numbers

    def _whole(self, size: Any, draw: Callable[[], int], dtype: Any = np.int64) -> Any:
        if size is None:
            return dtype(draw())
        shape = _shape(size)
        return np.array([draw() for _ in range(math.prod(shape))], dtype=dtype).reshape(shape)

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
    ) -> Any:
        """low..high-1, or 0..low-1; with `endpoint` the last one too."""
        if high is None:
            low, high = 0, low
        low, high = int(_number(low, "low")), int(_number(high, "high")) + int(endpoint)
        if high <= low:
            raise ValueError("low >= high")
        return self._whole(
            size,
            lambda: low + whole_numbers.evenly(self.search, high - low, "np.integers"),
            np.dtype(dtype).type,
        )

    def binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        n, p = int(_number(n, "n")), _number(p, "p")
        return self._whole(size, lambda: whole_numbers.binomial(self.search, n, p, "np.binomial"))

    def geometric(self, p: Any, size: Any = None) -> Any:
        p = _number(p, "p")
        return self._whole(size, lambda: whole_numbers.geometric(self.search, p, "np.geometric"))

    def poisson(self, lam: Any = 1.0, size: Any = None) -> Any:
        lam = _number(lam, "lam")
        return self._whole(size, lambda: whole_numbers.poisson(self.search, lam, "np.poisson"))

    def multinomial(self, n: Any, pvals: Any, size: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Counts, one after the other: each is binomial among what is left."""
        probs = np.asarray(pvals, dtype=np.float64)
        if probs.ndim != 1:
            raise refuse("np.multinomial with several laws at once is not followed")
        if probs[:-1].sum() > 1 + 1e-12:
            raise ValueError("sum(pvals[:-1]) > 1.0")
        shape = () if size is None else _shape(size)
        rows = [self._counts(int(n), probs.tolist()) for _ in range(math.prod(shape))]
        return np.array(rows, dtype=np.int64).reshape(*shape, len(probs))

    def _counts(self, n: int, probs: list[float]) -> list[int]:
        counts, left, mass = [], n, 1.0
        for p in probs[:-1]:
            share = min(1.0, p / mass) if mass > 0 else 0.0
            counts.append(
                whole_numbers.binomial(self.search, left, share, "np.multinomial") if left else 0
            )
            left -= counts[-1]
            mass -= p
        return [*counts, left]

    # ---- choices among things

    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
    ) -> Any:
        """Things by probability, with or without replacement."""
        things = np.arange(int(a)) if np.ndim(a) == 0 else np.asarray(a)
        count = things.shape[axis]
        if count == 0:
            raise ValueError("a cannot be empty unless no samples are taken")
        probs = _probabilities(p, count)
        shape = () if size is None else _shape(size)
        wanted = math.prod(shape)
        if replace or size is None:
            drawn = [self.search.choose(probs, "np.choice") for _ in range(wanted)]
        else:
            if wanted > count:
                raise ValueError(
                    "Cannot take a larger sample than population when replace is False"
                )
            if not shuffle:
                raise refuse("the order of np.choice without shuffle is not promised by numpy")
            drawn = whole_numbers.some_of(self.search, probs, wanted, False, "np.choice")
        if size is None:
            return np.take(things, drawn[0], axis=axis)
        return np.take(things, np.array(drawn, dtype=np.int64).reshape(shape), axis=axis)

    def permutation(self, x: Any, axis: int = 0) -> Any:
        things = np.arange(int(x)) if np.ndim(x) == 0 else np.asarray(x)
        order = whole_numbers.permutation(self.search, things.shape[axis], "np.permutation")
        return np.take(things, order, axis=axis)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        order = whole_numbers.permutation(self.search, len(x), "np.shuffle")
        if isinstance(x, np.ndarray):
            x[...] = np.take(x, order, axis=axis)
        else:
            x[:] = [x[k] for k in order]

    def permuted(self, x: Any, *, axis: Any = None, out: Any = None) -> Any:
        things = np.asarray(x)
        if things.ndim != 1 or out is not None:
            raise refuse("np.permuted is followed for one dimension, without out")
        return self.permutation(things)


def _shape(size: Any) -> tuple[int, ...]:
    return (int(size),) if np.ndim(size) == 0 else tuple(int(n) for n in size)


def _number(value: Any, name: str) -> float:
    if np.ndim(value) or isinstance(value, Draw):
        raise refuse(f"np.random is given an array, or a continuous draw, as {name}")
    return float(value)


def _probabilities(p: Any, count: int) -> list[float]:
    if p is None:
        return [1 / count] * count
    probs = np.asarray(p, dtype=np.float64)
    if probs.shape != (count,):
        raise ValueError("a and p must have same size")
    if (probs < 0).any():
        raise ValueError("Probabilities are not non-negative")
    dtype = np.asarray(p).dtype
    within = max(_SUM, float(np.sqrt(np.finfo(dtype).eps))) if dtype.kind == "f" else _SUM
    if not abs(probs.sum() - 1) <= within:
        raise ValueError("Probabilities do not sum to 1")
    return (probs / probs.sum()).tolist()


def _closed(kind: type, opened: type) -> dict[str, Callable[..., Any]]:
    """Methods of numpy's that no door answers, each with a refusal."""
    kept = {"bit_generator", "spawn", "get_state", "set_state", "seed"}
    return {
        name: _not_followed(f"np.random's {name}")
        for name in dir(kind)
        if not name.startswith("_") and name not in kept and not hasattr(opened, name)
    }


def _not_followed(what: str) -> Callable[..., Any]:
    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise refuse(f"{what} draws what does not become a finite choice here")

    return draw


def _legacy(search: Search) -> type:
    class OpenRandomState(_Draws, np.random.RandomState):  # pyright: ignore[reportIncompatibleMethodOverride]
        def seed(self, *args: Any, **kwargs: Any) -> None:
            """All seeds are enumerated."""

        def random_sample(self, size: Any = None) -> Any:
            return self.random(size)

        def rand(self, *shape: int) -> Any:
            return self.random(shape or None)

        def randn(self, *shape: int) -> Any:
            return self.standard_normal(shape or None)

        def randint(
            self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64
        ) -> Any:
            return self.integers(low, high, size, np.int64 if dtype is int else dtype)

        def random_integers(self, low: Any, high: Any = None, size: Any = None) -> Any:
            low, high = (1, low) if high is None else (low, high)
            return self.integers(low, high, size, endpoint=True)

        ranf = sample = random_sample

    return _finished(OpenRandomState, np.random.RandomState, search)


def _modern(search: Search) -> type:
    class OpenGenerator(_Draws, np.random.Generator):  # pyright: ignore[reportIncompatibleMethodOverride]
        def spawn(self, n_children: int) -> list[Any]:
            return [type(self)(np.random.PCG64(0)) for _ in range(n_children)]

    return _finished(OpenGenerator, np.random.Generator, search)


def _finished(opened: type, kind: type, search: Search) -> type:
    for name, refusal in _closed(kind, _Draws).items():
        if name not in vars(opened):
            setattr(opened, name, refusal)
    opened.search = search  # type: ignore[attr-defined]
    return opened


class Kinds(NamedTuple):
    """Open classes of generators, and one of each; the same ones whenever the door opens again."""

    generator: type
    state: type
    fresh: Any
    legacy: Any

    @classmethod
    def of(cls, search: Search) -> "Kinds":
        generator, state = _modern(search), _legacy(search)
        return cls(generator, state, generator(np.random.PCG64(0)), state(0))


@contextlib.contextmanager
def opened(kinds: Kinds) -> Iterator[Callable[[Any], Any]]:
    """The door open; gives what stands for a generator or a function of np.random, else None."""
    generator, state, fresh, legacy = kinds
    hidden = np.random.mtrand._rand
    kept = {name: getattr(np.random, name) for name in _functions(hidden)}
    kept |= {name: getattr(np.random, name) for name in ("default_rng", "Generator", "RandomState")}
    by_id: dict[int, Any] = {
        id(old): getattr(legacy, name) for name, old in kept.items() if hasattr(legacy, name)
    }

    def make(*seed: Any, **named: Any) -> Any:
        return generator(np.random.PCG64(0))

    by_id[id(np.random.default_rng)] = make

    def stand_in(value: Any) -> Any:
        if isinstance(value, _Draws):
            return None
        if isinstance(value, kept["Generator"]):
            return fresh
        if isinstance(value, kept["RandomState"]):
            return legacy
        return by_id.get(id(value))

    try:
        for name, old in kept.items():
            if id(old) in by_id:
                setattr(np.random, name, by_id[id(old)])
        np.random.Generator, np.random.RandomState = generator, state  # type: ignore[misc]
        np.random.mtrand._rand = legacy
        yield stand_in
    finally:
        np.random.mtrand._rand = hidden
        for name, old in kept.items():
            setattr(np.random, name, old)


def _functions(hidden: Any) -> Sequence[str]:
    return [
        name
        for name, value in vars(np.random).items()
        if getattr(value, "__self__", None) is hidden and hasattr(hidden, name)
    ]
