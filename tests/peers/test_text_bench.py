"""The benchmark of guided text compares equals, on models that are small enough for a test."""

import pytest

pytest.importorskip("transformers")

from benchmarks import text


@pytest.fixture(scope="module")
def lm():
    return text.random_lm(layers=1, width=64, vocab=200, length=64)


def test_guided_text_and_generate_write_as_many_tokens(lm):
    """The benchmark itself asserts the sizes of both sides."""
    row = text.generation(lm, "small", batch=3, new=4, turns=1)
    assert row["ratio"] > 0
    assert row["low"] <= row["ratio"] <= row["high"]


def test_batched_and_single_texts_are_the_same():
    row = text.one_by_one(count=4, compared=2, new=4, turns=1)
    assert row["same_strings"] == row["compared_strings"] == 2


def test_the_walk_says_what_it_asked(lm):
    row = text.walk(lm, "small", steps=6, few=2, turns=1)
    assert 0 < row["questions_per_step"] <= 64
    assert 0 < row["covered"] < 1


def test_without_a_model_the_row_against_genlm_is_not_run():
    assert "no pretrained model" in text.against_genlm(None)["not_run"] or (
        "not installed" in text.against_genlm(None)["not_run"]
    )
