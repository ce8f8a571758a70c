"""Parameters that are rows of probabilities, what keeps them in place, and the M-step.

A model's parameters are a few parts, each a stack of distributions: initial, transition, emission.
Zeros stay zero, tied rows are equal, fixed parts do not move. Everything else about fitting sees
*groups*: a group is one distribution, which one row has or several tied ones share.

With expected counts c and a Dirichlet prior of concentrations α ≥ 1, the M-step of a group is

    p ∝ c + α - 1          the mode of the posterior; α = 1 is maximum likelihood.

Where a law is normalised by a sum over what could have been (a grammar on short strings), counts of
that sum are subtracted, and p ∝ c - e + C p with C large enough to keep what must not fall: the
growth transform of Baum and Eagon for ratios. With C = Σ e and e = C p it is the M-step above.

Notation
--------
p   parameters   {part: [rows, outcomes]}        c   expected counts, e   those of the normaliser
α   prior        the same shapes
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.validation import (
    Number,
    Numbers,
    UserError,
    as_bool_mask,
    as_count,
    as_floats,
    as_list,
    as_number,
    as_text,
    check_can,
    set_fields,
    shown,
)

Parameters = dict[str, Float[Tensor, "rows outcomes"]]
MAX_CONCENTRATION = 1e12
Prior = Number | Mapping[str, Number | Numbers]


class Expected(NamedTuple):
    """What a pass over the data says at given parameters.

    log_likelihood  Σ_b w_b log p(row b)
    counts          expected number of times that each outcome was chosen, c
    normaliser      e, where the law has a normaliser of its own; None where it has none
    """

    log_likelihood: float
    counts: Parameters
    normaliser: Parameters | None = None


@runtime_checkable
class RowModel(Protocol):
    """Data, and a law whose parameters are rows: all that fitting asks of a structure."""

    @property
    def rows(self) -> int:
        """How many rows of data there are."""
        ...

    @property
    def shown(self) -> int:
        """How many tokens are shown in them."""
        ...

    def expected(self, parameters: Parameters, /) -> Expected: ...

    def some(self, rows: Int[Tensor, " rows"], /) -> "RowModel":
        """The same with some of the rows."""
        ...


@dataclass(frozen=True, eq=False)
class Constraints:
    """What fitting must keep, by the name of the part.

    zeros   True where a probability is 0 and stays 0
    tied    groups of rows that are equal, as {"emission": [[0, 1]]}
    fixed   parts that stay as they start

    Worked value: Constraints(zeros={"transition": [[0, 1], [0, 0]]}) keeps A[0, 1] = 0.
    """

    zeros: Mapping[str, Numbers] = field(default_factory=dict)
    tied: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    fixed: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("zeros", "tied"):
            check_can(name, getattr(self, name), "items", "keys")
        fixed = as_list("fixed", self.fixed, "names of parts")
        set_fields(self, fixed=tuple(as_text("fixed", name) for name in fixed))


def as_constraints(constraints: "Constraints | None") -> Constraints:
    """What is to be kept, or nothing."""
    if constraints is None:
        return Constraints()
    if not isinstance(constraints, Constraints):
        raise UserError(
            f"constraints is {shown(constraints)}; it must be Constraints(zeros=..., tied=..., "
            "fixed=...)",
            parameter="constraints",
        )
    return constraints


@dataclass(frozen=True, eq=False)
class Groups:
    """The constraints and the prior, ready to compute with.

    of[part][row]     the group of a row        free[part]    whether the part moves
    zero[part]        [groups, outcomes]        extra[part]   α - 1, [groups, outcomes]
    """

    of: dict[str, Int[Tensor, " rows"]]
    zero: dict[str, Bool[Tensor, "groups outcomes"]]
    extra: dict[str, Float[Tensor, "groups outcomes"]]
    free: dict[str, bool]

    @classmethod
    def make(
        cls, shapes: Mapping[str, tuple[int, int]], constraints: Constraints, prior: Prior | None
    ) -> "Groups":
        """Every name, row and shape is checked here."""
        for name, given in (
            ("zeros", constraints.zeros), ("tied", constraints.tied),
            ("fixed", constraints.fixed), ("prior", prior if isinstance(prior, Mapping) else ()),
        ):  # fmt: skip
            for part in given:
                if part not in shapes:
                    raise UserError(
                        f"{name} names {shown(part)}; the parts are {', '.join(shapes)}",
                        parameter=name,
                    )
        of, zero, extra, free = {}, {}, {}, {}
        for part, (rows, outcomes) in shapes.items():
            of[part] = _tied_groups(part, constraints.tied.get(part, ()), rows)
            groups = int(of[part].max()) + 1
            mask = torch.zeros((rows, outcomes), dtype=torch.bool)
            if part in constraints.zeros:
                mask = as_bool_mask(
                    f"zeros[{part!r}]", constraints.zeros[part], meaning="True where it stays 0"
                ).reshape(-1, outcomes if outcomes else 1)
                if mask.shape != (rows, outcomes):
                    raise UserError(
                        f"zeros[{part!r}] has {mask.numel()} values; {part} has shape "
                        f"{(rows, outcomes)}",
                        parameter="zeros",
                    )
            zero[part] = torch.zeros((groups, outcomes), dtype=torch.bool)
            zero[part].index_put_((of[part],), mask, accumulate=True)
            if zero[part].all(-1).any():
                raise UserError(
                    f"zeros[{part!r}] leaves a row without any outcome", parameter="zeros"
                )
            alpha = torch.ones((rows, outcomes), dtype=torch.float64)
            if prior is not None:
                given = prior.get(part, 1.0) if isinstance(prior, Mapping) else prior
                alpha = _concentrations(part, given, rows, outcomes)
            extra[part] = torch.zeros((groups, outcomes), dtype=torch.float64)
            extra[part][of[part]] = alpha - 1
            extra[part].masked_fill_(zero[part], 0.0)
            free[part] = part not in constraints.fixed
        return cls(of, zero, extra, free)

    def keeping_zeros_of(self, start: Parameters) -> "Groups":
        """The zeros of a start stay, too."""
        zero = {part: z | (self.gather(part, start[part]) == 0) for part, z in self.zero.items()}
        extra = {part: e.masked_fill(zero[part], 0.0) for part, e in self.extra.items()}
        return Groups(self.of, zero, extra, self.free)

    def gather(
        self, part: str, values: Float[Tensor, "rows outcomes"]
    ) -> Float[Tensor, "groups outcomes"]:
        """Sums over the rows of each group."""
        groups = len(self.zero[part])
        return values.new_zeros((groups, values.shape[1])).index_add_(0, self.of[part], values)

    def spread(
        self, part: str, values: Float[Tensor, "groups outcomes"]
    ) -> Float[Tensor, "rows outcomes"]:
        """To each row what its group has."""
        return values[self.of[part]]

    def obeyed(self, start: Parameters) -> Parameters:
        """The nearest start that keeps the constraints: rows averaged, zeros set, normalised."""
        out = {}
        for part, values in start.items():
            if len(self.zero[part]) == len(values) and not values[self.zero[part]].any():
                out[part] = values  # to the last bit
                continue
            mean = self.gather(part, values).masked_fill(self.zero[part], 0.0)
            allowed = (~self.zero[part]).double()
            empty = mean.sum(-1, keepdim=True) == 0
            mean = torch.where(empty, allowed, mean)
            out[part] = self.spread(part, mean / mean.sum(-1, keepdim=True))
        return out

    def log_prior(self, parameters: Parameters) -> float:
        """Σ (α - 1) log p over the groups: the logarithm of the prior, without its constant."""
        total = 0.0
        for part, extra in self.extra.items():
            if self.free[part] and (extra > 0).any():
                logs = self.one_of_each(part, parameters[part]).log()
                total += float(torch.where(extra > 0, extra * logs, 0.0).sum())
        return total

    def one_of_each(
        self, part: str, values: Float[Tensor, "rows outcomes"]
    ) -> Float[Tensor, "groups outcomes"]:
        """The row of each group: tied rows are equal."""
        out = values.new_zeros((len(self.zero[part]), values.shape[1]))
        out[self.of[part]] = values
        return out

    def weights(self, part: str, expected: Expected) -> Float[Tensor, "groups outcomes"]:
        """c + α - 1, and less e: what the gradient of a logit is made of."""
        found = self.gather(part, expected.counts[part]) + self.extra[part]
        if expected.normaliser is not None:
            found = found - self.gather(part, expected.normaliser[part])
        return found.masked_fill(self.zero[part], 0.0)

    def maximised(
        self, parameters: Parameters, expected: Expected, larger: float = 1.0
    ) -> Parameters:
        """The M-step; `larger` multiplies the constant C of a law with a normaliser."""
        out = {}
        for part, values in parameters.items():
            if not self.free[part]:
                out[part] = values
                continue
            old = self.one_of_each(part, values)
            weights = self.weights(part, expected)
            if expected.normaliser is not None:
                often = self.gather(part, expected.normaliser[part]).sum(-1, keepdim=True)
                safe = torch.where(old > 0, -weights / torch.where(old > 0, old, 1.0), 0.0)
                least = safe.amax(-1, keepdim=True).clamp(min=0.0)
                weights = weights + larger * torch.maximum(often, least) * old
            total = weights.sum(-1, keepdim=True)
            new = torch.where(total > 0, weights / torch.where(total > 0, total, 1.0), old)
            out[part] = self.spread(part, new)
        return out

    def count_free(self, parameters: Parameters) -> int:
        """Free parameters: outcomes that are no constrained zeros, less one for each group."""
        sizes = [(~z).sum(-1) - 1 for part, z in self.zero.items() if self.free[part]]
        return int(torch.cat(sizes).sum()) if sizes else 0


def _tied_groups(part: str, tied: Any, rows: int) -> Int[Tensor, " rows"]:
    """The group of each row, numbered from 0 in the order of their first rows."""
    name = f"tied[{part!r}]"
    of = list(range(rows))
    seen: set[int] = set()
    for group in as_list(name, tied, "groups of rows"):
        members = [as_count(name, row, at_most=rows - 1) for row in as_list(name, group, "rows")]
        if len(set(members)) != len(members) or seen & set(members):
            raise UserError(f"{name} names a row twice", parameter="tied")
        seen |= set(members)
        for row in members:
            of[row] = min(members)
    number = {first: i for i, first in enumerate(sorted(set(of)))}
    return torch.tensor([number[first] for first in of])


def _concentrations(
    part: str, given: Any, rows: int, outcomes: int
) -> Float[Tensor, "rows outcomes"]:
    """α of every entry; one number stands for all."""
    if isinstance(given, list | tuple) or getattr(given, "ndim", 0):
        values = as_floats(f"prior[{part!r}]", given)
        try:
            alpha = torch.broadcast_to(values, (rows, outcomes))
        except RuntimeError:
            raise UserError(
                f"prior[{part!r}] has shape {tuple(values.shape)}; {part} has shape "
                f"{(rows, outcomes)}",
                parameter="prior",
            ) from None
    else:
        alpha = torch.full(
            (rows, outcomes), as_number("prior", cast(Number, given)), dtype=torch.float64
        )
    if (alpha < 1).any():
        raise UserError(
            f"prior holds {float(alpha.min()):g}; a Dirichlet prior needs concentrations of 1 or "
            "more here, since below 1 the posterior has no mode inside",
            parameter="prior",
        )
    if (alpha > MAX_CONCENTRATION).any():
        raise UserError(
            f"prior holds {float(alpha.max()):g}; at most {MAX_CONCENTRATION:g} counts are kept",
            parameter="prior",
        )
    return alpha.clone()
