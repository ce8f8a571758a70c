"""The results that open the report, and those that a lecturer asks for by id."""

import difflib
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from triptych.core.errors import UserError
from triptych.lab.results.ranking import ClaimFinding, Judged, StudyRun
from triptych.studies.api.figures import Figure


class ChosenClaim(NamedTuple):
    """A claim to show large.

    figure
        Which figure of its study stands next to it; the first one where it is empty.
    why
        What a listener should take home.
    """

    id: str
    figure: str = ""
    why: str = ""


def load_chosen() -> list[ChosenClaim]:
    """The list in `chosen.toml`, in the order of a lecture."""
    text = files("triptych.lab.results").joinpath("chosen.toml").read_text("utf-8")
    return [ChosenClaim(**entry) for entry in tomllib.loads(text)["chosen"]]


def choose(ids: Sequence[str], judged: Sequence[Judged]) -> list[ChosenClaim]:
    """The claims that were asked for, in that order; an unknown id is refused."""
    known, prepared = [line.id for line in judged], {each.id: each for each in load_chosen()}
    for name in ids:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UserError(f"there is no claim {name!r}{hint} (`triptych claims` lists them)")
    return [prepared.get(name, ChosenClaim(name)) for name in dict.fromkeys(ids)]


def figure_of(
    chosen: ChosenClaim, finding: ClaimFinding | None, runs: Sequence[StudyRun]
) -> tuple[StudyRun, int] | None:
    """The run and the number of the figure to show with a claim; None where there is none."""
    for run in runs:
        if finding is None or run.run_name != finding.run_name:
            continue
        drawn = [i for i, figure in enumerate(run.figures) if isinstance(figure, Figure)]
        named = [i for i in drawn if run.figures[i].name == chosen.figure]
        if drawn:
            return run, (named or drawn)[0]
    return None
