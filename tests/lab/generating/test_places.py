"""No file that a run did not write is written to, by whatever name or link it is given."""

import json
import os
import subprocess

import pytest
from tests.support.command_line import run
from tests.support.full_disk import full_disk, small_files

from triptych.core.validation import UserError
from triptych.lab.generating.completing import failed_row
from triptych.lab.generating.prompts import Prompt
from triptych.lab.generating.rows import RowFile
from triptych.lab.generating.run import Spread, generate

PROMPTS = [Prompt(number, "ab") for number in range(3)]


@pytest.fixture
def command(tmp_path, model_folder, monkeypatch):
    """Run `triptych generate` in a folder with prompts, a rule and a schema."""
    (tmp_path / "prompts.jsonl").write_text('"a"\n"b"\n')
    (tmp_path / "rule.py").write_text("def f(text):\n    return True\n")
    (tmp_path / "schema.json").write_text("{}")
    monkeypatch.chdir(tmp_path)

    def start(*more, out="out.jsonl", prompts="prompts.jsonl", verifier="brackets"):
        words = ["generate", "--model", model_folder, "--prompts", prompts, "--out", out]
        words += ["--verifier", verifier, "--algorithm", "tokenwise", "--max-new-tokens", "3"]
        return run(*map(str, [*words, *more]))

    return start


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(done, folder, before, word):
    assert done.exit_code == 2, done.output
    assert word in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1  # before a model is loaded
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("made", "options"),
    [
        ("q.trace.jsonl", {"prompts": "q.trace.jsonl", "out": "q.jsonl"}),
        ("q.settings.json", {"prompts": "q.settings.json", "out": "q.jsonl"}),
        ("q.settings.json", {"verifier": "json:q.settings.json", "out": "q.jsonl"}),
        ("q.jsonl", {"prompts": "q.jsonl", "out": "q.jsonl"}),
    ],
)
@pytest.mark.parametrize("fresh", [(), ("--fresh",)])
def test_what_is_read_is_not_written(command, tmp_path, made, options, fresh):
    source = "schema.json" if "verifier" in options else "prompts.jsonl"
    (tmp_path / made).write_bytes((tmp_path / source).read_bytes())
    before = contents(tmp_path)
    refused(command("--trace", *fresh, **options), tmp_path, before, "are the same file")


@pytest.mark.parametrize("link", [os.link, os.symlink])
@pytest.mark.parametrize("name", ["out.jsonl", "out.settings.json", "out.trace.jsonl"])
@pytest.mark.parametrize("source", ["prompts.jsonl", "rule.py", "schema.json"])
def test_links_are_looked_through(command, tmp_path, link, name, source):
    verifier = {"rule.py": "rule.py:f", "schema.json": "json:schema.json"}.get(source, "brackets")
    link(tmp_path / source, tmp_path / name)
    before = contents(tmp_path)
    done = command("--trace", verifier=verifier)
    refused(done, tmp_path, before, "are the same file")


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_an_empty_file_of_prompts_is_no_place_either(command, tmp_path, link):
    """Its content alone does not say that it is the user's."""
    (tmp_path / "prompts.jsonl").write_text("")
    link(tmp_path / "prompts.jsonl", tmp_path / "out.trace.jsonl")
    refused(command("--trace"), tmp_path, contents(tmp_path), "are the same file")


def test_the_files_of_a_run_are_three(command, tmp_path):
    (tmp_path / "out.jsonl").write_text("")
    os.link(tmp_path / "out.jsonl", tmp_path / "out.settings.json")
    refused(command(), tmp_path, contents(tmp_path), "are the same file")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("out.settings.json", '{"mine": 1}\n'),
        ("out.settings.json", "[]"),
        ("out.settings.json", "not json"),
        ("out.trace.jsonl", '{"id": 1, "prompt": "a"}\n'),
        ("out.trace.jsonl", '{"id": 1, "events": [], "more": 2}\n'),
        ("out.trace.jsonl", '{"id": 1, "name": "mine"}'),
        ("out.trace.jsonl", '{"id": 1, "name": "mi'),
        ("out.trace.jsonl", '{"id": 0, "events": []}\n{"id": 1}\n'),
        ("out.trace.jsonl", "plain text"),
        ("out.jsonl", '{"id": 1, "name": "mi'),
    ],
)
@pytest.mark.parametrize("fresh", [(), ("--fresh",)])
def test_a_file_of_something_else_is_refused(command, tmp_path, name, text, fresh):
    (tmp_path / name).write_text(text)
    refused(command("--trace", *fresh), tmp_path, contents(tmp_path), name)


def test_a_file_that_the_writer_would_have_used_stays(command, tmp_path):
    mine = [tmp_path / f"out.{kind}.part" for kind in ("settings.json", "trace.jsonl", "jsonl")]
    for file in mine:
        file.write_text("mine")
    assert command("--trace").exit_code == 0
    assert command("--retry-failed").exit_code == 0
    assert [file.read_text() for file in mine] == ["mine"] * 3


def test_a_folder_is_no_place_of_settings(command, tmp_path):
    (tmp_path / "out.settings.json").mkdir()
    done = command()
    assert done.exit_code == 2
    assert "is a folder" in done.stderr


