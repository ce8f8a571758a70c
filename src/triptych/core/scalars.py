"""Single values that a user hands over: a count, a number, a name, a device, an object.

Each `as_...` function returns the plain value, or raises `UserError`. `core.validation` is the
entrance to use: it has these and the ones for tensors and tokens.
"""

import math
import numbers
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, SupportsFloat, SupportsIndex, cast

import numpy as np
import torch
from torch import Tensor

from triptych.core.errors import UserError

Count = SupportsIndex
Number = SupportsFloat
EndTokens = SupportsIndex | Collection[SupportsIndex]
EndToken = int | tuple[int, ...]  # the same after the check

MAX_SIZE = 2**31 - 1  # of one dimension of a tensor that we make
_MAX_SEED = 2**63 - 1
_DEVICE = re.compile("cpu|cuda(:(0|[1-9][0-9]?))?")  # torch itself reads 'cuda:256' as 'cuda:0'


def as_count(
    name: str, value: Count, *, at_least: int | None = 0, at_most: int | None = None
) -> int:
    """A whole number as an int.

    2.0 is refused like 2.5: a size that was computed with floats is a mistake more often than not.
    """
    number = _unwrapped(value)
    if isinstance(number, bool) or not isinstance(number, numbers.Integral):
        whole = isinstance(number, float | np.floating) and float(number).is_integer()
        instead = f": write {int(number)}" if whole else ""
        raise UserError(
            f"{name} is {shown(value)}; it must be a whole number{instead}", parameter=name
        )
    count = int(number)
    if at_least is not None and count < at_least:
        raise UserError(f"{name} is {count}; it must be at least {at_least}", parameter=name)
    if at_most is not None and count > at_most:
        raise UserError(f"{name} is {count}; it must be at most {at_most}", parameter=name)
    return count


def as_size(name: str, value: Count, *, at_least: int = 1) -> int:
    """A whole number of rows, states, positions: what becomes a dimension of a tensor."""
    return as_count(name, value, at_least=at_least, at_most=MAX_SIZE)


def as_seed(value: Count, *, name: str = "seed", at_most: int = _MAX_SEED) -> int:
    """The whole number that names a stream of random numbers."""
    return as_count(name, value, at_least=0, at_most=at_most)


def as_number(
    name: str,
    value: Number,
    *,
    at_least: int | float | None = None,
    at_most: int | float | None = None,
    above: int | float | None = None,
    below: int | float | None = None,
    finite: bool = True,
) -> float:
    """A real number as a float, between bounds; `above` and `below` exclude the bound itself.

    nan is always refused, an infinity unless `finite` is False.
    """
    number = _as_float(name, value)
    if math.isnan(number) or (finite and math.isinf(number)):
        raise UserError(f"{name} is {number}; it must be a finite number", parameter=name)
    bounds = [
        (at_least is None or number >= at_least, f"at least {at_least}"),
        (above is None or number > above, f"above {above}"),
        (at_most is None or number <= at_most, f"at most {at_most}"),
        (below is None or number < below, f"below {below}"),
    ]
    for holds, words in bounds:
        if not holds:
            raise UserError(f"{name} is {number}; it must be {words}", parameter=name)
    return number


def as_probability(name: str, value: Number, *, strictly: bool = False) -> float:
    """A number between 0 and 1; `strictly` excludes 0 and 1."""
    probability = _as_float(name, value)
    if strictly and not 0.0 < probability < 1.0:
        raise UserError(
            f"{name} is {probability}; it must lie strictly between 0 and 1", parameter=name
        )
    if not 0.0 <= probability <= 1.0:
        raise UserError(
            f"{name} is {probability}; it must be a probability, between 0 and 1", parameter=name
        )
    return probability


def as_end_token(
    value: EndTokens | None, vocab_size: int | None = None, *, name: str = "end_token"
) -> EndToken | None:
    """The token after which a string is over, or several in order; None where none ends one."""
    if value is None:
        return None
    at_most = None if vocab_size is None else vocab_size - 1
    several = isinstance(value, list | tuple | set | frozenset | range) or (
        isinstance(value, np.ndarray | Tensor) and value.ndim == 1
    )
    try:
        if not several:
            return as_count(name, cast(Count, value), at_least=0, at_most=at_most)
        tokens = {
            as_count(name, one, at_least=0, at_most=at_most) for one in cast(Iterable[Count], value)
        }
    except UserError:
        token = "a token" if vocab_size is None else f"a token, 0..{vocab_size - 1}"
        raise UserError(
            f"{name} is {shown(value)}; it must be {token}, or None, or a list of tokens",
            parameter=name,
        ) from None
    return tuple(sorted(tokens)) or None


