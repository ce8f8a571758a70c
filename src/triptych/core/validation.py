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
    Hidden   True or 1 where a token is not shown: a bool or integer tensor or numpy array, or a
             list of lists
    Numbers  numbers in any shape: a tensor or numpy array, or nested lists

One sequence is passed as one row, [[0, 1, 1]]. A list [0, 1, 1] is refused: the answer would have
a dimension that the question has not. The fields of a dataclass are annotated by what they hold
after the check; its constructor takes lists and numpy arrays instead of tensors as well.

The `check_...` functions return nothing: they look at tensors that our own code made.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

# Callers import all of the entrance from here; `arrays` and `scalars` hold parts of it.
from triptych.core.arrays import (  # noqa: F401
    ROW_SUM_TOLERANCE,
    Numbers,
    as_bool_mask,
    as_distributions,
    as_floats,
    as_integers,
    as_positions,
    check_distributions,
    check_floats,
)
from triptych.core.scalars import (  # noqa: F401
    MAX_SIZE,
    Count,
    EndToken,
    EndTokens,
    Number,
    UserError,
    as_count,
    as_device,
    as_end_token,
    as_flag,
    as_list,
    as_number,
    as_probability,
    as_seed,
    as_size,
    as_text,
    check_callable,
    check_can,
    shown,
)

Tokens = Integer[Tensor, "batch length"] | Integer[np.ndarray, "batch length"] | Sequence[Any]
Prefix = Integer[Tensor, "batch t"] | Integer[np.ndarray, "batch t"] | Sequence[Any]
Hidden = (
    Bool[Tensor, "batch length"]
    | Bool[np.ndarray, "batch length"]
    | Integer[Tensor, "batch length"]
    | Integer[np.ndarray, "batch length"]
    | Sequence[Any]
)

MAX_ENTRIES = 2**33  # of one tensor that we make: 64 GiB of float64

DataclassT = TypeVar("DataclassT")


class ImpossibleEvidence(UserError):
    """A conditional was asked for given something of probability zero."""


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
            "(for another length, make another structure)",
            parameter=name,
        )
    _check_range(rows, vocab_size, hidden)
    return rows


def as_masked(
    tokens: Tokens,
    hidden: Hidden | None,
    vocab_size: int,
    *,
    length: int | None = None,
    device: torch.device | str | None = None,
) -> tuple[Int[Tensor, "batch t"], Bool[Tensor, "batch t"]]:
    """`as_tokens` of the tokens that are shown, and the positions that are not (None: all are)."""
    rows = as_integers("tokens", tokens, dimensions=2, device=device)
    if hidden is None:
        return as_tokens(rows, vocab_size, length=length), torch.zeros_like(rows, dtype=torch.bool)
    mask = as_bool_mask("hidden", hidden, device=device)
    if mask.shape != rows.shape:
        raise UserError(
            f"hidden has shape {tuple(mask.shape)} and tokens {tuple(rows.shape)}; "
            "they must be equal: hidden is True where a token is not shown",
            parameter="hidden",
        )
    return as_tokens(rows, vocab_size, length=length, hidden=mask), mask


def as_asked(asked: Hidden, tokens: Int[Tensor, "batch t"]) -> Bool[Tensor, "batch t"]:
    """True at the positions of these tokens that are asked about."""
    mask = as_bool_mask("asked", asked, device=tokens.device)
    if mask.shape != tokens.shape:
        raise UserError(
            f"asked has shape {tuple(mask.shape)} and tokens {tuple(tokens.shape)}; they must be "
            "equal: asked is True where a law is wanted",
            parameter="asked",
        )
    return mask


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
            "so no token follows it",
            parameter="prefix",
        )
    _check_range(rows, vocab_size, None)
    return rows


def _check_range(
    tokens: Int[Tensor, "batch t"], vocab_size: int, hidden: Bool[Tensor, "batch t"] | None
) -> None:
    read = tokens if hidden is None else tokens.masked_fill(hidden, 0)
    if read.numel() == 0:
        return
    lowest, highest = (int(end) for end in read.aminmax())
    if lowest < 0 or highest >= vocab_size:
        bad = (read < 0) | (read >= vocab_size)
        row, position = torch.nonzero(bad)[0].tolist()
        raise UserError(
            f"token {int(tokens[row, position])} at row {row}, position {position} is outside "
            f"0..{vocab_size - 1}; to hide a token, pass hidden=True there",
            parameter="hidden",
        )


# ------------------------------------------------------------------ tensors of our own code


def check_shape(name: str, tensor: Tensor, expected: tuple[int, ...], because: str) -> None:
    if tuple(tensor.shape) != expected:
        raise UserError(
            f"{name} has shape {tuple(tensor.shape)}; {because} needs shape {expected}",
            parameter=name,
        )


def check_integers(name: str, values: Tensor, *, dimensions: int) -> None:
    """`values` is an integer tensor with this many dimensions."""
    if not isinstance(values, Tensor):
        raise UserError(
            f"{name} is a {type(values).__name__}; pass torch.tensor({name})", parameter=name
        )
    as_integers(name, values, dimensions=dimensions)


def check_dimensions(name: str, values: Tensor, dimensions: int, meaning: str) -> None:
    """`values` is a tensor with this many dimensions."""
    if not isinstance(values, Tensor):
        raise UserError(
            f"{name} is a {type(values).__name__}; it must be a tensor of {meaning}", parameter=name
        )
    if values.ndim != dimensions:
        raise UserError(
            f"{name} has shape {tuple(values.shape)}; it must be of shape {meaning}", parameter=name
        )


def check_count(name: str, value: Count, *, at_least: int) -> None:
    as_count(name, value, at_least=at_least)


def check_probability(name: str, value: Number) -> None:
    as_probability(name, value)


def check_room(what: str, *shape: int) -> None:
    """A tensor of this shape can be made."""
    if math.prod(shape) > MAX_ENTRIES:
        raise UserError(
            f"{what} would have {' x '.join(map(str, shape))} entries; at most {MAX_ENTRIES} fit",
            parameter="shape",
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
            f"exists ({int(impossible.sum())} of {len(log_evidence)} rows)",
            parameter="log_evidence",
        )


def set_fields(structure: object, **fields: object) -> None:
    """Put checked values instead of what a frozen dataclass was given; for `__post_init__`."""
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
