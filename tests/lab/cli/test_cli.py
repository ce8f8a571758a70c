import csv
import io
import json
import re
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from triptych import __version__
from triptych.lab.cli.app import app
from triptych.lab.results.ledger import load_ledger

GOOD = """
from triptych.structures.uniform import Uniform

def examples():
    return {"bits": Uniform(2, 3)}
"""
WRONG = """
from triptych.core.table import Table

class Flipped(Table):
    def next_token_log_probs(self, prefix):
        return super().next_token_log_probs(prefix).flip(-1)

def examples():
    table = Table.random(2, 3, seed=0)
    return {"flipped": Flipped(2, 3, table.log_probs)}
"""


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    """What is committed under evidence/ has its own tests and must not decide these."""
    monkeypatch.setattr("triptych.lab.results.evidence.folder", lambda: None)


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_verify_a_file_of_ones_own(tmp_path):
    file = tmp_path / "good.py"
    file.write_text(GOOD)
    result = run("verify", str(file))
    assert result.exit_code == 0
    assert "7 of 7 axioms hold." in result.stdout
    rows = json.loads(run("verify", str(file), "--json").stdout)
    assert {row["module"] for row in rows} == {"good"}
    assert all(row["holds"] for row in rows)


def test_a_failing_law_is_named_and_sets_the_exit_code(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    result = run("verify", str(file))
    assert result.exit_code == 1
    assert "FAILS: next token equals the table  (wrong: flipped)" in result.stdout
    assert re.search(r"asked +P\(next token [01] \| \[[01, ]*\]\)", result.stdout)
    assert f"{file}:5" in result.stdout
    rows = json.loads(run("verify", str(file), "--json").stdout)
    (row,) = (row for row in rows if row["axiom"] == "next token equals the table")
    assert float(row["expected"]) + float(row["got"]) == pytest.approx(1)  # flipped
    assert row["place"] == f"{file}:5"
    assert all(row["asked"] == "" for row in rows if row["holds"])


def test_what_raises_is_found_in_the_users_file(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(WRONG.replace("super().next_token_log_probs(prefix).flip(-1)", "prefix[:, 7]"))
    result = run("verify", str(file))
    assert result.exit_code == 1
    assert "FAILS: could not be checked: IndexError" in result.stdout
    assert f"{file}:6" in result.stdout


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "there is no file"),
        ("x = 1\n", "has no function examples()"),
        ("import not_a_module_at_all\n", "not_a_module_at_all"),
        ("def examples(:\n", "SyntaxError"),
        ("def examples():\n    return [1]\n", "returned a list, not a dictionary"),
        ("x = undefined_name\n", "NameError"),
    ],
)
def test_user_mistakes_are_one_sentence(tmp_path, content, sentence):
    file = tmp_path / "mine.py"
    if content is not None:
        file.write_text(content)
    result = run("verify", str(file))
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output


def test_one_example_that_cannot_be_checked_does_not_hide_the_others(tmp_path):
    file = tmp_path / "mixed.py"
    file.write_text(
        GOOD.replace('{"bits"', '{"nothing": object(), "too large": Uniform(10, 10), "bits"')
    )
    result = run("verify", str(file))
    assert result.exit_code == 1
    assert "could not be checked: UserError: structure: object has no vocab_size" in " ".join(
        result.stdout.split()
    )
    assert "7/7" in result.stdout
    rows = json.loads(run("verify", str(file), "--json").stdout)
    assert [row["error"] for row in rows[:2]] == [None, None]


def test_a_gpu_that_is_not_there():
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    result = run("verify", "--device", "cuda")
    assert result.exit_code == 2
    assert "sees no GPU" in result.stderr


def test_list_and_env():
    found = json.loads(run("list", "--json").stdout)
    assert {"hmm", "memory_hmm", "topics", "dyck", "cfg", "ising", "parity"} <= {
        row["structure"] for row in found["structures"]
    }
    assert {"exact_gap", "exact_heads", "query_complexity"} <= {
        row["study"] for row in found["studies"]
    }
    assert "[wei, 3]" in run("list").stdout
    facts = json.loads(run("env", "--json").stdout)
    assert facts["triptych"] == __version__
    assert "threads" in run("env").stdout


COMMANDS = (
    "verify",
    "reproduce",
    "run",
    "claims",
    "rows",
    "report",
    "export",
    "import",
    "list",
    "env",
    "replay",
)


