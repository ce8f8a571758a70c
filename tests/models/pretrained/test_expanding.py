"""Weights of a fetched .gguf file, written out once."""

import importlib.util

import pytest
import torch
from tests.support.command_line import run

from triptych.core.validation import UserError
from triptych.models.pretrained import expanding, fetching

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="needs transformers"
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path / "cache"))


def test_the_copy_is_the_same_model(tmp_path, monkeypatch):
    from tests.support.tiny_text_model import tiny_lm

    from triptych.models.pretrained.causal import PretrainedCausalLM

    lm = tiny_lm()
    lm.model.to(torch.bfloat16)
    asked = []

    def load(where, **options):
        asked.append((where, options["dtype"]))
        return lm.model, lm.tokenizer

    monkeypatch.setattr(expanding, "load_causal", load)
    with pytest.raises(UserError, match="run `triptych fetch smollm2-135m`"):
        expanding.expand("smollm2-135m")
    monkeypatch.setattr(fetching, "cached", lambda name: tmp_path / "m.gguf")
    assert expanding.expanded("smollm2-135m") is None
    place = expanding.expand("smollm2-135m")
    assert place == expanding.expanded("smollm2-135m")
    assert expanding.expand("smollm2-135m") == place
    assert asked == [(tmp_path / "m.gguf", "bfloat16")]
    again = PretrainedCausalLM.from_pretrained(place, dtype="bfloat16")
    weights, copied = lm.model.state_dict(), again.model.state_dict()
    assert weights.keys() == copied.keys()
    assert all(torch.equal(weights[name], copied[name]) for name in weights)
    assert again.encode(["ab"]) == lm.encode(["ab"])


def test_only_a_gguf_file_is_expanded():
    done = run("fetch", "minilm", "--expand")
    assert done.exit_code == 2
    assert "minilm is not a .gguf file" in done.stderr
