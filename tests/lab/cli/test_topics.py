"""`triptych topics` on a tiny encoder and a tiny corpus; every mistake gets one sentence."""

import json
import re
from itertools import pairwise

import pytest
from tests.support.tiny_encoder import save_tiny_encoder, two_topics
from typer.testing import CliRunner

from triptych.lab.cli.app import app
from triptych.lab.topics.reading import parse_groups


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, and a folder of texts; some have both topics, one is empty, one is no text."""
    folder = tmp_path_factory.mktemp("topics")
    save_tiny_encoder(folder / "model")
    (folder / "texts").mkdir()
    documents = two_topics(20)
    mixed = [[first[0] + second[0]] for first, second in pairwise(documents)]
    for number, paragraphs in enumerate([*documents, *mixed[:6]]):
        (folder / "texts" / f"{number:02}.txt").write_text("\n\n".join(paragraphs))
    (folder / "texts" / "empty.txt").write_text("")
    (folder / "texts" / "picture.png").write_bytes(b"\x89PNG\x00\xff")
    return folder


SMALL = ["--topics", "2", "--threshold", "0.25", "--passes", "3", "--fewest", "2", "--most", "0.9"]


def call(*options):
    return CliRunner().invoke(app, ["topics", *map(str, options)])


def test_table_page_figures_and_json(place, tmp_path):
    model, texts = place / "model", place / "texts"
    groups = ["--group", "frog,toads", "--group", "mozart,bach"]
    done = call("--model", model, "--corpus", texts, *SMALL, *groups, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "26 documents" in done.stdout
    assert "Same over different topic, with 95 % intervals" in done.stdout
    assert "Of several tokens, embeddings averaged: toads" in done.stdout
    assert f"Open {tmp_path / 'topics.html'}" in done.stdout
    found = json.loads((tmp_path / "topics.json").read_text())
    assert found["family"] == "encoder"
    kinds = ["WordMap", "Fitted", "EmbeddingRatio", "AttentionRatio", "HeadRatios", "TopPairs"]
    assert list(found["records"]) == [*kinds, "TopicMixture"]
    raw = [r for r in found["records"]["EmbeddingRatio"] if r["weights"] == "random"]
    assert {r["vectors"] for r in raw} == {"word", "input"}
    page = (tmp_path / "topics.html").read_text()
    assert page.count("<figure>") == 4  # none of the closed form: most passages have one topic
    assert "lizard" in page
    assert set(re.findall(r"var\((--[\w-]+)", page)) <= set(re.findall(r"(--[\w-]+):", page))
    for name in ("word_map", "topic_ratios", "topic_attention_by_layer", "topic_heads"):
        assert "var(" not in (tmp_path / f"{name}.svg").read_text()


def sentence(done):
    assert done.exit_code == 2, done.output
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("triptych: ")]
    return line


def test_mistakes_get_one_sentence(place, tmp_path):
    model, texts = place / "model", place / "texts"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no .txt files" in sentence(call("--model", model, "--corpus", empty))
    (empty / "a.txt").write_text("\n")
    assert "all of it is empty" in sentence(call("--model", model, "--corpus", empty))
    few = sentence(call("--model", model, "--corpus", texts))
    assert "has 26 documents, too few for 100 topics; give more text, or --topics 5" in few
    assert "or --paragraphs, which makes its 46 paragraphs documents" in few
    split = sentence(call("--model", model, "--corpus", texts, "--paragraphs"))
    assert "has 46 documents, too few for 100 topics; give more text, or --topics 9" in split
    assert "which makes" not in split
    assert "there is no file or folder" in sentence(call("--model", "./nothing", "--corpus", texts))
    assert "there is no corpus" in sentence(call("--model", model, "--corpus", "nothing"))
    small = sentence(call("--model", model, "--corpus", texts, "--topics", 2))
    assert "keeps 0 words a topic" in small
    assert small.endswith("so the threshold must be at least 0.077")  # 2 of 26
    one = call("--model", model, "--corpus", texts, *SMALL, "--group", "frog,toad")
    assert "one --group is given" in sentence(one)
    assert "needs two words" in sentence(
        call("--model", model, "--corpus", texts, *SMALL, "--group", "frog")
    )
    strange = call(
        "--model", model, "--corpus", texts, *SMALL, "--group", "frog,x", "--group", "y,z"
    )
    assert "the model has no token for the word 'x'" in sentence(strange)
    assert "topics is 0" in sentence(call("--model", model, "--corpus", texts, "--topics", 0))


def test_what_is_no_text_is_named(place, tmp_path):
    for content in (b"caf\xe9", b"a\0b"):
        (tmp_path / "b.txt").write_bytes(content)
        said = sentence(call("--model", place / "model", "--corpus", tmp_path))
        assert "b.txt' is not plain text in UTF-8; save it as UTF-8, or take it out" in said


def test_few_documents_and_many_paragraphs(place, tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n\nthree")
    said = sentence(call("--model", place / "model", "--corpus", tmp_path))
    assert said.endswith(
        "has 1 document, too few for 100 topics; give more text, or --paragraphs, which makes its "
        "3 paragraphs documents"
    )


def test_groups_are_words_with_commas():
    assert parse_groups(["frog, toad", "mozart,bach,opera"]) == [
        ["frog", "toad"],
        ["mozart", "bach", "opera"],
    ]
    assert parse_groups([]) == []
