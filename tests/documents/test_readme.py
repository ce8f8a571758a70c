"""What the README and the pages of its tables say is run: blocks, commands, numbers."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.table import markdown
from triptych.lab.cli.app import app
from triptych.lab.running.discovery import find_studies
from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMAND_PAGE = (ROOT / "docs" / "commands.md").read_text()
SPEED = (ROOT / "docs" / "benchmarks.md").read_text()
STRUCTURES = (ROOT / "docs" / "exact-models.md").read_text()
LINES = 130


def blocks(language, page=README):
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def test_it_is_read_in_a_minute():
    assert len(README.splitlines()) <= LINES


def test_python_blocks_run_in_order(unchecked_shapes):
    namespace = {"__name__": "readme"}
    torch.manual_seed(0)
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)  # our own text, not a model's
    assert "hmm" in namespace


# All studies at once take a minute, and so do all examples; each study runs at smoke scale in
# test_studies, each example in test_structure_laws and test_sampler_laws; a report is drawn in
# test_report and test_evidence.
LONG = ("triptych axioms", "triptych report")
COMMANDS = [
    pytest.param(
        command,
        marks=pytest.mark.slow if command in LONG or "reproduce" in command else (),
    )
    for command in (
        line.split("#")[0].strip()
        for block in blocks("sh", README + COMMAND_PAGE)
        for line in block.splitlines()
        if line.startswith("triptych ")
    )
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which the study of the commands has been run at smoke scale."""
    folder = tmp_path_factory.mktemp("readme")
    with Store.open(folder / "runs") as store:
        run_study(Plan.of(find_studies()["exact_heads"], Scale.SMOKE), store=store, workers=0)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(command, place, monkeypatch, unchecked_shapes):
    streak = next(block for block in blocks("python", STRUCTURES) if "class Streak" in block)
    (place / "my_file.py").write_text(streak)
    hmm = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.2, 0.8]],
        "emission": [[1, 0], [0, 1]],
    }
    (place / "model.json").write_text(json.dumps(hmm))
    sampler = "import random\ntarget = {0: 0.5, 1: 0.5}\nsampler = lambda: random.randrange(2)\n"
    (place / "my_sampler.py").write_text(sampler)
    if not (place / "docs").exists():
        (place / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(place)
    # Bundled rows are judged in test_evidence; here they would be judged again for each command.
    if "--bibtex" not in command:  # it cites them
        monkeypatch.setattr("triptych.lab.results.evidence.folder", lambda: None)
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    # A published claim that fails is a finding, and exit code 1 says so.
    assert done.exit_code == 0 or (done.exit_code == 1 and " fail, " in done.stdout), done.output
    assert done.stdout.strip()


def test_the_program_runs_from_a_shell(tmp_path):
    """One command as a process of its own; the others run inside this one, which is faster."""
    program = Path(sys.executable).parent / "triptych"
    starts = {(sys.executable, "-m", "triptych", "env"): "torch"}
    if program.exists():
        starts[program, "--help"] = "Usage: triptych"  # without torch, which takes seconds to load
    for start, said in starts.items():
        done = subprocess.run(start, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        assert said in done.stdout


def test_make_targets_exist():
    targets = {t for block in blocks("sh") for t in re.findall(r"^make (\S+)", block, re.MULTILINE)}
    makefile = (ROOT / "Makefile").read_text()
    assert {"reproduce", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_the_benchmark_table_is_the_measured_one():
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    assert markdown(results["rows"]) in SPEED
    assert results["environment"]["threads"] == "1"


def test_the_ratios_of_the_front_are_the_measured_ones():
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text())["rows"]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| ([\d.]+) \|$", README.split("## Speed")[1], re.M)
    assert len(rows) == 6
    for what, peer, ratio in rows:
        measured = [
            row["ratio"]
            for row in results
            if row["what"].startswith(what) and row.get("peer", "").startswith(peer)
        ]
        digits = len(ratio.partition(".")[2])
        assert [f"{one:.{digits}f}" for one in measured] == [ratio], (what, peer)


def test_the_samplers_are_counted_as_they_were_held_to_their_promise():
    recorded = ROOT / "src" / "triptych" / "lab" / "laws" / "released.json"
    rows = json.loads(recorded.read_text())["rows"]
    libraries = {row["package"] for row in rows}
    assert f"{len(rows)} samplers of {len(libraries)} libraries" in README


def test_the_gpu_numbers_are_the_measured_ones():
    evidence = json.loads((ROOT / "evidence" / "core_cuda.json").read_text())
    assert evidence["laws_failing"] == []
    rates = [evidence[f"posterior_{n}"]["tokens_per_second_20000_rows"] for n in (10, 64)]
    assert all(225e6 < rate < 275e6 for rate in rates), "docs/benchmarks.md says 250 million"
    network = json.loads((ROOT / "evidence" / "network_cuda.json").read_text())
    neither, _, both, replayed = (round(row["ratio"], 1) for row in network)
    assert (neither, both, replayed) == (1.1, 1.1, 2.1), "docs/benchmarks.md says 1.1, 1.1 and 2.1"


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        prose = re.sub(r"`[^`\n]*`", "", prose)
        for target in re.findall(r"\]\(([^)#:]+)\)", prose):
            if target in (
                "generated/ledger.md",
                "generated/glossary.md",
            ):  # `make docs` writes them
                continue
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_structures_named_exist():
    listed = re.findall(r"`(\w+)`", STRUCTURES.split("## All of them")[1].split("\n## ")[0])
    source = "\n".join(f.read_text() for f in (ROOT / "src/triptych/structures").rglob("*.py"))
    for name in listed:
        assert re.search(rf"(class|def) {name}\b", source + " class hidden"), name
