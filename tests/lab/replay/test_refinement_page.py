"""The replay of a refinement: every step is on the page, escaped, and the command writes it."""

import re
from html.parser import HTMLParser

import pytest
import torch
from tests.support.refusals import refused
from typer.testing import CliRunner

from triptych.core.validation import UserError
from triptych.inference.chains.refinement import refine
from triptych.lab.cli.app import app
from triptych.lab.replay.refinement_page import lines_of, render_refinement, write_refinement
from triptych.lab.replay.refinements import TASKS, IdealTranslator, replayed

EVIL = "</td><script>document.title='broken'</script>"


class Writes:
    """Writes 0 0 after 1 2, and keeps everything else."""

    def log_probs(self, hypotheses, lengths):
        wanted = hypotheses.clone()
        wanted[(hypotheses == torch.tensor([1, 2])).all(-1)] = 0
        return torch.nn.functional.one_hot(wanted, 3).double().log()


def recorded(steps=3):
    return refine(Writes(), [[1, 2], [2, 1]], [2, 2], steps=steps, record=True)


def tables(page):
    """The text of every cell, by table and line."""
    found = []
    for table in re.findall(r"<table.*?</table>", page, re.S):
        lines = re.findall(r"<tr>(.*?)</tr>", table, re.S)
        found.append([re.findall(r"<b>(.*?)</b>", line) for line in lines])
    return found


def test_every_step_is_on_the_page():
    """Row 0: 1 2 becomes 0 0, of which the second goes back to 2; then 0 2 stays."""
    page = render_refinement(recorded(), [2, 2], names=["a", "b", "c"], headings=["one", "two"])
    first, second = tables(page)
    assert first == [["b", "c"], ["a", "a"], ["a", "c"], ["a", "c"]]
    assert second == [["c", "b"], ["c", "b"], ["c", "b"], ["c", "b"]]
    assert "100 → c" in page
    assert "refined-new refined-twice refined-replaced" in page
    assert page.count('class="refined-ended"') == 2  # two tokens of the row that had stopped
    assert "<h2>one</h2>" in page
    assert page.count('class="steps" tabindex="0"') == 2  # scrolls with the keys where it is narrow


def test_the_page_escapes_what_it_shows_and_is_closed():
    page = render_refinement(
        recorded(), [2, 2], names=[EVIL] * 3, title=EVIL, about=EVIL, headings=[EVIL] * 2
    )
    assert "<script" not in page

    left = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag != "meta":
                left.append(tag)

        def handle_endtag(self, tag):
            assert left.pop() == tag

    Tags().feed(page)
    assert left == []


def test_the_same_as_text():
    assert lines_of(recorded(), [2, 2], ["a", "b", "c"]) == [
        "start   b c",
        "step 1  a a",
        "step 2  a c",
        "result  a c",
        "start   c b",
        "step 1  c b",
        "result  c b",
    ]


@pytest.mark.parametrize("task", TASKS)
def test_ready_made_sentences(task):
    made = replayed(task, rows=3, seed=1)
    assert len(made.lines()) == 3
    assert len(made.sentences.names) == made.sentences.law.vocab_size
    law = made.sentences.law
    answer = IdealTranslator(law).log_probs(made.refined.tokens, made.lengths)
    assert torch.allclose(answer.exp().sum(-1), torch.ones(3, law.length).double())


def test_the_command_writes_the_page(tmp_path):
    page = tmp_path / "page.html"
    words = ["replay", "refinement", "--rows", "2", "--steps", "3", "--out", str(page)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert f"Open {page}" in done.output
    assert done.output.count("passes of the decoder") == 2
    assert len(tables(page.read_text())) == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--task", "order"], "did you mean orders"),
        (["--steps", "many"], "steps is 'many'"),
        (["--set", "stutter=blank"], "stutter is 'blank'"),
        (["--set", "speed=2"], "no option 'speed'"),
        (["--set", "speed"], "OPTION=VALUE"),
        (["--set", "sample=maybe"], "yes or no"),
    ],
)
def test_wrong_words_are_refused_in_a_sentence(words, sentence, tmp_path, unchecked_shapes):
    out = str(tmp_path / "page.html")
    done = CliRunner().invoke(app, ["replay", "refinement", "--out", out, *words])
    assert done.exit_code == 2
    assert sentence in " ".join(done.output.split())


def test_wrong_input_is_refused_in_a_sentence(tmp_path, unchecked_shapes):
    with pytest.raises(UserError, match="record=True"):
        render_refinement(refine(Writes(), [[0, 1]], [2], steps=1), [2])
    with refused("refined"):
        render_refinement("a", [2])
    with refused("lengths"):
        render_refinement(recorded(), [2])
    with refused("names"):
        write_refinement(recorded(), tmp_path / "a.html", [2, 2], names=["a"])
    assert not list(tmp_path.iterdir())
