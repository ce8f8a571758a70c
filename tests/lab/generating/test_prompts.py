"""Prompts from files: what is read, and a sentence with the line for what is wrong."""

import io
import json
import sys

import pytest
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.lab.generating.prompts import Prompt, read_prompts

TALK = [{"role": "user", "content": "hé"}]


def written(tmp_path, text, name="prompts.jsonl"):
    file = tmp_path / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def test_every_form(tmp_path):
    lines = ['"a b"', "", '{"prompt": "c"}', json.dumps({"id": "t", "messages": TALK})]
    file = written(tmp_path, "\ufeff" + "\r\n".join(lines))
    assert read_prompts(file) == [Prompt(1, "a b"), Prompt(3, "c"), Prompt("t", TALK)]
    assert [prompt.is_conversation for prompt in read_prompts(file)] == [False, False, True]


def test_plain_text_has_a_prompt_a_line(tmp_path):
    file = written(tmp_path, 'say "hi"\n\n{"prompt": 3}\n', "prompts.txt")
    assert read_prompts(file) == [Prompt(1, 'say "hi"'), Prompt(3, '{"prompt": 3}')]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'"a"\n')))
    assert read_prompts("-") == [Prompt(1, "a")]


def test_a_stream_is_named_by_the_id():
    """sha256("1") begins with 6b86b273ff34fce1; its top 63 bits are the number."""
    assert Prompt(1, "a").stream == Prompt("1", "b").stream == 0x6B86B273FF34FCE1 >> 1
    assert Prompt(2, "a").stream != Prompt(1, "a").stream
    assert Prompt("\ud800", "a").stream < 2**63


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('"a"\nb', r"line 2 is not JSON \(Expecting value\).*called .txt"),
        ("3", "line 1 is 3; it must be a string or an object"),
        ("{}", "line 1 must have either `prompt` or `messages`"),
        ('{"prompt": "a", "messages": []}', "must have either"),
        ('{"prompt": 3}', "line 1 has the prompt 3; it must be a text"),
        ('{"promt": "a"}', "line 1 has the key 'promt'; the keys are prompt, messages, id"),
        ('{"prompt": "a", "id": 1.5}', "line 1 has the id 1.5"),
        ('{"prompt": "a", "id": true}', "line 1 has the id True"),
        ('{"messages": []}', "line 1 has the messages"),
        ('{"messages": ["a"]}', "line 1 has the message 'a'"),
        ('{"messages": [{"role": "user", "content": 3}]}', "role and content must be texts"),
        ('{"prompt": "a", "id": "2"}\n"b"', "line 2 has the id 2 of line 1; ids must differ"),
        ("1\n2\n3\n4\n5", "line 3 is 3.*and 2 more lines are wrong"),
        ("\n \n", "has no prompts"),
        (b'"a"\n"\xff"', "line 2 is not UTF-8"),
        ("[" * 100_000, "line 1 is not JSON"),
    ],
)
def test_bad_lines_get_a_sentence(tmp_path, text, sentence):
    with pytest.raises(UserError, match=sentence):
        read_prompts(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path):
    with refused("file"):
        read_prompts(tmp_path / "none.jsonl")
    with refused("file"):
        read_prompts(tmp_path)
