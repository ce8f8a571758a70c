"""A batch of growing prefixes, each row at its own length: the cursor of every algorithm.

`Prefixes` keeps the tokens; `RecomputingDecoder` is a `Decoder` over any `NextToken` oracle, which
it asks again each time. `models.cache.CachedDecoder` is the fast one for networks.
"""

from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.display import counted, name_of
from triptych.core.protocols import Density, NextToken
from triptych.core.validation import (
    Count,
    EndToken,
    Numbers,
    Prefix,
    UserError,
    as_device,
    as_integers,
    as_size,
    as_tokens,
    check_can,
    check_room,
)

PAD = -1  # stands beyond the end of a row; no token has this id

_ROOM = 16  # positions at first; a batch that grows longer gets more

PrefixesT = TypeVar("PrefixesT", bound="Prefixes")


def is_end(tokens: Int[Tensor, "*rows"], end_token: EndToken | None) -> Bool[Tensor, "*rows"]:
    """Where a token ends its string: it is the end token, or one of them."""
    if end_token is None:
        return torch.zeros_like(tokens, dtype=torch.bool)
    if isinstance(end_token, int):
        return tokens == end_token
    return torch.isin(tokens, torch.tensor(end_token, device=tokens.device))


class Prefixes:
    """The tokens of a batch of rows that grow and shrink; what does not fit is refused.

    used   a generation has used the rows up; a fork is a new decoder
    """

    def __init__(
        self,
        batch: Count,
        vocab_size: Count,
        longest: Count | None,
        device: torch.device | str,
    ) -> None:
        batch, device = as_size("batch", batch), as_device(device)
        self.vocab_size = as_size("vocab_size", vocab_size)
        self._longest = None if longest is None else as_size("longest", longest)
        room = min(self._longest or _ROOM, _ROOM)
        check_room("the batch of prefixes", batch, room)
        self._tokens = torch.full((batch, room), PAD, device=device)
        self._lengths = torch.zeros(batch, dtype=torch.long, device=device)
        self.used = False

    def __repr__(self) -> str:
        longest = int(self._lengths.max()) if len(self._lengths) else 0
        least = int(self._lengths.min()) if len(self._lengths) else 0
        written = f"{least}" if least == longest else f"{least} to {longest}"
        rows = counted(len(self._lengths), "row")
        lm = getattr(self, "lm", None)  # the decoders of models have one
        model = "" if lm is None else f"{name_of(lm)}, "
        return f"{type(self).__name__}({model}{rows} of {written} tokens)"

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        return self._lengths.clone()

    @property
    def tokens(self) -> Int[Tensor, "batch t"]:
        """The rows cut at the longest of them, -1 beyond each row's end."""
        longest = int(self._lengths.max()) if len(self._lengths) else 0
        beyond = torch.arange(longest, device=self._lengths.device) >= self._lengths[:, None]
        return self._tokens[:, :longest].masked_fill(beyond, PAD)

    def append(self, tokens: Numbers, rows: Numbers | None = None) -> None:
        """One token at the end of each of the rows, all of them when none are named."""
        tokens = as_integers("tokens", tokens, dimensions=1, device=self._lengths.device)
        self._grow(tokens[:, None], rows)

    def extend(self, tokens: Prefix) -> None:
        """t tokens at the end of every row; a row of prompts may end earlier, padded with -1."""
        tokens = as_integers("tokens", tokens, dimensions=2, device=self._lengths.device)
        if len(tokens) != len(self._lengths):
            raise UserError(
                f"tokens are given for {len(tokens)} rows; there are {len(self._lengths)}",
                parameter="tokens",
            )
        given = tokens != PAD
        if given.all():
            self._grow(tokens, None)
            return
        counts = given.sum(1)
        if (given != (torch.arange(tokens.shape[1], device=tokens.device) < counts[:, None])).any():
            raise UserError(
                "-1 pads the end of a row of tokens; one stands before a token", parameter="tokens"
            )
        for count in counts.unique().tolist():
            rows = torch.nonzero(counts == count)[:, 0]
            self._grow(tokens[rows, :count], rows)

    def rollback(self, counts: Numbers) -> None:
        """Erase the last `counts[b]` tokens of row b."""
        counts = as_integers("counts", counts, dimensions=1, device=self._lengths.device)
        if counts.shape != self._lengths.shape:
            raise UserError(
                f"{len(counts)} counts are given for {len(self._lengths)} rows", parameter="counts"
            )
        bad = (counts < 0) | (counts > self._lengths)
        if bad.any():
            row = int(bad.nonzero()[0])
            raise UserError(
                f"cannot erase {int(counts[row])} tokens of row {row}, which has "
                f"{int(self._lengths[row])}",
                parameter="counts",
            )
        self._lengths -= counts

    def _copy_rows(self: PrefixesT, rows: Numbers) -> PrefixesT:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        rows = self._chosen(rows)
        copy._tokens, copy._lengths = self._tokens[rows], self._lengths[rows]
        copy.used = False
        return copy

    def _chosen(self, rows: Numbers | None) -> Int[Tensor, " rows_or_all"]:
        """The rows that are named, all of them when none are."""
        batch = len(self._lengths)
        if rows is None:
            return torch.arange(batch, device=self._lengths.device)
        rows = as_integers("rows", rows, dimensions=1, device=self._lengths.device)
        bad = (rows < 0) | (rows >= batch)
        if bad.any():
            raise UserError(f"row {int(rows[bad][0])} is outside 0..{batch - 1}", parameter="rows")
        return rows

    def _asked(self, rows: Numbers | None) -> Int[Tensor, " rows_or_all"]:
        """The rows that are named; each of them has a next token."""
        rows = self._chosen(rows)
        full = rows[self._lengths[rows] >= self._longest] if self._longest is not None else rows[:0]
        if len(full):
            raise UserError(
                f"row {int(full[0])} already has {self._longest} tokens, the most this model "
                "knows: nothing follows it. Roll it back, or name the other rows in `rows`",
                parameter="rows",
            )
        return rows

    def _grow(self, tokens: Int[Tensor, "rows t"], rows: Numbers | None) -> None:
        rows = self._chosen(rows)
        if len(tokens) != len(rows):
            raise UserError(
                f"tokens are given for {len(tokens)} rows, but {len(rows)} are to grow",
                parameter="tokens",
            )
        if len(rows.unique()) < len(rows):
            raise UserError(
                f"a row is named twice in rows = {rows.tolist()}; each may grow once",
                parameter="rows",
            )
        as_tokens(tokens, self.vocab_size)
        if tokens.numel() == 0:
            return
        self._make_room(rows, tokens.shape[1])
        steps = torch.arange(tokens.shape[1], device=rows.device)
        self._tokens[rows[:, None], self._lengths[rows][:, None] + steps] = tokens
        self._lengths[rows] += len(steps)

    def _make_room(self, rows: Int[Tensor, " rows"], more: int) -> None:
        needed = self._lengths[rows] + more
        if self._longest is not None and (needed > self._longest).any():
            row = int(rows[needed > self._longest][0])
            raise UserError(
                f"row {row} has {int(self._lengths[row])} tokens and cannot take {more} more: "
                f"the model's length is {self._longest}",
                parameter="more",
            )
        room = self._tokens.shape[1]
        if needed.max() > room:
            more = max(room, int(needed.max()) - room)
            if self._longest is not None:
                more = min(more, self._longest - room)
            self._tokens = F.pad(self._tokens, (0, more), value=PAD)


