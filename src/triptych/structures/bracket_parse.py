"""What reading a string of brackets tells: the stack, and the first error with its kind."""

from enum import IntEnum
from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor


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
