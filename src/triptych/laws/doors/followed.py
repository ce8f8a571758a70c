"""What torch's functions do to tensors that hold continuous draws: moved, computed, compared.

A function that is in none of the lists is refused where it is called.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from triptych.laws import continuous, forms, orders
from triptych.laws.continuous import Draw, Value
from triptych.laws.doors.cells import Cells
from triptych.laws.doors.draw_arrays import as_array
from triptych.laws.doors.names import MOVES, ONLY_LOOK
from triptych.laws.search import refuse

_DTYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "long": torch.int64,
    "int": torch.int32,
    "short": torch.int16,
    "bool": torch.bool,
}


def follow(cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of a function of torch; of one without draws, the function's own."""
    if not any(_holds(cells, arg) for arg in (*args, *kwargs.values())):
        return func(*args, **kwargs)
    if name in ONLY_LOOK:
        return func(*args, **kwargs)
    if name in MOVES:
        return cells.moved(func, args, kwargs)
    plain = name.strip("_")
    in_place = name.endswith("_") and not name.endswith("__")
    if (name.startswith("__i") and plain[1:] in _BINARY) or plain == "itruediv":
        plain, in_place = plain[1:], True
    for table, way in _WAYS:
        if plain in table:
            return way(cells, func, plain, args, kwargs, in_place)
    raise refuse(
        f"torch's {name} is given continuous draws; what it makes of them is not followed here"
    )


def _holds(cells: Cells, arg: Any) -> bool:
    if isinstance(arg, Tensor):
        return cells.has_draws(arg)
    if isinstance(arg, list | tuple):
        return any(_holds(cells, item) for item in arg)
    return isinstance(arg, Draw)


# ------------------------------------------------------------------ one cell at a time


def _values(cells: Cells, arg: Any, shape: Sequence[int]) -> list[Value]:
    if isinstance(arg, Tensor):
        return cells.values(arg, shape)
    return [arg if isinstance(arg, Draw) else float(arg)] * math.prod(shape)


def _shape(args: Sequence[Any]) -> torch.Size:
    return torch.broadcast_shapes(*(arg.shape for arg in args if isinstance(arg, Tensor)))


def _without_draws(arg: Any) -> Any:
    return math.nan if isinstance(arg, Draw) else arg


def _store(
    cells: Cells, args: Sequence[Any], kwargs: dict[str, Any], values: list[Value], in_place: bool
) -> Tensor:
    """Where the result goes: into the first tensor, into `out`, or into a new one."""
    if in_place:
        return cells.put(args[0], values)
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    dtype = torch.result_type(*tensors[:2]) if len(tensors) > 1 else tensors[0].dtype
    if not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    shape = _shape(args)
    if (out := kwargs.get("out")) is not None:
        return cells.put(out.resize_(shape), values)
    return cells.put(torch.zeros(shape, dtype=dtype, device=tensors[0].device), values)


def _binary(
    cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any], in_place: bool
) -> Tensor:
    a, b = args[0], args[1] if len(args) > 1 else kwargs["other"]
    function = _BINARY[name]
    if (alpha := kwargs.get("alpha", 1)) != 1:
        b = b * alpha
    if kwargs.get("rounding_mode") is not None:
        if kwargs["rounding_mode"] != "floor":
            raise refuse("a division of continuous draws rounds towards 0")
        function = _BINARY["floor_divide"]
    shape = _shape([a, b])
    pairs = zip(_values(cells, a, shape), _values(cells, b, shape), strict=True)
    return _store(cells, [a, b], kwargs, [function(x, y) for x, y in pairs], in_place)


def _divide(x: Value, y: Value) -> Value:
    if isinstance(x, Draw) or isinstance(y, Draw):
        return x / y
    if y == 0:
        return math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x)
    return x / y


def _raise(x: Value, y: Value) -> Value:
    if isinstance(x, Draw) or isinstance(y, Draw):
        return x**y
    return float(torch.tensor(x, dtype=torch.float64).pow(y))


