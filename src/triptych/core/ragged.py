"""Rows of different length, in one padded batch: the convention, and the entrance.

A batch of rows of different length is a tensor as wide as the longest row, and `lengths`. What
stands behind a row's end is never read. Lists may simply differ in length, and None in them is a
token that is not shown.

Notation
--------
n_b   lengths   [batch]      how many tokens row b has
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.arrays import Numbers, as_bool_mask, as_floats, as_integers
from triptych.core.scalars import UserError
from triptych.core.validation import Hidden, Tokens, as_tokens


class Ragged(NamedTuple):
    """Rows of different length. `hidden` is True where a token is not shown, and behind the end.

    tokens holds 0 wherever `hidden` is True.
    """

    tokens: Int[Tensor, "batch width"]
    hidden: Bool[Tensor, "batch width"]
    lengths: Int[Tensor, " batch"]

    @property
    def inside(self) -> Bool[Tensor, "batch width"]:
        """True up to each row's end."""
        return inside(self.lengths, self.tokens.shape[1])

    @property
    def shown(self) -> int:
        """How many tokens are shown, in all rows together."""
        return int((~self.hidden).sum())

    def some(self, rows: Int[Tensor, " rows"]) -> "Ragged":
        """These rows, cut at the longest of them."""
        lengths = self.lengths[rows]
        width = int(lengths.max()) if len(lengths) else 0
        return Ragged(self.tokens[rows, :width], self.hidden[rows, :width], lengths)


def inside(lengths: Int[Tensor, " batch"], width: int) -> Bool[Tensor, "batch width"]:
    """True at the first n_b positions of row b. Worked value: lengths (1, 2), width 2: 10, 11."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def as_lengths(
    lengths: Numbers, batch: int, width: int, *, device: torch.device | str | None = None
) -> Int[Tensor, " batch"]:
    """How many tokens each row has, 1..width."""
    given = as_integers("lengths", lengths, dimensions=1, device=device)
    if len(given) != batch:
        raise UserError(
            f"lengths has {len(given)} values for {batch} rows; it needs one for each row",
            parameter="lengths",
        )
    wrong = torch.nonzero((given < 1) | (given > width))[:, 0]
    if len(wrong):
        row = int(wrong[0])
        raise UserError(
            f"lengths[{row}] is {int(given[row])}; it must be 1..{width}, as tokens has {width} "
            "columns",
            parameter="lengths",
        )
    return given


def as_ragged(
    tokens: Tokens,
    vocab_size: int | None,
    *,
    hidden: Hidden | None = None,
    lengths: Numbers | None = None,
    device: torch.device | str | None = None,
) -> Ragged:
    """Rows of tokens in 0..vocab_size-1, from a padded batch with `lengths` or from ragged lists.

    With vocab_size None any token from 0 up is taken. Worked value: [[0, None, 1], [1]] are rows
    of 3 and 1 tokens; the second token of the first is hidden.
    """
    if _is_ragged(tokens):
        if lengths is not None:
            raise UserError(
                "tokens is a list of rows that differ in length or hold None, and lengths is given "
                "too: leave lengths away, or pad the rows",
                parameter="lengths",
            )
        tokens, hidden, lengths = _padded(tokens, hidden)
    rows = as_integers("tokens", tokens, dimensions=2, device=device)
    batch, width = rows.shape
    if not rows.numel():
        raise UserError(
            f"tokens has shape {tuple(rows.shape)}; it needs at least one row and one column",
            parameter="tokens",
        )
    ends = torch.full((batch,), width, device=rows.device)
    if lengths is not None:
        ends = as_lengths(lengths, batch, width, device=rows.device)
    unseen = ~inside(ends, width)
    if hidden is not None:
        mask = as_bool_mask("hidden", hidden, device=rows.device)
        if mask.shape != rows.shape:
            raise UserError(
                f"hidden has shape {tuple(mask.shape)} and tokens {tuple(rows.shape)}; they must "
                "be equal: hidden is True where a token is not shown",
                parameter="hidden",
            )
        unseen = unseen | mask
    rows = rows.masked_fill(unseen, 0)
    as_tokens(rows, 2**62 if vocab_size is None else vocab_size)
    return Ragged(rows, unseen, ends)


def seen_vocab(rows: Ragged) -> int:
    """One more than the largest token that is shown. Worked value: rows 0, 2 have 3."""
    return int(rows.tokens.max()) + 1


def as_weights(
    weights: Numbers | None, batch: int, *, device: torch.device | str | None = None
) -> Float[Tensor, " batch"]:
    """How often each row counts: numbers from 0 up, not all of them 0; None is once each."""
    if weights is None:
        return torch.ones(batch, dtype=torch.float64, device=device)
    given = as_floats("weights", weights, shape=(None,), meaning="[rows]", device=device)
    if len(given) != batch:
        raise UserError(
            f"weights has {len(given)} values for {batch} rows; it needs one for each row",
            parameter="weights",
        )
    if (given < 0).any() or not (given > 0).any():
        raise UserError(
            f"weights holds {float(given.min()):g}; weights must be 0 or more, and one above 0",
            parameter="weights",
        )
    return given


def _is_ragged(tokens: Any) -> TypeGuard[Sequence[Sequence[Any]]]:
    """Lists of whole numbers and None that no array can hold."""
    listed = isinstance(tokens, list | tuple) and all(isinstance(r, list | tuple) for r in tokens)
    if not listed or not tokens:
        return False
    return len({len(row) for row in tokens}) > 1 or any(x is None for row in tokens for x in row)


def _padded(
    tokens: Sequence[Sequence[Any]], hidden: Any
) -> tuple[np.ndarray, list[list[bool]], list[int]]:
    """Rows filled up with 0, what is hidden, and the lengths."""
    lengths = [len(row) for row in tokens]
    width = max(lengths)
    if hidden is None:
        hidden = [[False] * n for n in lengths]
    rows = isinstance(hidden, list | tuple) and len(hidden) == len(tokens)
    if not rows or any(
        not isinstance(own, list | tuple) or len(own) != n
        for own, n in zip(hidden, lengths, strict=True)
    ):
        raise UserError(
            "hidden must be a list with a row for each row of tokens, of the same length",
            parameter="hidden",
        )
    values, unseen = [], []
    for row, own in zip(tokens, hidden, strict=True):
        missing = width - len(row)
        values.append([0 if x is None else x for x in row] + [0] * missing)
        unseen.append([x is None or y for x, y in zip(row, own, strict=True)] + [False] * missing)
    try:
        return np.asarray(values), unseen, lengths
    except (ValueError, TypeError, OverflowError):
        raise UserError(
            "tokens must be lists of whole numbers, with None where a token is hidden",
            parameter="tokens",
        ) from None


# ------------------------------------------------------------------ questions about such rows


@runtime_checkable
class _Answers(Protocol):
    """A structure of one length that answers about hidden tokens."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def length(self) -> int: ...

    def masked_log_probs(
        self, tokens: Any, hidden: Any, /
    ) -> Float[Tensor, "batch length vocab"]: ...


