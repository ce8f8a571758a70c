"""`triptych trap`: make, score and draw."""

import json

import pytest
from tests.support.command_line import run

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

METHOD = """\
def needs_pattern(network):
    return float(network.patterns.max(-1).values.mean())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("trap")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr("triptych.lab.traps.pairs.TESTED", 10)  # sentences
    (place / "mine.py").write_text(METHOD)
    done = run("trap", "make", str(place / "trap"), "--pairs", "1", "--trained", "0")
    monkeypatch.undo()
    assert done.exit_code == 0, done.output
    assert "Wrote 10 networks to" in done.stdout
    assert "same attention, one ignores it" in done.stdout
    return place


def test_a_method_is_scored_beside_baselines(folder, monkeypatch):
    done = run("trap", "score", str(folder / "mine.py"), "--trap", str(folder / "trap"))
    assert done.exit_code == 0, done.output
    for name in ("mine", "coin", "stack", "entropy", "ablation"):
        assert name in done.stdout
    assert "mine looked at: patterns." in done.stdout
    monkeypatch.setattr("triptych.lab.traps.scoring.baselines", list)
    found = run("trap", "score", str(folder / "mine.py"), "--trap", str(folder / "trap"), "--json")
    scores = json.loads(found.stdout)["scores"]
    mine = {row["kind"]: row["pairs"]["value"] for row in scores if row["method"] == "mine"}
    assert mine["pattern"] == mine["function"] == 0.0


def test_mistakes_get_one_sentence(folder, tmp_path):
    def sentence(*arguments):
        done = run("trap", *map(str, arguments))
        assert done.exit_code == 2, done.output
        (line,) = done.stderr.splitlines()
        return line

    assert "there is no trap in" in sentence("score", folder / "mine.py", "--trap", tmp_path)
    assert "there is no file" in sentence("score", tmp_path / "missing.py")
    assert "pairs is 0; it must be at least 1" in sentence("make", tmp_path / "a", "--pairs", 0)


@pytest.mark.slow
def test_pictures_stand_on_white(tmp_path):
    done = run("trap", "pictures", str(tmp_path))
    assert done.exit_code == 0, done.output
    files = sorted(tmp_path.glob("*.svg"))
    assert [file.stem for file in files] == [
        "trap-different-patterns",
        "trap-forgetting",
        "trap-same-attention",
    ]
    for file in files:
        assert 'style="fill: #ffffff"/>' in file.read_text()
    (tmp_path / "file").write_text("")
    assert "cannot be written to" in run("trap", "pictures", str(tmp_path / "file")).stderr