_BINARY: dict[str, Callable[[Any, Any], Value]] = {
    "add": lambda x, y: x + y,
    "radd": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "subtract": lambda x, y: x - y,
    "rsub": lambda x, y: y - x,
    "mul": lambda x, y: x * y,
    "multiply": lambda x, y: x * y,
    "rmul": lambda x, y: x * y,
    "div": _divide,
    "divide": _divide,
    "true_divide": _divide,
    "truediv": _divide,
    "rdiv": lambda x, y: _divide(y, x),
    "rtruediv": lambda x, y: _divide(y, x),
    "pow": _raise,
    "rpow": lambda x, y: _raise(y, x),
    "floor_divide": lambda x, y: float(x // y),
    "floordiv": lambda x, y: float(x // y),
    "remainder": lambda x, y: x % y,
    "mod": lambda x, y: x % y,
    "maximum": lambda x, y: (x, y)[orders.best([x, y], True)],
    "minimum": lambda x, y: (x, y)[orders.best([x, y], False)],
    "fmod": lambda x, y: x % y,
}


def _unary(
    cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any], in_place: bool
) -> Tensor:
    function = _UNARY[name]
    values = [
        function(x) if isinstance(x, Draw) else _of_number(func, x) for x in cells.values(args[0])
    ]
    return _store(cells, args[:1], kwargs, values, in_place)


def _of_number(func: Any, value: float) -> float:
    return float(func(torch.tensor(value, dtype=torch.float64)))


_UNARY: dict[str, Callable[[Draw], Value]] = {
    "neg": lambda x: -x,
    "negative": lambda x: -x,
    "log": continuous.log,
    "log2": lambda x: x.log2(),
    "log10": lambda x: x.log10(),
    "log1p": lambda x: x.log1p(),
    "exp": continuous.exp,
    "expm1": lambda x: x.expm1(),
    "exp2": lambda x: 2.0**x,
    "sqrt": lambda x: continuous.power(x, 0.5),
    "rsqrt": lambda x: continuous.power(x, -0.5),
    "square": lambda x: continuous.power(x, 2.0),
    "reciprocal": lambda x: continuous.power(x, -1.0),
    "abs": abs,
    "floor": lambda x: float(x.floor()),
    "ceil": lambda x: float(x.ceil()),
    "trunc": lambda x: float(x.trunc()),
    "round": lambda x: float(x.rint()),
    "frac": lambda x: x % 1,
    "sigmoid": lambda x: continuous.monotone(x, forms.SIGMOID),
    "tanh": lambda x: x.tanh(),
    "logit": lambda x: continuous.monotone(x, forms.LOGIT),
    "relu": lambda x: x if x > 0 else 0.0,
    "sign": lambda x: 1.0 if x > 0 else -1.0,
}


def _clamp(
    cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any], in_place: bool
) -> Tensor:
    names = {"clamp": ("min", "max"), "clip": ("min", "max")}.get(name, (name[6:],))
    ends = dict(zip(names, args[1:], strict=False)) | {
        k: v for k, v in kwargs.items() if k in ("min", "max")
    }
    low, high = ends.get("min"), ends.get("max")
    low = -math.inf if low is None else float(low)
    high = math.inf if high is None else float(high)
    values = [
        continuous.clamped(x, low, high) if isinstance(x, Draw) else min(max(x, low), high)
        for x in cells.values(args[0])
    ]
    return _store(cells, args[:1], kwargs, values, in_place)


# ------------------------------------------------------------------ comparisons


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda x, y: x < y,
    "less": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "less_equal": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "greater": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "greater_equal": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "not_equal": lambda x, y: x != y,
}
_CLOSED = {"le", "less_equal", "gt", "greater"}  # where {x <= y} and its complement are asked for


def _compare(
    cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any], in_place: bool
) -> Tensor:
    a, b = args[0], args[1] if len(args) > 1 else kwargs["other"]
    shape = _shape([a, b])
    left, right = _values(cells, a, shape), _values(cells, b, shape)
    if name not in ("eq", "ne", "not_equal"):
        _choose_pieces(left, right, name in _CLOSED)
        _choose_pieces(right, left, name not in _CLOSED)
    found = [_COMPARED[name](x, y) for x, y in zip(left, right, strict=True)]
    device = a.device if isinstance(a, Tensor) else b.device
    result = torch.tensor(found, dtype=torch.bool, device=device).reshape(shape)
    if in_place:
        return cells.put(args[0], [float(x) for x in found])
    out = kwargs.get("out")
    return result if out is None else out.resize_(shape).copy_(result)


def _choose_pieces(draws: Sequence[Value], limits: Sequence[Value], closed: bool) -> None:
    """One choice for a draw that is compared with several numbers, as with a cumulative sum."""
    edges: dict[int, tuple[Draw, set[float]]] = {}
    for draw, limit in zip(draws, limits, strict=True):
        if isinstance(draw, Draw) and not isinstance(limit, Draw) and not math.isnan(limit):
            edges.setdefault(id(draw), (draw, set()))[1].add(limit)
    for draw, numbers in edges.values():
        if len(numbers) > 1:
            continuous.place_among(draw, sorted(numbers), not closed)


# ------------------------------------------------------------------ orders


