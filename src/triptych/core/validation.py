"""The entrance: what a user hands over comes back clean, or is refused in one sentence.

Every `as_...` function takes what the user gave and returns the value to compute with. A public
function calls it once, in its first lines:

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length, device=self.device)

What cannot be used raises `UserError`: what was given, what is needed, where. The names of types
say what a user may pass:

    Count    a whole number: an int, a numpy integer, a tensor of one integer; 2.0 and True are not
    Number   a real number: a float or an int, a numpy number, a tensor of one number
    Tokens   full sequences, one per row: an integer tensor or numpy array, or a list of lists
    Prefix   the same for the first tokens of sequences
    Hidden   True where a token is not shown: a bool tensor or numpy array, or a list of lists
    Numbers  numbers in any shape: a tensor or numpy array, or nested lists

One sequence is passed as one row, [[0, 1, 1]]. A list [0, 1, 1] is refused: the answer would have
a dimension that the question has not. The fields of a dataclass are annotated by what they hold
after the check; its constructor takes lists and numpy arrays in place of tensors as well.

The `check_...` functions return nothing: they look at tensors that our own code made.
"""

import dataclasses
import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

Count = SupportsIndex
Number = SupportsFloat
Tokens = Integer[Tensor, "batch length"] | Integer[np.ndarray, "batch length"] | Sequence[Any]
Prefix = Integer[Tensor, "batch t"] | Integer[np.ndarray, "batch t"] | Sequence[Any]
Hidden = Bool[Tensor, "batch length"] | Bool[np.ndarray, "batch length"] | Sequence[Any]
Numbers = Tensor | np.ndarray | Sequence[Any]

ROW_SUM_TOLERANCE = 1e-8
MAX_SIZE = 2**31 - 1  # of one dimension of a tensor that we make
MAX_ENTRIES = 2**33  # of one tensor that we make: 64 GiB of float64
_MAX_SEED = 2**63 - 1

DataclassT = TypeVar("DataclassT")


class UserError(ValueError):
    """A mistake in what the user gave; the message is one sentence that says how to mend it."""


class ImpossibleEvidence(UserError):
    """A conditional was asked for given something of probability zero."""


# ------------------------------------------------------------------ single values


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
        raise UserError(f"{name} is {_shown(value)}; it must be a whole number{instead}")
    count = int(number)
    if at_least is not None and count < at_least:
        raise UserError(f"{name} is {count}; it must be at least {at_least}")
    if at_most is not None and count > at_most:
        raise UserError(f"{name} is {count}; it must be at most {at_most}")
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
        raise UserError(f"{name} is {number}; it must be a finite number")
    bounds = [
        (at_least is None or number >= at_least, f"at least {at_least}"),
        (above is None or number > above, f"above {above}"),
        (at_most is None or number <= at_most, f"at most {at_most}"),
        (below is None or number < below, f"below {below}"),
    ]
    for holds, words in bounds:
        if not holds:
            raise UserError(f"{name} is {number}; it must be {words}")
    return number


def as_probability(name: str, value: Number, *, strictly: bool = False) -> float:
    """A number between 0 and 1; `strictly` excludes 0 and 1."""
    probability = _as_float(name, value)
    if strictly and not 0.0 < probability < 1.0:
        raise UserError(f"{name} is {probability}; it must lie strictly between 0 and 1")
    if not 0.0 <= probability <= 1.0:
        raise UserError(f"{name} is {probability}; it must be a probability, between 0 and 1")
    return probability


def as_end_token(value: Count | None, vocab_size: int | None = None) -> int | None:
    """The token after which a string is over, or None where none ends."""
    if value is None:
        return None
    try:
        at_most = None if vocab_size is None else vocab_size - 1
        return as_count("end_token", value, at_least=0, at_most=at_most)
    except UserError:
        tokens = "a token" if vocab_size is None else f"a token, 0..{vocab_size - 1}"
        raise UserError(f"end_token is {_shown(value)}; it must be {tokens}, or None") from None


