"""Two sources of randomness: one that samples, one that enumerates.

`TorchRng` draws. `exact_law` runs a program once for every sequence of choices it can make,
and so turns any sampler with finitely many choices into its exact law.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.display import MAX_BARS, bars, card, counted, facts_table
from triptych.core.protocols import Rng
from triptych.core.validation import (
    Count,
    Number,
    Numbers,
    UserError,
    as_count,
    as_device,
    as_floats,
    as_integers,
    as_list,
    as_number,
    as_seed,
    check_callable,
    check_can,
    check_room,
    set_fields,
    shown,
)

_TABLES_KEPT = 4
_ROUNDING = 1e-6
_ALIAS_OUTCOMES = 512
_ALIAS_DRAWS = 16
_LINE = 80  # letters of outcomes that a law prints


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
            f"dimension; a row is off by {worst:.3g} (normalise log-weights with log_softmax)"
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
                f"{log_probs.device}; make TorchRng(seed, device={str(log_probs.device)!r})"
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
                f"given shape {tuple(log_probs.shape)}"
            )
        if not isinstance(rows, Tensor) or rows.dtype != torch.int64:
            rows = as_rows_of(log_probs, rows)
        kind = _Alias if _pays(rows.numel(), log_probs.shape[-1]) else _Cumulative
        table = self._table(log_probs, kind)
        try:
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
            "number, the seed"
        )
    return TorchRng(as_seed(int(rng), name="rng"), device)


def check_goes_on(rng: object) -> None:
    """Refuse a seed where an rng is used again and again, as in a step of a chain."""
    if isinstance(rng, Integral) and not isinstance(rng, bool):
        raise UserError(
            f"rng is {int(rng)}; a step needs an rng that goes on, or every step would make the "
            f"same draws: TorchRng({int(rng)}), not {int(rng)}"
        )
    check_can("rng", rng, "categorical")


class _Fork(BaseException):
    """Raised when a replayed program asks for a choice not yet decided.

    Not an Exception, so that a program which catches its own errors does not catch this.
    """

    def __init__(self, probs: list[float]) -> None:
        self.probs = probs


class _ReplayRng:
    """Answers with decided outcomes in order; a batch is a sequence of single choices."""

    def __init__(self, decided: tuple[int, ...]) -> None:
        self.decided = decided
        self.used = 0

    def categorical(
        self,
        log_probs: Float[Tensor, "*table outcomes"],
        rows: Int[Tensor, "*batch"] | None = None,
    ) -> Int[Tensor, "..."]:
        probs = checked_probabilities(log_probs if rows is None else log_probs[rows])
        shape, flat = probs.shape[:-1], probs.reshape(-1, probs.shape[-1])
        drawn: list[int] = []
        for row in flat:
            if self.used == len(self.decided):
                raise _Fork(row.tolist())
            drawn.append(self.decided[self.used])
            self.used += 1
        return torch.tensor(drawn, dtype=torch.long, device=log_probs.device).reshape(shape)


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
                f"rows holds {lowest}..{highest}; log_probs has rows 0..{len(table) - 1}"
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
            f"log_probs has shape {tuple(log_probs.shape)}; its last dimension are the outcomes"
        )
    if log_probs.is_complex() or log_probs.dtype == torch.bool:
        raise UserError(f"log_probs has dtype {log_probs.dtype}; it must hold real numbers")
    return log_probs


@dataclass(frozen=True)
class Law:
    """An exact finite law.

    probs
        Outcome -> probability.
    missing
        Mass of the branches cut because they fell under `cutoff`; 0 for a program that
        always stops.
    """

    probs: dict[Any, float]
    missing: float = 0.0

    def __post_init__(self) -> None:
        probs = _as_probs("probs", self.probs)
        set_fields(self, probs=probs, missing=as_number("missing", self.missing, at_least=0))

    def __repr__(self) -> str:
        """The likeliest outcomes that fit in a line."""
        texts: list[str] = []
        for outcome, p in self._likeliest():
            text = f"{outcome!r}: {p:.4g}"
            if "\n" in text or sum(map(len, texts)) + len(text) > _LINE:
                break
            texts.append(text)
        if more := len(self.probs) - len(texts):
            texts.append(f"{more} more" if texts else counted(more, "outcome"))
        missing = [f"missing {self.missing:.3g}"] if self.missing else []
        return f"Law({', '.join(texts + missing)})"

    def _repr_html_(self) -> str:
        found = self._likeliest()
        facts = {"outcomes": len(self.probs), "missing": self.missing}
        named = [(repr(outcome), p) for outcome, p in found[:MAX_BARS]]
        pieces = bars(named, title="most likely outcomes", more=max(0, len(found) - MAX_BARS))
        return card("Law", facts_table(facts), pieces)

    def _likeliest(self) -> list[tuple[Any, float]]:
        return sorted(self.probs.items(), key=lambda item: -item[1])

    def given(self, condition: Callable[[Any], bool]) -> "Law":
        """The law conditioned on an event; raises when the event has no mass."""
        check_callable("condition", condition, "condition(outcome)")
        kept = {x: p for x, p in self.probs.items() if condition(x)}
        mass = sum(kept.values())
        if mass == 0:
            raise UserError("the condition holds on no outcome of this law")
        return Law({x: p / mass for x, p in kept.items()})

    def total_variation(self, target: "Law | dict[Any, float]") -> float:
        """½ Σ |p - q| over the union of the supports."""
        other = target.probs if isinstance(target, Law) else _as_probs("target", target)
        outcomes = self.probs.keys() | other.keys()
        return 0.5 * sum(abs(self.probs.get(x, 0.0) - other.get(x, 0.0)) for x in outcomes)

    def expectation(self, f: Callable[[Any], float]) -> float:
        """Σ p(x) f(x)."""
        check_callable("f", f, "f(outcome)")
        values = {x: f(x) for x in self.probs}
        return sum(
            p * (float(v) if isinstance(v, bool) else as_number(f"f({x!r})", v, finite=False))
            for (x, v), p in zip(values.items(), self.probs.values(), strict=True)
        )


def _as_probs(name: str, probs: Mapping[Any, Number]) -> dict[Any, float]:
    """Outcome -> probability, as sums of products have it: above 1 by rounding at most."""
    if not isinstance(probs, Mapping):
        raise UserError(
            f"{name} is {shown(probs)}; it must be a dict from outcomes to probabilities"
        )
    return {
        x: as_number(f"{name}[{x!r}]", p, at_least=0, at_most=1 + _ROUNDING)
        for x, p in probs.items()
    }


def exact_law(
    program: Callable[[Rng], Hashable],
    *,
    cutoff: Number = 0.0,
    max_runs: Count = 1_000_000,
    max_choices: Count = 10_000,
) -> Law:
    """The law of `program(rng)`, by depth-first search over its choices.

    `program` must be a function of its choices alone. A program that may run for ever needs a
    `cutoff`: branches of smaller probability are dropped and their mass reported as `missing`, as
    are branches of more than `max_choices` choices.
    """
    check_callable("program", program, "program(rng)")
    cutoff = as_number("cutoff", cutoff, at_least=0)
    max_runs = as_count("max_runs", max_runs, at_least=1)
    max_choices = as_count("max_choices", max_choices)
    probs: dict[Hashable, float] = defaultdict(float)
    missing = 0.0
    frontier: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    for _ in range(max_runs):
        if not frontier:
            return Law(dict(probs), missing)
        decided, mass = frontier.pop()
        if mass < cutoff or len(decided) > max_choices:
            missing += mass
            continue
        try:
            outcome = program(_ReplayRng(decided))
            if isinstance(outcome, Tensor):
                raise UserError(
                    "the program returned a tensor, which has no value to compare by; return "
                    "x.item() or tuple(x.tolist())"
                )
            if not isinstance(outcome, Hashable):
                raise UserError(
                    f"the program returned a {type(outcome).__name__}, which is not hashable; "
                    "return a tuple"
                )
            probs[outcome] += mass
        except _Fork as fork:
            frontier += [((*decided, k), mass * p) for k, p in enumerate(fork.probs) if p > 0]
    raise UserError(
        f"exact_law gave up after {max_runs} runs of the program; "
        "make the case smaller or pass a cutoff"
    )


def exact_transition_matrix(
    states: Sequence[Hashable], step: Callable[[Any, Rng], Hashable]
) -> Float[Tensor, "states states"]:
    """P[i, j] = probability that `step` moves states[i] to states[j]."""
    given = as_list("states", states, "states")
    check_callable("step", step, "step(state, rng)")
    if not all(isinstance(state, Hashable) for state in given):
        raise UserError("states must be hashable: give tuples in place of lists")
    check_room("the transition matrix", len(given), len(given))
    index = {state: i for i, state in enumerate(given)}
    matrix = torch.zeros(len(given), len(given), dtype=torch.float64)
    for state, i in index.items():
        law = exact_law(lambda rng, state=state: step(state, rng))
        for target, prob in law.probs.items():
            if target not in index:
                raise UserError(f"step moves {state!r} to {target!r}, which is not in `states`")
            matrix[i, index[target]] += prob
    return matrix