def as_flag(name: str, value: bool) -> bool:
    """True or False; 1 and "no" are neither."""
    if not isinstance(value, bool | np.bool_):
        raise UserError(f"{name} is {shown(value)}; it must be True or False", parameter=name)
    return bool(value)


def as_text(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{name} is {shown(value)}; it must be a string", parameter=name)
    return value


def as_device(
    value: torch.device | str, *, name: str = "device", here: bool = True
) -> torch.device:
    """A device that we compute on: "cpu", "cuda" or "cuda:1".

    here
        It is one of this machine. Without it the work is for other machines, whose GPUs are not
        known, and the kind of device alone is checked.
    """
    given = str(value) if isinstance(value, torch.device) else value
    if not isinstance(given, str) or not _DEVICE.fullmatch(given):
        raise UserError(
            f"{name} is {shown(given)}; it must be a device: 'cpu', 'cuda' or 'cuda:1'",
            parameter=name,
        )
    kind, _, number = given.partition(":")
    if kind == "cuda" and here:
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if gpus == 0:
            raise UserError(
                f"{name} is {given!r}, and this machine has no GPU: pass 'cpu'", parameter=name
            )
        if int(number or 0) >= gpus:
            raise UserError(
                f"{name} is {given!r}, and this machine has {gpus} GPU{'s' * (gpus > 1)}: "
                f"the last one is 'cuda:{gpus - 1}'",
                parameter=name,
            )
    return torch.device(given)


def check_can(name: str, value: object, *needs: str) -> None:
    """`value` has every method or attribute that is needed of it."""
    missing = [need for need in needs if not hasattr(value, need)]
    if missing:
        raise UserError(
            f"{name} is {shown(value)}; it needs {' and '.join(missing)}", parameter=name
        )


def check_callable(name: str, value: object, question: str) -> None:
    """`value` can be called, as `question` shows."""
    if not callable(value):
        raise UserError(
            f"{name} is {shown(value)}; it must be a function, {question}", parameter=name
        )


def as_list(name: str, values: Iterable[Any], what: str) -> list[Any]:
    """The items of a list, a tuple, or a tensor or array of one dimension."""
    shaped = isinstance(values, Tensor | np.ndarray)
    if shaped and values.ndim != 1:
        raise UserError(
            f"{name} has shape {tuple(values.shape)}; it must be a list of {what}", parameter=name
        )
    if not shaped and (not isinstance(values, Sequence) or isinstance(values, str | bytes)):
        raise UserError(f"{name} is {shown(values)}; it must be a list of {what}", parameter=name)
    return list(values)


def shown(value: object) -> str:
    """A value in a message: short, and a tensor by its shape and type."""
    if isinstance(value, Tensor | np.ndarray) and value.ndim > 0:
        kind = "a tensor" if isinstance(value, Tensor) else "an array"
        return f"{kind} of shape {tuple(value.shape)} and dtype {value.dtype}"
    if isinstance(value, type) or callable(value):
        return f"{getattr(value, '__name__', type(value).__name__)}"
    if not isinstance(value, str | numbers.Number | Sequence | Tensor | np.ndarray | None):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _as_float(name: str, value: Number) -> float:
    number = _unwrapped(value)
    if isinstance(number, bool) or not isinstance(number, numbers.Real):
        raise UserError(f"{name} is {shown(value)}; it must be a number", parameter=name)
    try:
        return float(number)
    except OverflowError:
        raise UserError(
            f"{name} is beyond the range of floats; it must be a number", parameter=name
        ) from None


def _unwrapped(value: object) -> Any:
    """The number inside a tensor or array of one number without dimensions."""
    if isinstance(value, Tensor | np.ndarray) and value.ndim == 0:
        return value.item()
    return bool(value) if isinstance(value, np.bool_) else value
