"""What a judge says: a list of checks, and what they decide together. `decide` makes it.

Whoever reads a verdict that is kept needs these classes alone, without torch and scipy.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from triptych.core.deprecation import renamed_names
from triptych.core.status import Status

__getattr__ = renamed_names(__name__, Rule="CheckRule")

CheckRule = Literal["above", "below", "within", "exactly", "none", "shown"]


@dataclass(frozen=True)
class Check:
    """One line of a verdict.

    value, low, high
        What was found, with its interval; low and high are None for a number without one.
    wanted
        Where it has to lie, as text: "> 0", "93 ± 7.8", "≤ 1e-09", "0 of 1200".
    published
        The number of the source, where there is one.
    outcome
        None for a number that is shown next to and decides nothing.
    edge
        The edge of the statement's scope that this check is about, or "".
    rule
        Which of the functions below made it.
    """

    sentence: str
    value: float
    low: float | None
    high: float | None
    wanted: str
    outcome: Status | None
    rule: CheckRule
    published: float | None = None
    edge: str = ""

    @property
    def exact(self) -> bool:
        """Whether chance has no part in it: one counterexample refutes."""
        return self.rule in ("exactly", "none")

    @property
    def has_interval(self) -> bool:
        """Whether the number and both ends of its interval exist; one trial has no such ends."""
        numbers = (self.value, self.low, self.high)
        return all(number is not None and math.isfinite(number) for number in numbers)


@dataclass(frozen=True)
class Verdict:
    """What the evidence says about a claim, and on what it rests.

    missing
        What evidence there would have to be, as "trials with |H| > 10: 2 of 3".
    exceptions
        The edges at which a statement that HOLDS does not.
    measured
        Numbers next to the published ones of the ledger, under the same names.
    printed
        The second finding, where the source's text and program differ: about what the text says.
    """

    outcome: Status
    measured: Mapping[str, Any] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    missing: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    printed: "Verdict | None" = None

    def _repr_html_(self) -> str:
        """A line per check, and what is missing."""
        from triptych.core.display import card, facts_table, number, records_table

        rows = []
        for check in self.checks:
            said = "" if check.outcome is None else check.outcome.value
            ends = (check.low, check.high)
            interval = " to ".join(number(end) for end in ends if end is not None)
            rows.append([check.sentence, check.value, interval, check.wanted, said])
        columns = ["check", "value", "interval", "wanted", "outcome"]
        lists = {"missing": self.missing, "except": self.exceptions}
        facts = {name: "; ".join(said) for name, said in lists.items() if said}
        checks = records_table(columns, rows) if rows else ""
        return card(self.outcome.value.upper(), checks, facts_table(facts) if facts else "")
