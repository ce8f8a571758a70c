"""From a run folder to verdicts: what was run here, what came with Triptych, a user's own studies.

A user's own study is judged while its file is at hand, which is when it runs. What it concluded is
kept in the store, so that the report shows it later, also when the file is gone, and so that no
report ever runs code that a folder names. What our own studies say is kept too (`kept_runs`): here
is imported what reads that alone, and what judges and draws when it is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from triptych.core.errors import UserError
from triptych.core.files import sum_of
from triptych.lab.results import evidence
from triptych.lab.results.changes import changes
from triptych.lab.results.judging import judged_run, made_by, unit_records
from triptych.lab.results.kept_runs import kept_or_judged
from triptych.lab.results.ledger import Entry, load_ledger
from triptych.lab.results.packed import called
from triptych.lab.results.ranking import ClaimFinding, Judged, NotDrawn, StudyRun, judge_ledger
from triptych.lab.running.discovery import Studies, find_studies
from triptych.lab.running.selection import ChosenStudy
from triptych.lab.running.store import Store, StoredUnit
from triptych.studies.api.figures import Figure
from triptych.studies.api.records import from_json, to_json
from triptych.studies.api.study import AnyStudy, Scale

REPORT = "report.html"
SLIDES = "slides.html"


class Results(NamedTuple):
    """Everything there is to say about a run folder.

    published
        The ledger of published results, judged; extensions are among them.
    own
        The claims of users' own studies, by the study's name.
    problems
        Sentences on what could not be shown: evidence, rows, figures.
    """

    published: list[Judged]
    own: dict[str, list[Judged]]
    runs: list[StudyRun]
    problems: list[str]

    @property
    def judged(self) -> list[Judged]:
        """All of them, the published ones first."""
        return [*self.published, *(line for lines in self.own.values() for line in lines)]


@dataclass(frozen=True)
class Concluded:
    """What is kept of a run of a user's own study."""

    question: str
    file: str
    entries: tuple[Entry, ...]
    findings: Mapping[str, ClaimFinding]
    figures: tuple[Figure | NotDrawn, ...]
    changed: Mapping[str, Any]
    larger: tuple[str, ...]
    needs: tuple[str, ...]


def gather(store: Store | None, own: Sequence[ChosenStudy] = (), *, shown: bool = True) -> Results:
    """Judge the whole ledger on what the store holds and what came with Triptych.

    own
        The user's own studies that are at hand.
    shown
        With all that a report shows: figures, units and rows. Verdicts alone are there at once.
    """
    studies = find_studies()
    bundled, problems = bundled_runs(evidence.folder(), store, studies, shown=shown)
    mine, more = stored_runs(store, own, studies, shown=shown)
    runs = sorted([*mine, *bundled], key=lambda run: (run.own, run.study, run.bundled))
    judges = _judges(studies)
    published = judge_ledger(load_ledger(), [run for run in runs if not run.own], judges)
    by_study: dict[str, list[StudyRun]] = {}
    for run in runs:
        if run.own:
            by_study.setdefault(run.study, []).append(run)
    theirs = {
        name: judge_ledger(_all_entries(found), found, dict.fromkeys(_ids(found), name))
        for name, found in by_study.items()
    }
    problems += [*more, *_not_drawn(runs)]
    return Results(published, theirs, runs, problems)


def _judges(studies: Mapping[str, AnyStudy]) -> dict[str, str]:
    """Id of a claim -> the study that judges it."""
    if isinstance(studies, Studies):
        return studies.judges()
    return {claim.id: study.name for study in studies.values() for claim in study.claims}


def _all_entries(runs: Sequence[StudyRun]) -> list[Entry]:
    """The entries of a study's runs; those of the run made last where they differ."""
    return list({entry.id: entry for run in runs for entry in run.entries}.values())


def _ids(runs: Sequence[StudyRun]) -> list[str]:
    return [entry.id for entry in _all_entries(runs)]


def _not_drawn(runs: Sequence[StudyRun]) -> list[str]:
    return [
        f"A figure of {run.study} ({run.scale} scale) could not be drawn. {figure.error}"
        for run in runs
        for figure in run.figures
        if isinstance(figure, NotDrawn)
    ]


def stored_runs(
    store: Store | None,
    own: Sequence[ChosenStudy] = (),
    studies: Mapping[str, AnyStudy] | None = None,
    *,
    shown: bool = True,
) -> tuple[list[StudyRun], list[str]]:
    """Every study and scale in the store, and a sentence for each that cannot be shown."""
    if store is None:
        return [], []
    studies = find_studies() if studies is None else studies
    mine = {chosen.study.name: chosen for chosen in own}
    kept = store.remembered()
    runs, problems = [], []
    for name, scale in store.studies():
        if name in mine or name in studies:
            try:
                runs.append(_stored_run(store, name, scale, studies, mine.get(name), shown))
            except UserError as error:  # rows of older code, which today's study cannot read
                problems.append(
                    f"The rows of {name} ({scale.value} scale) are not shown: {error}; "
                    f"`triptych run {name} --scale {scale.value} --fresh` makes them again."
                )
        elif (name, scale) in kept:
            units = store.units(name, scale)
            concluded = from_json(Concluded, kept[name, scale])
            runs.append(_concluded_run(name, scale, units, concluded))
        else:
            problems.append(
                f"Study {name} came from a file and was not judged yet: run the file again."
            )
    return runs, problems


