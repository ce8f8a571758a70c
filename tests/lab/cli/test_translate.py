"""`triptych teach` and `translate` on toy pairs; every mistake gets one sentence."""

import gzip
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support import gpus
from tests.support.kills import kills
from typer.testing import CliRunner

from triptych.core.errors import UserError
from triptych.core.files import lock_folder
from triptych.lab.cli.app import app
from triptych.models.translators import load_translator
from triptych.models.vocabulary import Vocabulary
from triptych.studies.refinement.shared import teaching
from triptych.studies.refinement.shared.teaching import Lesson, teach
from triptych.training.translation import fit_translator

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


def test_two_trainings_do_not_share_a_folder(translators, pairs) -> None:
    sides = ["--data", pairs, "--source", "en", "--target", "de", *SMALL]
    with lock_folder(translators["teacher"]):
        done = call("teach", *sides, "--decoder", "causal", "--out", translators["teacher"])
    assert "another run is using this folder" in sentence(done)


@pytest.mark.no_gpu
def test_a_kill_at_any_moment_of_teach_loses_no_training(pairs, tmp_path, monkeypatch) -> None:
    """Also of a finished one that runs again. In between a folder holds one translator or none."""

    def train(*given, **options):
        return fit_translator(*given, **options | {"checkpoint_every": 2})

    monkeypatch.setattr(teaching, "fit_translator", train)
    lesson = Lesson(causal=True, steps=4, vocabulary=60, width=16, layers=1, length=12)
    texts = [(pairs / f"train.{side}").read_text().splitlines() for side in ("en", "de")]

    def taught(out: Path) -> bytes:
        teach(*texts, out, lesson)
        return (out / "weights.safetensors").read_bytes()

    whole, finished = taught(tmp_path / "whole"), tmp_path / "whole"
    assert {path.name for path in finished.iterdir()} == {
        "weights.safetensors",
        "vocabulary.json",
        "shape.json",
        "training",
    }
    for moment in kills(lambda moment: taught(tmp_path / str(moment))):
        out = tmp_path / str(moment)
        with suppress(UserError):  # there is none yet
            load_translator(out)
        assert taught(out) == whole, moment
        load_translator(out)
    for moment in kills(lambda _: taught(finished)):
        load_translator(finished)
        assert taught(finished) == whole, moment


def test_what_a_training_was_begun_with_may_be_damaged(translators, pairs, tmp_path) -> None:
    out = tmp_path / "copied"
    shutil.copytree(translators["teacher"], out)
    (out / "training" / "begun.json").write_text("[1]")
    sides = ["--data", pairs, "--source", "en", "--target", "de", *SMALL]
    said = sentence(call("teach", *sides, "--decoder", "causal", "--out", out))
    assert "begun.json" in said
    assert "choose another --out" in said


@pytest.mark.parametrize("name", ["weights.safetensors", "vocabulary.json", "shape.json"])
def test_files_of_others_are_not_written_over(pairs, tmp_path, name) -> None:
    """Those of a finished translator whose training is gone neither."""
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine")
    sides = ["--data", pairs, "--source", "en", "--target", "de", *SMALL]
    said = sentence(call("teach", *sides, "--decoder", "causal", "--out", out))
    assert name in said
    assert [path.name for path in out.iterdir()] == [name]
    assert (out / name).read_text() == "mine"


@pytest.mark.parametrize("file", ["weights.safetensors", "vocabulary.json"])
def test_files_of_two_translators_do_not_make_one(translators, tmp_path, file) -> None:
    """As after a kill between two files, where an older translator was replaced."""
    mixed = tmp_path / "mixed"
    shutil.copytree(translators["teacher"], mixed)
    content = (mixed / file).read_bytes()
    (mixed / file).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    said = sentence(call("translate", "--model", mixed, text="ba\n"))
    assert "is not whole" in said or "cannot be read" in said
    assert str(mixed) in said


def test_it_goes_on_where_it_was_stopped(translators, pairs) -> None:
    """The checkpoint is at the last step, so the same command ends at once, with the same."""
    weights = (translators["teacher"] / "weights.safetensors").read_bytes()
    sides = ["--data", pairs, "--source", "en", "--target", "de", *SMALL]
    done = call("teach", *sides, "--decoder", "causal", "--out", translators["teacher"])
    assert done.exit_code == 0, done.output
    assert (translators["teacher"] / "weights.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--width", "32"], "width 16, not 32"),
        (["--length", "14"], "length 12, not 14"),
        (["--vocabulary", "50"], "vocabulary 60, not 50"),
        (["--decoder", "parallel"], "the other decoder"),
    ],
)
def test_a_changed_command_does_not_go_on(translators, pairs, change, said) -> None:
    out = translators["teacher"]
    weights = (out / "weights.safetensors").read_bytes()
    sides = ["--data", pairs, "--source", "en", "--target", "de", *SMALL, "--decoder", "causal"]
    found = sentence(call("teach", *sides, *change, "--out", out))
    assert said in found
    assert "choose another --out, or delete" in found
    assert (out / "weights.safetensors").read_bytes() == weights


