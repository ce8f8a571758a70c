"""A language model comes back from its file, whole or in parts."""

import json

import pytest
import torch

from triptych.core.validation import UserError
from triptych.models.language_models import CausalLM, MaskedLM
from triptych.models.layers import Shape
from triptych.models.noised import NoisedLM
from triptych.models.saved import load_lm, save_lm
from triptych.models.transformer import Transformer


def model(kind):
    extra = 4 if kind is NoisedLM else 1
    shape = Shape(
        6 + extra, 5, width=8, layers=1, heads=2, causal=kind is CausalLM, tied=kind is not CausalLM
    )
    net = Transformer(shape, seed=3)
    return NoisedLM(net, 4) if kind is NoisedLM else kind(net)


@pytest.mark.parametrize("kind", [CausalLM, MaskedLM, NoisedLM])
def test_a_model_comes_back(tmp_path, kind):
    lm = model(kind)
    save_lm(tmp_path / "lm.safetensors", lm, steps=7)
    again, about = load_lm(tmp_path / "lm.safetensors")
    assert type(again) is kind
    assert about == {"steps": 7}
    seen = torch.tensor([[6, 1, 2, 3]])
    assert torch.equal(again.token_logits(seen), lm.token_logits(seen))


def test_a_model_comes_back_from_parts_and_in_half_precision(tmp_path):
    lm = model(MaskedLM)
    save_lm(tmp_path / "lm.safetensors", lm, dtype=torch.bfloat16)
    data = (tmp_path / "lm.safetensors").read_bytes()
    for number in range(11):
        size = len(data) // 11 + 1
        part = data[number * size : (number + 1) * size]
        (tmp_path / f"whole.safetensors.part{number}").write_bytes(part)
    again, _ = load_lm(tmp_path / "whole.safetensors")
    for name, value in lm.net.state_dict().items():
        assert torch.equal(again.net.state_dict()[name], value.bfloat16().float())


def test_what_is_no_model(tmp_path):
    with pytest.raises(UserError):
        load_lm(tmp_path / "nothing.safetensors")
    (tmp_path / "text.safetensors").write_text("no weights")
    with pytest.raises(UserError):
        load_lm(tmp_path / "text.safetensors")
    save_lm(tmp_path / "lm.safetensors", model(MaskedLM))
    data = (tmp_path / "lm.safetensors").read_bytes()
    (tmp_path / "short.safetensors").write_bytes(data[:-10])
    with pytest.raises(UserError):
        load_lm(tmp_path / "short.safetensors")
    other = data.replace(
        json.dumps('"masked"')[1:-1].encode(), json.dumps('"moskad"')[1:-1].encode()
    )
    assert other != data
    (tmp_path / "other.safetensors").write_bytes(other)
    with pytest.raises(UserError):
        load_lm(tmp_path / "other.safetensors")
