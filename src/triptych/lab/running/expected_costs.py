"""What units are expected to cost: the order of a run, its time left, and what fits on a GPU.

The numbers are in `expected_costs.toml` next to this file, and nowhere else.
"""

import functools
import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from triptych.lab.running.plan import Plan
    from triptych.studies.api.study import Scale

FILE = "expected_costs.toml"


class ExpectedCost(NamedTuple):
    """Seconds of one unit of a study, on average.

    smoke, laptop
        On one core.
    paper
        On one H200, or on one core where `paper_device` is "cpu".
    measured
        Whether units of the largest run were timed. Otherwise `paper` is a guess from the sizes.
    """

    smoke: float
    laptop: float
    paper: float
    paper_device: str = "cuda"
    measured: bool = False

    def at(self, scale: "Scale") -> float:
        """Seconds of one unit at this scale."""
        return {"smoke": self.smoke, "laptop": self.laptop, "paper": self.paper}[scale.value]


@functools.cache
def expected_costs() -> dict[str, ExpectedCost]:
    """By the name of the study."""
    text = files("triptych.lab.running").joinpath(FILE).read_text("utf-8")
    return {name: ExpectedCost(**values) for name, values in tomllib.loads(text).items()}


def expected_seconds(plan: "Plan", units: int | None = None) -> float | None:
    """What the units of a plan cost, or a number of them; None for a study that nobody timed."""
    cost = expected_costs().get(plan.study.name)
    return (len(plan.units) if units is None else units) * cost.at(plan.scale) if cost else None
