"""The door of randomness: `TorchRng` draws with a seed.

`core.enumeration` has the other rng, which makes every choice in turn and gives the exact law.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core import compiled
from triptych.core.protocols import Rng
from triptych.core.validation import (
    Count,
    Numbers,
    UserError,
    as_device,
    as_floats,
    as_integers,
    as_seed,
    check_can,
    shown,
)

_TABLES_KEPT = 4
_ALIAS_OUTCOMES = 512
_ALIAS_DRAWS = 16
_PIECE = 2**14  # draws of the C program at a time


def checked_probabilities(log_probs: Numbers) -> Float[Tensor, "*table outcomes"]:
    """The probabilities; each row must sum to 1, to the rounding of a network."""
    return _probabilities(as_table(log_probs))


def _probabilities(
    log_probs: Float[Tensor, "*table outcomes"],
) -> Float[Tensor, "*table outcomes"]:
    probs = log_probs.exp()
    off = (probs.sum(-1) - 1).abs()
    if not (off < 1e-4).all():  # written so that nan fails too
        worst = off.reshape(-1)[off.reshape(-1).nan_to_num(nan=torch.inf).argmax()].item()
        raise UserError(
            "categorical needs log_probs whose exponentials sum to 1 over the last "
            f"dimension; a row is off by {worst:.3g} (normalise log-weights with log_softmax)",
            parameter="log_probs",
        )
    return probs


class _Cumulative(NamedTuple):
    """flat[row * outcomes + k] = row + P(outcome ≤ k | row): one sorted list for all rows."""

    outcomes: int
    flat: Float[Tensor, " entries"]

    @classmethod
    def of(cls, log_probs: Float[Tensor, "rows outcomes"]) -> "_Cumulative":
        cumulative = _probabilities(log_probs.double()).cumsum(-1)
        cumulative = cumulative / cumulative[:, -1:]
        offset = torch.arange(len(cumulative), dtype=torch.float64, device=log_probs.device)
        return cls(log_probs.shape[-1], (cumulative + offset[:, None]).reshape(-1))

    def draw(self, rows: Int[Tensor, "*batch"], uniform: Tensor) -> Int[Tensor, "*batch"]:
        first = rows * self.outcomes
        place = torch.searchsorted(self.flat, uniform + rows, right=True)
        # `row + uniform` can round up to row + 1, which is the next row: step back to the last
        # outcome with mass, where the unrounded value would have landed.
        spilled = place >= (first + self.outcomes).clamp_(max=len(self.flat))
        if spilled.any():
            if not ((rows >= 0) & (first < len(self.flat))).all():
                raise IndexError("a row that is not there")
            below = rows[spilled] + 1.0
            below = torch.nextafter(below.double(), torch.zeros_like(below.double()))
            place[spilled] = torch.searchsorted(self.flat, below, right=True)
        return place - first


class _Alias(NamedTuple):
    """Walker's alias tables: outcome k is kept with probability keep[k], else it is other[k].

    A draw costs a few gathers, five times less than a binary search; building them costs
    `outcomes` passes over the table, so they are made only for many draws.
    """

    outcomes: int
    keep: Float[Tensor, " entries"]
    other: Int[Tensor, " entries"]

    @classmethod
    def of(cls, log_probs: Float[Tensor, "rows outcomes"]) -> "_Alias":
        """The poorest open outcome is closed by the richest, until one is left."""
        rows, outcomes = log_probs.shape
        probs = _probabilities(log_probs.double())
        mass = probs / probs.sum(-1, keepdim=True) * outcomes
        keep = torch.ones_like(mass)
        other = torch.arange(outcomes, device=mass.device).repeat(rows, 1)
        closed = torch.zeros_like(mass, dtype=torch.bool)
        for _ in range(outcomes - 1):
            poor = mass.masked_fill(closed, torch.inf).argmin(-1, keepdim=True)
            rich = mass.masked_fill(closed, -torch.inf).argmax(-1, keepdim=True)
            has = mass.gather(-1, poor)
            keep.scatter_(-1, poor, has.clamp(max=1.0))
            other.scatter_(-1, poor, rich)
            mass.scatter_add_(-1, rich, has - 1.0)
            closed.scatter_(-1, poor, True)
        return cls(outcomes, keep.reshape(-1), other.reshape(-1))

    def draw(self, rows: Int[Tensor, "*batch"], uniform: Tensor) -> Int[Tensor, "*batch"]:
        """Consumes `uniform`: its whole part after scaling names a column, the rest decides."""
        scaled = uniform.reshape(-1).mul_(self.outcomes)
        column = scaled.long()
        entry = torch.add(column, rows.reshape(-1), alpha=self.outcomes)
        kept = scaled.frac_() < self.keep.index_select(0, entry)
        drawn = torch.where(kept, column, self.other.index_select(0, entry))
        return drawn.reshape(rows.shape)

    def draw_in_c(
        self, rows: Int[Tensor, "*batch"], generator: torch.Generator
    ) -> Int[Tensor, "*batch"]:
        """The same draws by the C program, a piece at a time, so that numbers stay in cache."""
        flat = rows.reshape(-1).contiguous()
        drawn = torch.empty_like(flat)
        numbers = torch.empty(min(len(flat), _PIECE), dtype=torch.float64)
        pieces = [(flat, drawn)]
        if len(flat) > _PIECE:
            pieces = zip(flat.split(_PIECE), drawn.split(_PIECE), strict=True)
        for part, into in pieces:
            uniform = numbers[: len(part)].uniform_(generator=generator)
            compiled.draw_alias(uniform, part, self.keep, self.other, into, self.outcomes)
        return drawn.reshape(rows.shape)


class _Remembered(NamedTuple):
    """A table seen before, and how to draw from it; `version` tells whether it was changed."""

    source: Tensor
    version: int
    table: _Cumulative | _Alias


class TorchRng:
    """Draws with a seeded `torch.Generator` on one device.

    Outcomes of probability 0 are never drawn. The stream depends on the seed, the device, and
    the shapes and values of the calls, and on nothing else.
    """

    def __init__(self, seed: Count, device: torch.device | str = "cpu") -> None:
        self.seed = as_seed(seed)
        self.generator = torch.Generator(as_device(device)).manual_seed(self.seed)
        self._tables: list[_Remembered] = []

    def __repr__(self) -> str:
        where = "" if self.device.type == "cpu" else f", on {self.device}"
        return f"TorchRng(seed {self.seed}{where})"

    @property
    def device(self) -> torch.device:
        return self.generator.device

    def categorical(
        self,
        log_probs: Numbers,
        rows: Int[Tensor, "*batch"] | None = None,
    ) -> Int[Tensor, "..."]:
        log_probs = as_table(log_probs)
        if log_probs.device.type != self.device.type:
            raise UserError(
                f"this rng draws on {self.device} and the log-probabilities are on "
                f"{log_probs.device}; make TorchRng(seed, device={str(log_probs.device)!r})",
                parameter="log_probs",
            )
        if rows is None:
            cumulative = _probabilities(log_probs.double()).cumsum(-1)
            total = cumulative[..., -1:]
            target = self._uniform(total.shape) * total
            target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
            return torch.searchsorted(cumulative, target, right=True)[..., 0]
        if log_probs.ndim != 2:
            raise UserError(
                f"with `rows`, log_probs must be a table of shape (rows, outcomes); "
                f"given shape {tuple(log_probs.shape)}",
                parameter="log_probs",
            )
        if not isinstance(rows, Tensor) or rows.dtype != torch.int64:
            rows = as_rows_of(log_probs, rows)
        kind = _Alias if _pays(rows.numel(), log_probs.shape[-1]) else _Cumulative
        table = self._table(log_probs, kind)
        try:
            if compiled.is_used() and isinstance(table, _Alias) and self.device.type == "cpu":
                return table.draw_in_c(rows, self.generator)
            return table.draw(rows, self._uniform(rows.shape))
        except IndexError:
            as_rows_of(log_probs, rows)  # says which rows there are
            raise

    def _uniform(self, shape: Sequence[int]) -> Float[Tensor, "..."]:
        return torch.rand(
            tuple(shape), generator=self.generator, dtype=torch.float64, device=self.device
        )

    def _table(
        self, log_probs: Float[Tensor, "rows outcomes"], kind: type[_Alias] | type[_Cumulative]
    ) -> _Alias | _Cumulative:
        """Tables to draw from, remembered while the same tensor is used again."""
        if log_probs.is_inference():  # such a tensor cannot tell whether it was changed
            return kind.of(log_probs)
        version = log_probs._version
        for seen in self._tables:
            same = seen.source is log_probs and seen.version == version
            if same and isinstance(seen.table, kind):
                return seen.table
        table = kind.of(log_probs)
        kept = self._tables[: _TABLES_KEPT - 1]
        self._tables = [_Remembered(log_probs, version, table), *kept]
        return table


def _pays(draws: int, outcomes: int) -> bool:
    """Whether alias tables are worth building: by sizes alone, so that streams can be repeated."""
    return outcomes <= _ALIAS_OUTCOMES and draws >= _ALIAS_DRAWS * outcomes


RngLike = Rng | Count
"""An rng, or a whole number: the seed of a new one."""


def as_rng(rng: RngLike, device: torch.device | str = "cpu") -> Rng:
    """The rng itself; for a whole number, `TorchRng(rng, device)`.

    For functions that give a whole result. One that is called again and again, as a step of a
    chain, needs an rng: a seed would make the same draw every time.
    """
    if hasattr(rng, "categorical"):
        return cast(Rng, rng)
    if isinstance(rng, bool) or not isinstance(rng, Integral):
        raise UserError(
            f"rng is {shown(rng)}; it needs categorical, as TorchRng(0) has it, or must be a whole "
            "number, the seed",
            parameter="rng",
        )
    return TorchRng(as_seed(int(rng), name="rng"), device)


def check_goes_on(rng: object) -> None:
    """Refuse a seed where an rng is used again and again, as in a step of a chain."""
    if isinstance(rng, Integral) and not isinstance(rng, bool):
        raise UserError(
            f"rng is {int(rng)}; a step needs an rng that goes on, or every step would make the "
            f"same draws: TorchRng({int(rng)}), not {int(rng)}",
            parameter="rng",
        )
    check_can("rng", rng, "categorical")


def as_rows_of(
    table: Float[Tensor, "laws outcomes"], rows: Int[Tensor, "*batch"]
) -> Int[Tensor, "*batch"]:
    """Numbers of rows of a table; one that is not there would draw from another row."""
    if not isinstance(rows, Tensor):
        rows = as_integers("rows", rows, dimensions=1, device=table.device)
    elif rows.dtype != torch.int64:
        rows = as_integers("rows", rows, dimensions=rows.ndim)
    if rows.numel():
        lowest, highest = (int(end) for end in rows.aminmax())
        if lowest < 0 or highest >= len(table):
            raise UserError(
                f"rows holds {lowest}..{highest}; log_probs has rows 0..{len(table) - 1}",
                parameter="rows",
            )
    return rows


def as_table(log_probs: Numbers) -> Float[Tensor, "*table outcomes"]:
    """Log-probabilities as a tensor with outcomes; whether they sum to 1 is seen later."""
    if not isinstance(log_probs, Tensor):
        log_probs = as_floats("log_probs", log_probs, finite=False)
    if log_probs.is_floating_point() and log_probs.ndim and log_probs.shape[-1]:
        return log_probs
    if log_probs.ndim == 0 or log_probs.shape[-1] == 0:
        raise UserError(
            f"log_probs has shape {tuple(log_probs.shape)}; its last dimension are the outcomes",
            parameter="log_probs",
        )
    if log_probs.is_complex() or log_probs.dtype == torch.bool:
        raise UserError(
            f"log_probs has dtype {log_probs.dtype}; it must hold real numbers",
            parameter="log_probs",
        )
    return log_probs
