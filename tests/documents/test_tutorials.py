"""The tutorials run as they stand: their Python blocks in order, and their pictures are there."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import transformers
from tests.support.fake_served import FakeServer
from tests.support.tiny_text_model import tiny_classifier, tiny_lm
from typer.testing import CliRunner

from triptych.core.estimates import Status
from triptych.inference.guided.algorithm import algorithms
from triptych.lab.cli.app import app
from triptych.lab.running.discovery import load_study
from triptych.lab.running.store import Store

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = [
    page for page in sorted(DOCS.glob("*.md")) if re.search(r"^```python$", page.read_text(), re.M)
]
each_tutorial = pytest.mark.parametrize("page", TUTORIALS, ids=[page.stem for page in TUTORIALS])


def test_there_are_tutorials():
    assert "tuning" in {page.stem for page in TUTORIALS}


def save_models(folder):
    """The models of the pages: tiny ones with random weights, on printable letters."""
    letters = [chr(code) for code in range(32, 127)]
    lm = tiny_lm(length=60, letters=letters)
    lm.model.save_pretrained(folder / "my-model")
    lm.tokenizer.save_pretrained(folder / "my-model")
    tiny_classifier(letters=letters).save_pretrained(folder / "my-reward-model")
    lm.tokenizer.save_pretrained(folder / "my-reward-model")
    steps = tiny_classifier(
        labels=2, letters=letters, auto=transformers.AutoModelForTokenClassification
    )
    steps.save_pretrained(folder / "my-process-model")
    lm.tokenizer.save_pretrained(folder / "my-process-model")


def even(prefix):
    """Of the served model: every letter is as likely as another."""
    return [0.0] * 4 + [1 / 95] * 95


@each_tutorial
def test_python_blocks_run_in_order(page, tmp_path, monkeypatch, unchecked_shapes):
    if "my-model" in page.read_text():
        save_models(tmp_path)
    if "my-model" in page.read_text() or "write_text" in page.read_text():
        monkeypatch.chdir(tmp_path)
    served = (
        FakeServer(even, vocab_size=99, dialect="vllm", tokenizer=None)
        if "ServedLM(" in page.read_text()
        else nullcontext()
    )
    namespace = {"__name__": page.stem}
    torch.manual_seed(0)
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)
    with served as server:
        for block in blocks:
            block = block.replace("http://127.0.0.1:8000", getattr(server, "url", ""))
            exec(compile(block, page.name, "exec"), namespace)  # our own text, not a model's


def test_the_table_of_algorithms_is_that_of_their_records():
    page = (DOCS / "guide-your-model.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", page, re.M)
    rows = {name: (promise.replace("\\|", "|"), when) for name, promise, when in rows}
    known = algorithms()
    assert [name for name in rows if name in known] == list(known)
    assert {name: rows[name][0] for name in known} == {n: a.promise for n, a in known.items()}
    assert all(rows[name][1] for name in known)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_pictures_and_links_are_there(page):
    for target in re.findall(r"\]\(([^()#]+)\)", page.read_text()):
        written = target in ("generated/ledger.md", "generated/glossary.md")  # by `make docs`
        if "://" not in target and not written:
            assert (page.parent / target).exists(), target


def test_the_first_commands_of_the_page_work(tmp_path, monkeypatch):
    """`triptych new study`, and a run of what it wrote."""
    page = (DOCS / "your-own-study.md").read_text()
    commands = re.search(r"```sh\n(.*?)^```$", page, re.M | re.S)[1].splitlines()
    assert [command.split()[1] for command in commands] == ["new", "run"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("triptych.lab.results.evidence.folder", lambda: None)
    for command in commands:
        done = CliRunner().invoke(app, command.split("#")[0].split()[1:])
        assert done.exit_code == 0, done.output


def test_the_study_of_ones_own_does_what_the_page_says(tmp_path, monkeypatch):
    """The file of the page, run at laptop scale: the claim holds, and the page shows its line."""
    page = (DOCS / "your-own-study.md").read_text()
    (tmp_path / "my_study.py").write_text(re.search(r"```python\n(.*?)^```$", page, re.M | re.S)[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "triptych.lab.results.evidence.folder", lambda: None
    )  # nothing bundled to draw
    done = CliRunner().invoke(app, ["run", "my_study.py", "--workers", "0"])
    assert done.exit_code == 0, done.output
    shown = re.search(r"^Your own study samples\n.*?(?=^```)", page, re.M | re.S)[0]
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    printed = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert [line for line in lines if line not in printed] == []
    study = load_study(tmp_path / "my_study.py")
    (claim,) = study.claims
    assert claim.verdict(claim.held_by).outcome is Status.HOLDS
    assert claim.verdict(claim.refuted_by[0]).outcome is Status.FAILS
    with Store.read(tmp_path / "runs") as store:
        assert len(store.frame("samples", kind="Drawn")) == 80
