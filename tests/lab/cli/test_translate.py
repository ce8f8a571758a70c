"""`triptych teach` and `translate` on toy pairs; every mistake gets one sentence."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from triptych.lab.cli.app import app

pytest.importorskip("tokenizers")

SMALL = ["--width", "16", "--layers", "1", "--vocabulary", "60", "--length", "12", "--steps", "3"]


def call(*options: object, text: str | None = None):
    return CliRunner().invoke(app, [str(option) for option in options], input=text)


def sentence(done) -> str:
    assert done.exit_code == 2, done.output
    return " ".join(done.output.split())


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    words = [f"{a}{b}" for a in "bdfg" for b in "aeiou"]
    lines = [[words[(i * 7 + i * j) % 20] for j in range(2 + i % 4)] for i in range(40)]
    (folder / "train.en").write_text("".join(" ".join(line) + "\n" for line in lines))
    (folder / "train.de").write_text("".join(" ".join(line[::-1]) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def translators(pairs, tmp_path_factory) -> dict[str, Path]:
    """A causal one, and a parallel one that learns from it."""
    folder = tmp_path_factory.mktemp("translators")
    sides = ["--data", pairs, "--source", "en", "--target", "de", *SMALL]
    teacher, student = folder / "teacher", folder / "student"
    done = call("teach", *sides, "--decoder", "causal", "--out", teacher)
    assert done.exit_code == 0, done.output
    assert "40 of 40 pairs" in done.output
    done = call("teach", *sides, "--teacher", teacher, "--out", student)
    assert done.exit_code == 0, done.output
    assert "translating 40 sentences with the teacher" in done.output
    return {"teacher": teacher, "student": student}


@pytest.mark.parametrize("which", ["teacher", "student"])
def test_lines_in_lines_out(translators, which) -> None:
    done = call("translate", "--model", translators[which], text="ba de fi\n\ngo gu\n")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert lines[1] == ""


def test_show_writes_every_step(translators) -> None:
    options = ["translate", "--model", translators["student"], "--steps", "3"]
    plain, shown = (call(*options, *more, text="ba de fi\n") for more in ([], ["--show"]))
    assert shown.stdout.strip() == plain.stdout.strip()
    assert "start" in shown.stderr
    assert "step 1" in shown.stderr


def test_it_goes_on_where_it_was_stopped(translators, pairs) -> None:
    """The checkpoint is at the last step, so the same command ends at once, with the same."""
    weights = (translators["teacher"] / "weights.safetensors").read_bytes()
    sides = ["--data", pairs, "--source", "en", "--target", "de", *SMALL]
    done = call("teach", *sides, "--decoder", "causal", "--out", translators["teacher"])
    assert done.exit_code == 0, done.output
    assert (translators["teacher"] / "weights.safetensors").read_bytes() == weights


def test_mistakes_get_one_sentence(translators, pairs, tmp_path) -> None:
    student, teacher = translators["student"], translators["teacher"]
    assert "holds no translator" in sentence(call("translate", "--model", tmp_path, text="ba\n"))
    long = call("translate", "--model", student, text="ba\n" + "ba de fi " * 9 + "\n")
    assert "line 2 has" in sentence(long)
    assert "at most 12" in sentence(long)
    assert "writes from left to right" in sentence(
        call("translate", "--model", teacher, "--show", text="ba\n")
    )
    assert "steps is 0" in sentence(
        call("translate", "--model", student, "--steps", 0, text="ba\n")
    )
    sides = ["--data", pairs, "--out", tmp_path / "x"]
    gone = call("teach", *sides, "--source", "fr", "--target", "de")
    assert "has no file train.fr" in sentence(gone)
    (tmp_path / "train.en").write_text("ba\nde\n")
    (tmp_path / "train.de").write_text("ba\n")
    uneven = call(
        *("teach", "--data", tmp_path, "--out", tmp_path / "x"),
        *("--source", "en", "--target", "de"),
    )
    assert "the source has 2 lines and the target 1" in sentence(uneven)
    parallel = call(
        "teach", *sides, "--source", "en", "--target", "de", *SMALL, "--teacher", student
    )
    assert "distil from an autoregressive one" in sentence(parallel)
    (tmp_path / "broken").mkdir()
    for name in ("weights.safetensors", "shape.json", "vocabulary.json"):
        (tmp_path / "broken" / name).write_text("{}")
    assert "cannot be read" in sentence(
        call("translate", "--model", tmp_path / "broken", text="ba\n")
    )
