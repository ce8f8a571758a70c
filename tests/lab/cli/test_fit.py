"""`triptych fit`: tables with gaps, the file that is written and read again, and every mistake."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
from tests.support.refusals import refused
from typer.testing import CliRunner

from triptych.apps.fit.fitting import named
from triptych.apps.fit.reading import read_table
from triptych.lab.cli.app import app
from triptych.structures import saved
from triptych.structures.cfg import CFG
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.structures.ising import Ising
from triptych.structures.markov import Markov
from triptych.structures.topics import LDA

PAGE = (Path(__file__).parents[3] / "docs" / "fit.md").read_text()


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def call(*options):
    return CliRunner().invoke(app, ["fit", *map(str, options)])


def sentence(done):
    assert done.exit_code == 2, done.output
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("triptych: ")]
    return line


def write(name, *lines):
    Path(name).write_text("\n".join(lines))
    return name


def test_the_commands_of_the_page_run():
    """The first Python block writes the table; then every command, in order."""
    first = re.search(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)[1]
    exec(compile(first, "fit.md", "exec"), {})  # our own text, not a model's
    commands = [
        line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
        for line in block.splitlines()
    ]  # fmt: skip
    assert [command.split()[:2] for command in commands] == [["triptych", "fit"]] * 2
    for command in commands:
        done = CliRunner().invoke(app, command.split()[1:])
        assert done.exit_code == 0, done.output
    model = saved.load("mood.json")
    assert model.vocabulary == ("bad", "fair", "good")
    assert model.structure.states == 2
    assert model.about["fit"]["converged"]
    emission = model.structure.emission[:, [0, 2]]  # one state is mostly bad, the other mostly good
    assert sorted(emission.argmax(1).tolist()) == [0, 1]
    done = CliRunner().invoke(app, ["theorems", "mood.json"])
    assert done.exit_code == 0, done.output


def test_a_wide_table():
    """Gaps, lengths, quotes and a mark of its own; the worked value of `read_table`."""
    table = read_table(Path(write("a.csv", "a,,b", "b")))
    assert table[:2] == ([[0, None, 1], [1]], ("a", "b"))
    write("b.csv", "x;y;z", '"2";?;10;;', "", ";10", "?;?")
    table = read_table(Path("b.csv"), header=True, missing=["?"])
    assert table[:2] == ([[0, None, 1], [None, 1]], ("2", "10"))  # numbers in their own order
    assert table.hidden == 2


def test_what_looks_odd_about_a_file_is_said(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text("day1,day2\nrain,sun\n\nsun,Sun\nrain,\n")
    notes = read_table(file).notes
    assert len(notes) == 3  # an empty line, names of columns, sun and Sun
    assert len(read_table(file, header=True).notes) == 2
    file.write_text("rain,sun\nsun,rain\nsun\n")
    assert read_table(file).notes == ()
    file.write_text("person,mood\nann,good\n,bad\n")
    with refused("file"):
        read_table(file, sequence="person", token="mood")


def test_a_long_table():
    write("days.csv", "who,day,mood", "ann,1,good", "bob,1,bad", "ann,2,", "ann,3,bad", "bob,2,NA")
    table = read_table(Path("days.csv"), sequence="who", token="mood", missing=["NA"])
    assert table[:2] == ([[1, None, 0], [0, None]], ("bad", "good"))


def test_a_fit_and_its_file_in_json():
    write("a.csv", "a,b,b", "b", "a,,b")
    done = call("a.csv", "--structure", "markov", "--json", "--restarts", "2")
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert record["vocabulary"] == ["a", "b"]
    names = [p["name"] for p in record["parameters"]]
    assert names == [
        "initial[a]",
        "initial[b]",
        *(f"transition[{x}, {y}]" for x in "ab" for y in "ab"),
    ]
    chain = saved.load("fitted.json").structure
    assert isinstance(chain, Markov)
    wanted = {p["name"]: p["value"] for p in record["parameters"]}
    assert chain.transition[0, 1].item() == pytest.approx(wanted["transition[a, b]"])
    done = call("a.csv", "--score", "fitted.json", "--json")
    score = json.loads(done.stdout)
    assert score["log_likelihood"] == pytest.approx(record["log_likelihood"])
    assert (score["rows"], score["tokens"]) == (3, 6)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (["--structure", "hmm", "--states", "1"], HMM),
        (
            ["--structure", "memory-hmm", "--values", "1", "--cells", "1", "--syntax", "1"],
            MemoryHMM,
        ),
        (["--structure", "cfg", "--symbols", "1"], CFG),
        (["--structure", "ising", "--prior", "1"], Ising),
    ],
)
def test_every_structure(options, kind):
    write("a.csv", "a,b,b", "b,a,a", "a,,b", "b,b,a", "a,a,b", "b,b,b", "a,a,a")
    done = call("a.csv", *options, "--restarts", "2", "--out", "made.json")
    assert done.exit_code == 0, done.output
    assert "Wrote made.json" in done.stdout
    model = saved.load("made.json")
    assert isinstance(model.structure, kind)
    score = call("a.csv", "--score", "made.json", "--json")
    assert math.isfinite(json.loads(score.stdout)["log_likelihood"])


def test_held_out_rows_compiled_programs_and_batches():
    write("a.csv", *(["a,b,a,b", "b,b,a,a", "a,a,a,b"] * 5))
    options = ["--states", "2", "--restarts", "2", "--held-out", "0.2", "--batch", "4"]
    done = call("a.csv", *options)
    assert done.exit_code == 0, done.output
    assert "held out" in done.stdout


def test_a_search_that_does_not_converge_has_exit_code_1():
    write("a.csv", *(["a,b,a,b,b,a", "b,b,a,a,a,a", "a,c,a,b,c,c"] * 5))
    done = call("a.csv", "--states", "3", "--restarts", "1", "--max-steps", "2")
    assert done.exit_code == 1, done.output
    assert "NO, after 2 steps" in done.stdout


def test_names_by_tokens():
    words = ("sun", "rain")
    assert named("emission[0, 1]", "hmm", words) == "emission[0, rain]"
    assert named("transition[0, 1]", "hmm", words) == "transition[0, 1]"
    assert named("transition[0, 1]", "markov", words) == "transition[sun, rain]"
    assert named("0 → 1", "cfg", words) == "0 → rain"
    assert named("0 → 1 1", "cfg", words) == "0 → 1 1"


@pytest.mark.usefixtures("unchecked_shapes")
def test_mistakes_get_one_sentence():
    write("a.csv", "a,b", "b,a")
    write("empty.csv", ",,", "")
    write("days.csv", "who,mood", "ann,good", "bob")
    assert "there is no file" in sentence(call("nothing.csv", "--states", "2"))
    assert "has no token" in sentence(call("empty.csv", "--states", "2"))
    assert "needs --states" in sentence(call("a.csv"))
    assert "--cells is no size" in sentence(call("a.csv", "--states", "2", "--cells", "2"))
    assert "must be one of" in sentence(call("a.csv", "--structure", "lstm"))
    assert "has no column" in sentence(call("a.csv", "--sequence", "x", "--token", "y"))
    assert "needs both" in sentence(call("a.csv", "--sequence", "x", "--states", "2"))
    assert "line 3 of days.csv" in sentence(
        call("days.csv", "--sequence", "who", "--token", "mood")
    )
    assert "method is" in sentence(call("a.csv", "--states", "2", "--method", "newton"))
    assert "cannot be read" in sentence(call("a.csv", "--score", "nothing.json"))
    assert "holds no JSON" in sentence(call("a.csv", "--score", "a.csv"))
    saved.save(
        Markov(torch.ones(1).double(), torch.ones(1, 1).double(), 2), "m.json", vocabulary=["c"]
    )
    assert "does not know" in sentence(call("a.csv", "--score", "m.json"))
    write("three.csv", "a,b,c")
    assert "an Ising model has two" in sentence(call("three.csv", "--structure", "ising"))


# ------------------------------------------------------------------ files

STRUCTURES = {
    "HMM": HMM.random(2, 3, 4, seed=0),
    "MemoryHMM": MemoryHMM.random(2, 2, 1, 2, 3, seed=0),
    "Markov": Markov(torch.tensor([0.25, 0.75]).double(), torch.eye(2).double(), 3),
    "CFG": CFG.from_rules({"S": {("S", "S"): 0.25, "a": 0.75}}, length=3),
    "LDA": LDA(2, 1, 0.1, 2, 3),
    "Ising": Ising.random(3, scale=0.5, seed=0),
}


@pytest.mark.parametrize("kind", STRUCTURES)
def test_a_structure_comes_back_to_the_last_bit(kind):
    structure = STRUCTURES[kind]
    saved.save(structure, "s.json", vocabulary=["x", "y"], about={"note": 1})
    found = saved.load("s.json")
    assert type(found.structure) is type(structure)
    tokens = structure.sample(5, 0)
    assert torch.equal(found.structure.log_prob(tokens), structure.log_prob(tokens))
    for name, value in vars(structure).items():
        if isinstance(value, torch.Tensor) and not name.startswith("_"):
            assert torch.equal(getattr(found.structure, name), value)
    assert found.vocabulary == ("x", "y")
    assert found.about == {"note": 1}


@pytest.mark.parametrize(
    "text",
    [
        "[]", "{}", '{"triptych": 1, "kind": "os", "fields": {}}',
        '{"triptych": 2, "kind": "HMM", "fields": {}, "vocabulary": []}',
        '{"triptych": 1, "kind": "HMM", "fields": {"initial": [1]}, "vocabulary": []}',
        '{"triptych": 1, "kind": "Markov", "fields": {"initial": [2.0], "transition": [[1]], '
        '"length": 2}, "vocabulary": []}',
        '{"triptych": 1, "kind": "Markov", "fields": {"initial": [1.0], "transition": [[1]], '
        '"length": 2}, "vocabulary": [1]}',
    ],
)  # fmt: skip
@pytest.mark.usefixtures("unchecked_shapes")
def test_another_file_is_refused(text):
    Path("s.json").write_text(text)
    with pytest.raises(ValueError, match=r"must|sums"):
        saved.load("s.json")