def test_settings_belong_to_one_file_of_rows(settings, tmp_path):
    """texts.jsonl and texts.txt would share theirs; a moved file keeps them."""
    made = settings()
    with RowFile(tmp_path / "texts.jsonl", made) as file:
        file.append([failed_row(made, PROMPTS[0], "no")])
    for fresh in (False, True):
        with pytest.raises(UserError, match=r"belongs to the rows in .*texts.jsonl"):
            RowFile(tmp_path / "texts.txt", made, fresh=fresh)
    for name in ("texts.jsonl", "texts.settings.json"):
        (tmp_path / name).rename(tmp_path / name.replace("texts", "moved"))
    with RowFile(tmp_path / "moved.jsonl", made) as file:
        assert file.missing(PROMPTS) == PROMPTS[1:]


def test_settings_of_an_earlier_version_are_ours(settings, tmp_path):
    """They do not say which rows they belong to."""
    made, out = settings(), tmp_path / "texts.jsonl"
    (tmp_path / "texts.settings.json").write_text(json.dumps(made.as_json()))
    with RowFile(out, made) as file:
        file.append([failed_row(made, PROMPTS[0], "no")])
    with RowFile(out, made) as file:
        assert list(file.done) == ["0"]


def test_links_to_our_files_stay(command, tmp_path):
    """Also where failed rows are taken away and traces are mended."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    names = ["out.jsonl", "out.settings.json", "out.trace.jsonl"]
    for name in names:
        (tmp_path / name).symlink_to(elsewhere / name)
    (tmp_path / "rule.py").write_text("def f(text):\n    raise ValueError\n")
    assert command("--trace", verifier="rule.py:f").exit_code == 1
    (tmp_path / "elsewhere" / "out.trace.jsonl").write_text('{"id": 9, "events": []}\n')
    assert command("--trace", "--retry-failed", verifier="rule.py:f").exit_code == 1
    assert all((tmp_path / name).is_symlink() for name in names)
    assert (elsewhere / "out.trace.jsonl").read_text() == ""
    assert len((elsewhere / "out.jsonl").read_text().splitlines()) == 2


# ---------------------------------------------------------------------- no room


@pytest.mark.parametrize("trace", [(), ("--trace",)])
@pytest.mark.parametrize("kilobytes", [4, 8, 12, 16])
def test_a_full_disk_is_one_sentence_and_the_run_goes_on(
    command, tmp_path, read_rows, trace, kilobytes
):
    prompts = [{"id": f"{number} {'x' * 300}", "prompt": "a"} for number in range(30)]
    (tmp_path / "many.jsonl").write_text("".join(json.dumps(each) + "\n" for each in prompts))
    batch = ["--batch", "5", *trace]
    assert command(*batch, prompts="many.jsonl", out="right.jsonl").exit_code == 0
    with full_disk(tmp_path / "disk", kilobytes) as disk:
        done = command(*batch, prompts="many.jsonl", out=disk / "o.jsonl")
        _one_sentence(done)
        subprocess.run(["mount", "-o", "remount,size=400k", str(disk)], check=True)
        assert command(*batch, prompts="many.jsonl", out=disk / "o.jsonl").exit_code == 0
        assert read_rows(disk / "o.jsonl") == read_rows(tmp_path / "right.jsonl")
        if trace:
            traced = (disk / "o.trace.jsonl").read_text()
            assert traced == (tmp_path / "right.trace.jsonl").read_text()


@pytest.mark.parametrize("trace", [(), ("--trace",)])
def test_a_file_that_may_not_grow_is_one_sentence(command, tmp_path, read_rows, trace):
    """Every size of the rows at which the room may end."""
    (tmp_path / "many.jsonl").write_text('"a"\n' * 6)
    batch = ["--batch", "2", *trace]
    assert command(*batch, prompts="many.jsonl", out="right.jsonl").exit_code == 0
    size = (tmp_path / "right.jsonl").stat().st_size
    row = size // 6  # seconds are in it, which have more digits at times
    settings = (tmp_path / "right.settings.json").stat().st_size
    for most in (settings + 1, size // 3 + settings, size - row // 2):
        if most >= size:
            continue
        with small_files(most):
            done = command(*batch, prompts="many.jsonl")
        _one_sentence(done)
        assert all(
            line.endswith("\n") for line in (tmp_path / "out.jsonl").read_text().splitlines(True)
        )
    assert command(*batch, prompts="many.jsonl").exit_code == 0
    assert read_rows(tmp_path / "out.jsonl") == read_rows(tmp_path / "right.jsonl")


def _one_sentence(done):
    assert done.exit_code == 2, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "cannot be written" in done.stderr.strip().splitlines()[-1]


def test_a_file_of_rows_can_be_used_after_it_was_full(settings, tmp_path):
    """Not a piece of a line is left behind."""
    made, out = settings(), tmp_path / "out.jsonl"
    with RowFile(out, made) as file:
        file.append([failed_row(made, PROMPTS[0], "no")])
        whole = out.read_bytes()
        with small_files(len(whole) + 30), pytest.raises(UserError, match="cannot be written"):
            file.append([failed_row(made, PROMPTS[1], "no")])
        assert out.read_bytes() == whole
        file.append([failed_row(made, PROMPTS[2], "no")])
    with RowFile(out, made) as file:
        assert list(file.done) == ["0", "2"]


def test_what_is_there_is_seen_before_the_model(settings, tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        "triptych.lab.generating.completing.load_model", lambda *given: loaded.append(given)
    )
    (tmp_path / "out.settings.json").write_text("{}")
    with pytest.raises(UserError, match="out.settings.json"):
        generate(PROMPTS, settings(), tmp_path / "out.jsonl", Spread())
    assert loaded == []
