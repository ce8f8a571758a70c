"""Shared keys are read once, and the answer is that of transformers' own attention."""

import types

import pytest
import torch
import transformers
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from triptych.models.pretrained import grouped_attention as module
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.models.pretrained.grouped_attention import grouped, grouped_attention


def parts(heads: int, shared: int, t: int, seen: int, seed: int = 0) -> list[torch.Tensor]:
    draws = torch.Generator().manual_seed(seed)
    shapes = [(3, heads, t, 8), (3, shared, seen, 8), (3, shared, seen, 8)]
    query, key, value = (
        torch.randn(shape, generator=draws, dtype=torch.float64) for shape in shapes
    )
    hidden = torch.rand((3, 1, t, seen), generator=draws) < 0.4
    hidden[..., 0] = False
    mask = torch.zeros(hidden.shape, dtype=torch.float64).masked_fill(hidden, -1e30)
    return [query, key, value, mask]


@pytest.mark.parametrize(("heads", "shared"), [(6, 2), (4, 1), (4, 4)])
@pytest.mark.parametrize("t", [1, 3, 20])
def test_the_answer_is_that_of_transformers(heads: int, shared: int, t: int) -> None:
    layer = types.SimpleNamespace(num_key_value_groups=heads // shared, is_causal=True)
    given = parts(heads, shared, t, seen=25)
    own, none = grouped_attention(layer, *given, scaling=0.3, sliding_window=None)
    theirs, _ = sdpa_attention_forward(layer, *given, scaling=0.3)
    assert none is None
    assert own.shape == (3, t, heads, 8)
    torch.testing.assert_close(own, theirs, rtol=1e-12, atol=1e-12)


def test_one_query_by_hand() -> None:
    """Two heads share one key pair; values 1 and 3. The second head sees only the first slot."""
    layer = types.SimpleNamespace(num_key_value_groups=2, is_causal=True)
    query = torch.zeros(1, 2, 1, 1)
    key, value = torch.zeros(1, 1, 2, 1), torch.tensor([1.0, 3.0]).reshape(1, 1, 2, 1)
    mask = torch.zeros(1, 1, 1, 2)
    answer, _ = grouped_attention(layer, query, key, value, mask)
    assert answer.flatten().tolist() == [2.0, 2.0]
    mask[..., 1] = -1e30
    answer, _ = grouped_attention(layer, query, key, value, mask)
    assert answer.flatten().tolist() == [1.0, 1.0]


def small_model(shared: int, how: str = "sdpa") -> transformers.LlamaForCausalLM:
    config = transformers.LlamaConfig(
        vocab_size=30,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=shared,
        max_position_embeddings=40,
        attn_implementation=how,
    )
    return transformers.LlamaForCausalLM(config).eval()


def test_a_decoder_reads_shared_keys_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow way must not come back unseen: steps of one token ask with two heads, not four."""
    asked = []
    real = torch.nn.functional.scaled_dot_product_attention

    def spy(query, key, *rest, **more):
        asked.append((query.shape[1], query.shape[2], key.shape[1]))
        return real(query, key, *rest, **more)

    decoder = PretrainedCausalLM(small_model(2), bos=False).decoder([[3, 4, 5], [6, 7, 8]])
    decoder.next_log_probs()
    monkeypatch.setattr(module.F, "scaled_dot_product_attention", spy)
    decoder.append([9, 10])
    decoder.next_log_probs()
    assert asked == [(2, 2, 2)] * 2


@pytest.mark.parametrize(("shared", "how"), [(4, "sdpa"), (2, "eager")])
def test_other_models_stay_as_they_are(shared: int, how: str) -> None:
    model = small_model(shared, how)
    with grouped(model):
        assert model.config._attn_implementation == how


def test_the_model_is_as_before_afterwards() -> None:
    model = small_model(2)

    def fails() -> None:
        with grouped(model):
            assert model.config._attn_implementation == module.NAME
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fails()
    assert model.config._attn_implementation == "sdpa"
