"""The file of rows: whole lines, mended after a kill, and nothing of other settings or prompts."""

import json
from dataclasses import replace

import pytest
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.lab.generating.completing import failed_row
from triptych.lab.generating.prompts import Prompt
from triptych.lab.generating.rows import COLUMNS, RowFile

PROMPTS = [Prompt(1, "a"), Prompt("zwei", "ü"), Prompt(3, [{"role": "user", "content": "c"}])]


@pytest.fixture
def made(settings):
    return settings()


@pytest.fixture
def out(tmp_path, made):
    """A file with the rows of the first two prompts."""
    path = tmp_path / "new" / "out.jsonl"
    with RowFile(path, made) as file:
        assert file.missing(PROMPTS) == PROMPTS
        file.append([failed_row(made, prompt, "no") for prompt in PROMPTS[:2]])
    return path


def test_rows_are_lines(out, made):
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [tuple(row) for row in rows] == [COLUMNS] * 2
    assert [row["id"] for row in rows] == [1, "zwei"]
    assert rows[0]["settings"] == made.fingerprint
    assert "ü" in out.read_text()
    with RowFile(out, made) as file:
        assert file.missing(PROMPTS) == PROMPTS[2:]


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_cut_line_is_taken_away(out, made, cut):
    """Also in the middle of a character of two bytes."""
    whole = out.read_bytes()
    first = whole.split(b"\n")[0] + b"\n"
    for end in (len(whole) - cut, len(first) + whole[len(first) :].index(b"\xc3") + 1):
        out.write_bytes(whole[:end])
        with RowFile(out, made) as file:
            assert file.missing(PROMPTS) == PROMPTS[1:]
        assert out.read_bytes() == first


def test_only_a_cut_line(out, made):
    out.write_bytes(out.read_bytes()[:4])
    with RowFile(out, made) as file:
        assert file.missing(PROMPTS) == PROMPTS
        file.append([failed_row(made, PROMPTS[0], "no")])
    assert len(out.read_text().splitlines()) == 1


def test_other_settings_are_refused_by_name(out, made):
    other = replace(made, temperature=0.7, seed=3)
    with pytest.raises(UserError, match=r"temperature was 1.0 and is 0.7; seed was 0 and is 3"):
        RowFile(out, other)
    out.with_suffix(".settings.json").unlink()
    with pytest.raises(UserError, match=r"other settings .*not the same.*--fresh"):
        RowFile(out, other)
    before = out.read_bytes()
    with RowFile(out, other, fresh=True) as file:
        assert file.done == {}
    assert out.read_bytes() == b"" != before


def test_other_prompts_are_refused(out, made):
    with RowFile(out, made) as file:
        with pytest.raises(UserError, match="a row of the id zwei with another prompt"):
            file.missing([PROMPTS[0], Prompt("zwei", "u"), PROMPTS[2]])
        with refused("prompts"):
            file.missing(PROMPTS[:1])
        assert file.missing([PROMPTS[2], Prompt(9, "new"), *PROMPTS[:2]]) == [
            PROMPTS[2],
            Prompt(9, "new"),
        ]


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n", '{"id": 1, "prompt": "a"}\n', '{"id": 1}', "[1", "\n"]
)
@pytest.mark.parametrize("fresh", [False, True])
def test_a_file_of_something_else_is_never_touched(tmp_path, made, text, fresh):
    path = tmp_path / "mine.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match="not a file of rows"):
        RowFile(path, made, fresh=fresh)
    assert path.read_text() == text


def test_places_that_cannot_be_written(tmp_path, made, out):
    with refused("out"):
        RowFile(tmp_path, made)
    (tmp_path / "file").write_text("")
    with refused("path"):
        RowFile(tmp_path / "file" / "out.jsonl", made)
    with RowFile(out, made), pytest.raises(UserError, match="another run writes to"):
        RowFile(out, made)
    out.write_bytes(out.read_bytes() + b"{}\n")
    with pytest.raises(UserError, match="line 3 is not a row"):
        RowFile(out, made)


def test_failed_rows_can_be_dropped(out, made):
    with RowFile(out, made) as file:
        file.append([failed_row(made, PROMPTS[2], "no") | {"failed": False}])
        file.drop_failed()
        assert file.missing(PROMPTS) == PROMPTS[:2]
        file.append([failed_row(made, PROMPTS[0], "again")])
        with pytest.raises(UserError, match="another run"):
            RowFile(out, made)
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == [3, 1]


def test_traces_lie_beside(out, made):
    traces = out.with_suffix(".trace.jsonl")
    with RowFile(out, made, trace=True) as file:
        file.append([failed_row(made, PROMPTS[2], "no")], [{"id": 3, "events": []}])
    traces.write_bytes(traces.read_bytes() + b'{"id": 77, "events": []}\n{"id": 3, "ev')
    with RowFile(out, made, trace=True):
        assert traces.read_text() == '{"id": 3, "events": []}\n'


def test_half_a_character_can_be_written(out, made):
    with RowFile(out, made) as file:
        file.append([failed_row(made, PROMPTS[2], "no", text="\ud83d")])
    with RowFile(out, made) as file:
        assert file.done["3"]["text"] == "\ud83d"