def as_flag(name: str, value: bool) -> bool:
    """True or False; 1 and "no" are neither."""
    if not isinstance(value, bool | np.bool_):
        raise UserError(f"{name} is {_shown(value)}; it must be True or False")
    return bool(value)


def as_text(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{name} is {_shown(value)}; it must be a string")
    return value


def as_device(value: torch.device | str, *, name: str = "device") -> torch.device:
    """A device of this machine: "cpu", "cuda", "cuda:1"."""
    if not isinstance(value, torch.device | str):
        raise UserError(f"{name} is {_shown(value)}; it must be a device such as 'cpu' or 'cuda'")
    try:
        device = torch.device(value)
    except RuntimeError:
        raise UserError(f"{name} is {value!r}; it must be a device, 'cpu' or 'cuda'") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"{name} is {str(device)!r}, and this machine has no GPU: pass 'cpu'")
    return device


def check_can(name: str, value: object, *needs: str) -> None:
    """`value` has every method or attribute that is needed of it."""
    missing = [need for need in needs if not hasattr(value, need)]
    if missing:
        raise UserError(f"{name} is {_shown(value)}; it needs {' and '.join(missing)}")


def check_callable(name: str, value: object, question: str) -> None:
    """`value` can be called, as `question` shows."""
    if not callable(value):
        raise UserError(f"{name} is {_shown(value)}; it must be a function, {question}")


# ------------------------------------------------------------------ tensors


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
                raise UserError(f"{name} has dtype {values.dtype}; pass {name}.long()")
            values = values.long()
        _check_tensor(name, values, device)
    else:
        array = _as_array(name, values, "whole numbers")
        if array.size and array.dtype.kind not in "iu":
            raise UserError(
                f"{name} holds {_shown(array.flat[0])} ({array.dtype}); it must hold whole numbers"
            )
        if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
            raise UserError(f"{name} holds {array.max()}, which is beyond 64-bit integers")
        values = torch.tensor(np.array(array, dtype=np.int64, order="C"), device=device)
    if values.ndim != dimensions:
        one_row = f" (batch, length): pass one row as {name}[None] or [[0, 1, 1]]"
        raise UserError(
            f"{name} has shape {tuple(values.shape)}; it needs {_plural(dimensions, 'dimension')}"
            + (one_row if dimensions == 2 else "")
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
    """A bool tensor, of the given shape; numbers are refused, since 0 and 1 may mean either."""
    if isinstance(values, Tensor):
        mask = values
        kind = str(values.dtype)
        _check_tensor(name, values, device)
    else:
        array = _as_array(name, values, "True and False")
        kind = str(array.dtype)
        if array.size == 0 and array.dtype.kind == "f":  # an empty list has no type of its own
            array = array.astype(bool)
        mask = array if array.dtype != bool else torch.tensor(np.array(array), device=device)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise UserError(f"{name} is {kind}; it must be a bool tensor, {meaning}")
    if shape is not None and tuple(mask.shape) != tuple(shape):
        raise UserError(f"{name} has shape {tuple(mask.shape)}; it needs {tuple(shape)}: {meaning}")
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
                    f"pass {name}.double()"
                )
            values = values.double()
    else:
        array = _as_array(name, values, "numbers")
        if array.dtype.kind == "f" and array.dtype.itemsize < 8:
            raise UserError(
                f"{name} has dtype {array.dtype}; exact inference needs float64: "
                f"pass {name}.astype(float)"
            )
        if array.dtype.kind not in "fiu":
            given = _shown(array.flat[0]) if array.size else array.dtype
            raise UserError(f"{name} holds {given}; it must hold numbers")
        values = torch.tensor(np.array(array, dtype=np.float64, order="C"), device=device)
    if shape is not None:
        fits = values.ndim == len(shape) and all(
            wanted is None or wanted == size
            for wanted, size in zip(shape, values.shape, strict=True)
        )
        if not fits:
            wanted = meaning or str(tuple(shape))
            raise UserError(f"{name} has shape {tuple(values.shape)}; it must be of shape {wanted}")
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


