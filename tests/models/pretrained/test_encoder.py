"""Embeddings and attention of pretrained models, against the models; odd models are refused."""

import pytest
import torch
import transformers
from tests.support.refusals import refused
from tests.support.tiny_encoder import VOCABULARY, save_tiny_encoder, tiny_bert, word_tokenizer
from tests.support.tiny_text_model import tiny_lm

from triptych.core.validation import UserError
from triptych.models.pretrained.encoder import PretrainedEncoder, TextEncoder, cut_passage


@pytest.fixture(scope="module")
def bert():
    return PretrainedEncoder(tiny_bert(), word_tokenizer(), "tiny")


def test_an_encoder_and_its_words(bert):
    assert isinstance(bert, TextEncoder)
    assert bert.family == "encoder"
    assert bert.vocab_size == len(VOCABULARY) == 26
    words = dict(zip(VOCABULARY, bert.words(), strict=True))
    assert (words["frog"], words["the"]) == ("frog", "the")
    assert [words[text] for text in ("##s", ".", "xy", "[CLS]", "[UNK]")] == [None] * 5
    assert bert.encode(["The frogs."]) == [
        [VOCABULARY.index(t) for t in ("the", "frog", "##s", ".")]
    ]
    assert bert.word_tokens("toad") == [VOCABULARY.index("toad")]
    assert bert.word_tokens("unicorn") == []
    assert bert.with_specials([7, 8]) == [2, 7, 8, 3]
    assert cut_passage(bert, list(range(5, 20)), 6) == [2, 5, 6, 7, 8, 3]
    assert len(cut_passage(bert, [5] * 200, 128)) == bert.context == 62


def test_attention_is_the_models(bert):
    inputs = bert.with_specials([6, 14, 7, 6, 15])
    found = bert.attention(inputs)
    assert found.shape == (2, 2, 7, 7)
    assert torch.allclose(found.sum(-1), torch.ones(2, 2, 7))
    # the first layer by hand: softmax of scaled products of projected inputs
    model = bert.model
    with torch.no_grad():
        states = model.embeddings(input_ids=torch.tensor([inputs]))[0]
        layer = model.encoder.layer[0].attention.self
        query, key = (m(states).reshape(7, 2, 8).transpose(0, 1) for m in (layer.query, layer.key))
        by_hand = (query @ key.transpose(1, 2) / 8**0.5).softmax(-1)
    assert torch.allclose(found[0], by_hand, atol=1e-6)


def test_inputs_are_what_the_first_layer_reads(bert):
    tokens = torch.tensor([6, 14, 20])
    with torch.no_grad():
        wanted = bert.model.embeddings(input_ids=tokens[:, None])[:, 0]
    assert torch.allclose(bert.inputs(tokens), wanted, atol=1e-6)
    assert torch.equal(bert.embeddings(), bert.model.embeddings.word_embeddings.weight)


def test_a_causal_model_looks_back_only():
    lm = tiny_lm()
    found = PretrainedEncoder(lm.model.base_model, lm.tokenizer, "tiny causal")
    assert found.family == "causal"
    assert torch.equal(found.inputs(torch.tensor([5, 6])), found.embeddings()[5:7])


def test_random_copies(bert):
    first, again, other = (bert.untrained(seed) for seed in (1, 1, 2))
    assert torch.equal(first.embeddings(), again.embeddings())
    assert not torch.equal(first.embeddings(), other.embeddings())
    assert first.name == "tiny, random weights"
    before = torch.random.get_rng_state()
    bert.untrained(3)
    assert torch.equal(before, torch.random.get_rng_state())


def test_of_an_encoder_decoder_the_encoder_is_read(tmp_path):
    config = transformers.BartConfig(
        vocab_size=26, d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
        max_position_embeddings=32, pad_token_id=0, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    transformers.BartModel(config).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    found = PretrainedEncoder.from_pretrained(tmp_path)
    assert found.family == "encoder"
    assert found.attention([2, 6, 7, 3]).shape == (2, 2, 4, 4)
    assert found.inputs(torch.tensor([6, 7])).shape == (2, 16)


def test_from_a_folder(tmp_path):
    folder = save_tiny_encoder(tmp_path)
    found = PretrainedEncoder.from_pretrained(folder, name="mine")
    assert torch.equal(found.embeddings(), tiny_bert().embeddings.word_embeddings.weight)
    (folder / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(UserError, match="neither an encoder nor a causal model"):
        PretrainedEncoder.from_pretrained(folder)
    with refused("where"):
        PretrainedEncoder.from_pretrained("")


def test_models_that_do_not_read_text_are_refused():
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        image_size=8, patch_size=4,
    )  # fmt: skip
    with refused("model"):
        PretrainedEncoder(transformers.ViTModel(config), word_tokenizer(), "pictures")
    config = transformers.MambaConfig(
        vocab_size=26, hidden_size=8, state_size=2, num_hidden_layers=1, time_step_rank=1
    )
    with refused("model"):
        PretrainedEncoder(transformers.MambaModel(config), word_tokenizer(), "without attention")
