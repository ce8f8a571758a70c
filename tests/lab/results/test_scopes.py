"""Where a verdict stands (as published, smaller, on another model), and what it is called."""

import re
from dataclasses import replace

import pytest

from triptych.core.status import Status
from triptych.core.validation import UserError
from triptych.lab.results import evidence, report_claims, terminal
from triptych.lab.results.gathering import Results
from triptych.lab.results.ledger import EVIDENCE_SCALES, SCOPES, load_ledger, parse_ledger
from triptych.lab.results.ranking import ClaimFinding, Judged, StudyRun, judge_ledger
from triptych.lab.running.discovery import find_studies
from triptych.studies.api.decide import decide, none
from triptych.studies.api.study import Scale

ENTRY = '[[claim]]\nid = "a"\nkind = "number"\ntitle = "A"\nsource = "li:3"\n'


def judged(status, scope, *, scale="paper", changed=None, own=False):
    """One line of a ledger with this scope, and a run that says this."""
    said = f'scope = "{scope}"\n' + ("" if scope == "as published" else 'differs = "Smaller."\n')
    finding = ClaimFinding("s", scale, False, status, done=1, planned=1, changed=bool(changed))
    run = StudyRun("s", "?", scale, {}, [], [], own=own, changed=changed or {})
    return judge_ledger(parse_ledger(ENTRY + said), [replace(run, findings={"a": finding})])[0]


@pytest.mark.parametrize(
    ("status", "scope", "words"),
    [
        ("holds", "as published", "holds"),
        ("fails", "as published", "fails"),
        ("undecided", "scaled down", "undecided"),
        ("holds", "scaled down", "holds at a smaller scale"),
        ("fails", "scaled down", "not reproduced at a smaller scale"),
        ("holds", "transferred", "holds on another model"),
        ("fails", "transferred", "not reproduced on another model"),
    ],
)
def test_the_words_of_a_verdict(status, scope, words):
    line = judged(status, scope)
    assert (line.words, line.scope, line.status) == (words, scope, status)
    (told,) = terminal.as_json([line])
    assert (told["verdict"], told["stands"], told["status"]) == (words, scope, status)
    assert (words, status, 1) in report_claims.score([line])


def test_other_settings_than_those_of_the_scale_are_not_as_published():
    line = judged("fails", "as published", changed={"steps": 3})
    assert line.words == "not reproduced at a smaller scale"
    assert line.headline is not None
    assert line.headline.differs == "Other settings: steps."
    assert judged("fails", "transferred", changed={"steps": 3}).scope == "transferred"


@pytest.mark.parametrize(
    ("said", "words", "differs"),
    [
        ('scope."longer.paper" = "as published"', "fails", ""),
        ('differs."longer.paper" = "More."', "not reproduced on another model", "More."),
        ('differs."other.paper" = "More."', "not reproduced on another model", "Smaller."),
    ],
)
def test_bundled_rows_with_a_label_may_stand_elsewhere(said, words, differs):
    text = f'{ENTRY}scope.paper = "transferred"\ndiffers.paper = "Smaller."\n{said}\n'
    finding = ClaimFinding(
        "s", "paper", True, "fails", done=1, planned=1, changed=True, label="longer"
    )
    run = StudyRun("s", "?", "paper", {}, [], [], changed={"steps": 3})
    (line,) = judge_ledger(parse_ledger(text), [replace(run, findings={"a": finding})])
    assert line.words == words
    assert line.headline is not None
    assert line.headline.differs == differs


def test_labels_of_the_ledger_are_those_of_bundled_files():
    """`longer.paper` of a claim is about a file STUDY.longer.paper.json of its study."""
    studies = {claim.id: study.name for study in find_studies().values() for claim in study.claims}
    names = {evidence.called(path) for path in evidence.files(evidence.folder())}
    for entry in load_ledger():
        for key in {*entry.scope, *entry.differs} - set(EVIDENCE_SCALES):
            assert f"{studies[entry.id]}.{key}.json" in names, (entry.id, key)


def test_a_smoke_run_and_a_users_own_claim_have_no_scope():
    assert judged("code runs", "as published", scale="smoke").scope == ""
    line = judged("fails", "transferred", own=True)
    assert (line.words, line.scope) == ("fails", "")


def test_a_finding_without_a_scope_is_refused():
    finding = ClaimFinding("s", "paper", False, "holds", done=1, planned=1)
    run = StudyRun("s", "?", "paper", {}, [], [], findings={"a": finding})
    with pytest.raises(ValueError, match="says no scope for the largest run"):
        judge_ledger(parse_ledger(ENTRY), [run])


