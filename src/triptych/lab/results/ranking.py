"""From stored rows to verdicts: a pure function of the ledger and the runs.

Every threshold is in the claims' own judges. This module asks them, and ranks what they say:

1. A run at smoke scale is no evidence. It shows that the code runs.
2. A run with finished units comes before one without, and evidence that decides or lacks nothing
   before evidence that is undecided because something is missing.
3. A run with the settings of its scale comes before one with changed settings; then a larger scale
   comes before a smaller one.
4. A run of this folder comes before bundled evidence of the same scale.

The first has the headline, and the others stand next to it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from triptych.core.status import Status
from triptych.lab.results.ledger import EVIDENCE_SCALES, Entry
from triptych.lab.running.progress import last_line
from triptych.studies.api.figures import Figure
from triptych.studies.api.study import Claim
from triptych.studies.api.verdicts import Check, Verdict

STATUSES = ("holds", "fails", "undecided", "not run yet")
SCALES = ("paper", "laptop", "smoke")  # the strongest evidence first
CODE_RUNS = "code runs"  # all that a run at smoke scale can say


def scale_name(scale: str) -> str:
    """What a person calls a scale: "largest run", "laptop scale"."""
    return "largest run" if scale == "paper" else f"{scale} scale"


VERDICTS = {
    ("holds", "scaled down"): "holds at a smaller scale",
    ("fails", "scaled down"): "not reproduced at a smaller scale",
    ("holds", "transferred"): "holds on another model",
    ("fails", "transferred"): "not reproduced on another model",
}
"""What a verdict is called where its scope is not the source's own setting. HOLDS and FAILS without
more are for that setting alone."""

RunName = tuple[str, str, bool, str]
"""Study, scale, whether its rows are bundled, and the label of their file."""


@dataclass(frozen=True)
class UnitRecord:
    """What became of one unit; status is "done", "failed" or "pending".

    imported
        Its rows were brought into this folder from a file.
    edited
        Its rows were made before the study's code was edited.
    earlier
        Its rows were made by an earlier revision of the study, and are shown with that.
    """

    label: str
    seed: int
    status: str
    seconds: float | None
    error: str | None
    device: str | None
    imported: bool = False
    edited: bool = False
    earlier: bool = False


@dataclass(frozen=True)
class ClaimFinding:
    """What one run says about one claim.

    status
        "holds", "fails", "undecided", or at smoke scale "code runs".
    exceptions
        The edges at which a statement that holds does not.
    missing
        The evidence that the judge would need.
    notes
        What a reader must know about the run: units that are missing, changed settings, old code.
    changed
        The settings are not those of the scale: its units are none of that plan.
    label
        What the bundled file is called next to its study and scale; mostly nothing.
    scope, differs
        Where the verdict stands, as "scaled down", and what differs from the source; "" at smoke
        scale and for a user's own claims.
    printed
        The second finding, about the source's text, where the first is about its program.
    edited
        How many units of today's revision were made before the study's code was edited.
    """

    study: str
    scale: str
    bundled: bool
    status: str
    checks: tuple[Check, ...] = ()
    missing: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    measured: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    device: str = ""
    done: int = 0
    planned: int = 0
    seconds: float | None = None
    made: str = ""
    changed: bool = False
    label: str = ""
    scope: str = ""
    differs: str = ""
    printed: Verdict | None = None
    edited: int = 0

    @property
    def run_name(self) -> RunName:
        """Which run says it."""
        return self.study, self.scale, self.bundled, self.label

    @property
    def words(self) -> str:
        """The verdict with its scope: "fails", "not reproduced at a smaller scale"."""
        return VERDICTS.get((self.status, self.scope), self.status)


@dataclass(frozen=True)
class NotDrawn:
    """A figure that could not be made, and why."""

    name: str
    error: str


@dataclass(frozen=True)
class StudyRun:
    """A study at one scale: its settings, rows and units, what they say and what they show.

    own
        The study is a user's own, from a file.
    bundled
        The rows came with Triptych and not from a run of this folder; `file` has them.
    others
        Bundled units that are left out, because they were made with other settings.
    changed
        The settings in which the run differs from the scale's own, with the scale's own values.
    larger
        The scales above this one that the study has.
    made
        When and by which code, as "2026-11-15, commit 5181ff98cd75".
    chapter
        The folder of the study, as "masking"; empty for a user's own.
    entries
        Titles of the claims that are not in the published ledger.
    findings
        By the id of the claim.
    more_rows
        How many rows there are next to `rows`: a run that was kept has the first of them alone.
    """

    study: str
    question: str
    scale: str
    settings: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    units: Sequence[UnitRecord]
    own: bool = False
    bundled: bool = False
    others: int = 0
    file: str = ""
    changed: Mapping[str, Any] = field(default_factory=dict)
    larger: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    made: str = ""
    chapter: str = ""
    entries: tuple[Entry, ...] = ()
    findings: Mapping[str, ClaimFinding] = field(default_factory=dict)
    figures: tuple[Figure | NotDrawn, ...] = ()
    more_rows: int = 0

    @property
    def source(self) -> str:
        """Study, scale and where the rows are from, for names of files and places in a page.

        Worked value: the file "a.full-steps.paper.json" that came with Triptych is
        "a-paper-bundled-full-steps".
        """
        parts = [self.study.replace("/", "."), self.scale]
        if self.bundled:
            parts += ["bundled", *filter(None, [self.label])]
        return "-".join(parts)

    @property
    def label(self) -> str:
        """What a bundled file is called next to its study and scale; mostly nothing."""
        name, end = f"{self.study.replace('/', '.')}.", f".{self.scale}.json"
        if not (self.bundled and self.file.startswith(name) and self.file.endswith(end)):
            return ""
        return self.file[len(name) : -len(end)]

    @property
    def run_name(self) -> RunName:
        return self.study, self.scale, self.bundled, self.label


@dataclass(frozen=True)
class Judged:
    """An entry of a ledger with its verdict: that of the strongest finding.

    status
        One of `STATUSES`.
    findings
        What every run says, the strongest first; at smoke scale last.
    study
        The study that judges it, if there is one.
    """

    entry: Entry
    status: str
    findings: tuple[ClaimFinding, ...]
    study: str | None

    @property
    def id(self) -> str:
        return self.entry.id

    @property
    def headline(self) -> ClaimFinding | None:
        """The finding that decides; None when nothing but the code was run."""
        first = self.findings[0] if self.findings else None
        return first if first and first.status in STATUSES[:3] else None

    @property
    def exceptions(self) -> tuple[str, ...]:
        return self.headline.exceptions if self.headline else ()

    @property
    def scope(self) -> str:
        """Where the verdict stands; "" without one, and for a user's own claims."""
        return self.headline.scope if self.headline else ""

    @property
    def words(self) -> str:
        """The verdict with its scope."""
        return self.headline.words if self.headline else self.status


