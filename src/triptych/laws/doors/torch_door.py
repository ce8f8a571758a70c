"""The door of torch: its functions and tensor methods that draw are answered by the search.

What draws whole numbers is a choice at once. What draws real numbers gives tensors of continuous
draws (`cells`), and every function that gets one of them is followed, or refused.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from triptych.laws import continuous
from triptych.laws.continuous import Draw, Value
from triptych.laws.doors import followed
from triptych.laws.doors.cells import Cells
from triptych.laws.doors.whole_numbers import (
    binomial,
    evenly,
    geometric,
    permutation,
    poisson,
    some_of,
)
from triptych.laws.races import Source
from triptych.laws.search import Search, refuse

_GRIDS = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


class TorchDoor(TorchFunctionMode):
    """Active while the program runs; `begin` forgets what was drawn in the run before."""

    def __init__(self, search: Search) -> None:
        super().__init__()
        self.search = search
        self.cells = Cells()

    def begin(self) -> None:
        self.cells.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        draw = _DRAWS.get(name)
        if getattr(func, "__module__", None) == "torch.nn.init":
            raise refuse(
                f"torch.nn.init.{name} draws weights of a network, which are real numbers; make "
                "the network before, and let the program use it"
            )
        if draw is not None:
            return draw(self, func, args, kwargs)
        if self.cells.may_hold(args) or (kwargs and self.cells.may_hold(kwargs.values())):
            return followed.follow(self.cells, func, name, args, kwargs)
        return func(*args, **kwargs)

    def source(self, what: str, dtype: torch.dtype | None = None) -> Source:
        grid = _GRIDS.get(dtype, 0.0) if dtype is not None else 0.0
        return Source(self.search, what, grid)


# ------------------------------------------------------------------ choices at once

_Args = Sequence[Any]
_Options = dict[str, Any]


def _given(args: _Args, kwargs: _Options, names: Sequence[str]) -> dict[str, Any]:
    """Arguments by name."""
    return dict(zip(names, args, strict=False)) | kwargs


def _into(out: Tensor | None, found: Tensor) -> Tensor:
    if out is None:
        return found
    out.resize_(found.shape)
    return out.copy_(found)


def _multinomial(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
    given = _given(args, kwargs, ("input", "num_samples", "replacement"))
    weights: Tensor = given["input"]
    count = int(given["num_samples"])
    replacement = bool(given.get("replacement", False))
    if door.cells.has_draws(weights):
        raise refuse("torch.multinomial is given continuous draws as its weights")
    rows = weights.detach().double().reshape(-1, weights.shape[-1]).tolist()
    if weights.ndim not in (1, 2) or any(_is_no_law(row) for row in rows):
        return func(*args, **kwargs)  # torch says what is wrong
    drawn = [some_of(door.search, row, count, replacement, "torch.multinomial") for row in rows]
    found = torch.tensor(drawn, dtype=torch.long, device=weights.device)
    return _into(given.get("out"), found.reshape(*weights.shape[:-1], count))


def _is_no_law(weights: Sequence[float]) -> bool:
    total = sum(weights)
    return not (0 < total < math.inf) or min(weights) < 0


def _bernoulli(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
    """torch.bernoulli(probs), x.bernoulli(p=...), torch.bernoulli(x, p)."""
    given = _given(args, kwargs, ("input", "p"))
    shaped: Tensor = given["input"]
    probs = shaped if given.get("p") is None else given["p"]
    found = torch.zeros_like(shaped, requires_grad=False)
    _flip_coins(door, found, probs)
    return _into(given.get("out"), found)


def _bernoulli_in_place(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
    given = _given(args, kwargs, ("self", "p"))
    return _flip_coins(door, given["self"], given.get("p", 0.5))


def _flip_coins(door: TorchDoor, into: Tensor, probs: Tensor | float) -> Tensor:
    if isinstance(probs, Tensor) and door.cells.has_draws(probs):
        raise refuse("torch.bernoulli is given continuous draws as its probabilities")
    table = probs if isinstance(probs, Tensor) else torch.tensor(float(probs))
    chances = table.detach().double().expand(into.shape).reshape(-1).tolist()
    if any(not 0 <= p <= 1 for p in chances):
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    drawn = [door.search.choose([1 - p, p], "torch.bernoulli") for p in chances]
    return door.cells.put(into, [float(k) for k in drawn])


def _randint(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
    """randint(high, size) or randint(low, high, size)."""
    options = {k: v for k, v in kwargs.items() if k not in _NOT_OF_EMPTY}
    given = dict(kwargs)
    names = ("low", "high", "size") if len(args) == 3 or "low" in kwargs else ("high", "size")
    if len(args) == 2 and not isinstance(args[1], Sequence | torch.Size):
        names = ("low", "high")
    given |= dict(zip([n for n in names if n not in kwargs], args, strict=False))
    low, high = int(given.get("low") or 0), int(given["high"])
    for name in ("low", "high", "size"):
        options.pop(name, None)
    options.setdefault("dtype", torch.long)
    found = torch.zeros(tuple(given["size"]), **options)
    return _into(kwargs.get("out"), _whole_numbers(door, found, low, high, "torch.randint"))


def _randint_like(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
    names = ("input", "low", "high") if len(args) == 3 or "low" in kwargs else ("input", "high")
    given = _given(args, kwargs, names)
    options = {k: v for k, v in kwargs.items() if k in ("dtype", "device", "layout")}
    found = torch.zeros_like(given["input"], **options)
    low = int(given.get("low", 0))
    return _whole_numbers(door, found, low, int(given["high"]), "torch.randint_like")


def _random_in_place(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
    """x.random_(), x.random_(to), x.random_(from, to)."""
    into, *ends = args
    ends = [*ends, *(kwargs[k] for k in ("from", "to") if k in kwargs)]
    if not ends or ends[-1] is None:
        raise refuse("random_ without an upper end draws from more numbers than can be enumerated")
    low, high = (0, ends[0]) if len(ends) == 1 else ends
    return _whole_numbers(door, into, int(low), int(high), "random_")


def _whole_numbers(door: TorchDoor, into: Tensor, low: int, high: int, what: str) -> Tensor:
    if high <= low:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got {low} >= {high}")
    drawn = [low + evenly(door.search, high - low, what) for _ in range(into.numel())]
    return door.cells.put(into, drawn)


def _randperm(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
    given = _given(args, kwargs, ("n",))
    options = {k: v for k, v in kwargs.items() if k not in (*_NOT_OF_EMPTY, "n")}
    options.setdefault("dtype", torch.long)
    order = permutation(door.search, int(given["n"]), "torch.randperm")
    return _into(kwargs.get("out"), torch.tensor(order, **options))


def _poisson(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
    rates: Tensor = _given(args, kwargs, ("input",))["input"]
    drawn: list[Value] = [
        float(poisson(door.search, rate, "torch.poisson"))
        for rate in rates.detach().double().reshape(-1).tolist()
    ]
    return door.cells.put(torch.zeros_like(rates), drawn)


def _binomial(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
    given = _given(args, kwargs, ("count", "prob"))
    counts, chances = torch.broadcast_tensors(given["count"], given["prob"])
    drawn: list[float] = []
    for n, p in zip(
        counts.reshape(-1).tolist(), chances.double().reshape(-1).tolist(), strict=True
    ):
        drawn.append(float(binomial(door.search, int(n), p, "torch.binomial")))
    return door.cells.put(torch.zeros_like(counts), drawn)


def _dropout(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Any:
    given = _given(args, kwargs, ("input", "p", "training" if func.__module__ else "train"))
    rate = float(given.get("p", 0.5))
    training = given.get("training", given.get("train", True))
    if not training or rate == 0:
        return func(*args, **kwargs)
    if func.__name__ not in ("dropout", "dropout_"):
        raise refuse(
            f"{func.__name__} in training draws what is not followed here; set it to evaluate"
        )
    inputs: Tensor = given["input"]
    kept = _flip_coins(door, torch.zeros_like(inputs, requires_grad=False), 1 - rate)
    scale = 1 / (1 - rate) if rate < 1 else 0.0
    if func.__name__ == "dropout_" or given.get("inplace"):
        return inputs.mul_(kept * scale)
    return inputs * kept * scale


# ------------------------------------------------------------------ continuous draws

_NOT_OF_EMPTY = ("generator", "out", "names", "mean", "std")

Maker = Callable[[Source], Draw]


def _fresh(
    door: TorchDoor, into: Tensor, what: str, make: Maker, shift: Any = 0.0, scale: Any = 1.0
) -> Tensor:
    """Fill a tensor with independent draws shift + scale · X."""
    dtype = into.dtype if make is continuous.uniform else None
    if not into.is_floating_point():
        raise refuse(f"{what} fills a tensor of {into.dtype}")
    shifts, scales = (_each(value, into) for value in (shift, scale))
    values: list[Value] = [
        make(door.source(what, dtype)) * b + a for a, b in zip(shifts, scales, strict=True)
    ]
    return door.cells.put(into, values)


def _each(value: Any, like: Tensor) -> list[float]:
    if isinstance(value, Tensor):
        return value.detach().double().expand(like.shape).reshape(-1).tolist()
    return [float(value)] * like.numel()


def _factory(what: str, make: Maker) -> Callable[..., Tensor]:
    def draw(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
        options = {k: v for k, v in kwargs.items() if k not in _NOT_OF_EMPTY}
        if what.endswith("_like"):
            into = torch.zeros_like(*args, **options)
        else:
            into = torch.zeros(*args, **options)
        if (out := kwargs.get("out")) is not None:
            into = out.resize_(into.shape)
        return _fresh(door, into, f"torch.{what}", make)

    return draw


def _filled(
    what: str, make: Maker, defaults: dict[str, float], place: Callable[..., tuple[Any, Any]]
) -> Callable[..., Tensor]:
    """An in-place form; `place` turns its arguments into shift and scale."""

    def draw(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
        given = defaults | _given(args[1:], kwargs, tuple(defaults))
        shift, scale = place(*(given[name] for name in defaults))
        into = args[0] if args else kwargs["self"]
        return _fresh(door, into, what, make, shift, scale)

    return draw


def _normal(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
    given = _given(args, kwargs, ("mean", "std", "size"))
    mean, std = given.get("mean", 0.0), given.get("std", 1.0)
    shapes = [value.shape for value in (mean, std) if isinstance(value, Tensor)]
    shape = torch.broadcast_shapes(*shapes) if shapes else tuple(given["size"])
    like = next((value for value in (mean, std) if isinstance(value, Tensor)), None)
    options = {k: kwargs[k] for k in ("dtype", "device") if k in kwargs}
    into = torch.zeros(shape, **options) if like is None else torch.zeros(shape, dtype=like.dtype)
    return _fresh(door, _into(given.get("out"), into), "torch.normal", continuous.normal, mean, std)


def _log_normal(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
    given = _given(args, kwargs, ("self", "mean", "std"))
    into = _fresh(
        door,
        given["self"],
        "log_normal_",
        continuous.normal,
        given.get("mean", 1.0),
        given.get("std", 2.0),
    )
    return door.cells.put(
        into,
        [
            continuous.exp(x) if isinstance(x, Draw) else math.exp(x)
            for x in door.cells.values(into)
        ],
    )


def _geometric(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
    into, p = args[0], float(args[1] if len(args) > 1 else kwargs["p"])
    drawn: list[Value] = [
        float(geometric(door.search, p, "geometric_")) for _ in range(into.numel())
    ]
    return door.cells.put(into, drawn)


def _gumbel_softmax(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Tensor:
    given = _given(args, kwargs, ("logits", "tau", "hard", "eps", "dim"))
    logits: Tensor = given["logits"]
    tau, dim = float(given.get("tau", 1)), int(given.get("dim", -1))
    noise = _fresh(door, torch.zeros_like(logits.detach()), "gumbel_softmax", continuous.gumbel)
    with door:
        soft = ((logits.detach() + noise) / tau).softmax(dim)
        if not given.get("hard", False):
            return soft
        index = soft.argmax(dim, keepdim=True)
    return torch.zeros_like(logits.detach()).scatter_(dim, index, 1.0)


def _not_followed(what: str) -> Callable[..., Any]:
    def draw(door: TorchDoor, func: Any, args: _Args, kwargs: _Options) -> Any:
        raise refuse(f"{what} draws real numbers that do not become a finite choice here")

    return draw


_DRAWS: dict[str, Callable[..., Any]] = {
    "multinomial": _multinomial,
    "bernoulli": _bernoulli,
    "bernoulli_": _bernoulli_in_place,
    "randint": _randint,
    "randint_like": _randint_like,
    "random_": _random_in_place,
    "randperm": _randperm,
    "poisson": _poisson,
    "binomial": _binomial,
    "rand": _factory("rand", continuous.uniform),
    "rand_like": _factory("rand_like", continuous.uniform),
    "randn": _factory("randn", continuous.normal),
    "randn_like": _factory("randn_like", continuous.normal),
    "uniform_": _filled(
        "uniform_",
        continuous.uniform,
        {"from": 0.0, "to": 1.0},
        lambda low, high: (low, high - low),
    ),
    "exponential_": _filled(
        "exponential_", continuous.exponential, {"lambd": 1.0}, lambda rate: (0.0, 1.0 / rate)
    ),
    "normal_": _filled("normal_", continuous.normal, {"mean": 0.0, "std": 1.0}, lambda *ends: ends),
    "normal": _normal,
    "log_normal_": _log_normal,
    "geometric_": _geometric,
    "gumbel_softmax": _gumbel_softmax,
    "cauchy_": _not_followed("cauchy_"),
    "_standard_gamma": _not_followed("a gamma distribution"),
    "_sample_dirichlet": _not_followed("a Dirichlet distribution"),
    "rrelu": _not_followed("rrelu"),
    "dropout": _dropout,
    "dropout_": _dropout,
    "alpha_dropout": _dropout,
    "feature_dropout": _dropout,
    "feature_alpha_dropout": _dropout,
}
