"""A batch of growing prefixes, each row at its own length: the cursor of every algorithm.

`Prefixes` keeps the tokens; `RecomputingDecoder` is a `Decoder` over any `NextToken` oracle, which
it asks anew each time. `models.cache.CachedDecoder` is the fast one for networks.
"""

from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.protocols import Density, NextToken
from triptych.core.validation import check_count, check_tokens

PAD = -1  # stands beyond the end of a row; no token has this id

PrefixesT = TypeVar("PrefixesT", bound="Prefixes")


class Prefixes:
    """The tokens of a batch of rows that grow and shrink; what does not fit is refused."""

    def __init__(
        self, batch: int, vocab_size: int, longest: int | None, device: torch.device
    ) -> None:
        check_count("batch", batch, at_least=1)
        self.vocab_size, self._longest = vocab_size, longest
        self._tokens = torch.full((batch, longest or 16), PAD, device=device)
        self._lengths = torch.zeros(batch, dtype=torch.long, device=device)

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        return self._lengths.clone()

    @property
    def tokens(self) -> Int[Tensor, "batch t"]:
        """The rows cut at the longest of them, -1 beyond each row's end."""
        longest = int(self._lengths.max()) if len(self._lengths) else 0
        beyond = torch.arange(longest, device=self._lengths.device) >= self._lengths[:, None]
        return self._tokens[:, :longest].masked_fill(beyond, PAD)

    def append(
        self, tokens: Int[Tensor, " rows"], rows: Int[Tensor, " rows"] | None = None
    ) -> None:
        """One token at the end of each of the rows, all of them when none are named."""
        self._grow(tokens[:, None], rows)

    def extend(self, tokens: Int[Tensor, "batch t"]) -> None:
        """t tokens at the end of every row; a row of prompts may end earlier, padded with -1."""
        given = tokens != PAD
        if given.all():
            self._grow(tokens, None)
            return
        counts = given.sum(1)
        if (given != (torch.arange(tokens.shape[1], device=tokens.device) < counts[:, None])).any():
            raise ValueError("-1 pads the end of a row; one stands before a token")
        for count in counts.unique().tolist():
            rows = torch.nonzero(counts == count)[:, 0]
            self._grow(tokens[rows, :count], rows)

    def rollback(self, counts: Int[Tensor, " batch"]) -> None:
        """Erase the last `counts[b]` tokens of row b."""
        if counts.shape != self._lengths.shape:
            raise ValueError(f"{len(counts)} counts are given for {len(self._lengths)} rows")
        bad = (counts < 0) | (counts > self._lengths)
        if bad.any():
            row = int(bad.nonzero()[0])
            raise ValueError(
                f"cannot erase {int(counts[row])} tokens of row {row}, which has "
                f"{int(self._lengths[row])}"
            )
        self._lengths -= counts

    def _copy_rows(self: PrefixesT, rows: Int[Tensor, " copies"]) -> PrefixesT:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        rows = self._chosen(rows)
        copy._tokens, copy._lengths = self._tokens[rows], self._lengths[rows]
        return copy

    def _chosen(self, rows: Int[Tensor, " rows"] | None) -> Int[Tensor, " rows_or_all"]:
        """The rows that are named, all of them when none are."""
        batch = len(self._lengths)
        if rows is None:
            return torch.arange(batch, device=self._lengths.device)
        bad = (rows < 0) | (rows >= batch)
        if bad.any():
            raise ValueError(f"row {int(rows[bad][0])} is outside 0..{batch - 1}")
        return rows

    def _asked(self, rows: Int[Tensor, " rows"] | None) -> Int[Tensor, " rows_or_all"]:
        """The rows that are named; each of them has a next token."""
        rows = self._chosen(rows)
        full = rows[self._lengths[rows] >= self._longest] if self._longest is not None else rows[:0]
        if len(full):
            raise ValueError(
                f"row {int(full[0])} already has {self._longest} tokens, the most this model "
                "knows: nothing follows it. Roll it back, or name the other rows in `rows`"
            )
        return rows

    def _grow(self, tokens: Int[Tensor, "rows t"], rows: Int[Tensor, " _"] | None) -> None:
        rows = self._chosen(rows)
        if len(tokens) != len(rows):
            raise ValueError(
                f"tokens are given for {len(tokens)} rows, but {len(rows)} are to grow"
            )
        if len(rows.unique()) < len(rows):
            raise ValueError(f"a row is named twice in rows = {rows.tolist()}; each may grow once")
        check_tokens(tokens, self.vocab_size)
        if tokens.numel() == 0:
            return
        self._make_room(rows, tokens.shape[1])
        steps = torch.arange(tokens.shape[1], device=rows.device)
        self._tokens[rows[:, None], self._lengths[rows][:, None] + steps] = tokens.long()
        self._lengths[rows] += len(steps)

    def _make_room(self, rows: Int[Tensor, " rows"], more: int) -> None:
        needed = self._lengths[rows] + more
        if self._longest is not None and (needed > self._longest).any():
            row = int(rows[needed > self._longest][0])
            raise ValueError(
                f"row {row} has {int(self._lengths[row])} tokens and cannot take {more} more: "
                f"the model's length is {self._longest}"
            )
        room = self._tokens.shape[1]
        if needed.max() > room:
            self._tokens = F.pad(self._tokens, (0, max(room, int(needed.max()) - room)), value=PAD)


class RecomputingDecoder(Prefixes):
    """A `Decoder` over any `NextToken` oracle, asked anew each time: the reference.

    Rows of equal length share a call. An oracle that also knows its `length` bounds the rows.
    """

    def __init__(self, lm: NextToken, batch: int, *, device: torch.device | str = "cpu") -> None:
        longest = lm.length if isinstance(lm, Density) else None
        super().__init__(batch, lm.vocab_size, longest, torch.device(device))
        self.lm = lm

    def next_log_probs(self, rows: Int[Tensor, " rows"] | None = None) -> Float[Tensor, "_ vocab"]:
        """log p(· | the prefix of each row); of the given rows only, if they are named."""
        rows = self._asked(rows)
        lengths, size = self._lengths[rows], (len(rows), self.lm.vocab_size)
        answers = torch.empty(size, dtype=torch.float64, device=rows.device)
        for length in lengths.unique().tolist():
            same = lengths == length
            prefix = self._tokens[rows[same], :length]
            answers[same] = self.lm.next_token_log_probs(prefix).double()
        return answers

    def fork(self, rows: Int[Tensor, " copies"]) -> "RecomputingDecoder":
        """A new decoder whose row i is a copy of row `rows[i]`."""
        return self._copy_rows(rows)