def judge_ledger(
    ledger: Sequence[Entry], runs: Sequence[StudyRun], judges: Mapping[str, str] = {}
) -> list[Judged]:
    """Every entry once, in the ledger's order.

    judges
        Claim id -> the study that judges it, so that an entry without a run can say which to run.
    """
    found: dict[str, list[tuple[StudyRun, ClaimFinding]]] = {}
    for run in runs:
        for name, finding in run.findings.items():
            found.setdefault(name, []).append((run, finding))
    return [_judged(entry, found.get(entry.id, []), judges.get(entry.id)) for entry in ledger]


def _judged(
    entry: Entry, found: Sequence[tuple[StudyRun, ClaimFinding]], study: str | None
) -> Judged:
    ranked = [_scoped(finding, entry, run) for run, finding in sorted(found, key=_rank)]
    study = study or (ranked[0].study if ranked else None)
    status = ranked[0].status if ranked and ranked[0].status in STATUSES else STATUSES[3]
    return Judged(entry, status, tuple(ranked), study)


def _scoped(finding: ClaimFinding, entry: Entry, run: StudyRun) -> ClaimFinding:
    """A finding with its scope; with other settings than its scale's it is not as published."""
    if run.own or finding.scale not in EVIDENCE_SCALES:
        return finding
    if finding.scale not in entry.scope:
        where = scale_name(finding.scale)
        raise ValueError(f"ledger entry {entry.id} says no scope for the {where}")
    scope, differs = entry.scope[finding.scale], entry.differs.get(finding.scale, "")
    labelled = f"{finding.label}.{finding.scale}"
    if labelled in entry.differs or labelled in entry.scope:
        scope, differs = entry.scope.get(labelled, scope), entry.differs.get(labelled, "")
    elif finding.changed and scope == "as published":
        changed = ", ".join(run.changed)
        scope, differs = "scaled down", f"{differs} Other settings: {changed}.".strip()
    return replace(finding, scope=scope, differs=differs)


