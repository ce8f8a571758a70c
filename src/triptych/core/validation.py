"""Bad input becomes a sentence that a user can act on: what was given, what is needed, where."""

import dataclasses
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

ROW_SUM_TOLERANCE = 1e-8

DataclassT = TypeVar("DataclassT")


class UserError(ValueError):
    """A user's mistake, in one sentence: what was given, what is needed, where."""


class ImpossibleEvidence(UserError):
    """A conditional was asked for given something of probability zero."""


def check_floats(name: str, values: Tensor) -> None:
    """`values` are finite float64."""
    if values.dtype != torch.float64:
        raise ValueError(
            f"{name} has dtype {values.dtype}; exact inference needs float64: pass {name}.double()"
        )
    if not torch.isfinite(values).all():
        where = tuple(torch.nonzero(~torch.isfinite(values))[0].tolist())
        raise ValueError(f"{name}{list(where)} is {values[where].item()}; it must be finite")


def check_distributions(name: str, probs: Float[Tensor, "*rows outcomes"]) -> None:
    """Every row of `probs` is a probability vector."""
    check_floats(name, probs)
    if probs.shape[-1] == 0:
        raise ValueError(f"{name} has no outcomes: its last dimension is empty")
    if (probs < 0).any():
        where = tuple(torch.nonzero(probs < 0)[0].tolist())
        raise ValueError(f"{name}{list(where)} is {probs[where].item()}; it must not be negative")
    off = (probs.sum(-1) - 1).abs()
    if (off > ROW_SUM_TOLERANCE).any():
        row = tuple(torch.nonzero(off > ROW_SUM_TOLERANCE)[0].tolist()) if off.ndim else ()
        at = f"{name}{list(row)}" if row else name
        raise ValueError(
            f"{at} sums to {probs[row].sum().item():.10g}; each row must sum to 1 "
            f"(rows are the last dimension, so {name}[i, j] is the probability of j given i)"
        )


def check_shape(name: str, tensor: Tensor, expected: tuple[int, ...], because: str) -> None:
    if tuple(tensor.shape) != expected:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; {because} needs shape {expected}"
        )


def check_integers(name: str, values: Tensor, *, dimensions: int) -> None:
    """`values` is an integer tensor with this many dimensions."""
    if not isinstance(values, Tensor):
        raise ValueError(f"{name} is a {type(values).__name__}; pass torch.tensor({name})")
    if values.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name} has dtype {values.dtype}; pass {name}.long()")
    if values.ndim != dimensions:
        raise ValueError(
            f"{name} has shape {tuple(values.shape)}; it needs {dimensions} dimensions"
            + (" (batch, length): pass one row as x[None]" if dimensions == 2 else "")
        )


def check_dimensions(name: str, values: Tensor, dimensions: int, meaning: str) -> None:
    """`values` is a tensor with this many dimensions."""
    if not isinstance(values, Tensor):
        raise ValueError(f"{name} is a {type(values).__name__}; it must be a tensor of {meaning}")
    if values.ndim != dimensions:
        raise ValueError(f"{name} has shape {tuple(values.shape)}; it must be of shape {meaning}")


def check_count(name: str, value: int, *, at_least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; it must be a whole number")
    if value < at_least:
        raise ValueError(f"{name} is {value}; it must be at least {at_least}")


def check_probability(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is {value}; it must be a probability, between 0 and 1")


def check_same_device(**tensors: Tensor) -> None:
    devices = {name: tensor.device for name, tensor in tensors.items()}
    if len(set(devices.values())) > 1:
        raise ValueError(
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
    if hidden is not None and (not isinstance(hidden, Tensor) or hidden.dtype != torch.bool):
        kind = hidden.dtype if isinstance(hidden, Tensor) else type(hidden).__name__
        raise ValueError(f"hidden is {kind}; it must be a bool tensor, True where not shown")
    if hidden is not None and hidden.shape != tokens.shape:
        raise ValueError(
            f"hidden has shape {tuple(hidden.shape)} and tokens {tuple(tokens.shape)}; "
            "they must be equal: hidden is True where a token is not shown"
        )
    shown = tokens if hidden is None else tokens.masked_fill(hidden, 0)
    if shown.numel() == 0:
        return
    lowest, highest = shown.aminmax()
    if lowest < 0 or highest >= vocab_size:
        bad = (shown < 0) | (shown >= vocab_size)
        row, position = torch.nonzero(bad)[0].tolist()
        raise ValueError(
            f"token {int(tokens[row, position])} at row {row}, position {position} is outside "
            f"0..{vocab_size - 1}; to hide a token, pass hidden=True there"
        )


def check_sequences(
    tokens: Int[Tensor, "batch t"],
    vocab_size: int,
    length: int,
    hidden: Bool[Tensor, "batch t"] | None = None,
) -> None:
    """`check_tokens`, and every row has the structure's full length."""
    if tokens.shape[1] != length:
        raise ValueError(
            f"tokens have length {tokens.shape[1]}; this structure has length {length} "
            "(for another length, make another structure)"
        )
    check_tokens(tokens, vocab_size, hidden)


def check_prefix(prefix: Int[Tensor, "batch t"], vocab_size: int, length: int) -> None:
    """`check_tokens`, and there is a next position to predict."""
    if prefix.shape[1] >= length:
        raise ValueError(
            f"the prefix has {prefix.shape[1]} tokens; this structure has length {length}, "
            "so no token follows it"
        )
    check_tokens(prefix, vocab_size)


def raise_if_impossible(log_evidence: Float[Tensor, " batch"], what: str) -> None:
    """A zero-probability row has no conditional: say which row."""
    impossible = torch.isneginf(log_evidence)
    if impossible.any():
        row = int(torch.nonzero(impossible)[0])
        raise ImpossibleEvidence(
            f"{what} in row {row} has probability 0 under this structure, so no conditional "
            f"exists ({int(impossible.sum())} of {len(log_evidence)} rows)"
        )


def moved_to(structure: DataclassT, device: torch.device | str) -> DataclassT:
    """A copy of a dataclass with every tensor field on `device`."""
    fields = dataclasses.fields(structure)  # pyright: ignore[reportArgumentType]
    tensors = {
        field.name: value.to(device)
        for field in fields
        if isinstance(value := getattr(structure, field.name), Tensor)
    }
    return dataclasses.replace(structure, **tensors)  # pyright: ignore[reportArgumentType, reportReturnType]
