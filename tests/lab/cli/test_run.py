"""`triptych run`: studies of ours and of users, what goes wrong, and the exit code."""

import json
import re

import pytest
from tests.support import gpus
from tests.support.command_line import OWN_STUDY, run, run_own

from triptych.core.files import FolderInUse, lock_folder
from triptych.lab.cli.running import cost_lines
from triptych.lab.results import gathering
from triptych.lab.results.ledger import load_ledger
from triptych.lab.running import runner
from triptych.lab.running.runner import RunSummary

FIELDS = [
    "id",
    "kind",
    "title",
    "source",
    "setting",
    "published",
    "remark",
    "extension",
    "scope",
    "differs",
    "status",
    "verdict",
    "stands",
    "exceptions",
    "study",
    "to_run",
    "findings",
]


SIZE = len(load_ledger())


def test_a_folder_in_use_is_refused_before_anything_else(tmp_path):
    """Here before the study that does not exist."""
    with lock_folder(tmp_path):
        result = run("run", "no_such_study", "--out", str(tmp_path))
    assert result.exit_code != 0
    assert isinstance(result.exception, FolderInUse) or "another run is using" in result.output
    assert "no_such_study" not in result.output


def test_run_judge_and_report(tmp_path):
    """One study from nothing to the page, twice; then what is asked of the folder."""
    out = tmp_path / "runs"
    small = ["run", "exact_heads", "--scale", "smoke", "--workers", "0", "--out", str(out)]
    result = run(*small)
    assert result.exit_code == 0, result.output
    assert "wei.thm-3.3" in result.stdout
    assert re.search(r"exact_heads: \[(\d+)/\1\]", result.stderr)
    page = out / "report.html"
    assert "wei.thm-3.3" in page.read_text()
    again = run(*small)
    assert "nothing to run" in again.stderr or "0 units" in again.stderr
    assert "Changed: no verdict since the run before." in again.stdout
    assert f"Open {page}\nNext: `triptych run exact_heads" in again.stdout
    told = json.loads(run("claims", "--out", str(out), "--json").stdout)
    assert len(told) == SIZE
    assert list(told[0]) == FIELDS
    by_id = {line["id"]: line for line in told}
    finding = by_id["wei.thm-3.3"]["findings"][0]
    assert (finding["scale"], finding["status"]) == ("smoke", "code runs")
    assert {check["outcome"] for check in finding["checks"]} == {"holds"}
    assert by_id["wei.thm-3.3"]["status"] == "not run yet", "a smoke run is no finding"
    assert by_id["li.tab-3.1"]["findings"] == []
    one = run("claims", "wei.thm-3.3", "--out", str(out)).stdout
    assert "wrong labels" in one
    assert "wei.thm-3.6" not in one
    unknown = run("claims", "wei.thm-3.33", "--out", str(out))
    assert (unknown.exit_code, "did you mean wei.thm-3.3?" in unknown.stderr) == (2, True)
    page.unlink()
    assert run("report", "--out", str(out)).exit_code == 0
    assert page.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "exact_head"], "did you mean exact_heads?"),
        (["run", "exact_heads", "--set", "stats=3"], "did you mean 'states'?"),
        (["run", "exact_heads", "--set", "states"], "FIELD=VALUE"),
        (["run", "exact_gap", "--set", "modes=masks"], "did you mean 'masked'?"),
        (["run", "exact_heads", "exact_gap", "--set", "strings=9"], "ExactGap has no field"),
        (["run", "exact_heads", "--set", "vocab=x"], "vocab is 'x'; it must be int"),
        (["run", "no_such_file.py"], "no_such_file.py"),
        (["run", "exact_heads", "--device", "mps"], "mps"),
        (["run", "exact_heads", "--device", "xpu", "--engine", "ray"], "xpu"),
        (["reproduce", "--device", "meta"], "meta"),
    ],
)
def test_mistakes_before_a_run_are_one_sentence(arguments, sentence, tmp_path):
    result = run(*arguments, "--scale", "smoke", "--workers", "0", "--out", str(tmp_path / "runs"))
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("count", [0, 1])
def test_a_gpu_that_is_not_there(count, tmp_path, monkeypatch):
    """Where there is one GPU, too: its only name is cuda:0."""
    gpus.pretend(monkeypatch, count)
    command = ["run", "exact_heads", "--scale", "smoke", "--workers", "0", "--device", "cuda:9"]
    result = run(*command, "--out", str(tmp_path / "runs"))
    assert result.exit_code == 2, result.output
    assert f"'cuda:9', and this machine has {count or 'no'} GPU" in " ".join(result.stderr.split())


