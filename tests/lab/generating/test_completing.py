"""Chunks to rows: as `guide` makes them, and a prompt that fails does not stop the others."""

import json
import math
import time

import pytest
import torch
import typer
from tests.support.refusals import refused
from tests.support.tiny_text_model import tiny_lm

from triptych.guidance.batches import default_algorithm
from triptych.guidance.guide import Streams, guide
from triptych.inference.guided.costs import Budget
from triptych.lab.cli.app import app
from triptych.lab.generating.completing import (
    Chunk,
    Completer,
    complete_chunk,
    fitting_threads,
)
from triptych.lab.generating.prompts import Prompt
from triptych.lab.generating.settings import GenerateSettings
from triptych.verifiers.text_rules.brackets import BracketPrefix

LM = tiny_lm()
PROMPTS = [Prompt(i, text) for i, text in enumerate(["a", "ab", "a", "b0"])]


@pytest.fixture
def completer(settings):
    made = []

    def make(**changes):
        made.append(Completer(settings(**changes), model=LM))
        return made[-1]

    yield make
    for each in made:
        each.close()


def without_seconds(rows):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def test_rows_are_what_guide_makes(completer):
    rows = completer().complete(PROMPTS)
    found = guide(
        LM,
        [prompt.prompt for prompt in PROMPTS],
        BracketPrefix(),
        "tokenwise",
        max_new_tokens=4,
        rng=Streams(0, [prompt.stream for prompt in PROMPTS]),
    )
    assert [row["text"] for row in rows] == found.texts
    assert [row["accepted"] for row in rows] == found.accepted
    assert [row["costs"] for row in rows] == found.costs
    assert [row["complete"] for row in rows] == found.complete
    assert [row["id"] for row in rows] == [0, 1, 2, 3]
    assert not any(row["failed"] for row in rows)


def test_a_text_depends_on_its_id_alone(completer):
    """Alone, in another order and among others: the same row."""
    together = without_seconds(completer().complete(PROMPTS))
    backwards = without_seconds(completer().complete(PROMPTS[::-1]))[::-1]
    alone = [without_seconds(completer().complete([prompt]))[0] for prompt in PROMPTS]
    assert together == backwards == alone
    assert together[0]["text"] != together[2]["text"]  # the same prompt under another id


FAULTY = """
def rule(text):
    if "1" in text:
        raise ValueError("no ones")
    return text.count("(") < 3

def gently(text):
    return text.count("(") < 3

def hang(text):
    while "1" in text:
        pass
    return text.count("(") < 3
"""


@pytest.mark.parametrize("name", ["rule", pytest.param("hang", marks=pytest.mark.slow)])
def test_a_verifier_that_fails_concerns_its_row_only(completer, tmp_path, name):
    """The other rows are those of a verifier that never fails."""
    (tmp_path / "faulty.py").write_text(FAULTY)
    many = [Prompt(i, "ab"[i % 2]) for i in range(8)]
    options = {"max_new_tokens": 3, "timeout": 2.0}
    rows = completer(verifier=f"{tmp_path / 'faulty.py'}:{name}", **options).complete(many)
    right = completer(verifier=f"{tmp_path / 'faulty.py'}:gently", **options).complete(many)
    failed = [row for row in rows if row["failed"]]
    assert 0 < len(failed) < 8
    said = "ValueError: no ones" if name == "rule" else "no answer in 2 seconds"
    for row in failed:
        assert row["reason"] == f"the verifier failed on the text {row['text']!r}: {said}"
        assert "1" in row["text"]
        assert row["costs"]["verifier_calls"] >= 1
        assert (row["accepted"], row["complete"]) == (False, False)
    for row, other in zip(rows, right, strict=True):
        if not row["failed"]:
            assert row["text"] == other["text"]
            assert row["costs"] == other["costs"]


def test_a_verifier_that_fails_on_the_finished_text(completer, tmp_path):
    (tmp_path / "end.py").write_text("def end(text, finished):\n    return 1 / (not finished)\n")
    (row,) = completer(verifier=f"{tmp_path / 'end.py'}:end").complete([Prompt(1, "a")])
    assert row["failed"]
    assert "ZeroDivisionError" in row["reason"]


def test_a_prompt_that_does_not_fit_gets_a_reason(completer):
    rows = completer().complete([Prompt(1, "a" * 36), Prompt(2, "a" * 35), Prompt(3, "")])
    assert rows[0]["reason"] == (
        "the prompt has 36 tokens and may get 4 more; this model reads at most 39"
    )
    assert [row["failed"] for row in rows] == [True, False, False]