class RecomputingDecoder(Prefixes):
    """A `Decoder` over any `NextToken` oracle, asked again each time: the reference.

    Rows of equal length share a call. An oracle that also knows its `length` bounds the rows.
    """

    def __init__(self, lm: NextToken, batch: Count, *, device: torch.device | str = "cpu") -> None:
        check_can("lm", lm, "vocab_size", "next_token_log_probs")
        longest = lm.length if isinstance(lm, Density) else None
        super().__init__(batch, lm.vocab_size, longest, device)
        self.lm = lm
        self._passes = [0]  # shared with forks

    @property
    def passes(self) -> int:
        """Calls of the oracle so far, by this decoder, its origin and forks."""
        return self._passes[0]

    def next_log_probs(self, rows: Numbers | None = None) -> Float[Tensor, "_ vocab"]:
        """log p(· | the prefix of each row); of the given rows only, if they are named."""
        rows = self._asked(rows)
        lengths, size = self._lengths[rows], (len(rows), self.lm.vocab_size)
        answers = torch.empty(size, dtype=torch.float64, device=rows.device)
        for length in lengths.unique().tolist():
            same = lengths == length
            prefix = self._tokens[rows[same], :length]
            answers[same] = self._laws(prefix)
        return answers

    def _laws(self, prefix: Int[Tensor, "rows t"]) -> Float[Tensor, "rows vocab"]:
        self._passes[0] += 1
        answer = self.lm.next_token_log_probs(prefix)
        wanted = (len(prefix), self.lm.vocab_size)
        if not isinstance(answer, Tensor) or tuple(answer.shape) != wanted:
            got = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
            raise UserError(
                f"next_token_log_probs of {type(self.lm).__name__} gave {got} for "
                f"{len(prefix)} prefixes; it must answer a tensor of shape {wanted}",
                parameter="prefix",
            )
        return answer.double()

    def fork(self, rows: Numbers) -> "RecomputingDecoder":
        """A new decoder whose row i is a copy of row `rows[i]`."""
        return self._copy_rows(rows)