def as_list(name: str, values: Iterable[Any], what: str) -> list[Any]:
    """The items of a list, a tuple, or a tensor or array of one dimension."""
    shaped = isinstance(values, Tensor | np.ndarray)
    if shaped and values.ndim != 1:
        raise UserError(f"{name} has shape {tuple(values.shape)}; it must be a list of {what}")
    if not shaped and (not isinstance(values, Sequence) or isinstance(values, str | bytes)):
        raise UserError(f"{name} is {_shown(values)}; it must be a list of {what}")
    return list(values)


def as_positions(name: str, values: Iterable[Count], length: int) -> list[int]:
    """Distinct positions in 0..length-1."""
    given = as_list(name, values, "positions")
    at = [as_count(f"{name}[{i}]", value) for i, value in enumerate(given)]
    if len(set(at)) != len(at) or not all(0 <= i < length for i in at):
        raise UserError(f"{name} {at} must hold distinct positions in 0..{length - 1}")
    return at


# ------------------------------------------------------------------ sequences of tokens


def as_tokens(
    tokens: Tokens,
    vocab_size: int,
    *,
    length: int | None = None,
    hidden: Bool[Tensor, "batch t"] | None = None,
    name: str = "tokens",
    device: torch.device | str | None = None,
) -> Int[Tensor, "batch t"]:
    """An int64 tensor of rows of tokens in 0..vocab_size-1, of `length` tokens if that is given.

    Where `hidden` is True a token may be anything. Lists and numpy arrays become a tensor on
    `device`; a tensor that is elsewhere is refused.
    """
    rows = as_integers(name, tokens, dimensions=2, device=device)
    if length is not None and rows.shape[1] != length:
        raise UserError(
            f"{name} have length {rows.shape[1]}; this structure has length {length} "
            "(for another length, make another structure)"
        )
    _check_range(rows, vocab_size, hidden)
    return rows


def as_masked(
    tokens: Tokens,
    hidden: Hidden,
    vocab_size: int,
    *,
    length: int | None = None,
    device: torch.device | str | None = None,
) -> tuple[Int[Tensor, "batch t"], Bool[Tensor, "batch t"]]:
    """`as_tokens` of the tokens that are shown, and the positions that are not."""
    rows = as_integers("tokens", tokens, dimensions=2, device=device)
    mask = as_bool_mask("hidden", hidden, device=device)
    if mask.shape != rows.shape:
        raise UserError(
            f"hidden has shape {tuple(mask.shape)} and tokens {tuple(rows.shape)}; "
            "they must be equal: hidden is True where a token is not shown"
        )
    return as_tokens(rows, vocab_size, length=length, hidden=mask), mask


def as_prefix(
    prefix: Prefix,
    vocab_size: int,
    length: int | None = None,
    *,
    device: torch.device | str | None = None,
) -> Int[Tensor, "batch t"]:
    """`as_tokens`, and where sequences have a length there is a next position to predict."""
    rows = as_integers("prefix", prefix, dimensions=2, device=device)
    if length is not None and rows.shape[1] >= length:
        raise UserError(
            f"the prefix has {rows.shape[1]} tokens; this structure has length {length}, "
            "so no token follows it"
        )
    _check_range(rows, vocab_size, None)
    return rows


def _check_range(
    tokens: Int[Tensor, "batch t"], vocab_size: int, hidden: Bool[Tensor, "batch t"] | None
) -> None:
    shown = tokens if hidden is None else tokens.masked_fill(hidden, 0)
    if shown.numel() == 0:
        return
    lowest, highest = (int(end) for end in shown.aminmax())
    if lowest < 0 or highest >= vocab_size:
        bad = (shown < 0) | (shown >= vocab_size)
        row, position = torch.nonzero(bad)[0].tolist()
        raise UserError(
            f"token {int(tokens[row, position])} at row {row}, position {position} is outside "
            f"0..{vocab_size - 1}; to hide a token, pass hidden=True there"
        )