def test_json_has_no_infinity(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN_STUDY)
    result = run_own(file, "--seeds", "1", "--json")

    def refuse(name):
        raise AssertionError(name)

    (line,) = json.loads(result.stdout, parse_constant=refuse)
    (check,) = line["findings"][0]["checks"]
    assert (line["status"], check["low"], check["high"]) == ("undecided", None, None)


def test_a_study_of_ones_own_and_its_claim(tmp_path):
    """Judged, listed apart, and in the report also when another study runs and the file is gone."""
    file, page = tmp_path / "mine.py", tmp_path / "runs" / "report.html"
    file.write_text(OWN_STUDY)
    result = run_own(file)
    assert result.exit_code == 1, result.output
    assert "Your own study mine" in result.stdout
    assert "FAILS  mine.gain  There is a gain" in result.stdout
    assert "my own gain" in result.stdout
    assert "Your own claims: 0 hold, 1 fails, 0 undecided." in " ".join(result.stdout.split())
    file.unlink()
    out = str(tmp_path / "runs")
    other = run(
        "run", "exact_heads", "--scale", "smoke", "--seeds", "1", "--workers", "0", "--out", out
    )
    assert other.exit_code == 0, other.output
    text = page.read_text()
    assert "my own gain" in text
    assert "My gains" in text, "its figure too"
    again = run("claims", "mine.gain", "--out", out)
    assert (again.exit_code, "my own gain" in again.stdout) == (1, True)
    assert (
        json.loads(run("claims", "mine.gain", "--json", "--out", out).stdout)[0]["status"]
        == "fails"
    )


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            '"mine.gain"',
            '"wei.prop-3.4"',
            "is a published result and judged by its own study alone",
        ),
        (', title="There is a gain"', "", "has no title"),
        ('name="mine"', 'name="exact_gap"', "is a study of Triptych: give yours another name"),
    ],
)
def test_what_a_study_of_ones_own_must_not_do(tmp_path, before, after, sentence):
    file = tmp_path / "mine.py"
    assert before in OWN_STUDY
    file.write_text(OWN_STUDY.replace(before, after))
    result = run_own(file)
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert not (tmp_path / "runs").exists()


WEAK_CLAIMS = {  # what stands in a file instead of good rows, and what is said about it
    "[], GAINS": "refuted_by: needed sets of rows that refute the claim, got none.",
    "[LOSSES, GAINS], GAINS": "set 2 of refuted_by: needed FAILS, got HOLDS.",
    "[LOSSES], GAINS[:1]": "held_by: needed HOLDS, got UNDECIDED.",
    "[LOSSES]": "held_by: needed rows on which the judge says HOLDS, got none.",
}
each_weak_claim = pytest.mark.parametrize(("rows", "sentence"), WEAK_CLAIMS.items())


@each_weak_claim
def test_a_claim_that_its_rows_cannot_refute_is_refused(tmp_path, rows, sentence):
    """With the claim, the study, the rule and what to do, before anything is made."""
    file = tmp_path / "mine.py"
    file.write_text(OWN_STUDY.replace("[LOSSES], GAINS", rows))
    result = run_own(file)
    assert result.exit_code == 2, result.output
    assert "claim 'mine.gain' of study mine needs better rows to be judged by" in result.stderr
    assert sentence in result.stderr
    assert "Every check must fail on rows of refuted_by" in result.stderr
    assert "`triptych axioms mine.py` checks them" in result.stderr
    assert not (tmp_path / "runs").exists()


