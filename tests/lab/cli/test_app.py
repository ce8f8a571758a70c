"""The program: help, version, errors."""

import json
import subprocess
import sys
import time

from tests.support.command_line import OWN_STUDY, run, run_own

from triptych import __version__

COMMANDS = (
    "axioms",
    "theorems",
    "law",
    "bench",
    "new",
    "reproduce",
    "run",
    "paper",
    "claims",
    "rows",
    "report",
    "serve",
    "figures",
    "export",
    "import",
    "list",
    "env",
    "replay",
    "generate",
    "topics",
    "trap",
    "translate",
    "teach",
    "fetch",
)


def test_help_is_instant_and_has_examples():
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "triptych", "--help"], capture_output=True, text=True, check=True
    )
    assert time.perf_counter() - started < 2.0  # 0.2 s on a quiet machine
    assert "axioms" in done.stdout
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


def test_the_list_of_commands_has_whole_sentences():
    """The short help of a command is cut with "..." when its first sentence is too long."""
    listed = run("--help").stdout.split("Commands:")[1].strip().splitlines()
    cut = {line.split()[0] for line in listed if line.endswith("...")}
    assert cut <= {"replay"}, "its sentence is too long"


def test_an_unknown_option_explodes():
    assert run("axioms", "--devise", "cpu").exit_code == 2


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