def _stored_run(
    store: Store,
    name: str,
    scale: Scale,
    studies: Mapping[str, AnyStudy],
    own: ChosenStudy | None,
    shown: bool,
) -> StudyRun:
    def judge(drawn: bool) -> StudyRun:
        """The run with its findings and, where `drawn`, figures."""
        units = store.units(name, scale)
        chosen = own or ChosenStudy(studies[name])
        return judged_run(chosen, scale, units, evidence.last_settings(units), drawn=drawn)

    if own or not isinstance(studies, Studies):
        return judge(True)
    rows = ["stored", name, scale.value, store.digest(name, scale)]
    return kept_or_judged(rows, studies.module(name), judge, shown=shown)


def judge_study(store: Store, chosen: ChosenStudy, scale: Scale) -> dict[str, ClaimFinding]:
    """What the rows of one study in the store say now, by the id of the claim."""
    units = store.units(chosen.study.name, scale)
    run = judged_run(chosen, scale, units, evidence.last_settings(units), drawn=False)
    return dict(run.findings)


def remember(store: Store, results: Results, own: Sequence[ChosenStudy]) -> None:
    """Keep what the runs of a user's own studies concluded."""
    files = {chosen.study.name: chosen.file for chosen in own if chosen.file}
    for run in results.runs:
        if run.own and run.study in files:
            content = Concluded(
                run.question,
                str(files[run.study]),
                run.entries,
                run.findings,
                run.figures,
                run.changed,
                run.larger,
                run.needs,
            )
            store.remember(run.study, Scale(run.scale), to_json(content))


def bundled_runs(
    folder: Path | None,
    store: Store | None = None,
    studies: Mapping[str, AnyStudy] | None = None,
    *,
    shown: bool = True,
) -> tuple[list[StudyRun], list[str]]:
    """The evidence in a folder as runs, and a sentence for each file that cannot be shown.

    Evidence whose every unit is in the store too, with the same rows, is a part of the user's own
    run and left out.
    """
    studies = find_studies() if studies is None else studies
    runs, problems = [], []
    for path in evidence.files(folder):
        try:
            run = _bundled_run(path, studies, shown)
            if _has_all(store, path, run):
                continue
        except UserError as error:
            problems.append(f"The evidence in {called(path)} is not shown: {error}.")
        except Exception as error:  # whatever a study does with old settings
            what = f"{type(error).__name__}: {error}"
            problems.append(f"The evidence in {called(path)} is not shown: {what}.")
        else:
            runs.append(run)
    return runs, problems


def _bundled_run(path: Path, studies: Mapping[str, AnyStudy], shown: bool) -> StudyRun:
    """A file of evidence as a run."""

    def judge(drawn: bool) -> StudyRun:
        """The run with its findings and, where `drawn`, figures."""
        found = evidence.load(path)
        if found.study not in studies:
            raise UserError(f"there is no study {found.study} any more")
        study = studies[found.study]
        layout = evidence.laid_out(found, study)
        if len(layout.others) == len(found.units):
            raise UserError(f"none of its units is planned by study {found.study} any more")
        return judged_run(
            ChosenStudy(study),
            found.scale,
            layout.units,
            to_json(layout.plan.settings),
            drawn=drawn,
            bundled=True,
            file=called(path),
            others=len(layout.others),
        )

    name = evidence.study_in(path)
    if not isinstance(studies, Studies) or name not in studies:
        return judge(True)
    rows = ["bundled", called(path), name, sum_of(path)]
    return kept_or_judged(rows, studies.module(name), judge, shown=shown)


def _concluded_run(
    name: str, scale: Scale, units: Sequence[StoredUnit], concluded: Concluded
) -> StudyRun:
    """A user's own study as it was judged when its file was at hand."""
    return StudyRun(
        study=name,
        question=concluded.question,
        scale=scale.value,
        settings=evidence.last_settings(units),
        rows=[row for unit in units for row in unit.rows],
        units=unit_records(units, None, None),
        own=True,
        file=concluded.file,
        changed=concluded.changed,
        larger=concluded.larger,
        needs=concluded.needs,
        made=made_by(units),
        entries=concluded.entries,
        findings=concluded.findings,
        figures=concluded.figures,
    )


def _has_all(store: Store | None, path: Path, run: StudyRun) -> bool:
    """Whether the store has every unit of a file of evidence, with the same rows."""
    if store is None or (run.study, Scale(run.scale)) not in store.studies():
        return False
    found = evidence.load(path)
    units = store.units(found.study, found.scale)
    mine = {unit.key: unit for unit in units if unit.status == "done"}
    return all(
        unit.key in mine and evidence.same_rows(mine[unit.key], unit) for unit in found.units
    )


def write_report_of(results: Results, path: Path, *, folder: Path | None = None) -> None:
    """Render the report of a run folder to `path`.

    folder
        The run folder, which knows the verdicts of the run before.
    """
    from triptych.lab.results.report import write_report

    write_report(path, render_report_of(results, folder=folder))


def render_report_of(results: Results, *, folder: Path | None = None) -> str:
    """The report as a page; the arguments are those of `write_report_of`."""
    from triptych.lab.results import crossings
    from triptych.lab.results.report import render_report
    from triptych.lab.running.environment import environment

    return render_report(
        results.published,
        results.runs,
        own=results.own,
        generated=_now(),
        environment=environment(),
        problems=results.problems,
        changes=changes(folder, results.judged),
        crossings=crossings.kept(folder) if folder else (),
    )


def write_slides_of(results: Results, path: Path, ids: Sequence[str] = ()) -> int:
    """Write the claims of these ids, one a screen, and the chosen ones where none is named.

    Returns how many slides there are.
    """
    from triptych.lab.results.report import write_report
    from triptych.lab.results.slides import render_slides

    page, count = render_slides(results.judged, results.runs, ids, generated=_now())
    write_report(path, page)
    return count


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