def test_help_is_instant_and_has_examples():
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "triptych", "--help"], capture_output=True, text=True, check=True
    )
    assert time.perf_counter() - started < 2.0  # 0.2 s on a quiet machine
    assert "verify" in done.stdout
    imported = subprocess.run(
        [sys.executable, "-c", "import sys, triptych.lab.cli.app; print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert imported.stdout.strip() == "False"
    for command in COMMANDS:
        assert "Example: triptych" in run(command, "--help").stdout
    assert run("--version").stdout.strip() == __version__


def test_an_unknown_option_explodes():
    assert run("verify", "--devise", "cpu").exit_code == 2


FIELDS = [
    "id",
    "kind",
    "title",
    "source",
    "setting",
    "published",
    "remark",
    "extension",
    "status",
    "exceptions",
    "study",
    "findings",
]
SIZE = len(load_ledger())
COUNTED = sum(not entry.extension for entry in load_ledger())


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


def test_rows_for_a_spreadsheet(tmp_path):
    out = str(tmp_path / "runs")
    run("run", "exact_heads", "--scale", "smoke", "--seeds", "1", "--workers", "0", "--out", out)
    table = list(
        csv.DictReader(io.StringIO(run("rows", "exact_heads", "--csv", "--out", out).stdout))
    )
    assert {row["kind"] for row in table} == {"Conditional", "Head", "Twins", "Defeat"}
    assert {row["scale"] for row in table} == {"smoke"}
    heads = run("rows", "exact_heads", "--kind", "Head", "--out", out).stdout.splitlines()
    assert all("wrong_labels" in json.loads(line) for line in heads)
    missing = run("rows", "exact_gap", "--csv", "--out", out)
    assert missing.exit_code == 2
    assert "no rows of study exact_gap: run it there first" in missing.stderr


def test_shipped_evidence_from_one_folder_to_another(tmp_path, monkeypatch):
    """Run, export, and go on from the file elsewhere; the verdicts are shown as shipped."""
    there, here, kept = (str(tmp_path / name) for name in ("there", "here", "kept"))
    small = ["run", "exact_heads", "--scale", "laptop", "--workers", "0", "--set", "strings=20"]
    small += ["--set", "states=4", "--set", "wide=7"]
    run(*small, "--seeds", "1", "--out", there)
    told = run("export", "--scale", "laptop", "--out", there, "--to", kept)
    assert told.exit_code == 0, told.output
    file = tmp_path / "kept" / "exact_heads.laptop.json"
    done = len(json.loads(file.read_text())["units"])
    assert told.stdout.strip() == f"{file}: {done} units, {done} of them new"

    monkeypatch.setattr("triptych.lab.results.evidence.folder", lambda: tmp_path / "kept")
    monkeypatch.chdir(tmp_path)
    before = run("claims")
    assert before.exit_code == 0
    assert "laptop scale, shipped, cpu: holds" in before.stdout
    assert "2 of these verdicts rest on shipped evidence." in before.stdout
    line = json.loads(run("claims", "--json").stdout)[0]
    assert (line["status"], line["findings"][0]["shipped"]) == ("holds", True)
    assert line["findings"][0]["done"] == done - 1
    left_out = "1 more units of other settings are left out"  # DrawRegular with 20 strings
    assert left_out in line["findings"][0]["notes"]

    brought = run("import", "exact_heads.laptop", "--out", here)
    assert brought.exit_code == 0, brought.output
    assert f"{done} units brought in" in brought.stdout
    again = run(*small, "--seeds", "1", "--out", here)
    assert again.exit_code == 0, again.output
    assert "shipped, cpu" not in again.stdout  # all of it is a part of this run
    assert "imported)" in (tmp_path / "here" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["export"], "there are no results in"),
        (["import", "no.paper.json"], "there is no file no.paper.json (no rows came with"),
    ],
)
def test_mistakes_about_kept_rows_are_one_sentence(arguments, sentence, tmp_path):
    result = run(*arguments, "--out", str(tmp_path / "runs"))
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "runs").exists()


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
        (["run", "exact_heads", "--device", "cuda:9"], "cuda:9"),
    ],
)
def test_mistakes_before_a_run_are_one_sentence(arguments, sentence, tmp_path):
    result = run(*arguments, "--scale", "smoke", "--workers", "0", "--out", str(tmp_path / "runs"))
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert "Traceback" not in result.output