# ------------------------------------------------------------------ tensors of our own code


def check_floats(name: str, values: Tensor) -> None:
    """`values` are finite float64."""
    if values.dtype != torch.float64:
        raise UserError(
            f"{name} has dtype {values.dtype}; exact inference needs float64: pass {name}.double()"
        )
    as_floats(name, values)


def check_distributions(name: str, probs: Float[Tensor, "*rows outcomes"]) -> None:
    """Every row of `probs` is a probability vector."""
    check_floats(name, probs)
    if probs.ndim == 0 or probs.shape[-1] == 0:
        raise UserError(f"{name} has no outcomes: its last dimension is empty")
    if (probs < 0).any():
        where = tuple(torch.nonzero(probs < 0)[0].tolist())
        raise UserError(f"{name}{list(where)} is {probs[where].item()}; it must not be negative")
    off = (probs.sum(-1) - 1).abs()
    if (off > ROW_SUM_TOLERANCE).any():
        row = tuple(torch.nonzero(off > ROW_SUM_TOLERANCE)[0].tolist()) if off.ndim else ()
        raise UserError(
            f"{_entry(name, row)} sums to {probs[row].sum().item():.10g}; each row must sum to 1 "
            f"(rows are the last dimension, so {name}[i, j] is the probability of j given i)"
        )


def check_shape(name: str, tensor: Tensor, expected: tuple[int, ...], because: str) -> None:
    if tuple(tensor.shape) != expected:
        raise UserError(f"{name} has shape {tuple(tensor.shape)}; {because} needs shape {expected}")


def check_integers(name: str, values: Tensor, *, dimensions: int) -> None:
    """`values` is an integer tensor with this many dimensions."""
    if not isinstance(values, Tensor):
        raise UserError(f"{name} is a {type(values).__name__}; pass torch.tensor({name})")
    as_integers(name, values, dimensions=dimensions)


def check_dimensions(name: str, values: Tensor, dimensions: int, meaning: str) -> None:
    """`values` is a tensor with this many dimensions."""
    if not isinstance(values, Tensor):
        raise UserError(f"{name} is a {type(values).__name__}; it must be a tensor of {meaning}")
    if values.ndim != dimensions:
        raise UserError(f"{name} has shape {tuple(values.shape)}; it must be of shape {meaning}")


def check_count(name: str, value: Count, *, at_least: int) -> None:
    as_count(name, value, at_least=at_least)


def check_probability(name: str, value: Number) -> None:
    as_probability(name, value)


def check_room(what: str, *shape: int) -> None:
    """A tensor of this shape can be made."""
    if math.prod(shape) > MAX_ENTRIES:
        raise UserError(
            f"{what} would have {' x '.join(map(str, shape))} entries; at most {MAX_ENTRIES} fit"
        )


def check_same_device(**tensors: Tensor) -> None:
    devices = {name: tensor.device for name, tensor in tensors.items()}
    if len(set(devices.values())) > 1:
        raise UserError(
            "all tensors of a structure must be on one device; given "
            + ", ".join(f"{name} on {device}" for name, device in devices.items())
        )


def check_tokens(
    tokens: Int[Tensor, "batch t"],
    vocab_size: int,
    hidden: Bool[Tensor, "batch t"] | None = None,
) -> None:
    """Shown tokens lie in 0..vocab_size-1; a hidden position may hold anything."""
    check_integers("tokens", tokens, dimensions=2)
    if hidden is None:
        as_tokens(tokens, vocab_size)
    else:
        as_masked(tokens, hidden, vocab_size)


