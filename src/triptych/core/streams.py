"""Numbers that depend on a key alone: a stream of choices for every row, and noise on prefixes.

`RowStreams` gives every row of a batch its own stream, so that what a row draws does not depend on
the batch it stands in. `hashed_uniform` is a fixed uniform number for every prefix: the noise of a
verifier that must answer the same question alike every time.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.display import counted
from triptych.core.randomness import as_rows_of, as_table, checked_probabilities
from triptych.core.validation import Count, Numbers, Prefix, UserError, as_integers, as_seed

_STEP = -0x61C8864680B583EB  # 2^64 / golden ratio, as a signed number
_FIRST, _SECOND = -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def _shifted(x: Int[Tensor, "*batch"], bits: int) -> Int[Tensor, "*batch"]:
    """Shift right and fill with zeros; >> alone copies the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mixed(x: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
    """Splitmix64: a bijection of 64-bit numbers after which every bit depends on every bit."""
    x = x + _STEP
    x = (x ^ _shifted(x, 30)) * _FIRST
    x = (x ^ _shifted(x, 27)) * _SECOND
    return x ^ _shifted(x, 31)


def _as_uniform(x: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    return _shifted(x, 11).double() * 2.0**-53


def hashed_uniform(seed: Count, prefix: Prefix) -> Float[Tensor, " batch"]:
    """A number in [0, 1) for every prefix: the same for the same seed and prefix, always."""
    seed, prefix = as_seed(seed), as_integers("prefix", prefix, dimensions=2)
    state = mixed(torch.full((len(prefix),), seed, dtype=torch.long, device=prefix.device))
    for token in prefix.unbind(1):
        state = mixed(state ^ (token + 1))
    return _as_uniform(mixed(state ^ -1))


class RowStreams:
    """An rng with one stream for each row of a batch, named by the seed and the row's number.

        RowStreams(0, torch.arange(64))          64 rows
        RowStreams(0, torch.tensor([7]))         row 7 alone: it draws what it draws among the 64

    `of(rows)` is the rng of some rows of the batch; a row named twice draws twice.
    """

    def __init__(self, seed: Count, numbers: Numbers) -> None:
        seed, numbers = as_seed(seed), as_integers("numbers", numbers, dimensions=1)
        self.seed = seed
        self._keys = mixed(mixed(torch.full_like(numbers, seed)) ^ numbers)
        self._used = torch.zeros_like(numbers)

    def __repr__(self) -> str:
        return f"RowStreams(seed {self.seed}, {counted(len(self._keys), 'row')})"

    @property
    def device(self) -> torch.device:
        return self._keys.device

    def of(self, rows: Numbers) -> "_SomeRows":
        """The door of the given rows of the batch."""
        rows = as_integers("rows", rows, dimensions=1, device=self.device)
        if len(rows) and not (int(rows.min()) >= 0 and int(rows.max()) < len(self._keys)):
            raise UserError(
                f"rows holds {int(rows.min())}..{int(rows.max())}; this rng has rows "
                f"0..{len(self._keys) - 1}",
                parameter="rows",
            )
        return _SomeRows(self, rows)

    def categorical(
        self,
        log_probs: Numbers,
        rows: Int[Tensor, "*batch"] | None = None,
    ) -> Int[Tensor, "..."]:
        """One draw of every row of the batch, in order."""
        table = _chosen(log_probs, rows)
        return self._draw(table, torch.arange(len(self._keys), device=self.device))

    def _draw(
        self, log_probs: Float[Tensor, "rows outcomes"], rows: Int[Tensor, " rows"]
    ) -> Int[Tensor, " rows"]:
        if log_probs.shape[:-1] != rows.shape:
            raise UserError(
                f"log_probs: laws of shape {tuple(log_probs.shape[:-1])} are given for "
                f"{len(rows)} rows; a stream per row draws one outcome for "
                "each: name the rows with of(rows)",
                parameter="log_probs",
            )
        cumulative = checked_probabilities(log_probs.double()).cumsum(-1)
        turn = self._used[rows] + _earlier_mentions(rows)
        self._used.index_add_(0, rows, torch.ones_like(rows))
        total = cumulative[..., -1:]
        target = _as_uniform(mixed(self._keys[rows] ^ mixed(turn)))[:, None] * total
        target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
        return torch.searchsorted(cumulative, target, right=True)[..., 0]


class _SomeRows:
    def __init__(self, streams: RowStreams, rows: Int[Tensor, " rows"]) -> None:
        self.streams, self.rows = streams, rows

    def categorical(
        self,
        log_probs: Numbers,
        rows: Int[Tensor, "*batch"] | None = None,
    ) -> Int[Tensor, "..."]:
        return self.streams._draw(_chosen(log_probs, rows), self.rows)


def _chosen(
    log_probs: Numbers, rows: Int[Tensor, "*batch"] | None
) -> Float[Tensor, "*batch outcomes"]:
    """The law of each draw."""
    table = as_table(log_probs)
    if rows is None:
        return table
    if table.ndim != 2:
        raise UserError(
            f"with `rows`, log_probs must be a table of shape (rows, outcomes); "
            f"given shape {tuple(table.shape)}"
        )
    return table[as_rows_of(table, rows)]


def _earlier_mentions(rows: Int[Tensor, " rows"]) -> Int[Tensor, " rows"]:
    """How often each entry's value stands before it: 4, 7, 4, 4 has 0, 0, 1, 2."""
    order = rows.argsort(stable=True)
    ranked = rows[order]
    place = torch.arange(len(rows), device=rows.device)
    fresh = torch.ones_like(ranked, dtype=torch.bool)
    fresh[1:] = ranked[1:] != ranked[:-1]
    first = torch.where(fresh, place, 0).cummax(0).values if len(rows) else place
    mentions = torch.empty_like(place)
    mentions[order] = place - first
    return mentions