def test_conversations_and_texts_in_one_chunk(completer):
    talk = [{"role": "user", "content": "ab"}]
    rows = completer().complete([Prompt(1, talk), Prompt(2, "ab")])
    (same,) = completer().complete([Prompt(1, "ab:")])
    assert rows[0]["text"] == same["text"]
    assert rows[0]["prompt"] == talk
    (said,) = completer(chat=True).complete([Prompt(1, "ab")])
    assert said["text"] == same["text"]


def test_a_model_without_a_chat_template(settings):
    lm = tiny_lm()
    lm.tokenizer.chat_template = None
    with refused("prompt"):
        Completer(settings(chat=True), model=lm).complete([Prompt(1, "a")])


def test_a_template_that_refuses_a_conversation(settings):
    lm = tiny_lm()
    lm.tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    made = Completer(settings(), model=lm)
    rows = made.complete([Prompt(1, [{"role": "user", "content": "a"}]), Prompt(2, "a")])
    assert "roles must alternate" in rows[0]["reason"]
    assert not rows[1]["failed"]


def test_without_a_pad_token(settings):
    lm = tiny_lm()
    lm.tokenizer.pad_token = None
    assert not Completer(settings(), model=lm).complete([Prompt(1, "a")])[0]["failed"]


def test_a_budget_ends_a_row_and_is_no_failure(completer):
    (row,) = completer(budget=Budget(tokens=2)).complete([Prompt(1, "a")])
    assert (row["reason"], row["failed"], row["complete"]) == (
        "token budget used up",
        False,
        False,
    )


def test_a_trace_follows_its_row(completer):
    """The events of a prompt end with its text, also where prompts begin each other."""
    rows = completer().complete(PROMPTS, trace=True)
    for row in rows:
        assert row["trace"][-1]["text"].startswith(row["text"])
        assert row["trace"][-1]["generator_calls"] == row["costs"]["generator_calls"]
    assert {event["action"] for row in rows for event in row["trace"]} <= {
        "draw",
        "accept",
        "reject",
    }


def test_candidates_and_weights_are_written_where_there_are_some(completer):
    made = completer()
    found = made._guide(PROMPTS[:1], False)
    object.__setattr__(found, "candidates", [["x", "y"]])
    object.__setattr__(found, "weights", [[0.25, -math.inf]])
    row = made._row(PROMPTS[0], found, 0, 1.0)
    assert (row["candidates"], row["weights"]) == (["x", "y"], [0.25, None])
    json.dumps(row, allow_nan=False)


def test_memory_that_is_full_takes_a_chunk_apart(completer, monkeypatch):
    import torch

    made, sizes = completer(), []
    plain = made._guide

    def guide_few(prompts, trace):
        sizes.append(len(prompts))
        if len(prompts) > 2:
            raise torch.OutOfMemoryError("full")
        return plain(prompts, trace)

    monkeypatch.setattr(made, "_guide", guide_few)
    assert without_seconds(made.complete(PROMPTS)) == without_seconds(completer().complete(PROMPTS))
    assert sizes == [4, 2, 2]


def test_a_chunk_as_data(settings):
    """What goes to a worker is text and numbers, and errors come back as text."""
    made = settings()
    assert GenerateSettings.from_json(json.loads(json.dumps(made.as_json()))) == made
    text = json.dumps(made.as_json())
    chunk = Chunk("0", text, "cpu", ((1, "a"),), False, 1)
    assert complete_chunk(chunk).rows[0]["id"] == 1
    broken = json.dumps(made.as_json() | {"model": "/nowhere"})
    error = complete_chunk(chunk._replace(settings=broken)).error
    assert error.startswith("UserError: ")


def test_where_no_algorithm_is_named_it_is_that_of_guide(settings):
    """And the help says so; examples in README and docs that name none have the same one."""
    for verifier, function in ((None, None), ("json", len), ("regex:a+", len)):
        named = settings(verifier=verifier, algorithm=None).algorithm
        assert named == default_algorithm(function)
    (option,) = [
        o
        for o in typer.main.get_command(app).get_command(None, "generate").params
        if o.name == "algorithm"
    ]
    assert f"Default: {default_algorithm(len)}" in option.help
    assert f"{default_algorithm(None)} without a verifier" in option.help


@pytest.mark.parametrize(("several", "fitting"), [(0.13, 1), (0.03, 2)])
def test_threads_that_wait_for_one_another_are_not_used(
    several, fitting, unchecked_shapes, monkeypatch
):
    """A pass takes 0.03 s with one thread; with two as long, or much longer. On a clock by hand."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    class Waits:
        device, length = torch.device("cpu"), 100

        def next_token_log_probs(self, prefix):
            clock[0] += several if torch.get_num_threads() > 1 else 0.03

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert fitting_threads(Waits()) == fitting
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