def check_sequences(
    tokens: Int[Tensor, "batch t"],
    vocab_size: int,
    length: int,
    hidden: Bool[Tensor, "batch t"] | None = None,
) -> None:
    """`check_tokens`, and every row has the structure's full length."""
    check_integers("tokens", tokens, dimensions=2)
    if hidden is None:
        as_tokens(tokens, vocab_size, length=length)
    else:
        as_masked(tokens, hidden, vocab_size, length=length)


def check_prefix(prefix: Int[Tensor, "batch t"], vocab_size: int, length: int) -> None:
    """`check_tokens`, and there is a next position to predict."""
    check_integers("prefix", prefix, dimensions=2)
    as_prefix(prefix, vocab_size, length)


def raise_if_impossible(log_evidence: Float[Tensor, " batch"], what: str) -> None:
    """A zero-probability row has no conditional: say which row."""
    impossible = torch.isneginf(log_evidence)
    if impossible.any():
        row = int(torch.nonzero(impossible)[0])
        raise ImpossibleEvidence(
            f"{what} in row {row} has probability 0 under this structure, so no conditional "
            f"exists ({int(impossible.sum())} of {len(log_evidence)} rows)"
        )


def set_fields(structure: object, **fields: object) -> None:
    """Put checked values in place of what a frozen dataclass was given; for `__post_init__`."""
    for name, value in fields.items():
        object.__setattr__(structure, name, value)


def moved_to(structure: DataclassT, device: torch.device | str) -> DataclassT:
    """A copy of a dataclass with every tensor field on `device`."""
    device = as_device(device)
    fields = dataclasses.fields(structure)  # pyright: ignore[reportArgumentType]
    tensors = {
        field.name: value.to(device)
        for field in fields
        if isinstance(value := getattr(structure, field.name), Tensor)
    }
    return dataclasses.replace(structure, **tensors)  # pyright: ignore[reportArgumentType, reportReturnType]


# ------------------------------------------------------------------ inside


def _as_float(name: str, value: Number) -> float:
    number = _unwrapped(value)
    if isinstance(number, bool) or not isinstance(number, numbers.Real):
        raise UserError(f"{name} is {_shown(value)}; it must be a number")
    try:
        return float(number)
    except OverflowError:
        raise UserError(f"{name} is beyond the range of floats; it must be a number") from None


def _unwrapped(value: object) -> Any:
    """The number inside a tensor or array of one number without dimensions."""
    if isinstance(value, Tensor | np.ndarray) and value.ndim == 0:
        return value.item()
    return bool(value) if isinstance(value, np.bool_) else value


def _as_array(name: str, values: object, what: str) -> np.ndarray:
    """Nested lists as an array; its dtype says what they hold."""
    listed = isinstance(values, np.ndarray) or (
        isinstance(values, Sequence) and not isinstance(values, str | bytes)
    )
    if not listed:
        raise UserError(f"{name} is {_shown(values)}; it must be a tensor or lists of {what}")
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        raise UserError(
            f"{name} is {_shown(values)}, whose rows differ in length; it must be a tensor or "
            f"lists of {what}"
        ) from None


def _check_tensor(name: str, tensor: Tensor, device: torch.device | str | None) -> None:
    """A dense tensor, on `device` if that is named."""
    if tensor.layout != torch.strided:
        raise UserError(f"{name} is sparse ({tensor.layout}); pass {name}.to_dense()")
    if device is None or tensor.device == device:
        return
    wanted = torch.device(device)
    same = tensor.device.type == wanted.type and (
        wanted.index is None or tensor.device.index in (None, wanted.index)
    )
    if not same:
        raise UserError(
            f"{name} is on {tensor.device} and must be on {wanted}: pass {name}.to({str(wanted)!r})"
        )


def _entry(name: str, where: tuple[int, ...]) -> str:
    return f"{name}{list(where)}" if where else name


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _shown(value: object) -> str:
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
