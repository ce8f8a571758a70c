import json
import re
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from triptych import __version__
from triptych.lab.cli import app

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
    monkeypatch.setattr("triptych.lab.evidence.folder", lambda: None)


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_verify_a_file_of_ones_own(tmp_path):
    file = tmp_path / "good.py"
    file.write_text(GOOD)
    result = run("verify", str(file))
    assert result.exit_code == 0
    assert "7 of 7 laws hold." in result.stdout
    rows = json.loads(run("verify", str(file), "--json").stdout)
    assert {row["module"] for row in rows} == {"good"}
    assert all(row["holds"] for row in rows)


def test_a_failing_law_is_named_and_sets_the_exit_code(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    result = run("verify", str(file))
    assert result.exit_code == 1
    assert "FAILS: next token equals the table" in result.stdout


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "no such file"),
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
    assert "could not be checked: TypeError: object has no vocab_size" in " ".join(
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
    "report",
    "export",
    "import",
    "list",
    "env",
    "trace",
)


def test_help_is_instant_and_has_examples():
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "triptych", "--help"], capture_output=True, text=True, check=True
    )
    assert time.perf_counter() - started < 2.0  # 0.2 s on a quiet machine
    assert "verify" in done.stdout
    imported = subprocess.run(
        [sys.executable, "-c", "import sys, triptych.lab.cli; print('torch' in sys.modules)"],
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
    "source",
    "title",
    "scale",
    "verdict",
    "because",
    "published",
    "measured",
    "study",
    "seconds",
    "basis",
    "kept",
]


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
    assert len(told) == 92
    assert list(told[0]) == FIELDS
    verdicts = {line["id"]: line["verdict"] for line in told}
    assert verdicts["wei.thm-3.3"] == "holds"
    assert verdicts["li.tab-3.1"] == "not run yet"
    page.unlink()
    assert run("report", "--out", str(out)).exit_code == 0
    assert page.exists()


def test_kept_rows_from_one_folder_to_another(tmp_path, monkeypatch):
    """Run, export, and go on from the file elsewhere; the verdicts are shown as kept."""
    there, here, kept = (str(tmp_path / name) for name in ("there", "here", "kept"))
    small = ["run", "exact_heads", "--scale", "smoke", "--workers", "0"]
    run(*small, "--seeds", "1", "--out", there)
    told = run("export", "--scale", "smoke", "--out", there, "--to", kept)
    assert told.exit_code == 0, told.output
    file = tmp_path / "kept" / "exact_heads.smoke.json"
    done = len(json.loads(file.read_text())["units"])
    assert told.stdout.strip() == f"{file}: {done} units, {done} of them new"

    monkeypatch.setattr("triptych.lab.evidence.folder", lambda: tmp_path / "kept")
    monkeypatch.chdir(tmp_path)
    before = run("claims")
    assert before.exit_code == 0
    assert "smoke, kept" in before.stdout
    assert "on cpu: both sides agree" in before.stdout
    assert "Verdicts that rest on kept rows alone: 3." in before.stdout
    line = json.loads(run("claims", "--json").stdout)[0]
    assert (line["verdict"], line["basis"], line["kept"]["done"]) == ("holds", "kept", done)

    brought = run("import", "exact_heads.smoke", "--out", here)
    assert brought.exit_code == 0, brought.output
    assert f"{done} units brought in; {done} to run: triptych run exact_heads" in brought.stdout
    again = run(*small, "--out", here)
    assert again.exit_code == 0
    assert "smoke, kept" not in again.stdout  # all of it is a part of this run
    assert f"({done} imported)" in (tmp_path / "here" / "report.html").read_text()


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
        (["run", "exact_heads", "--set", "vocab=x"], "not of type int"),
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
    assert "92 not run yet" in result.stdout
    assert run("report", "--to", "page.html").exit_code == 0
    assert "<html" in (tmp_path / "page.html").read_text()
    elsewhere = run("claims", "--out", "typo")
    assert elsewhere.exit_code == 2
    assert "there are no results in typo" in elsewhere.stderr


def test_units_that_fail_are_told(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text(OWN_STUDY.replace('[{"seed": unit.seed}]', "1 / 0"))
    result = run(
        "run", str(file), "--scale", "smoke", "--workers", "0", "--out", str(tmp_path / "runs")
    )
    assert result.exit_code == 1
    assert "1 units failed" in result.stderr


def test_json_has_no_infinity(tmp_path):
    result = run(
        "run",
        "query_complexity",
        "--scale",
        "smoke",
        "--set",
        "runs=1",
        "--set",
        "depths=2",
        "--workers",
        "0",
        "--out",
        str(tmp_path / "runs"),
        "--json",
    )

    def refuse(name):
        raise AssertionError(name)

    told = {line["id"]: line for line in json.loads(result.stdout, parse_constant=refuse)}
    assert told["li.prop-3.1.1"]["verdict"] == "undecided"
    assert "changed: depths, runs" in told["li.prop-3.1.1"]["because"]


OWN_STUDY = """
from triptych.core.estimates import Outcome
from triptych.studies.study import Claim, Scale, Settings, Study, Unit, Verdict

def judge(rows):
    return Verdict(Outcome.FAILS if rows else Outcome.UNDECIDED, "it is not so")

STUDY = Study(
    name="mine",
    about="Is it so?",
    settings={Scale.SMOKE: Settings()},
    units=lambda settings: [Unit({"a": 1}, seed) for seed in range(settings.seeds)],
    run=lambda unit, bench: [{"seed": unit.seed}],
    claims=[Claim("wei.prop-3.4", judge, [[{}]])],
)
"""


def test_a_study_of_ones_own_whose_claim_fails(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN_STUDY)
    result = run(
        "run", str(file), "--scale", "smoke", "--workers", "0", "--out", str(tmp_path / "runs")
    )
    assert result.exit_code == 1, result.output
    assert "FAILS" in result.stdout
    assert "it is not so" in (tmp_path / "runs" / "report.html").read_text()


def test_figures_are_written_as_files_that_stand_alone(tmp_path):
    folder = str(tmp_path / "runs")
    assert run("run", "exact_tuning", "--scale", "smoke", "--out", folder).exit_code == 0
    done = run("report", "--out", folder, "--figures", str(tmp_path / "figures"))
    assert done.exit_code == 0
    assert "1 figures in" in done.output
    (picture,) = (tmp_path / "figures").iterdir()
    assert picture.name == "exact_tuning-smoke-exact_tuning.svg"
    assert picture.read_text().startswith("<svg")
