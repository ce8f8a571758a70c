"""The report: one HTML file that opens from disk, a pure function of verdicts and stored rows.

`report.html.jinja` is the page, `report.css` its look, `report.js` its search; all three end up
inside the file. Everything that comes from rows, settings or errors is escaped. The page opens with
a summary and chosen claims; the ledger and the studies are folded under them.
"""

import functools
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from triptych.core.files import write_text
from triptych.lab.results import ledger, report_claims, report_studies
from triptych.lab.results.changes import Change
from triptych.lab.results.chosen import ChosenClaim, load_chosen
from triptych.lab.results.crossings import CrossedRun
from triptych.lab.results.plots import share_styles
from triptych.lab.results.ranking import Judged, StudyRun, scale_name, total_seconds
from triptych.lab.results.report_text import duration, number
from triptych.lab.results.terminal import to_run
from triptych.lab.results.typesetting import title_html, typeset_plain
from triptych.lab.running.progress import last_line


def render_report(
    judged: Sequence[Judged],
    runs: Sequence[StudyRun],
    *,
    generated: str,
    environment: Mapping[str, Any],
    own: Mapping[str, Sequence[Judged]] | None = None,
    problems: Sequence[str] = (),
    changes: Sequence[Change] | None = None,
    crossings: Sequence[CrossedRun] = (),
) -> str:
    """The whole page. `generated` says when, `environment` on what machine.

    own
        The claims of a user's own studies, by study.
    problems
        Sentences on what cannot be shown.
    changes
        What is new since the run before; None when there was none.
    crossings
        Studies at crossed settings, which decide nothing.
    """
    own = own or {}
    anchors = report_studies.anchors(runs)
    links = {
        run.run_name: anchor for run, anchor in reversed(list(zip(runs, anchors, strict=True)))
    }
    mine, bundled = [run for run in runs if not run.bundled], [run for run in runs if run.bundled]
    counted = [line for line in judged if not line.entry.extension]
    own_lines = [line for lines in own.values() for line in lines]
    every = [*judged, *own_lines]
    large, elsewhere = _large(load_chosen(), every, runs, anchors, links)
    studies = [
        report_studies.study_view(number, anchors[number], every, runs, elsewhere)
        for number in range(len(runs))
    ]
    page = template("report.html.jinja")
    return share_styles(
        page.render(
            style=Markup(page_part("report.css")),
            dark=Markup(page_part("dark.css")),
            script=Markup(page_part("theme.js") + page_part("report.js")),
            score=report_claims.score(counted),
            own_score=report_claims.score(own_lines) if own_lines else [],
            total=len(counted),
            listed=len(every),
            failing=[
                (line, title_html(line.id, line.entry.title))
                for line in every
                if line.words == "fails"
            ],
            not_reproduced=sum(
                line.status == "fails" and line.words != "fails" for line in counted
            ),
            changes=changes,
            chosen=large,
            groups=report_claims.groups(judged, own, links),
            parts=report_claims.parts(judged),
            kinds=list(ledger.KINDS.items()),
            studies=studies,
            crossings=[report_studies.crossed_view(n, run) for n, run in enumerate(crossings)],
            chapters=report_studies.chapters(runs, studies),
            glossary=tomllib.loads(page_part("glossary.toml")),
            started=any(unit.status != "pending" for run in mine for unit in run.units),
            generated=generated,
            environment=environment,
            runs=len(mine),
            cost=sum(total_seconds(run) or 0.0 for run in mine),
            bundled=len(bundled),
            bundled_cost=sum(total_seconds(run) or 0.0 for run in bundled),
            on_bundled=sum(bool(line.headline and line.headline.bundled) for line in counted),
            problems=problems,
        )
    )


def _large(
    chosen: Sequence[ChosenClaim],
    judged: Sequence[Judged],
    runs: Sequence[StudyRun],
    anchors: Sequence[str],
    links: report_claims.Links,
) -> tuple[list[dict[str, Any]], dict[str, dict[int, str]]]:
    """The chosen claims with their figures, and which figures of a study stand there."""
    views = report_claims.chosen_views(chosen, judged, runs, links)
    elsewhere: dict[str, dict[int, str]] = {}
    for view in views:
        view["figure"], view["figure_above"] = None, ""
        if view["place"] is None:
            continue
        run, i = view["place"]
        anchor = next(a for a, other in zip(anchors, runs, strict=True) if other is run)
        drawn = elsewhere.setdefault(anchor, {})
        if i in drawn:  # two claims of one study: the figure stands with the first
            view["figure_above"] = drawn[i]
            continue
        drawn[i] = f"shown-{view['judged'].id}"
        view["figure"] = report_studies.draw(run.figures[i], f"c{len(elsewhere)}-{i}")
    return views, elsewhere


def template(name: str) -> Template:
    """A page of this folder, with the filters and words of a report."""
    return _environment().get_template(name)


@functools.cache
def _environment() -> Environment:
    page = Environment(
        loader=FunctionLoader(page_part),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page.filters |= {"number": number, "duration": duration, "last_line": last_line}
    page.filters["typeset_plain"] = typeset_plain
    page.globals["scale_name"] = scale_name
    page.globals["to_run"] = to_run
    return page


def write_report(path: Path, html: str) -> None:
    """Write the file whole or not at all; a reader never sees half of it."""
    advice = (
        "make space there, or give another place with `triptych report --to FILE`; every row is "
        "stored"
    )
    write_text(path, html, advice=advice)


def page_part(name: str) -> str:
    """The text of a file next to this one: a template, a look, a script."""
    return files("triptych.lab.results").joinpath(name).read_text("utf-8")
