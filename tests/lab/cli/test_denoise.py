"""`triptych denoise` as a user calls it: the table, texts, the page, and mistakes."""

import json

import pytest
import torch
import transformers
from tests.support.tiny_encoder import word_tokenizer
from typer.testing import CliRunner

from triptych.diffusion.sampler import samplers
from triptych.lab.cli.app import app


def run(*words):
    return CliRunner().invoke(app, ["denoise", *map(str, words)])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    words = word_tokenizer()
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=32,
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def test_the_table_has_every_sampler(unchecked_shapes):
    found = {line["name"]: line for line in json.loads(run("--json").stdout)}
    assert set(found) == set(samplers())
    assert found["random_order"]["more"] < 1e-12
    assert found["confidence"]["more"] == pytest.approx(0.09)
    assert found["speculative"]["few"] < 1e-12


def test_masks_are_filled_and_the_rest_stays(model, tmp_path):
    page = tmp_path / "canvas.html"
    made = run(
        "the [MASK] and the [MASK]",
        "--model",
        model,
        "--sampler",
        "margin",
        "-n",
        3,
        "--set",
        "steps=2",
        "--replay",
        page,
        "--json",
    )
    assert made.exit_code == 0, made.output
    texts = json.loads(made.stdout)["texts"]
    assert len(texts) == 3
    assert all(text.split()[0] == "the" and len(text.split()) >= 4 for text in texts)
    assert "[MASK]" not in page.read_text()
    assert page.read_text().count("<table") == 3


def test_a_seed_names_the_texts(model):
    texts = [run("[MASK] [MASK]", "--model", model, "--seed", 3).stdout for _ in range(2)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "words",
    [
        ["a [MASK]"],
        ["no masks here"],
        ["a [MASK]", "--sampler", "sure"],
        ["a [MASK]", "--sampler", "uniform_ancestral"],
        ["a [MASK]", "--sampler", "margin", "--set", "stepz=2"],
        ["a [MASK]", "-n", 0],
    ],
)
def test_mistakes_end_with_code_2(model, words):
    given = words if words == ["a [MASK]"] else [*words, "--model", model]
    assert run(*given).exit_code == 2
