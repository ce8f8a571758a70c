"""What a run says is kept under all that decides it; what is kept is what would be judged."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from triptych.lab import kept
from triptych.lab.results import evidence, gathering, kept_runs, terminal
from triptych.lab.results.kept_runs import kept_or_judged
from triptych.lab.results.ranking import ClaimFinding, NotDrawn, StudyRun, UnitRecord
from triptych.lab.running import reached
from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.verdicts import Check

MODULE = "triptych.studies.tuning.exact_tuning"
CHECK = Check("gain", 2.5, -float("inf"), 3.0, "> 0", None, "above")
FIGURE = Figure("f", "A figure", (Panel((Series("a", "ours", (0.0,), (0.25,)),), "x", "y"),))
RUN = StudyRun(
    study="exact_tuning",
    question="Which?",
    scale="paper",
    settings={"seeds": 3},
    rows=[{"kind": "Row", "n": n} for n in range(20)],
    units=[UnitRecord("a", 0, "done", 1.5, None, "cpu")],
    bundled=True,
    findings={
        "wei.a": ClaimFinding("exact_tuning", "paper", True, "holds", (CHECK,), made="today")
    },
    figures=(FIGURE,),
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """What is kept lies in a folder of the test."""
    monkeypatch.setattr(kept, "folder", lambda kind: tmp_path / "kept" / kind)
    return tmp_path / "kept" / "verdicts"


class Judge:
    """Makes RUN, and counts how often."""

    def __init__(self):
        self.drawn = []

    def __call__(self, drawn):
        self.drawn.append(drawn)
        return RUN if drawn else replace(RUN, figures=())

    def ask(self, *rows, shown=False, module=MODULE):
        return kept_or_judged(rows or ["rows"], module, self, shown=shown)


def test_a_run_is_judged_once():
    """Verdicts are read without figures; all that a report shows comes with its first 16 rows."""
    judge = Judge()
    for _ in range(2):
        found = judge.ask()
        assert found.findings == RUN.findings
    assert (found.units, found.rows, found.figures) == ((), (), ())
    for _ in range(2):
        shown = judge.ask(shown=True)
        assert (shown.findings, list(shown.units)) == (RUN.findings, RUN.units)
        assert len(shown.rows) + shown.more_rows == 20
    assert (len(shown.rows), shown.rows[15], shown.figures) == (
        16,
        {"kind": "Row", "n": 15},
        (FIGURE,),
    )
    assert judge.ask().findings == RUN.findings
    assert judge.drawn == [False, True]


def test_other_rows_sources_or_packages_are_judged_again(monkeypatch):
    judge = Judge()
    judge.ask()
    judge.ask("others")
    judge.ask(module="triptych.studies.tuning.exact_heads")
    assert len(judge.drawn) == 3
    monkeypatch.setattr(kept_runs, "_versions", lambda: ("scipy 99",))
    judge.ask()
    monkeypatch.setattr(kept_runs, "digest_reached", lambda modules: "edited")
    judge.ask()
    assert len(judge.drawn) == 5


NO_VERDICT = replace(RUN.findings["wei.a"], status="undecided", checks=(), done=3, planned=3)


@pytest.mark.parametrize(
    "failed",
    [
        replace(RUN, figures=(NotDrawn("f", "no memory"),)),
        replace(RUN, findings={"wei.a": replace(NO_VERDICT, notes=("The judge raised",))}),
    ],
    ids=["figure", "judge"],
)
def test_a_run_in_which_something_raised_is_made_again(monkeypatch, failed):
    """What failed once, as for want of memory, may go well the next time."""
    judge = Judge()
    monkeypatch.setattr(Judge, "__call__", lambda self, drawn: self.drawn.append(drawn) or failed)
    assert [judge.ask(shown=True) for _ in range(2)] == [failed, failed]
    assert judge.drawn == [True, True]


def test_a_process_that_may_run_older_sources_keeps_nothing(monkeypatch, folder):
    """A judge that was edited while a long run went on has not been asked."""
    judge = Judge()
    monkeypatch.setattr(reached, "_BEGAN", 0.0)
    judge.ask()
    judge.ask()
    assert len(judge.drawn) == 2
    assert not folder.exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", '{"study": 3}', "\x00"])
def test_what_is_damaged_is_judged_again(folder, text):
    judge = Judge()
    judge.ask(shown=True)
    for file in folder.iterdir():
        before = file.read_text()
        file.write_text(text)
        assert judge.ask(shown=True).findings == RUN.findings
        assert file.read_text() == before
    assert len(judge.drawn) == 3


@pytest.mark.parametrize(("old", "new"), [("holds", "fails"), ("2.5", "3.5")])
def test_a_verdict_that_was_changed_on_the_disk_is_judged_again(folder, old, new):
    judge = Judge()
    judge.ask()
    (file,) = folder.iterdir()
    before = file.read_text()
    file.write_text(before.replace(old, new))
    assert file.read_text() != before
    assert judge.ask().findings == RUN.findings
    assert len(judge.drawn) == 2


def test_what_json_has_no_form_for_is_not_kept(folder):
    judge = Judge()
    bad = replace(RUN.findings["wei.a"], measured={"x": object()})
    judge_bad = lambda drawn: judge(drawn) and replace(RUN, findings={"wei.a": bad})  # noqa: E731
    for _ in range(2):
        kept_or_judged(["rows"], MODULE, judge_bad, shown=False)
    assert len(judge.drawn) == 2


def test_without_a_folder_everything_is_judged(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(kept, "folder", lambda kind: tmp_path / "file")
    judge = Judge()
    judge.ask()
    judge.ask()
    assert len(judge.drawn) == 2


@pytest.fixture
def bundled(tmp_path, monkeypatch):
    """A package that came with one small file of evidence."""
    where = tmp_path / "evidence"
    where.mkdir()
    shutil.copy(evidence.folder() / "memory_heads.linear-readout.paper.json.xz", where)
    monkeypatch.setattr(evidence, "folder", lambda: where)
    return where


@pytest.mark.usefixtures("bundled", "unchecked_shapes")
def test_kept_is_what_would_be_judged(monkeypatch, folder):
    def say(results):
        runs = [gathering.to_json(run) for run in results.runs]
        return json.dumps([runs, verdicts(results)], sort_keys=True)

    def verdicts(results):
        return terminal.as_json(results.judged)

    monkeypatch.setattr(kept_runs, "ROWS_KEPT", 10**9)
    first = gathering.gather(None)
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr(gathering, "judged_run", None)  # it is not asked again
    again = gathering.gather(None)
    assert say(first) == say(again)
    assert verdicts(gathering.gather(None, shown=False)) == verdicts(first)


PROGRAM = """
import sys
from triptych.__main__ import main
try:
    main()
finally:
    studies = [name for name in sys.modules if name.startswith("triptych.studies.tuning")]
    print("torch" in sys.modules, bool(studies))
"""


def test_verdicts_that_are_kept_need_neither_torch_nor_studies(tmp_path, monkeypatch, bundled):
    """So `triptych claims` answers in half a second."""
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path / "cache"))
    program = PROGRAM.replace(
        "try:",
        "from pathlib import Path\nfrom triptych.lab.results import evidence\n"
        f"evidence.folder = lambda: Path({str(bundled)!r})\ntry:",
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program, "claims", "wei.fig-3-right"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        for _ in range(2)
    ]
    assert [done.returncode for done in said] == [0, 0], said[0].stderr
    assert said[0].stdout.splitlines()[-1] == "True True"
    assert said[1].stdout.splitlines()[-1] == "False False"
    assert said[0].stdout.splitlines()[:-1] == said[1].stdout.splitlines()[:-1]


def test_files_say_their_study_at_the_start(tmp_path):
    for path in evidence.files(evidence.folder()):
        assert evidence.study_in(path) == evidence.load(path).study
    (tmp_path / "x").write_text('{"units": []}')
    assert evidence.study_in(tmp_path / "x") == evidence.study_in(tmp_path / "no") == ""
