"""The ledger is whole, and every entry of it gets exactly one verdict."""

from typing import Any

import pytest

from triptych.core.estimates import Outcome
from triptych.lab.judgement import VERDICTS, Judged, StudyRun, UnitRecord, judge_ledger
from triptych.lab.ledger import KINDS, PARTS, WORKS, load_ledger, parse_ledger, part, work
from triptych.studies.study import Claim, Scale, Settings, Study, Verdict

LEDGER = load_ledger()


def study(*claims: Claim, name: str = "toy/study") -> Study:
    settings = {Scale.LAPTOP: Settings()}
    return Study(name, "Does it hold?", settings, lambda s: [], lambda u, b: [], claims)


def claim(id: str, outcome: Outcome = Outcome.HOLDS, because: str = "It does.") -> Claim:
    return Claim(id, lambda rows: Verdict(outcome, because, {"rows": len(rows)}), [])


def unit(status: str = "done", seconds: float | None = 1.5, error: str | None = None) -> UnitRecord:
    return UnitRecord("seed=0", 0, status, seconds, error, "cpu")


def run(of: Study, scale: str = "laptop", rows: int = 1, units: Any = None) -> StudyRun:
    return StudyRun(of, scale, {}, [{"x": i} for i in range(rows)], units or [unit()])


def verdict_on(id: str, *runs: StudyRun) -> Judged:
    return next(line for line in judge_ledger(LEDGER, runs) if line.id == id)


def test_the_ledger_has_every_entry_once():
    assert len(LEDGER) == 92
    assert len({entry.id for entry in LEDGER}) == 92
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
        (ENTRY.format(kind="theorem", source="li:9"), "source 'li:9'"),
        (ENTRY.format(kind="theorem", source="li:3") + "publishd = 1\n", "publishd"),
        ('[[claim]]\nid = "a"\n', "missing"),
    ],
)
def test_a_broken_ledger_explodes(text: str, said: str):
    with pytest.raises(ValueError, match=said):
        parse_ledger(text)


def test_without_runs_nothing_has_been_run():
    judged = judge_ledger(LEDGER, [])
    assert [line.id for line in judged] == [entry.id for entry in LEDGER]
    assert {line.verdict for line in judged} == {"not run yet"}


def test_every_entry_appears_once_and_in_order():
    first = study(claim("li.fig-4.1", Outcome.FAILS), claim("wei.prop-3.4"))
    judged = judge_ledger(LEDGER, [run(first), run(first, "smoke")])
    assert [line.id for line in judged] == [entry.id for entry in LEDGER]
    assert {line.verdict for line in judged} <= set(VERDICTS)
    line = verdict_on("wei.prop-3.4", run(first))
    assert line == Judged(
        "wei.prop-3.4",
        "theorem",
        "wei:3",
        LEDGER[0].title,
        "laptop",
        "holds",
        "It does.",
        None,
        {"rows": 1},
        "toy/study",
        1.5,
        "own",
    )
    assert verdict_on("li.fig-4.1", run(first)).verdict == "fails"


def test_the_largest_scale_with_rows_is_judged():
    toy = study(claim("wei.prop-3.4"))
    smoke, laptop, paper = run(toy, "smoke", 1), run(toy, "laptop", 2), run(toy, "paper", 3)
    empty = run(toy, "paper", 0, [unit("pending", None)])
    assert verdict_on("wei.prop-3.4", smoke, paper, laptop).scale == "paper"
    assert verdict_on("wei.prop-3.4", smoke, laptop).measured == {"rows": 2}
    assert verdict_on("wei.prop-3.4", smoke, empty).scale == "smoke"


def test_a_judge_that_raises_is_undecided():
    def judge(rows: Any) -> Verdict:
        raise KeyError("loss")

    def nothing(rows: Any) -> Any:
        return None

    line = verdict_on("wei.prop-3.4", run(study(Claim("wei.prop-3.4", judge, []))))
    assert line.verdict == "undecided"
    assert "KeyError: 'loss'" in line.because
    line = verdict_on("wei.prop-3.4", run(study(Claim("wei.prop-3.4", nothing, []))))
    assert line.verdict == "undecided"


def test_parts_of_a_run_say_so():
    toy = study(claim("wei.prop-3.4"))
    units = [unit(), unit("failed", 2.0, "Traceback\nValueError: bad"), unit("pending", None)]
    line = verdict_on("wei.prop-3.4", run(toy, units=units))
    assert line.because == "It does. (1 of 3 units, 1 failed)"
    assert line.seconds == 3.5


def test_units_without_rows():
    toy = study(claim("wei.prop-3.4"))
    failed = run(toy, rows=0, units=[unit("failed", 1.0, "Traceback\nValueError: bad\n")])
    line = verdict_on("wei.prop-3.4", failed)
    assert line.verdict == "undecided"
    assert line.because.endswith("ValueError: bad")
    assert verdict_on("wei.prop-3.4", run(toy, rows=0)).verdict == "undecided"
    waiting = verdict_on("wei.prop-3.4", run(toy, rows=0, units=[unit("pending", None)]))
    assert (waiting.verdict, waiting.study, waiting.scale) == ("not run yet", "toy/study", None)
    assert "triptych run toy/study" in waiting.because


def test_claims_and_ledger_agree_or_explode():
    with pytest.raises(ValueError, match="'wei.nothing' that is not in the ledger"):
        judge_ledger(LEDGER, [run(study(claim("wei.nothing")))])
    both = [run(study(claim("wei.prop-3.4"), name=name)) for name in ("one", "two")]
    with pytest.raises(ValueError, match="two studies, one and two"):
        judge_ledger(LEDGER, both)


def test_a_claim_without_a_run_says_what_to_run():
    first = study(claim("wei.thm-3.3"))
    judged = {line.id: line for line in judge_ledger(LEDGER, [], [first])}
    assert judged["wei.thm-3.3"].verdict == "not run yet"
    assert f"triptych run {first.name}" in judged["wei.thm-3.3"].because
    assert judged["wei.thm-3.6"].because == "There is no study for it yet."
