"""The ledger is whole, and every entry of it gets exactly one verdict."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from triptych.core.estimates import Status
from triptych.core.validation import UserError
from triptych.lab.results.ledger import (
    KINDS,
    PARTS,
    WORKS,
    Entry,
    counted,
    load_ledger,
    own_entries,
    parse_ledger,
    part,
    work,
)
from triptych.lab.results.ranking import (
    STATUSES,
    ClaimFinding,
    Judged,
    StudyRun,
    UnitRecord,
    fails,
    find,
    judge_ledger,
)
from triptych.studies.api.decide import Verdict, at_least, decide, exactly
from triptych.studies.api.study import Claim, Scale, Settings, Study

LEDGER = load_ledger()
ID = "wei.prop-3.4"


@dataclass(frozen=True)
class Row:
    error: float


def judge(rows: Any) -> Verdict:
    errors = [row.error for row in rows.of(Row)]
    return decide(
        exactly("error", max(errors, default=0.0)), needs=[at_least("rows", len(errors), 2)]
    )


def unit(status: str = "done", seconds: float | None = 1.5, error: str | None = None) -> UnitRecord:
    return UnitRecord("seed=0", 0, status, seconds, error, "cpu")


def run(scale: str = "laptop", units: Any = None, **more: Any) -> StudyRun:
    return StudyRun("toy/study", "?", scale, {}, [], units or [unit()], **more)


def found(
    *errors: float, claim: Claim[Row] | None = None, of: StudyRun | None = None
) -> ClaimFinding:
    return find(of or run(), claim or Claim(ID, judge, []), [Row(error) for error in errors])


def verdict_on(id: str, *findings: ClaimFinding) -> Judged:
    runs = [run(f.scale, bundled=f.bundled, findings={id: f}) for f in findings]
    return next(line for line in judge_ledger(LEDGER, runs) if line.id == id)


def test_the_ledger_has_every_entry_once():
    assert len(LEDGER) == 137
    assert counted(LEDGER) == 124
    assert len({entry.id for entry in LEDGER}) == len(LEDGER)
    extensions = {entry.id for entry in LEDGER if entry.extension}
    assert extensions == {
        "diffusion.confident-tokens",
        "diffusion.entropy-bound",
        "diffusion.lists",
        "li.heads-adapt",
        "li.heads-stack",
        "li.over-optimisation",
        "li.over-optimisation-bounds",
        "li.padir-pairs",
        "li.padir-pairs-exact",
        "li.practices-exact",
        "li.stutter-exact",
        "li.vgb-mixing",
        "wei.thm-3.3-needs-rank",
    }
    assert {entry.kind for entry in LEDGER} == set(KINDS)
    assert {work(entry.source) for entry in LEDGER} == set(WORKS)
    assert {part(entry.source) for entry in LEDGER} == set(PARTS)
    for entry in LEDGER:
        assert entry.id.startswith(work(entry.source) + ".")
        assert entry.title.strip() == entry.title != ""
        assert entry.published is None or entry.published


def test_published_values_survive():
    by_id = {entry.id: entry for entry in LEDGER}
    assert by_id["wei.fig-3-left"].published is not None
    assert by_id["wei.fig-3-left"].published["head"] == [94.0, 84.0, 79.7, 74.6, 66.1, 66.2]
    assert by_id["li.padir-speed"].published == {"median_speedup": 2.0, "p99_speedup": 5.0}


@pytest.mark.parametrize(
    ("source", "shelf"),
    [
        ("wei:3, A", "wei:3"),
        ("wei:B.1 (appendix C in the other edition)", "wei:B"),
        ("li:2.1.7.1", "li:2.1"),
        ("li:2.2.4.1 (figures 2.19-2.21)", "li:2.2"),
        ("li:3.2.2.2, 3.2.2.7", "li:3"),
        ("li:4 (contributions), 4.2.2", "li:4"),
    ],
)
def test_a_source_has_a_shelf(source: str, shelf: str):
    assert part(source) == shelf


ENTRY = '[[claim]]\nid = "a"\nkind = "{kind}"\ntitle = "t"\nsource = "{source}"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ENTRY.format(kind="theorem", source="li:3") * 2, "appears twice"),
        (ENTRY.format(kind="guess", source="li:3"), "kind 'guess'"),
        (ENTRY.format(kind="theorem", source="li:3") + "publishd = 1\n", "publishd"),
        ('[[claim]]\nid = "a"\n', "missing"),
        ("[[claim]\n", "is not TOML"),
    ],
)
def test_a_broken_ledger_explodes(text: str, said: str):
    with pytest.raises(UserError, match=said):
        parse_ledger(text)


def test_without_runs_nothing_has_been_run():
    judged = judge_ledger(LEDGER, [], {"wei.thm-3.3": "exact_heads"})
    assert [line.id for line in judged] == [entry.id for entry in LEDGER]
    assert {line.status for line in judged} == {"not run yet"}
    by_id = {line.id: line for line in judged}
    assert by_id["wei.thm-3.3"].study == "exact_heads"
    assert by_id["wei.thm-3.6"].study is None


def test_every_entry_appears_once_and_in_order():
    judged = judge_ledger(LEDGER, [run(findings={"li.fig-4.1": found(1.0, 1.0)})])
    assert [line.id for line in judged] == [entry.id for entry in LEDGER]
    assert {line.status for line in judged} <= set(STATUSES)
    assert {line.id for line in judged if line.status == "fails"} == {"li.fig-4.1"}


def test_a_finding_has_the_checks_and_what_the_run_was():
    finding = found(0.0, 1e-12)
    assert (finding.status, finding.scale, finding.bundled) == ("holds", "laptop", False)
    (check,) = finding.checks
    assert (check.sentence, check.value, check.outcome) == ("error", 1e-12, Status.HOLDS)
    assert (finding.done, finding.planned, finding.seconds, finding.device) == (1, 1, 1.5, "cpu")
    line = verdict_on(ID, finding)
    assert (line.status, line.study) == ("holds", "toy/study")
    assert line.headline is not None
    assert replace(line.headline, scope="", differs="") == finding


def test_what_is_missing_is_kept():
    finding = found(0.0)
    assert (finding.status, finding.missing) == ("undecided", ("rows: 1 of 2",))


def test_a_judge_that_raises_is_undecided():
    def raises(rows: Any) -> Verdict:
        raise KeyError("loss")

    def nothing(rows: Any) -> Any:
        return None

    finding = found(0.0, claim=Claim(ID, raises, []))
    assert finding.status == "undecided"
    assert "The judge raised KeyError: 'loss'" in finding.notes[0]
    assert found(0.0, claim=Claim(ID, nothing, [])).status == "undecided"


def test_parts_of_a_run_say_so():
    units = [unit(), unit("failed", 2.0, "Traceback\nValueError: bad"), unit("pending", None)]
    finding = found(0.0, 0.0, of=run(units=units, changed={"steps": 3}, others=2))
    assert finding.notes == (
        "1 of 3 units, 1 failed",
        "changed settings: steps",
        "2 more units of other settings are left out",
    )
    assert finding.seconds == 3.5
    edited = found(0.0, 0.0, of=run(units=[replace(unit(), edited=True), unit()]))
    assert edited.notes == ("the study's code was edited since 1 of these units were made",)
    assert edited.edited == 1
    earlier = found(0.0, 0.0, of=run(units=[replace(unit(), earlier=True), unit()]))
    assert earlier.notes == ("1 of these units are of an earlier revision of the study",)
    assert earlier.edited == 0


def test_units_without_rows_decide_nothing():
    failed = found(of=run(units=[unit("failed", 1.0, "Traceback\nValueError: bad\n")]))
    assert (failed.status, failed.missing) == ("undecided", ("finished units: 0",))
    assert failed.notes == ("0 of 1 units, 1 failed", "the first failed with: ValueError: bad")


def test_smoke_rows_say_that_the_code_runs_and_nothing_else():
    wrong = found(1.0, 1.0, of=run("smoke"))
    assert wrong.status == "code runs"
    assert wrong.checks[0].outcome is Status.FAILS
    assert not fails(wrong)
    assert verdict_on(ID, wrong).status == "not run yet"


def test_only_ones_own_run_fails():
    assert fails(found(1.0, 1.0))
    assert not fails(found(1.0, 1.0, of=run("paper", bundled=True)))


# ------------------------------------------------------------------------------ own claims


def own(*claims: Claim[Row]) -> Study[Any, Any, Row]:
    settings = {Scale.LAPTOP: Settings()}
    return Study("mine", "?", settings, lambda s: [], lambda u, b: [], (Row,), claims)


def test_a_claim_of_ones_own_has_a_title_in_the_file_or_beside_it(tmp_path):
    file = tmp_path / "mine.py"
    (tmp_path / "claims.toml").write_text(
        '[[claim]]\nid = "b"\nkind = "theorem"\ntitle = "From the file"\n'
    )
    entries = own_entries(
        own(
            Claim("a", judge, [], title="With the claim", kind="number", published={"x": 1}),
            Claim("b", judge, []),
        ),
        file,
    )
    assert entries == [
        Entry("a", "number", "With the claim", "", published={"x": 1}),
        Entry("b", "theorem", "From the file", ""),
    ]


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (Claim(ID, judge, [], title="Mine"), "is a published result and judged by its own study"),
        (Claim("c", judge, []), "has no title"),
        (Claim("c", judge, [], title="Mine", kind="guess"), "kind 'guess' is not in"),
    ],
)
def test_what_a_claim_of_ones_own_must_not_be(tmp_path, claim, said):
    with pytest.raises(UserError, match=said):
        own_entries(own(claim), tmp_path / "mine.py")