def test_other_pairs_or_another_teacher_do_not_go_on(translators, pairs, tmp_path) -> None:
    for name in ("train.en", "train.de"):
        (tmp_path / name).write_text((pairs / name).read_text().replace("ba", "xx"))
    own = ["--source", "en", "--target", "de", *SMALL]
    changed = call(
        *("teach", "--data", tmp_path, *own, "--decoder", "causal"),
        *("--out", translators["teacher"]),
    )
    assert "begun with other pairs:" in sentence(changed)
    alone = call("teach", "--data", pairs, *own, "--out", translators["student"])
    assert "begun with another teacher, or none" in sentence(alone)


def test_a_run_goes_on_with_its_own_vocabulary(translators, pairs, tmp_path) -> None:
    """It is read from the folder of the training, and must be there as it was."""
    out = tmp_path / "copy"
    shutil.copytree(translators["teacher"], out)
    again = ["teach", "--data", pairs, "--source", "en", "--target", "de", *SMALL]
    again = [*again, "--decoder", "causal", "--out", out]
    kept = out / "training" / "vocabulary.json"
    assert kept.read_bytes() == (out / "vocabulary.json").read_bytes()
    Vocabulary.learn(["ba de"], 60).save(kept)
    assert "begun with other pieces of words" in sentence(call(*again))
    (out / "training" / "begun.json").unlink()
    assert "does not say what its training was begun with" in sentence(call(*again))


def test_blank_lines_stay_empty(translators) -> None:
    done = call("translate", "--model", translators["student"], text="ba\n \t\u3000 \nba\n")
    assert done.stdout.split("\n")[1] == ""


def test_a_line_of_unknown_signs_is_warned_of_once(translators) -> None:
    lines = "ba\n\n" + "日本 語\n" * 20
    done = call("translate", "--model", translators["teacher"], text=lines)
    assert done.exit_code == 0, done.output
    assert done.stderr.count("never seen") == 1
    assert "line 3 has only signs" in done.stderr
    quiet = call("translate", "--model", translators["teacher"], text="ba 日\n")
    assert "never seen" not in quiet.stderr


def test_a_line_ends_at_a_newline_only(translators) -> None:
    options = ["translate", "--model", translators["teacher"]]
    done = call(*options, text="ba\u2028de\rgu\r\nba\r\n")
    assert done.stdout.count("\n") == 2
    assert call(*options, text="\ufeffba de\n").stdout == call(*options, text="ba de\n").stdout


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_bytes_that_are_no_text_get_one_sentence(translators, locale) -> None:
    command = "from triptych.lab.cli.app import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", command, "translate", "--model", str(translators["teacher"])],
        input=b"ba\nba\xff\n",
        capture_output=True,
        env={**os.environ, "LC_ALL": locale, "LANG": locale},
        check=False,
    )
    said = done.stderr.decode()
    assert done.returncode == 2, said
    assert "line 2 of stdin is not text in UTF-8" in said
    assert "Traceback" not in said


def test_a_device_that_is_not_here_gets_one_sentence(
    translators, pairs, tmp_path, monkeypatch
) -> None:
    own = ["--data", pairs, "--source", "en", "--target", "de", *SMALL, "--out", tmp_path / "x"]
    commands = [
        ["translate", "--model", translators["teacher"]],
        ["teach", *own],
        ["teach", *own, "--teacher", translators["teacher"]],
    ]
    for command in commands:
        assert "device is 'foo'" in sentence(call(*command, "--device", "foo", text="ba\n"))
        for count in (0, 1):
            gpus.pretend(monkeypatch, count)
            wrong = call(*command, "--device", "cuda:9", text="ba\n")
            assert "device is 'cuda:9', and this machine has" in sentence(wrong)
    assert not (tmp_path / "x").exists()


def test_a_translator_reads_what_it_was_trained_on(tmp_path) -> None:
    """Sentences of as many tokens as fit are trained on, and longer ones refused in use."""
    for name in ("train.en", "train.de"):  # 2 to 9 tokens: the space before a word is one
        (tmp_path / name).write_text("".join("b" * n + "\n" for n in range(1, 9)))
    small = ["--width", "16", "--layers", "1", "--vocabulary", "7", "--length", "6", "--steps", "2"]
    own = ["--data", tmp_path, "--source", "en", "--target", "de", *small]
    for decoder, most in (("causal", 5), ("parallel", 6)):
        out = tmp_path / decoder
        done = call("teach", *own, "--decoder", decoder, "--out", out)
        assert f"{most - 1} of 8 pairs" in done.output
        use = ["translate", "--model", out]
        assert call(*use, text="b" * (most - 1) + "\n").exit_code == 0
        assert f"reads at most {most}" in sentence(call(*use, text="b" * most + "\n"))


def test_a_file_that_ends_too_soon_gets_one_sentence(pairs, tmp_path) -> None:
    whole = gzip.compress((pairs / "train.en").read_bytes())
    (tmp_path / "train.en.gz").write_bytes(whole[: len(whole) // 2])
    shutil.copy(pairs / "train.de", tmp_path)
    options = ["--data", tmp_path, "--out", tmp_path / "x", "--source", "en", "--target", "de"]
    assert "train.en.gz cannot be read" in sentence(call("teach", *options))


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
