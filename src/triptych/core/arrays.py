"""Tensors that a user hands over: as tensors, numpy arrays or nested lists.

Each `as_...` function returns a tensor of the type to compute with, or raises `UserError`.
`core.validation` is the entrance to use: it has these and the ones for single values and tokens.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.scalars import Count, UserError, as_count, as_list, shown

Numbers = Tensor | np.ndarray | Sequence[Any]

ROW_SUM_TOLERANCE = 1e-8


def as_integers(
    name: str,
    values: Numbers,
    *,
    dimensions: int,
    device: torch.device | str | None = None,
) -> Int[Tensor, "..."]:
    """An int64 tensor with this many dimensions; lists and arrays become one on `device`."""
    if isinstance(values, Tensor):
        if values.dtype != torch.int64:
            if values.dtype == torch.bool or values.is_floating_point() or values.is_complex():
                raise UserError(
                    f"{name} has dtype {values.dtype}; pass {name}.long()", parameter=name
                )
            values = values.long()
        _check_tensor(name, values, device)
    else:
        array = _as_array(name, values, "whole numbers")
        if array.size and array.dtype.kind not in "iu":
            raise UserError(
                f"{name} holds {shown(array.flat[0])} ({array.dtype}); it must hold whole numbers",
                parameter=name,
            )
        if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
            raise UserError(
                f"{name} holds {array.max()}, which is beyond 64-bit integers", parameter=name
            )
        values = torch.tensor(np.array(array, dtype=np.int64, order="C"), device=device)
    if values.ndim != dimensions:
        one_row = f" (batch, length): pass one row as {name}[None] or [[0, 1, 1]]"
        raise UserError(
            f"{name} has shape {tuple(values.shape)}; it needs {_plural(dimensions, 'dimension')}"
            + (one_row if dimensions == 2 else ""),
            parameter=name,
        )
    return values


def as_bool_mask(
    name: str,
    values: Numbers,
    *,
    shape: Sequence[int] | None = None,
    meaning: str = "True where a token is not shown",
    device: torch.device | str | None = None,
) -> Bool[Tensor, "..."]:
    """A bool tensor, of the given shape; whole numbers 0 and 1 are False and True.

    Worked value: [[0, 1]] is [[False, True]]; [[0, 2]] and [[0.0, 1.0]] are refused.
    """
    if isinstance(values, Tensor):
        mask = values
        _check_tensor(name, values, device)
    else:
        array = _as_array(name, values, "True and False")
        if array.size == 0 and array.dtype.kind == "f":  # an empty list has no type of its own
            array = array.astype(bool)
        if array.dtype.kind not in "biu":
            raise UserError(
                f"{name} is {array.dtype}; it must be a bool tensor, {meaning}", parameter=name
            )
        if array.dtype == np.uint64:  # 0 and 1 stay, and larger ones do not become them
            array = array.clip(max=2).astype(np.int64)
        mask = torch.tensor(np.array(array), device=device)
    if mask.is_floating_point() or mask.is_complex():
        raise UserError(
            f"{name} is {mask.dtype}; it must be a bool tensor, {meaning}", parameter=name
        )
    if mask.dtype != torch.bool:
        other = mask[(mask != 0) & (mask != 1)]
        if other.numel():
            raise UserError(
                f"{name} holds {other[0].item()}; it must be a bool tensor, or hold 0 and 1, "
                f"{meaning}",
                parameter=name,
            )
        mask = mask.bool()
    if shape is not None and tuple(mask.shape) != tuple(shape):
        raise UserError(
            f"{name} has shape {tuple(mask.shape)}; it needs {tuple(shape)}: {meaning}",
            parameter=name,
        )
    return mask


def as_floats(
    name: str,
    values: Numbers,
    *,
    shape: Sequence[int | None] | None = None,
    meaning: str = "",
    finite: bool = True,
    device: torch.device | str | None = None,
) -> Float[Tensor, "..."]:
    """A float64 tensor; in `shape` None stands for any size, and `meaning` names its dimensions.

    Whole numbers are converted. Single precision is refused: its probabilities do not sum to 1.
    nan is always refused, an infinity unless `finite` is False.
    """
    if isinstance(values, Tensor):
        _check_tensor(name, values, device)
        if values.dtype != torch.float64:
            if values.dtype == torch.bool or values.is_floating_point() or values.is_complex():
                raise UserError(
                    f"{name} has dtype {values.dtype}; exact inference needs float64: "
                    f"pass {name}.double()",
                    parameter=name,
                )
            values = values.double()
    else:
        array = _as_array(name, values, "numbers")
        if array.dtype.kind == "f" and array.dtype.itemsize < 8:
            raise UserError(
                f"{name} has dtype {array.dtype}; exact inference needs float64: "
                f"pass {name}.astype(float)",
                parameter=name,
            )
        if array.dtype.kind not in "fiu":
            given = shown(array.flat[0]) if array.size else array.dtype
            raise UserError(f"{name} holds {given}; it must hold numbers", parameter=name)
        values = torch.tensor(np.array(array, dtype=np.float64, order="C"), device=device)
    if shape is not None:
        fits = values.ndim == len(shape) and all(
            wanted is None or wanted == size
            for wanted, size in zip(shape, values.shape, strict=True)
        )
        if not fits:
            wanted = meaning or str(tuple(shape))
            raise UserError(
                f"{name} has shape {tuple(values.shape)}; it must be of shape {wanted}",
                parameter=name,
            )
    bad = ~torch.isfinite(values) if finite else torch.isnan(values)
    if bad.any():
        where = tuple(torch.nonzero(bad)[0].tolist())
        wanted = "finite" if finite else "a number"
        raise UserError(f"{_entry(name, where)} is {values[where].item()}; it must be {wanted}")
    return values


def as_distributions(
    name: str,
    values: Numbers,
    *,
    shape: Sequence[int | None] | None = None,
    meaning: str = "",
    device: torch.device | str | None = None,
) -> Float[Tensor, "..."]:
    """A float64 tensor whose rows, along the last dimension, are probability vectors."""
    probs = as_floats(name, values, shape=shape, meaning=meaning, device=device)
    check_distributions(name, probs)
    return probs


def as_positions(name: str, values: Iterable[Count], length: int) -> list[int]:
    """Distinct positions in 0..length-1."""
    given = as_list(name, values, "positions")
    at = [as_count(f"{name}[{i}]", value) for i, value in enumerate(given)]
    if len(set(at)) != len(at) or not all(0 <= i < length for i in at):
        raise UserError(
            f"{name} {at} must hold distinct positions in 0..{length - 1}", parameter=name
        )
    return at


def check_floats(name: str, values: Tensor) -> None:
    """`values` are finite float64."""
    if values.dtype != torch.float64:
        raise UserError(
            f"{name} has dtype {values.dtype}; exact inference needs float64: pass {name}.double()",
            parameter=name,
        )
    as_floats(name, values)


def check_distributions(name: str, probs: Float[Tensor, "*rows outcomes"]) -> None:
    """Every row of `probs` is a probability vector."""
    check_floats(name, probs)
    if probs.ndim == 0 or probs.shape[-1] == 0:
        raise UserError(f"{name} has no outcomes: its last dimension is empty", parameter=name)
    if (probs < 0).any():
        where = tuple(torch.nonzero(probs < 0)[0].tolist())
        raise UserError(
            f"{name}{list(where)} is {probs[where].item()}; it must not be negative", parameter=name
        )
    off = (probs.sum(-1) - 1).abs()
    if (off > ROW_SUM_TOLERANCE).any():
        row = tuple(torch.nonzero(off > ROW_SUM_TOLERANCE)[0].tolist()) if off.ndim else ()
        raise UserError(
            f"{_entry(name, row)} sums to {probs[row].sum().item():.10g}; each row must sum to 1 "
            f"(rows are the last dimension, so {name}[i, j] is the probability of j given i)",
            parameter="probs",
        )


def _as_array(name: str, values: object, what: str) -> np.ndarray:
    """Nested lists as an array; its dtype says what they hold."""
    listed = isinstance(values, np.ndarray) or (
        isinstance(values, Sequence) and not isinstance(values, str | bytes)
    )
    if not listed:
        raise UserError(
            f"{name} is {shown(values)}; it must be a tensor or lists of {what}", parameter=name
        )
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        raise UserError(
            f"{name} is {shown(values)}, whose rows differ in length; it must be a tensor or "
            f"lists of {what}",
            parameter=name,
        ) from None


def _check_tensor(name: str, tensor: Tensor, device: torch.device | str | None) -> None:
    """A dense tensor, on `device` if that is named."""
    if tensor.layout != torch.strided:
        raise UserError(
            f"{name} is sparse ({tensor.layout}); pass {name}.to_dense()", parameter=name
        )
    if device is None or tensor.device == device:
        return
    wanted = torch.device(device)
    same = tensor.device.type == wanted.type and (
        wanted.index is None or tensor.device.index in (None, wanted.index)
    )
    if not same:
        raise UserError(
            f"{name} is on {tensor.device} and must be on {wanted}: pass "
            f"{name}.to({str(wanted)!r})",
            parameter=name,
        )


def _entry(name: str, where: tuple[int, ...]) -> str:
    return f"{name}{list(where)}" if where else name


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