@pytest.mark.parametrize(
    ("said", "about"),
    [
        ('scope = "as it was"', "as it was"),
        ('scope.paper = "scaled down"', "differs"),
        ('scope = "transferred"\ndiffers.laptop = "Smaller."', "differs"),
        ('scope.smoke = "as published"', "smoke"),
        ('scope = "as published"\ndiffers.huge = "Larger."', "huge"),
    ],
)
def test_a_scope_that_says_nothing_is_refused(said, about):
    with pytest.raises(UserError, match=about):
        parse_ledger(ENTRY + said)


def test_every_entry_with_a_study_says_where_its_verdicts_stand():
    """At each scale that its study has; what is not as published says what differs."""
    scales = {
        claim.id: {scale.value for scale in study.settings} - {Scale.SMOKE.value}
        for study in find_studies().values()
        for claim in study.claims
    }
    entries = {entry.id: entry for entry in load_ledger()}
    for name, wanted in scales.items():
        if name in entries:
            assert wanted <= set(entries[name].scope), name


def test_the_words_of_scopes_are_those_of_the_architecture(request):
    text = (request.config.rootpath / "ARCHITECTURE.md").read_text()
    assert all(f"`{scope}`" in text for scope in SCOPES)
    assert set(EVIDENCE_SCALES) | {"smoke"} == {scale.value for scale in Scale}


def test_the_score_counts_scopes_apart():
    lines = [
        judged("holds", "as published"),
        judged("fails", "as published"),
        judged("holds", "scaled down"),
        judged("holds", "scaled down"),
        judged("fails", "scaled down"),
        judged("fails", "transferred"),
        judged("undecided", "transferred"),
    ]
    assert terminal.score_of(lines) == (
        "1 holds and 1 fails as published; at a smaller scale 2 hold and 1 is not reproduced; on "
        "another model or other data 0 hold and 1 is not reproduced; 1 is undecided"
    )
    assert terminal.score(Results([lines[0]], {}, [], [])) == (
        "Of 1 published results, 1 holds and 0 fail as published; 0 are undecided."
    )


def test_what_the_text_says_is_a_second_finding():
    """It decides nothing, in either direction."""
    verdict = decide(none("wrong", 0, of=3), printed=[none("wrong as printed", 2, of=3)])
    assert verdict.outcome is Status.HOLDS
    assert verdict.printed is not None
    assert verdict.printed.outcome is Status.FAILS
    other = decide(none("wrong", 2, of=3), printed=[none("wrong as printed", 0, of=3)])
    assert other.outcome is Status.FAILS
    assert other.printed is not None
    assert other.printed.outcome is Status.HOLDS
    assert decide(none("wrong", 0, of=3)).printed is None


def test_where_text_and_program_differ_the_remark_says_how():
    """Every judge that has a second finding, on the rows on which it holds."""
    entries = {entry.id: entry for entry in load_ledger()}
    several = []
    for study in find_studies().values():
        for claim in study.claims:
            if claim.verdict(claim.held_by).printed is not None:
                several.append(claim.id)
                assert re.search(r"print|text", entries[claim.id].remark), claim.id
    assert several == sorted(set(several), key=several.index)


def test_a_claim_shows_its_scope_and_its_second_finding(capsys):
    line = judged("fails", "scaled down")
    (finding,) = line.findings
    finding = replace(finding, printed=decide(none("wrong as printed", 0, of=3)))
    line = replace(line, findings=(finding,))
    terminal.print_results(Results([line], {}, [], []), everything=True, total=False)
    told = capsys.readouterr().out
    assert "not reproduced at a smaller scale  a  A" in told
    assert "largest run: not reproduced at a smaller scale" in told
    assert "differs from the source: Smaller." in told
    assert "as printed in the text: holds" in told
    assert "wrong as printed" in told
    assert "published results" not in told


def test_a_number_that_does_not_exist_is_a_dash():
    check = none("wrong", 0, of=3)
    check = replace(check, value=float("nan"), low=float("nan"), high=float("nan"))
    assert terminal.found(check) == "–"


def test_an_interval_without_ends_is_not_shown():
    """One trial has a mean and no interval: its ends would be infinite."""
    check = replace(none("wrong", 0, of=3), value=11.8, low=float("-inf"), high=float("inf"))
    assert terminal.found(check) == "11.8"
    assert terminal.found(replace(check, low=9.0, high=15.0)) == "11.8 [9, 15]"


@pytest.mark.parametrize(
    ("study", "said"),
    [
        ("translation_speed", "`triptych run translation_speed --scale paper --device cuda`"),
        ("exact_heads", "`triptych run exact_heads --scale paper` makes its rows, on a CPU."),
        ("nobodys_study", "`triptych run nobodys_study` makes its rows."),
        (None, "There is no study for it yet."),
    ],
)
def test_a_claim_without_rows_names_command_and_machine(study, said):
    (entry,) = parse_ledger(ENTRY)
    line = Judged(entry, "not run yet", (), study)
    assert terminal.to_run(line).startswith(said)
    assert terminal.as_json([line])[0]["to_run"].startswith(said)
