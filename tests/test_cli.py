import json
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
        ("def examples():\n    return {'a': object()}\n", "log_prob"),
        ("import not_a_module_at_all\n", "not_a_module_at_all"),
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


def test_a_gpu_that_is_not_there():
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    result = run("verify", "--device", "cuda")
    assert result.exit_code == 2
    assert "sees no GPU" in result.stderr


def test_list_and_env():
    rows = json.loads(run("list", "--json").stdout)
    assert {"hmm", "memory_hmm", "topics", "dyck", "cfg", "ising", "parity"} <= {
        row["structure"] for row in rows
    }
    assert "[wei, 3]" in run("list").stdout
    facts = json.loads(run("env", "--json").stdout)
    assert facts["triptych"] == __version__
    assert "threads" in run("env").stdout


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
    for command in ("verify", "reproduce", "list", "env"):
        assert "Example: triptych" in run(command, "--help").stdout
    assert run("--version").stdout.strip() == __version__


def test_an_unknown_option_explodes():
    assert run("verify", "--devise", "cpu").exit_code == 2
