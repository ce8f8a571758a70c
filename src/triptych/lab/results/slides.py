"""Slides: chosen claims, one a screen, for a wall; one HTML file that opens from disk.

`slides.html.jinja` is the page, `slides.css` its look, `slides.js` its keys. A slide has the claim,
its verdict, the sentence of what it means, a figure and the checks that fit; the speaker's notes
have all the rest. Panels are drawn narrower than in the report, so that their letters are larger.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from triptych.core.display import counted
from triptych.core.errors import UserError
from triptych.lab.results import plots, report_claims
from triptych.lab.results.chosen import ChosenClaim, choose, load_chosen
from triptych.lab.results.drawing import Size
from triptych.lab.results.plots import share_styles
from triptych.lab.results.ranking import Judged, StudyRun
from triptych.lab.results.report import page_part, template
from triptych.studies.api.figures import Figure
from triptych.studies.api.verdicts import Check

MOST_PANELS = 4  # in a row; the report has the others
SIZES = {
    1: Size(panel=340.0, plot=150.0),
    2: Size(panel=360.0, plot=90.0),
    3: Size(panel=255.0, plot=90.0),
    4: Size(panel=205.0, plot=104.0),
}
"""The size of a panel, by the number of panels in the row."""


class Wall(NamedTuple):
    """A figure in a row of panels with one legend, or the error that stopped it.

    legends
        The same one, as wide as the row and narrow.
    height
        Of it all, as a share of its width.
    width
        In hundredths of the height of the slide, where the figure stands next to the checks.
    """

    panels: list[Markup]
    legends: list[Markup]
    height: float
    width: float
    error: str


def render_slides(
    judged: Sequence[Judged],
    runs: Sequence[StudyRun],
    ids: Sequence[str] = (),
    *,
    generated: str,
) -> tuple[str, int]:
    """The page, and how many slides it has: an opening, and one for each claim.

    ids
        Of claims, in the order of the talk; those that open the report by default, then the
        user's own.
    """
    chosen = choose(ids, judged) if ids else [*load_chosen(), *_own(judged, runs)]
    views = [_slide(view) for view in report_claims.chosen_views(chosen, judged, runs, {})]
    named = {each.id for each in chosen}
    published = [line for line in judged if not line.entry.extension and line.entry.source]
    of_a_study = bool(ids) and not any(line.id in named for line in published)
    lines = [line for line in judged if line.id in named] if of_a_study else published
    page = template("slides.html.jinja").render(
        style=Markup(page_part("report.css") + page_part("slides.css")),
        dark=Markup(page_part("dark.css")),
        script=Markup(page_part("theme.js") + page_part("slides.js")),
        slides=views,
        heading="What holds"
        if of_a_study
        else f"What holds of {counted(len(lines), 'published result')}",
        score=[each for each in report_claims.score(lines) if each[2]],
        generated=generated,
    )
    return share_styles(page), len(views) + 1


def claims_of(study: str, runs: Sequence[StudyRun]) -> list[str]:
    """Ids of the claims that the rows of a study decide; a user's own is named by its file too."""
    known = [run for run in runs if run.study == study or _is_file(run, study)]
    if not known:
        raise UserError(
            f"study {study!r} has no rows here: `triptych run {study}` makes them",
            parameter="study",
        )
    found = list(dict.fromkeys(name for run in known for name in run.findings))
    if not found:
        raise UserError(
            f"study {study!r} decides no claim; choose claims with --claim", parameter="study"
        )
    return found


def _is_file(run: StudyRun, name: str) -> bool:
    return run.own and name.endswith(".py") and Path(run.file).name == Path(name).name


def _own(judged: Sequence[Judged], runs: Sequence[StudyRun]) -> list[ChosenClaim]:
    own = {name for run in runs if run.own for name in run.findings}
    return [ChosenClaim(line.id) for line in judged if line.id in own]


