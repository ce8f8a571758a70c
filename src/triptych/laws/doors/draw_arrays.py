"""Arrays of numpy that hold continuous draws: of objects, with orders decided in one choice each.

Elementwise arithmetic and comparisons are numpy's own, on objects.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from triptych.laws import continuous, orders
from triptych.laws.continuous import Draw, Value
from triptych.laws.search import refuse


class DrawArray(np.ndarray):
    """An array of objects: continuous draws and plain numbers."""

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        way = _WAYS.get(func.__name__)
        if way is not None and any(_holds(arg) for arg in (*args, *kwargs.values())):
            return way(*args, **kwargs)
        return super().__array_function__(func, types, args, kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return apply(ufunc, method, inputs, kwargs)

    def argmax(self, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:  # type: ignore[override]
        return _argmax(self, axis, out, keepdims=keepdims)

    def argmin(self, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:  # type: ignore[override]
        return _argmin(self, axis, out, keepdims=keepdims)

    def max(self, axis: Any = None, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return _max(self, axis)

    def min(self, axis: Any = None, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return _min(self, axis)

    def argsort(self, axis: Any = -1, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return _argsort(self, axis)

    def argpartition(self, kth: Any, axis: Any = -1, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return _argsort(self, axis)

    def sort(self, axis: Any = -1, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        self[...] = np.take_along_axis(self, _argsort(self, axis), axis)


def apply(ufunc: Any, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A function of numpy, cell by cell, on objects."""
    plain = [_as_objects(x) for x in inputs]
    out = kwargs.pop("out", None)
    found = getattr(ufunc, method)(*plain, **kwargs)
    if out is not None:
        out[0][...] = found
        return out[0]
    whole = isinstance(found, np.ndarray) and found.dtype == object
    return found.view(DrawArray) if whole else found


def _as_objects(value: Any) -> Any:
    if isinstance(value, Draw):
        cell = np.empty((), dtype=object)
        cell[()] = value
        return cell
    return np.asarray(value) if isinstance(value, DrawArray) else value


def as_array(values: Sequence[Value], shape: tuple[int, ...]) -> DrawArray:
    found = np.empty(len(values), dtype=object)
    found[:] = list(values)
    return found.reshape(shape).view(DrawArray)


def _holds(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype == object and any(isinstance(x, Draw) for x in value.reshape(-1))
    if isinstance(value, list | tuple):
        return any(_holds(item) for item in value)
    return isinstance(value, Draw)


def _along(array: Any, axis: int, pick: Callable[[list[Value]], Any]) -> Any:
    table = np.moveaxis(np.asarray(array), axis, -1)
    rows = table.reshape(-1, table.shape[-1])
    found = np.array([pick(list(row)) for row in rows])
    shaped = found.reshape(*table.shape[:-1], *found.shape[1:])
    return np.moveaxis(shaped, -1, axis) if found.ndim > 1 else shaped


def _extreme(largest: bool) -> Callable[..., Any]:
    def find(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        if axis is None:
            return np.int64(orders.best(list(np.asarray(a).reshape(-1)), largest))
        found = _along(a, axis, lambda row: orders.best(row, largest))
        return np.expand_dims(found, axis) if keepdims is True else found[()]

    return find


_argmax, _argmin = _extreme(True), _extreme(False)


def _value_of(pick: Callable[..., Any]) -> Callable[..., Any]:
    def find(a: Any, axis: Any = None, *args: Any, **kwargs: Any) -> Any:
        if axis is None:
            return np.asarray(a).reshape(-1)[pick(a)]
        at = np.expand_dims(pick(a, axis), axis)
        return np.take_along_axis(np.asarray(a), at, axis).squeeze(axis).view(DrawArray)

    return find


_max, _min = _value_of(_argmax), _value_of(_argmin)


def _argsort(a: Any, axis: Any = -1, *args: Any, **kwargs: Any) -> Any:
    if axis is None:
        return np.array(orders.order(list(np.asarray(a).reshape(-1)), False))
    return _along(a, axis, lambda row: orders.order(row, False))


def _argpartition(a: Any, kth: Any, axis: Any = -1, *args: Any, **kwargs: Any) -> Any:
    return _argsort(a, axis)


def _sort(a: Any, axis: Any = -1, *args: Any, **kwargs: Any) -> Any:
    return np.take_along_axis(np.asarray(a), _argsort(a, axis), axis).view(DrawArray)


def _searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    if _holds(a) or sorter is not None:
        raise refuse("np.searchsorted looks among continuous draws; compare them with <")
    edges = [float(edge) for edge in a]
    if any(x > y for x, y in itertools.pairwise(edges)):
        raise refuse("np.searchsorted looks in a table that is not sorted")
    values = np.asarray(v, dtype=object)
    found = [
        continuous.place_among(x, edges, side == "right")
        if isinstance(x, Draw)
        else int(np.searchsorted(edges, x, side=side))  # type: ignore[call-overload]
        for x in values.reshape(-1)
    ]
    return np.array(found).reshape(values.shape)[()]


def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    return _searchsorted(bins, x, "left" if right else "right")


def _clip(a: Any, a_min: Any = None, a_max: Any = None, *args: Any, **kwargs: Any) -> Any:
    low = -np.inf if a_min is None else float(a_min)
    high = np.inf if a_max is None else float(a_max)
    array = np.asarray(a, dtype=object)
    values = [
        continuous.clamped(x, low, high) if isinstance(x, Draw) else min(max(x, low), high)
        for x in array.reshape(-1)
    ]
    return as_array(values, array.shape)


def _sum(a: Any, *args: Any, **kwargs: Any) -> Any:
    raise refuse("np.sum is given continuous draws; the law of their sum is not finite")


_WAYS: dict[str, Callable[..., Any]] = {
    "argmax": _argmax,
    "argmin": _argmin,
    "amax": _max,
    "amin": _min,
    "max": _max,
    "min": _min,
    "argsort": _argsort,
    "argpartition": _argpartition,
    "sort": _sort,
    "searchsorted": _searchsorted,
    "digitize": _digitize,
    "clip": _clip,
    "sum": _sum,
    "mean": _sum,
}