def test_claims_before_anything_was_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("claims")
    assert result.exit_code == 0
    assert f"{COUNTED} not run yet" in result.stdout
    assert run("report", "--to", "page.html").exit_code == 0
    assert "<html" in (tmp_path / "page.html").read_text()
    elsewhere = run("claims", "--out", "typo")
    assert elsewhere.exit_code == 2
    assert "there are no results in typo" in elsewhere.stderr


def test_json_has_no_infinity(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN_STUDY)
    result = run_own(file, "--seeds", "1", "--json")

    def refuse(name):
        raise AssertionError(name)

    (line,) = json.loads(result.stdout, parse_constant=refuse)
    (check,) = line["findings"][0]["checks"]
    assert (line["status"], check["low"], check["high"]) == ("undecided", None, None)


OWN_STUDY = """
from dataclasses import dataclass
from triptych.core.estimates import mean
from triptych.studies.api.decide import above, at_least, decide
from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Claim, Scale, Settings, Study, Unit

@dataclass(frozen=True)
class Trial(Unit):
    a: int

@dataclass(frozen=True)
class Gain:
    seed: int
    gain: float

def units(settings):
    return [Trial(1, seed=seed) for seed in range(settings.seeds)]

def run(unit, bench):
    yield Gain(unit.seed, -1.0 - 0.1 * unit.seed)

def judge(rows):
    gains = [row.gain for row in rows.of(Gain)]
    if not gains:
        return decide(needs=[at_least("trials", 0, 1)])
    return decide(above("my own gain", mean(gains), 0.0, published=2.0))

def draw(rows):
    gains = [row.gain for row in rows.of(Gain)]
    return Figure("gains", "My gains", [Panel([Series("g", "ours", gains, gains)], "x", "y")])

STUDY = Study(
    name="mine",
    question="Is it so?",
    settings={Scale.SMOKE: Settings(), Scale.LAPTOP: Settings(seeds=3)},
    units=units,
    run=run,
    rows=(Gain,),
    claims=[Claim("mine.gain", judge, [[]], title="There is a gain")],
    figures=[draw],
)
"""


def run_own(file, *more, scale="laptop"):
    out = str(file.parent / "runs")
    return run("run", str(file), "--scale", scale, "--workers", "0", "--out", out, *more)


def test_a_study_of_ones_own_and_its_claim(tmp_path):
    """Judged, listed apart, and in the report also when another study runs and the file is gone."""
    file, page = tmp_path / "mine.py", tmp_path / "runs" / "report.html"
    file.write_text(OWN_STUDY)
    result = run_own(file)
    assert result.exit_code == 1, result.output
    assert "Your own study mine" in result.stdout
    assert "FAILS  mine.gain  There is a gain" in result.stdout
    assert "my own gain" in result.stdout
    assert "Your own claims: 0 holds, 1 fails, 0 undecided." in result.stdout
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


def test_a_defect_keeps_its_traceback_and_a_mistake_does_not(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN_STUDY.replace("def units(settings):", "def units(settings):\n    int('x')"))
    defect = run_own(file)
    assert isinstance(defect.exception, ValueError)
    assert defect.exit_code == 1
    mistake = run("run", "no_such_study")
    assert (mistake.exit_code, "Traceback" in mistake.output) == (2, False)
    shown = run("run", "no_such_study", "--debug")
    assert shown.exit_code == 2
    assert "Traceback" in shown.stderr
    assert "UserError: there is no study" in shown.stderr


def test_verdicts_are_told_also_when_the_report_cannot_be_written(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text(OWN_STUDY)
    (tmp_path / "runs" / "report.html").mkdir(parents=True)
    result = run_own(file)
    assert "my own gain" in result.stdout
    assert result.exit_code == 2
    assert "the report cannot be written to" in result.stderr


def test_figures_are_written_as_files_that_stand_alone(tmp_path):
    folder = str(tmp_path / "runs")
    assert run("run", "exact_tuning", "--scale", "smoke", "--out", folder).exit_code == 0
    done = run("report", "--out", folder, "--figures", str(tmp_path / "figures"))
    assert done.exit_code == 0
    assert "1 figures in" in done.output
    (picture,) = (tmp_path / "figures").iterdir()
    assert picture.name == "exact_tuning-smoke-exact_tuning.svg"
    assert picture.read_text().startswith("<svg")