def _rows(cells: Cells, tensor: Tensor, dim: int) -> Iterator[list[Value]]:
    """The values along a dimension, for all that is outside it in order."""
    numbers = cells.numbers_or_plain(tensor).movedim(dim, -1)
    plain = tensor.detach().movedim(dim, -1)
    width = plain.shape[-1]
    for row, own in zip(
        plain.reshape(-1, width).tolist(), numbers.reshape(-1, width).tolist(), strict=True
    ):
        yield [cells.draws[k] if k >= 0 else x for x, k in zip(row, own, strict=True)]


def _along(
    cells: Cells, tensor: Tensor, dim: int, pick: Callable[[list[Value]], list[int]]
) -> Tensor:
    """Positions that `pick` gives of every row, along the dimension."""
    positions = [pick(row) for row in _rows(cells, tensor, dim)]
    outside = tensor.movedim(dim, -1).shape[:-1]
    found = torch.tensor(positions, dtype=torch.long, device=tensor.device)
    return found.reshape(*outside, -1).movedim(-1, dim)


def _extreme(
    cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any], in_place: bool
) -> Any:
    """argmax, argmin, max, min, amax and amin."""
    largest = name.endswith("max")
    if name in ("max", "min") and isinstance(
        kwargs.get("other", args[1] if len(args) > 1 else 0), Tensor
    ):
        return _binary(cells, func, f"{name}imum", args, kwargs, False)
    tensor: Tensor = args[0]
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    keepdim = bool(kwargs.get("keepdim", args[2] if len(args) > 2 else False))
    if dim is None:
        flat = tensor.reshape(-1)
        at = orders.best(cells.values(tensor), largest)
        if name.startswith("arg"):
            return torch.tensor(at, device=tensor.device)
        return cells.moved(torch.select, (flat, 0, at), {})
    if not isinstance(dim, int):
        if len(dim) != 1:
            raise refuse(f"torch's {name} over several dimensions of continuous draws")
        dim = int(dim[0])
    index = _along(cells, tensor, dim, lambda row: [orders.best(row, largest)])
    values = cells.moved(torch.take_along_dim, (tensor, index, dim), {})
    if not keepdim:
        index, values = index.squeeze(dim), cells.moved(torch.squeeze, (values, dim), {})
    if name.startswith("arg"):
        return index
    if name in ("amax", "amin"):
        return values
    return (torch.return_types.max if largest else torch.return_types.min)((values, index))


def _order(
    cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any], in_place: bool
) -> Any:
    """sort, argsort, msort, topk and kthvalue."""
    tensor: Tensor = args[0]
    if name in ("topk", "kthvalue"):
        names = ("k", "dim", "largest", "sorted")
    elif len(args) > 1 and isinstance(args[1], bool):
        names = ("descending", "dim")
    else:
        names = ("dim", "descending", "stable")
    given = dict(zip(names, args[1:], strict=False)) | kwargs
    dim = int(given.get("dim", 0 if name == "msort" else -1))
    largest = bool(given.get("largest", name == "topk")) or bool(given.get("descending", False))
    count = int(given["k"]) if "k" in given else None
    index = _along(cells, tensor, dim, lambda row: orders.order(row, largest, count))
    if name == "kthvalue":
        index = index.select(dim, -1).unsqueeze(dim)
    if name == "argsort":
        return index
    values = cells.moved(torch.take_along_dim, (tensor, index, dim), {})
    if name == "msort":
        return values
    kind = torch.return_types.topk if name == "topk" else torch.return_types.sort
    return kind((values, index))


def _softmax(
    cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any], in_place: bool
) -> Tensor:
    tensor: Tensor = args[0]
    dim = int(kwargs.get("dim", args[1] if len(args) > 1 else -1))
    found: list[Value] = []
    for row in _rows(cells, tensor, dim):
        found += continuous.shared_map(row)
    moved = cells.put(torch.zeros_like(tensor.detach().movedim(dim, -1)).contiguous(), found)
    return moved.movedim(-1, dim)