def _slide(view: dict[str, Any]) -> dict[str, Any]:
    """A chosen claim with its figure drawn for a wall, its sentence, and the checks that fit."""
    wall, figure, left_out = None, None, 0
    if view["place"] is not None:
        run, i = view["place"]
        figure = run.figures[i]
        left_out = max(0, len(figure.panels) - MOST_PANELS)
        wall = _on_a_wall(figure, f"s-{view['judged'].id}")
    verdict = _verdict(view["judged"])
    # what fails is never in the notes alone
    checks = sorted(view["every_check"], key=lambda check: check.edge != "" or not _fails(check))
    means = view["why"] or verdict
    return view | {
        "wall": wall,
        "figure": figure,
        "notes": plots.notes(figure) if figure else [],
        "panels_left_out": left_out,
        "checks": checks[: _fitting(view["entry"].title, means, wall, checks)],
        "means": means,
        "verdict": verdict,
    }


def _on_a_wall(figure: Figure, prefix: str) -> Wall:
    """The first panels of a figure in a row; an error stops no other slide."""
    shown = replace(figure, panels=figure.panels[:MOST_PANELS])
    try:
        panels, legends = plots.row_svgs(shown, prefix=prefix, size=SIZES[len(shown.panels)])
    except Exception as error:
        sentence = f"The figure could not be drawn: {type(error).__name__}: {error}"
        return Wall([], [], 0.0, 0.0, sentence)
    height = max(map(_height, panels)) / len(panels) + sum(map(_height, legends[:1]))
    width = min(_HALF, (100 - _AROUND - 2 * _TITLE - _MEANS) / height)
    drawn, named = ([Markup(svg) for svg in svgs] for svgs in (panels, legends))
    return Wall(drawn, named, height, round(width, 1), "")


def _height(svg: str) -> float:
    """The height of a drawing as a share of its width, from its viewBox."""
    width, height = svg.partition('viewBox="0 0 ')[2].partition('"')[0].split()
    return float(height) / float(width)


# Lengths are hundredths of the slide's height: `slides.css` has the same.
_INSIDE = 162.0  # the width of what stands on a slide
_LETTER = 2.9  # the height of a letter's line is 1.25 of it
_TITLE, _MEANS = 5.5, 4.5  # lines of them
_HALF = 84.0  # of what stands next to the checks
_AROUND = 21.0  # margins, the line above and the line below


def _fitting(title: str, means: str, wall: Wall | None, checks: Sequence[Check]) -> int:
    """How many checks fit next to a figure or under it; at least one line of them."""
    top = _lines(title, 66) * _TITLE + _lines(means, 112) * _MEANS
    room = 100 - _AROUND - top
    columns, letters = 1, 46
    if wall is None or wall.error:
        letters = 104
    elif len(wall.panels) > 1:
        room -= _INSIDE * wall.height + 2
        columns = 2
    taken, count = 0.0, 0
    for i in range(0, len(checks), columns):
        row = checks[i : i + columns]
        tall = max(
            _lines(f"{c.sentence} at {c.edge}" if c.edge else c.sentence, letters) for c in row
        )
        taken += (tall + 1) * 1.25 * _LETTER + 1.4
        left_out = len(checks) > i + len(row)
        if taken + (1.4 * _LETTER if left_out else 0) > room:
            break
        count = i + len(row)
    return max(columns, count)


def _lines(text: str, letters: int) -> int:
    return len(textwrap.wrap(text, letters)) or 1


def _fails(check: Check) -> bool:
    return check.outcome is not None and check.outcome.value == "fails"


def _verdict(line: Judged) -> str:
    """What the checks say in a sentence.

    Worked value: "All 5 checks hold." or "1 of 5 checks fails."
    """
    found = line.headline
    if found is None:
        return "Nothing has been run yet."
    outcomes = [check.outcome.value for check in found.checks if check.outcome]
    failed, total = outcomes.count("fails"), len(outcomes)
    if failed:
        return f"{failed} of {counted(total, 'check')} {'fails' if failed == 1 else 'fail'}."
    if found.missing:
        return f"Evidence is missing: {found.missing[0]}."
    if total and outcomes.count("holds") == total:
        return "Its check holds." if total == 1 else f"All {total} checks hold."
    return f"{outcomes.count('holds')} of {counted(total, 'check')} hold; the others are open."