def _rank(pair: tuple[StudyRun, ClaimFinding]) -> tuple[Any, ...]:
    """The strongest evidence first."""
    run, finding = pair
    scale = SCALES.index(finding.scale) if finding.scale in SCALES else len(SCALES)
    return (
        finding.status == CODE_RUNS,
        finding.done == 0,
        bool(finding.missing) and finding.status == "undecided",
        bool(run.changed),
        scale,
        finding.bundled,
    )


def find(run: StudyRun, claim: Claim[Any], rows: Iterable[Any]) -> ClaimFinding:
    """What the rows of a run say about a claim; a judge that raises leaves it undecided."""
    empty = ClaimFinding(
        study=run.study,
        scale=run.scale,
        bundled=run.bundled,
        status="undecided",
        notes=tuple(_notes(run)),
        device=devices(run),
        done=sum(unit.status == "done" for unit in run.units),
        planned=len(run.units),
        seconds=total_seconds(run),
        made=run.made,
        changed=bool(run.changed),
        label=run.label,
        edited=_edited(run),
    )
    if run.scale == "smoke":
        empty = replace(empty, status=CODE_RUNS)
    if not empty.done:
        return replace(empty, missing=("finished units: 0",))
    try:
        verdict = claim.verdict(rows)
    except Exception as error:  # a judge of a user's own may raise anything
        sentence = f"The judge raised {type(error).__name__}: {error}"
        return replace(empty, notes=(*empty.notes, sentence))
    status = empty.status if run.scale == "smoke" else verdict.outcome.value
    return replace(
        empty,
        status=status,
        checks=verdict.checks,
        missing=verdict.missing,
        exceptions=verdict.exceptions,
        measured=verdict.measured,
        printed=verdict.printed,
    )


def _notes(run: StudyRun) -> Iterable[str]:
    """What a reader must know about a run."""
    failed = [unit for unit in run.units if unit.status == "failed"]
    done = sum(unit.status == "done" for unit in run.units)
    if done < len(run.units):
        yield f"{done} of {len(run.units)} units" + (f", {len(failed)} failed" if failed else "")
    if failed and not done:
        yield f"the first failed with: {last_line(failed[0].error or '')}"
    if run.changed:
        yield "changed settings: " + ", ".join(run.changed)
    if run.others:
        yield f"{run.others} more units of other settings are left out"
    if edited := _edited(run):
        yield f"the study's code was edited since {edited} of these units were made"
    if earlier := sum(unit.earlier for unit in run.units):
        yield f"{earlier} of these units are of an earlier revision of the study"


def _edited(run: StudyRun) -> int:
    return sum(unit.edited for unit in run.units)


def total_seconds(run: StudyRun) -> float | None:
    """What all units of a run cost together; None when no unit has been timed."""
    timed = [unit.seconds for unit in run.units if unit.seconds is not None]
    return sum(timed, 0.0) if timed else None


def devices(run: StudyRun) -> str:
    """Where its units ran, as "cpu" or "NVIDIA H200"."""
    return ", ".join(sorted({unit.device for unit in run.units if unit.device}))


def fails(finding: ClaimFinding) -> bool:
    """Whether a run of this folder speaks against a claim; bundled evidence does not count."""
    return finding.status == Status.FAILS.value and not finding.bundled
