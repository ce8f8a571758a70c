"""`triptych new`: every file that it writes works at once, and nothing is overwritten."""

import importlib.util
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.support.command_line import run
from tests.support.installed import package_in, put_on_path

from triptych.core.decoders import RecomputingDecoder
from triptych.core.enumeration import exact_law
from triptych.core.estimates import Status
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.lab.cli.new import NEXT, TEMPLATES, Kind, content
from triptych.lab.generating.rules import AskedRule, find_rule
from triptych.lab.running.discovery import load_study
from triptych.structures.uniform import Uniform
from triptych.verifiers.exact import Rule

KINDS = [kind.value for kind in Kind]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def loaded(file):
    spec = importlib.util.spec_from_file_location(f"new_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def follow(printed):
    """Run the first command that `new` prints."""
    command = re.findall(r"triptych (.*)$", printed, re.MULTILINE)[0]
    return run(*command.split())


@pytest.mark.parametrize("kind", KINDS)
def test_the_printed_command_passes(kind):
    told = run("new", kind, "my_own")
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("Wrote my_own.py.\n")
    done = follow(told.stdout)
    assert done.exit_code == 0, done.output
    expected = {"study": "my_own.near", "sampler": "keeps its promise"}.get(kind, "axioms hold.")
    assert expected in done.stdout


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")
@pytest.mark.parametrize("name", ["my_own", "rather_long_name_of_a_thing"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_file_is_short_and_passes_ruff(kind, name, tmp_path):
    """With the default rules of ruff, as a user without settings of his own has them."""
    run("new", kind, name)
    text = (tmp_path / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 70
    kinds = "|".join([*KINDS, *map(str.title, KINDS)])
    assert not re.search(rf"[Mm]y_?({kinds})\b", text)
    for command in (["check"], ["format", "--check"]):
        options = ["--isolated", "--no-cache", f"{name}.py"]
        if command[0] == "format":
            options += ["--line-length", "100"]
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *options], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout


def test_the_new_structure_has_its_worked_value(tmp_path):
    run("new", "structure", "my_chain")
    text = (tmp_path / "my_chain.py").read_text()
    assert "p(0, 0, 1) = 1/2 * 0.9 * 0.1 = 0.045" in text
    chain = loaded(tmp_path / "my_chain.py").MyChain(0.9, vocab_size=2, length=3)
    assert chain.log_prob(torch.tensor([[0, 0, 1]])).item() == pytest.approx(math.log(0.045))


def test_the_new_algorithm_has_the_law_of_its_weights(tmp_path):
    """Two fair bits, V = 1 after a first 0 and 1/4 after a first 1, 1 after both.

    The weights of the first bit are 1/2 and 1/8, so P(first bit is 0) = 4/5; with strength 1/2
    they are 1/2 and 1/4, and it is 2/3.
    """
    run("new", "algorithm", "my_walk")
    walk = loaded(tmp_path / "my_walk.py")
    assert walk.MyWalk.name == "my_walk"

    class Doubt:
        def log_value(self, prefix):
            doubted = (prefix[:, 0] == 1) & (prefix.shape[1] == 1)
            return torch.where(doubted, 0.25, 1.0).double().log()

    def law(**options):
        def draw(rng):
            decoder = RecomputingDecoder(Uniform(2, 2), 1)
            return (
                walk.MyWalk(**options).sample(decoder, Doubt(), length=2, rng=rng).completions()[0]
            )

        return exact_law(draw).probs

    assert law() == pytest.approx({(0, 0): 0.4, (0, 1): 0.4, (1, 0): 0.1, (1, 1): 0.1})
    assert law(strength=0.5)[0, 0] == pytest.approx(1 / 3)
    with pytest.raises(UserError, match="strength is -1.0; it must be at least 0"):
        law(strength=-1.0)


def test_the_new_verifier_is_asked_about_texts(tmp_path):
    run("new", "verifier", "even")
    rule = AskedRule(find_rule(f"{tmp_path / 'even.py'}:even"), 60.0)
    try:
        assert [rule("a"), rule("a", True), rule("aa", True)] == [1.0, 0.0, 1.0]
    finally:
        rule.close()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("len(text) < LENGTH or even", "even"),  # "a" could still become "aa"
        ("len(text) < LENGTH or even", 'text != "ab" or even'),
    ],
)
def test_a_verifier_that_refuses_too_early_fails_its_axioms(tmp_path, before, after):
    run("new", "verifier", "even")
    file = tmp_path / "even.py"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    done = run("axioms", "even.py")
    assert done.exit_code == 1
    assert "FAILS" in done.stdout


def test_the_new_algorithm_goes_on_where_no_token_has_a_value(tmp_path):
    run("new", "algorithm", "my_walk")
    decoder, nothing = RecomputingDecoder(Uniform(2, 3), 4), Rule(lambda x: not x)
    walk = loaded(tmp_path / "my_walk.py").MyWalk()
    walked = walk.sample(decoder, nothing, length=3, rng=TorchRng(0))
    assert walked.complete.all()


def test_the_new_algorithm_is_replayed_with_its_option(tmp_path):
    run("new", "algorithm", "my_walk")
    done = run("replay", "my_walk.py", "--strength", "2")
    assert done.exit_code == 0, done.output
    assert "strength\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}2.0" in Path("replay.html").read_text()


def test_the_new_study_is_judged_both_ways(tmp_path):
    run("new", "study", "my_first")
    study = load_study(tmp_path / "my_first.py")
    (claim,) = study.claims
    assert claim.verdict(claim.held_by).outcome is Status.HOLDS
    assert [claim.verdict(rows).outcome for rows in claim.refuted_by] == [Status.FAILS]
    assert claim.verdict([]).outcome is Status.UNDECIDED
    done = run("run", "my_first.py", "--workers", "0")
    assert (done.exit_code, "holds  my_first.near" in done.stdout) == (0, True), done.output
    assert "distance" in (tmp_path / "runs" / "report.html").read_text()


@pytest.mark.parametrize(
    ("name", "class_name"),
    [
        ("my_chain", "MyChain"),
        ("walk2", "Walk2"),
        ("MyOwn", "MyOwn"),
        ("table", "TableStructure"),  # the file imports Table
        ("none", "NoneStructure"),  # a word of Python
        ("exception", "ExceptionStructure"),
    ],
)
def test_the_class_is_named_after_the_file(name, class_name):
    text = content(Kind.structure, name)
    assert f"\nclass {class_name}:\n" in text
    assert f"triptych axioms {name}.py" in text
    compile(text, name, "exec")


def test_a_path_is_taken_as_it_is(tmp_path):
    (tmp_path / "own").mkdir()
    told = run("new", "structure", "own/chain.py")
    assert told.stdout.endswith("triptych axioms own/chain.py\n")
    assert (tmp_path / "own" / "chain.py").is_file()


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "mine.py").write_text("precious")
    for name in ("mine", "mine.py"):
        refused = run("new", "study", name)
        assert refused.exit_code == 2
        assert refused.stderr == (
            "triptych: mine.py exists already: choose another name, or move it away\n"
        )
    assert (tmp_path / "mine.py").read_text() == "precious"


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        ("structure", "2fast", "'2fast' cannot be the name of a structure: use letters"),
        ("structure", "a-b", "'a-b' cannot be the name"),
        ("structure", "class", "'class' cannot be the name"),
        ("structure", "", "cannot be the name"),
        ("structure", "_", "'_' cannot be the name"),
        ("structure", "torch", "there is a Python module torch already"),
        ("structure", "random", "there is a Python module random already"),
        ("study", "exact_gap", "exact_gap is a study of Triptych"),
        ("study", "who_wins", "who_wins is a study of Triptych"),
        ("study", "nowhere/mine", "there is no folder nowhere"),
    ],
)
def test_a_bad_name_is_refused_with_a_sentence(kind, name, sentence, tmp_path):
    refused = run("new", kind, name)
    assert refused.exit_code == 2
    assert sentence in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["target", "site-packages"])
def test_a_file_hides_no_package_wherever_that_was_installed(folder, tmp_path, monkeypatch):
    """`pip install --target FOLDER` puts packages outside of site-packages."""
    elsewhere = tmp_path.parent / f"{tmp_path.name}-{folder}" / folder
    package_in(elsewhere, "theirs")
    package_in(elsewhere.parent / "mine", "mine", installed=False)
    put_on_path(monkeypatch, elsewhere, elsewhere.parent / "mine")
    assert "there is a Python module theirs" in run("new", "structure", "theirs").stderr
    assert run("new", "structure", "mine").exit_code == 0


def test_an_unknown_kind_names_the_kinds():
    refused = run("new", "network", "mine")
    assert refused.exit_code == 2
    assert "'structure'" in refused.stderr


def test_every_kind_has_a_template_in_the_package():
    assert {file.stem for file in TEMPLATES.glob("*.py")} - {"__init__"} == set(KINDS)
    assert set(NEXT) == set(Kind)
    assert TEMPLATES.is_relative_to(Path(sys.modules["triptych"].__file__).parent)
