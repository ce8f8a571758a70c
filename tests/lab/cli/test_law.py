"""`triptych law`: verdicts, exit codes, and a sentence for what cannot be run."""

import json

import pytest
from typer.testing import CliRunner

from triptych.lab.cli.app import app

FILE = """
import random

target = {"a": 0.5, "b": 0.5}

def sampler():
    return random.choice("ab")

def loaded():
    return random.choices("ab", [2, 1])[0]

def summed():
    return "a" if random.random() + random.random() < 1 else "b"

def top_k(logits, top_k):
    import torch
    best = logits.topk(top_k)
    return best.indices[torch.multinomial(best.values.softmax(-1), 1)]

def without_top_k(logits, top_k):
    import torch
    return torch.multinomial(logits.softmax(-1), 1)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "my_sampler.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(app, ["law", *args])


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["my_sampler.py"], 0, "keeps its promise"),
        (["my_sampler.py:loaded"], 1, "breaks its promise"),
        (["my_sampler.py:summed"], 3, "not entered"),
        (["my_sampler.py:top_k", "--target", "top_k"], 0, "keeps its promise"),
        (["my_sampler:without_top_k", "--target", "top_k"], 1, "in the target"),
        (["my_sampler.py:loaded", "--target", "my_sampler.py:target"], 1, "my_sampler.py:10"),
        (["--list"], 0, "speculative_tree"),
    ],
)
def test_verdicts_and_exit_codes(run, args, code, words):
    done = run(*args)
    assert done.exit_code == code, done.output
    assert words in done.output


def test_recorded_verdicts(run):
    """All, those of a library, and one with the outcome that shows it."""
    everything = run("--released")
    assert everything.exit_code == 0
    assert len(everything.output.splitlines()) >= 104
    rows = json.loads(run("diffusers", "--released", "--json").output)
    assert {row["package"] for row in rows} == {"diffusers"}
    assert {row["verdict"] for row in rows} == {"keeps its promise", "breaks it"}
    one = run("diffusers step_correct default", "--released")
    assert "has probability" in one.output
    assert "docs/sampler-issues/" in one.output
    assert "1 sampler: 1 breaks it" in one.output


def test_a_release_that_is_not_the_judged_one_is_named(run, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0.1")
    assert "diffusers 0.0.1" in run("diffusers", "--released").output


def test_json(run):
    found = json.loads(run("my_sampler.py:loaded", "--json").output)
    assert found["verdict"] == "breaks its promise"
    assert found["distance"] == pytest.approx(1 / 6)
    assert found["exact"]
    assert found["nats"] > 0
    assert len(json.loads(run("--list", "--json").output)) >= 17


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "name a sampler"),
        (["difusers", "--released"], "nearest is 'diffusers'"),
        (["zzz", "--released"], "transformers, diffusers"),
        (["nowhere.py"], "no file"),
        (["my_sampler"], "names no function"),
        (["no_such_package:f"], "cannot be imported"),
        (["my_sampler.py:missing"], "no function"),
        (["my_sampler.py", "--target", "topk"], "nearest is 'top_k'"),
        (["my_sampler.py", "--target", "my_sampler.py:nothing"], "not there"),
        (["my_sampler.py", "--tolerance", "-1"], "tolerance"),
        (["my_sampler.py", "--budget", "0"], "budget"),
        (["my_sampler.py", "--target", "my_sampler.py:sampler"], "target"),
    ],
)
def test_what_cannot_be_run_is_a_sentence(run, args, words):
    done = run(*args)
    assert done.exit_code == 2, done.output
    assert words in done.output + done.stderr


def test_a_file_that_fails(run, tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0\n")
    done = run("broken.py")
    assert done.exit_code == 2
    assert "ZeroDivisionError" in done.stderr
