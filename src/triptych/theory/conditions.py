"""What a theorem assumes, and by what margin it holds for a given model."""

from collections.abc import Sequence
from typing import NamedTuple


class Condition(NamedTuple):
    """One assumption: whether it holds, the margin that decides it, and what the margin is."""

    name: str
    holds: bool
    margin: float
    meaning: str

    def __str__(self) -> str:
        sign = "holds" if self.holds else "FAILS"
        return f"{self.name}: {sign} ({self.meaning} = {self.margin:.3g})"


class Conditions(NamedTuple):
    """All assumptions of a theorem."""

    theorem: str
    conditions: Sequence[Condition]

    @property
    def hold(self) -> bool:
        return all(condition.holds for condition in self.conditions)

    def __str__(self) -> str:
        return "\n".join([self.theorem, *(f"  {condition}" for condition in self.conditions)])