def _search_sorted(
    cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any], in_place: bool
) -> Tensor:
    first, second = (
        ("sorted_sequence", "input") if name == "searchsorted" else ("input", "boundaries")
    )
    given = dict(zip((first, second), args, strict=False)) | kwargs
    right = bool(given.get("right", False)) or given.get("side") == "right"
    if name == "bucketize":
        edges, values = given["boundaries"], given["input"]
    else:
        edges, values = given["sorted_sequence"], given["input"]
    if cells.has_draws(edges):
        raise refuse("torch.searchsorted looks among continuous draws; compare them with <")
    if isinstance(values, Draw):
        return torch.tensor(continuous.place_among(values, edges.tolist(), right))
    width = edges.shape[-1]
    tables = edges.double().reshape(-1, width).tolist()
    for table in tables:
        if any(a > b for a, b in itertools.pairwise(table)):
            raise refuse("torch.searchsorted looks in a table that is not sorted")
    flat = cells.values(values)
    per_row = len(flat) // len(tables)
    found = [
        continuous.place_among(x, tables[k // per_row], right)
        if isinstance(x, Draw)
        else sum(edge <= x if right else edge < x for edge in tables[k // per_row])
        for k, x in enumerate(flat)
    ]
    result = torch.tensor(found, device=values.device).reshape(values.shape)
    out = given.get("out")
    return result if out is None else out.resize_(result.shape).copy_(result)


# ------------------------------------------------------------------ writing and reading


def _write(
    cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any], in_place: bool
) -> Any:
    """x[...] = v, copy_, fill_, masked_fill_ and their like: run twice."""
    target: Tensor = args[0]
    found = func(*(_without_draws(arg) for arg in args), **kwargs)
    others = [*args[1:]]
    numbers = cells.numbers_or_plain(target).clone()
    given: list[Any] = []
    for other in others:
        if isinstance(other, Tensor) and other.is_floating_point():
            given.append(cells.numbers_or_plain(other))
        elif isinstance(other, Draw):
            cells.draws.append(other)
            given.append(len(cells.draws) - 1)
        else:
            given.append(other)
    if name in ("setitem", "copy", "fill", "masked_fill", "index_fill") and not isinstance(
        others[-1], Tensor | Draw
    ):
        given[-1] = -1
    if name == "zero":
        numbers.fill_(-1)
    else:
        func(numbers, *given, **kwargs)
    cells.put_numbers(target, numbers)
    return found


def _item(
    cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any], in_place: bool
) -> Any:
    if name == "bool":
        return True
    values = cells.values(args[0])
    if name == "tolist":
        return _nested(values, list(args[0].shape))
    if len(values) != 1:
        return func(*args, **kwargs)  # torch says what is wrong
    value = values[0]
    if name in ("int", "index"):
        return int(value)
    if name == "float" and isinstance(value, Draw):
        return float(value)
    return value


def _nested(values: list[Value], shape: list[int]) -> Any:
    if not shape:
        return values[0]
    step = len(values) // shape[0] if shape[0] else 0
    return [_nested(values[k * step : (k + 1) * step], shape[1:]) for k in range(shape[0])]


def _convert(
    cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any], in_place: bool
) -> Tensor:
    """x.to(...), x.float(), x.long(): whole numbers are choices."""
    wanted = _DTYPES.get(name)
    for arg in (*args[1:], *kwargs.values()):
        if isinstance(arg, torch.dtype):
            wanted = arg
        elif isinstance(arg, Tensor):
            wanted = arg.dtype
    if wanted is None or wanted.is_floating_point:
        numbers = cells.numbers_or_plain(args[0])
        found = func(*args, **kwargs)
        cells.put_numbers(found, numbers)
        return found
    values = [int(x) if wanted != torch.bool else bool(x) for x in cells.values(args[0])]
    return torch.tensor(values, dtype=wanted, device=args[0].device).reshape(args[0].shape)


def _to_numpy(
    cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any], in_place: bool
) -> Any:
    return as_array(cells.values(args[0]), tuple(args[0].shape))


def _truth(
    cells: Cells, func: Any, name: str, args: Any, kwargs: dict[str, Any], in_place: bool
) -> Any:
    """isnan, isinf, isfinite: a draw is a finite number."""
    found = [
        (name == "isfinite") if isinstance(x, Draw) else bool(getattr(math, name)(x))
        for x in cells.values(args[0])
    ]
    return torch.tensor(found, device=args[0].device).reshape(args[0].shape)


_Way = Callable[[Cells, Any, str, Any, dict[str, Any], bool], Any]
_WAYS: list[tuple[Any, _Way]] = [
    (_BINARY, _binary),
    (_UNARY, _unary),
    ({"clamp", "clip", "clamp_min", "clamp_max"}, _clamp),
    (_COMPARED, _compare),
    ({"argmax", "argmin", "max", "min", "amax", "amin"}, _extreme),
    ({"sort", "argsort", "msort", "topk", "kthvalue"}, _order),
    ({"softmax", "log_softmax", "special_softmax"}, _softmax),
    ({"searchsorted", "bucketize"}, _search_sorted),
    (
        {"setitem", "copy", "fill", "zero", "masked_fill", "index_fill", "scatter", "index_copy"},
        _write,
    ),
    ({"item", "tolist", "bool", "int", "float", "index"}, _item),
    ({"to", *_DTYPES, "type"}, _convert),
    ({"numpy", "array"}, _to_numpy),
    ({"isnan", "isinf", "isfinite"}, _truth),
]
