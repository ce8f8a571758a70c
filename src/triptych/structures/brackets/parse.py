"""What reading a string of brackets tells: the stack, and the first error with its kind."""

from enum import IntEnum
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.validation import Count, Prefix, as_flag, as_size, as_tokens, check_room
from triptych.structures.brackets.moves import CLOSE, OPEN


class DyckError(IntEnum):
    """Why a token cannot follow its prefix."""

    NONE = 0
    UNMATCHED_CLOSE = 1  # closes although nothing is open
    WRONG_CLOSE = 2  # closes a bracket of another type than the innermost open one
    TOO_DEEP = 3  # opens beyond the depth bound
    TOO_LATE = 4  # opens a bracket that no remaining position can close
    PREMATURE_END = 5  # ends with open brackets, or before the shortest length
    AFTER_END = 6  # anything but the end token after it


class Parse(NamedTuple):
    """What a parser knows after reading each row up to its first error.

    log_prob   log-probability of the row, -inf from an error on
    depth      open brackets
    stack      stack[b, i] is the type of the i-th open bracket, outermost first
    ended      the end token was read
    error      kind of the first error (DyckError)
    position   where that error is, or the number of tokens read
    """

    log_prob: Float[Tensor, " batch"]
    depth: Int[Tensor, " batch"]
    stack: Int[Tensor, "batch max_depth"]
    ended: Bool[Tensor, " batch"]
    error: Int[Tensor, " batch"]
    position: Int[Tensor, " batch"]


def error_kind(
    move: Int[Tensor, " batch"],
    depth: Int[Tensor, " batch"],
    ended: Bool[Tensor, " batch"],
    mismatch: Bool[Tensor, " batch"],
    max_depth: int,
) -> Int[Tensor, " batch"]:
    """Which error a move of probability 0 is."""
    too_deep = (depth == max_depth) & (move == OPEN)
    kind = torch.where(move == OPEN, DyckError.TOO_LATE, DyckError.PREMATURE_END)
    kind = torch.where(move == CLOSE, DyckError.UNMATCHED_CLOSE, kind)
    kind = torch.where(too_deep, DyckError.TOO_DEEP, kind)
    kind = torch.where(mismatch, DyckError.WRONG_CLOSE, kind)
    return torch.where(ended, DyckError.AFTER_END, kind)


def type_and_depth(
    tokens: Prefix, types: Count
) -> tuple[Int[Tensor, "batch t"], Int[Tensor, "batch t"]]:
    """Token type (2j opens type j, 2j + 1 closes it) and grammar depth of every bracket.

    An opening bracket has the depth after it, a closing one the depth of the bracket it closes, so
    that partners share a depth, from 1. Special tokens have depth 0. Worked value: "[()]" has
    depths 1, 2, 2, 1.
    """
    types = as_size("types", types)
    tokens = as_tokens(tokens, 2 * types + 2)  # two special tokens
    bracket = tokens < 2 * types
    opens = bracket & (tokens % 2 == 0)
    change = torch.where(bracket, torch.where(opens, 1, -1), 0)
    after = change.cumsum(1)
    depth = torch.where(opens, after, after + 1)
    return tokens, torch.where(bracket, depth, 0)


def minimal_first_layer(
    tokens: Prefix, types: Count, max_depth: Count, *, joint: bool = True
) -> Float[Tensor, "batch t width"]:
    """One-hot vectors of type and depth: the minimal first layers of [li, (2.55) and (2.56)].

    joint: one coordinate per pair (type, depth), as (2.55); else o_type ⊕ o_depth, as (2.56).
    Special tokens have coordinates of their own: types 2k and 2k + 1, depth 0. Depths beyond
    `max_depth` count as `max_depth`.
    """
    types, max_depth = as_size("types", types), as_size("max_depth", max_depth, at_least=0)
    check_room("the one-hot vectors", 2 * types + 2, max_depth + 1)
    kind, depth = type_and_depth(tokens, types)
    kinds, depths = 2 * types + 2, max_depth + 1
    depth = depth.clamp(0, max_depth)
    one_hot = torch.nn.functional.one_hot
    if as_flag("joint", joint):
        return one_hot(kind * depths + depth, kinds * depths).float()
    return torch.cat([one_hot(kind, kinds), one_hot(depth, depths)], dim=-1).float()