def full_rows(
    structure: Any, tokens: Tokens, hidden: Hidden | None, lengths: Numbers | None
) -> tuple[Int[Tensor, "batch full"], Bool[Tensor, "batch full"], Ragged]:
    """Rows as the structure has them: of full length, with what is hidden; and as they were given.

    What follows a row is not known: it is hidden. Where a structure has an end token, a row is a
    whole string instead, and end tokens follow it.
    """
    device = getattr(structure, "device", None)
    rows = as_ragged(tokens, structure.vocab_size, hidden=hidden, lengths=lengths, device=device)
    width, length = rows.tokens.shape[1], structure.length
    if width > length:
        raise UserError(
            f"tokens have length {width}; this structure has length {length} (for another length, "
            "make another structure)",
            parameter="tokens",
        )
    end = getattr(structure, "end_token", None)
    filled, unseen = rows.tokens, rows.hidden
    if end is not None:
        over = ~rows.inside
        filled, unseen = filled.masked_fill(over, end), unseen & ~over
    missing = (0, length - width)
    filled = torch.nn.functional.pad(filled, missing, value=0 if end is None else end)
    return filled, torch.nn.functional.pad(unseen, missing, value=end is None), rows


def log_shown(
    structure: _Answers, tokens: Int[Tensor, "batch length"], hidden: Bool[Tensor, "batch length"]
) -> Float[Tensor, " batch"]:
    """log p(what is shown), by the chain rule over the shown positions; -inf where it cannot be.

    Worked value: two fair coins of which one is shown: log ½.
    """
    total = torch.zeros(len(tokens), dtype=torch.float64, device=tokens.device)
    unseen = torch.ones_like(hidden)
    for i in range(tokens.shape[1]):
        rows = torch.nonzero(~hidden[:, i] & (total > -torch.inf))[:, 0]
        if len(rows):
            law = structure.masked_log_probs(tokens[rows], unseen[rows])[:, i]
            total[rows] += law.gather(1, tokens[rows, i : i + 1])[:, 0]
        unseen[:, i] = hidden[:, i]
    return total


def log_prob_of_rows(
    structure: _Answers, tokens: Tokens, hidden: Hidden | None, lengths: Numbers | None
) -> Float[Tensor, " batch"]:
    """log p(what is shown) of rows of different length."""
    filled, unseen, _ = full_rows(structure, tokens, hidden, lengths)
    return log_shown(structure, filled, unseen)


def answers_of_rows(
    structure: _Answers,
    ask: Callable[..., Float[Tensor, "batch length outcomes"]],
    tokens: Tokens,
    hidden: Hidden | None,
    lengths: Numbers | None,
) -> Float[Tensor, "batch width outcomes"]:
    """A question at every position of rows of different length; -inf behind the end of a row.

    ask   `masked_log_probs` or `posterior` of the structure
    """
    filled, unseen, rows = full_rows(structure, tokens, hidden, lengths)
    answer = ask(filled, unseen)[:, : rows.tokens.shape[1]]
    return answer.masked_fill(~rows.inside[..., None], -torch.inf)