@each_weak_claim
def test_a_smoke_run_leaves_a_weak_claim_out(tmp_path, rows, sentence):
    """It decides nothing, so the code can be tried; laptop rows are not judged by it either."""
    file = tmp_path / "mine.py"
    file.write_text(OWN_STUDY)
    assert "FAILS  mine.gain" in run_own(file).stdout
    file.write_text(OWN_STUDY.replace("[LOSSES], GAINS", rows))
    result = run_own(file, scale="smoke")
    assert result.exit_code == 0, result.output
    assert sentence in result.stderr
    assert "It is not judged now, and refused at other scales" in result.stderr
    assert "mine.gain" not in result.stdout
    assert "[1/1]" in result.stderr, "the unit ran"


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("-1.0 - 0.1 * unit.seed", "1 / 0", "3 units failed"),
        ("-1.0 - 0.1 * unit.seed", "float('nan')", "mine, seed 0: nan in Gain.gain"),
        (
            "gains = [row.gain for row in rows.of(Gain)]\n    return",
            "return",
            "draw raised NameError",
        ),
    ],
)
def test_what_goes_wrong_is_told_and_sets_the_exit_code(tmp_path, before, after, sentence):
    file = tmp_path / "mine.py"
    assert before in OWN_STUDY
    file.write_text(OWN_STUDY.replace(before, after))
    result = run_own(file, scale="smoke" if "units" not in sentence else "laptop")
    assert result.exit_code == 1, result.output
    assert sentence in result.stderr


def test_verdicts_are_told_also_when_the_report_cannot_be_written(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text(OWN_STUDY)
    (tmp_path / "runs" / "report.html").mkdir(parents=True)
    result = run_own(file)
    assert "my own gain" in result.stdout
    assert result.exit_code == 2
    assert "cannot be written (it is a folder)" in result.stderr


def test_verdicts_fall_while_it_runs_and_costs_come_at_the_end(tmp_path):
    """With a line per unit on standard error, the verdict stands after the last unit."""
    (tmp_path / "mine.py").write_text(OWN_STUDY)
    done = run_own(tmp_path / "mine.py")
    *_, last_unit, verdict, writing = done.stderr.splitlines()
    assert writing == "Writing the report ..."
    assert "[3/3]" in last_unit
    assert verdict == "FAILS mine.gain: There is a gain"
    title, line, total = done.stdout.partition("core-seconds of this run")[2].splitlines()[:3]
    assert title == ""
    assert line.split()[1:] == ["mine"]
    assert "in all" in total
    again = run_own(tmp_path / "mine.py")
    assert "core-seconds" not in again.stdout  # nothing ran


def test_a_run_without_a_report(tmp_path):
    """The verdict and the exit code are the same, and no page is written."""
    (tmp_path / "mine.py").write_text(OWN_STUDY)
    done = run_own(tmp_path / "mine.py", "--no-report")
    assert done.exit_code == 1
    assert "mine.gain" in done.stdout
    assert "Open " not in done.stdout
    assert "Writing the report" not in done.stderr
    assert not (tmp_path / "runs" / "report.html").exists()


def test_costs_by_hand():
    summaries = {
        "a": RunSummary(2, 0, 0, 60.0, core_seconds=90.0, unit_seconds=115.0),
        "b": RunSummary(0, 0, 4, 1.0),
        "c": RunSummary(0, 1, 0, 30.0, core_seconds=30.04, unit_seconds=30.0),
    }
    assert cost_lines(summaries)[2:] == [
        "      90.0  a",
        "      30.0  c",
        "     120.0  in all: 2.0 core-minutes, 1.5 min",
        "            The seconds of its units add up to 2 min 25 s.",
    ]


def test_the_terminal_and_the_report_have_one_sum_of_seconds(tmp_path):
    (tmp_path / "mine.py").write_text(OWN_STUDY)
    done = run_own(tmp_path / "mine.py")
    said = re.search(r"The seconds of its units add up to (.+)\.$", done.stdout, re.M)[1]
    (page,) = [path.read_text("utf-8") for path in tmp_path.rglob("report.html")]
    assert f"whose units took {said} in sum" in page


def test_reproduce_is_the_published_results(tmp_path, monkeypatch):
    """And offers the rest at the end; --all runs them too."""
    asked = []

    def nothing(plan, **options):
        asked.append(plan.study.name)
        return RunSummary(0, 0, 0, 0.0)

    monkeypatch.setattr(runner, "run_study", nothing)
    monkeypatch.setattr(gathering, "judge_study", lambda *_: {})
    monkeypatch.setattr(gathering, "bundled_runs", lambda *_, **__: ([], []))
    done = run("reproduce", "--out", str(tmp_path))
    assert "exact_gap" not in asked
    assert "triptych reproduce --all" in done.stdout
    assert "exact_gap" in done.stdout
    published = list(asked)
    asked.clear()
    done = run("reproduce", "--all", "--out", str(tmp_path))
    assert asked[: len(published)] == published
    assert "exact_gap" in asked
    assert "--all" not in done.stdout
