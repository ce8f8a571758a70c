"""What a fit says: the structure, how well it explains the data, how sure, how the search ended."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from triptych.core.display import card, counted, facts_table, records_table
from triptych.core.validation import UserError

S = TypeVar("S")
ZERO = "zero"  # why a parameter that a constraint keeps at 0 has no standard error
_SHOWN = 60  # rows of the table on a page or a terminal


class NotConverged(UserWarning):
    """A search ended before it converged."""


@dataclass(frozen=True)
class Parameter:
    """One number of the model; `standard_error` is None where `why` says why there is none."""

    name: str
    value: float
    standard_error: float | None
    why: str = ""


@dataclass(frozen=True)
class Score:
    """log p of rows that the fit did not see.

    Worked value: Score(-10.0, 2, 8).per_token is -1.25 nats.
    """

    log_likelihood: float
    rows: int
    tokens: int

    @property
    def per_token(self) -> float:
        return self.log_likelihood / self.tokens if self.tokens else math.nan


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Generic[S]):
    """A structure that was fitted, and everything that one should ask about it.

    structure        the fitted one
    log_likelihood   log p of what is shown, in nats, weighted; with a prior not the objective
    objective        what was maximised: log-likelihood plus log-prior
    rows, tokens     of data, and how many of their tokens are shown
    free_parameters  of the model, less constraints; none is subtracted for what is not identified
    converged, steps, gain, remaining, ended
                     whether the search ended by itself, its steps, the gain of the last one, what
                     is still to gain as far as that is known, and why it ended
    trace            the objective from the start on, after every step
    ends             the log-likelihood at the end of every start; the best is the one kept
    parameters       values with standard errors
    least_share      the smallest share of information that the data have about a direction of the
                     parameters, compared with data whose hidden states are known
    held_out         the score of rows that were held out, or None
    notes            sentences about what to be careful with
    """

    structure: S
    log_likelihood: float
    objective: float
    rows: int
    tokens: int
    free_parameters: int
    converged: bool
    steps: int
    gain: float
    remaining: float
    ended: str
    trace: tuple[float, ...] = ()
    ends: tuple[float, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    least_share: float | None = None
    held_out: Score | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def aic(self) -> float:
        """2 k - 2 log L with k free parameters."""
        return 2 * self.free_parameters - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """k log n - 2 log L, with n the number of tokens that are shown."""
        return self.free_parameters * math.log(max(1, self.tokens)) - 2 * self.log_likelihood

    @property
    def spread(self) -> float:
        """Best less worst end of all starts, in nats."""
        return max(self.ends) - min(self.ends) if self.ends else 0.0

    def standard_error(self, name: str) -> float | None:
        """That of a parameter by its name, such as "transition[0, 1]"."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter.standard_error
        raise UserError(
            f"there is no parameter {name!r}; the first is "
            f"{self.parameters[0].name if self.parameters else 'none'}",
            parameter="name",
        )

    # ------------------------------------------------------------------ what a user sees

    def facts(self) -> dict[str, object]:
        """The numbers above the table, in words."""
        ended = "yes" if self.converged else "NO"
        left = f"{self.remaining:.2g} nats" if self.converged else "unknown"
        facts: dict[str, object] = {
            "data": f"{counted(self.rows, 'row')}, {counted(self.tokens, 'token')} shown",
            "log-likelihood": f"{self.log_likelihood:.6g} "
            f"({self.log_likelihood / max(1, self.tokens):.4f} nats a token)",
            "free parameters": self.free_parameters,
            "AIC, BIC": f"{self.aic:.6g}, {self.bic:.6g}",
            "converged": f"{ended}, after {counted(self.steps, 'step')}: {self.ended}; last gain "
            f"{self.gain:.2g}, still to gain {left}",
        }
        if len(self.ends) > 1:
            facts["starts"] = (
                f"{len(self.ends)}; their ends differ by {self.spread:.4g} nats, "
                f"{sum(max(self.ends) - e < 0.01 for e in self.ends)} of them at the best"
            )
        if self.held_out is not None:
            facts["held out"] = (
                f"{self.held_out.per_token:.4f} nats a token on "
                f"{counted(self.held_out.rows, 'row')}"
            )
        if self.least_share is not None:
            facts["least information"] = (
                f"{100 * self.least_share:.3g} % of what complete data would give"
                if self.least_share >= 0
                else "none: the search ended where there is no maximum"
            )
        return facts

    def table(self) -> list[tuple[str, str, str]]:
        """Name, value, standard error or why there is none; without what is 0 by constraint."""
        return [
            (
                p.name,
                f"{p.value:.4f}",
                p.why if p.standard_error is None else f"± {p.standard_error:.2g}",
            )
            for p in self.parameters
            if p.why != ZERO
        ]

    def __repr__(self) -> str:
        ended = "converged" if self.converged else "NOT converged"
        steps = counted(self.steps, "step")
        value = f"log-likelihood {self.log_likelihood:.6g}"
        return f"Fit({self.structure!r}, {value}, {ended} after {steps})"

    def __str__(self) -> str:
        """A page for a terminal."""
        lines = [repr(self.structure)]
        facts = self.facts()
        width = max(map(len, facts))
        lines += [f"  {name:<{width}}  {value}" for name, value in facts.items()]
        table = self.table()
        name_width = max((len(name) for name, _, _ in table[:_SHOWN]), default=0)
        lines += [f"  {name:<{name_width}}  {value}  {why}" for name, value, why in table[:_SHOWN]]
        if len(table) > _SHOWN:
            lines.append(f"  and {len(table) - _SHOWN} more")
        return "\n".join([*lines, *(f"  Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        table = self.table()
        more = f"and {len(table) - _SHOWN} more" if len(table) > _SHOWN else ""
        return card(
            repr(self),
            facts_table(self.facts()),
            records_table(["parameter", "value", "standard error"], table[:_SHOWN], more),
            facts_table({f"note {i + 1}": note for i, note in enumerate(self.notes)}),
        )

    def to_json(self) -> dict[str, Any]:
        """Everything but the structure, in plain types; what is not finite is None."""
        names = (
            "log_likelihood", "objective", "rows", "tokens", "free_parameters", "converged",
            "steps", "gain", "remaining", "ended", "aic", "bic", "spread", "least_share",
        )  # fmt: skip
        out = {name: _plain(getattr(self, name)) for name in names}
        out |= {"trace": list(map(_plain, self.trace)), "ends": list(map(_plain, self.ends))}
        out["notes"] = list(self.notes)
        out["held_out"] = None
        if self.held_out is not None:
            out["held_out"] = vars(self.held_out) | {"per_token": self.held_out.per_token}
        out["parameters"] = [vars(p) for p in self.parameters]
        return out


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def warn_unless_converged(found: Fit[Any], advice: str) -> None:
    """Say aloud that the kept start did not converge, and what can be done."""
    if not found.converged:
        warnings.warn(
            f"the search did not converge in {counted(found.steps, 'step')} (last gain "
            f"{found.gain:.2g} nats): {advice}",
            NotConverged,
            stacklevel=4,
        )


def named(
    part: str,
    shape: Sequence[int],
    value: Sequence[Sequence[float]],
    error: Sequence[Sequence[float]],
    why: Sequence[Sequence[str]],
) -> list[Parameter]:
    """The parameters of a part, by their indices; a part of one row is named by one index."""
    out = []
    for i, row in enumerate(value):
        for j, number in enumerate(row):
            index = f"{j}" if shape[0] == 1 else f"{i}, {j}"
            e = error[i][j]
            known = None if math.isnan(e) else e
            out.append(Parameter(f"{part}[{index}]", number, known, why[i][j]))
    return out
