"""A Hugging Face masked LM answers as ours do: tiny random models of several families.

No real masked LM can be had from a package index, so the weights are drawn here, large enough for
the answers to differ between words and positions.
"""

import dataclasses
import json
import math
import sys

import pytest
import torch
import transformers
from tests.support.refusals import refused
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from triptych.core.protocols import Masked, SoftMasked
from triptych.core.validation import UserError
from triptych.models.pretrained.masked import PretrainedMaskedLM
from triptych.structures.hidden_markov.hmm import HMM

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "mat"]
VOCAB, MASK, CLS, SEP, POSITIONS = len(WORDS), 4, 2, 3, 12
PAD = {"bert": 0, "roberta": 1, "distilbert": 0, "modernbert": 0, "electra": 0, "esm": 0}
UNUSED_POSITIONS = {"roberta": 2}  # counted from pad + 1
FAMILIES = ["bert", "roberta", "distilbert", "modernbert", "electra"]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
# Its rotary angles are float32 whatever the model is, and a GPU's sine differs from a CPU's in the
# last digit. A digit of 2^-24 changed at random moves these answers by 2e-7.
GPU_TOLERANCE = dict.fromkeys(FAMILIES, 1e-9) | {"modernbert": 2e-6}


def config_of(family, **more):
    sizes = {"vocab_size": VOCAB, "max_position_embeddings": POSITIONS, "pad_token_id": PAD[family]}
    usual = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
    }
    ends = {"bos_token_id": CLS, "eos_token_id": SEP}
    kinds = {
        "bert": lambda: transformers.BertConfig(**sizes, **usual, **more),
        "roberta": lambda: transformers.RobertaConfig(**sizes, **usual, **ends, **more),
        "distilbert": lambda: transformers.DistilBertConfig(
            **sizes, dim=16, hidden_dim=24, n_layers=2, n_heads=2, **more
        ),
        "modernbert": lambda: transformers.ModernBertConfig(
            **sizes, **usual, **ends, cls_token_id=CLS, sep_token_id=SEP, **more
        ),
        # embeddings narrower than the layers
        "electra": lambda: transformers.ElectraConfig(**sizes, **usual, embedding_size=8, **more),
        "esm": lambda: transformers.EsmConfig(**sizes, **usual, mask_token_id=MASK, **more),
    }
    return kinds[family]()


def make_model(family, dtype=torch.float32, seed=0, **more):
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)  # transformers draws its weights from the global generator
        model = transformers.AutoModelForMaskedLM.from_config(config_of(family, **more)).to(dtype)
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape).to(dtype)
    return model


def make_lm(family="bert", dtype=torch.float32, ids=None, before=(CLS,), after=(SEP,), **more):
    return PretrainedMaskedLM(make_model(family, dtype, **more), MASK, ids, before, after)


def make_tokenizer(words=WORDS):
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


@pytest.fixture
def folder(tmp_path):
    make_model("bert").save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def some_question(lm, batch=3, t=6, seed=0):
    """Words and what is hidden; without special tokens unless the language is the whole model."""
    generator = torch.Generator().manual_seed(seed)
    lowest = 5 if lm.ids is None else 0
    tokens = torch.randint(lowest, lm.vocab_size, (batch, t), generator=generator)
    hidden = torch.rand((batch, t), generator=generator) < 0.5
    hidden[:, 0], hidden[:, 1] = True, False
    return tokens, hidden


def plain_log_probs(model, tokens, hidden, before=(CLS,), after=(SEP,)):
    """The textbook call of transformers: token ids in, logits out."""
    rows = tokens.masked_fill(hidden, MASK)
    around = [torch.tensor(side).long().expand(len(rows), -1) for side in (before, after)]
    seen = torch.cat([around[0], rows, around[1]], 1)
    with torch.no_grad():
        logits = model(input_ids=seen, attention_mask=torch.ones_like(seen)).logits
    inner = logits[:, len(before) : seen.shape[1] - len(after)]
    return inner.double().log_softmax(-1)


# ---------------------------------------------------------------------- the laws


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_and_tokens_are_one_question(family, dtype):
    """soft_masked_probs(embed(x, hidden)) = exp masked_log_probs where hidden."""
    lm = make_lm(family, dtype)
    tokens, hidden = some_question(lm)
    vectors = lm.embed(tokens, hidden)
    soft = lm.soft_masked_probs(vectors)
    exact = lm.masked_log_probs(tokens, hidden).exp()
    assert vectors.shape == (3, 6, lm.width)
    assert soft.dtype == vectors.dtype == lm.dtype == dtype
    assert exact.dtype == torch.float64
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(soft[hidden].double(), exact[hidden], atol=tolerance, rtol=0)
    spread = exact[hidden].max(0).values - exact[hidden].min(0).values
    assert spread.max() > 0.05, "the answers must depend on the question for this to mean anything"


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_as_transformers_itself_says(family, dtype):
    lm = make_lm(family, dtype)
    tokens, hidden = some_question(lm)
    plain = plain_log_probs(lm.model, tokens, hidden)
    answer = lm.masked_log_probs(tokens, hidden)
    torch.testing.assert_close(answer[hidden], plain[hidden], atol=TOLERANCE[dtype], rtol=0)
    logits = lm.token_logits(tokens.masked_fill(hidden, lm.mask_token))
    law = logits.double().log_softmax(-1)
    torch.testing.assert_close(law, plain, atol=TOLERANCE[dtype], rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_masked_and_soft_masked(family):
    lm = make_lm(family)
    assert isinstance(lm, Masked)
    assert isinstance(lm, SoftMasked)
    tokens, hidden = some_question(lm)
    answer = lm.masked_log_probs(tokens, hidden)
    torch.testing.assert_close(answer.logsumexp(-1), torch.zeros(3, 6).double())
    sure = answer[~hidden].gather(-1, tokens[~hidden][:, None])
    assert torch.equal(sure, torch.zeros_like(sure))
    soft = lm.soft_masked_probs(lm.embed(tokens))
    torch.testing.assert_close(soft.sum(-1), torch.ones(3, 6))


def test_what_is_hidden_is_never_read():
    lm = make_lm()
    tokens, hidden = some_question(lm)
    others = torch.where(hidden, -7, tokens)
    assert torch.equal(lm.masked_log_probs(tokens, hidden), lm.masked_log_probs(others, hidden))
    assert torch.equal(lm.embed(tokens, hidden), lm.embed(others, hidden))


@pytest.mark.parametrize("family", FAMILIES)
def test_one_position_alone(family):
    lm = make_lm(family, torch.float64)
    vectors = lm.embed(*some_question(lm))
    every = lm.soft_masked_probs(vectors)
    for at in range(6):
        assert torch.equal(lm.soft_masked_probs(vectors, at=at), every[:, at : at + 1])
    assert lm.soft_range == (-math.inf, math.inf)


def test_without_hidden_embed_is_the_table_of_the_model():
    lm = make_lm("roberta")
    tokens, hidden = some_question(lm)
    table = lm.model.get_input_embeddings().weight
    assert torch.equal(lm.embed(tokens), table[tokens])
    assert torch.equal(lm.embed(tokens, hidden)[hidden], table[MASK].expand(int(hidden.sum()), -1))
    assert torch.equal(lm.embed(tokens.int()), table[tokens])


# ---------------------------------------------------------------------- words


def test_worked_value_two_words_share_the_probability():
    """All weights 0 but output biases log(1), log(2), ..: words 1 and 2 weigh 2 and 3."""
    model = make_model("bert", torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.cls.predictions.decoder.bias.copy_(torch.arange(1, VOCAB + 1).log())
    lm = PretrainedMaskedLM(model, MASK, torch.tensor([1, 2]), (CLS,), (SEP,))
    tokens, hidden = torch.tensor([[0, 1]]), torch.tensor([[True, False]])
    answer = lm.masked_log_probs(tokens, hidden)
    expected = torch.tensor([[[math.log(0.4), math.log(0.6)], [-math.inf, 0.0]]]).double()
    torch.testing.assert_close(answer, expected, atol=1e-7, rtol=0)  # log in float32 above


@pytest.mark.parametrize("family", FAMILIES)
def test_fewer_words_are_the_same_law_renormalised(family):
    whole = make_lm(family, torch.float64)
    ids = torch.tensor([9, 5, 7])
    few = dataclasses.replace(whole, ids=ids)
    assert few.vocab_size == 3
    assert few.mask_token == 3
    tokens, hidden = some_question(few)
    part = whole.masked_log_probs(ids[tokens], hidden)[..., ids]
    expected = part - part.logsumexp(-1, keepdim=True)
    answer = few.masked_log_probs(tokens, hidden)
    torch.testing.assert_close(answer[hidden], expected[hidden], atol=1e-12, rtol=0)
    assert torch.equal(few.embed(tokens, hidden), whole.embed(ids[tokens], hidden))
    soft = few.soft_masked_probs(whole.embed(ids[tokens], hidden))  # a verbaliser
    torch.testing.assert_close(soft[hidden].log(), expected[hidden], atol=1e-12, rtol=0)


def test_renaming_the_words_renames_the_answers():
    ids = torch.tensor([5, 6, 7, 8, 9, 10])
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    lm = make_lm(dtype=torch.float64, ids=ids)
    renamed = dataclasses.replace(lm, ids=ids[order])
    tokens, hidden = some_question(lm)
    answer = lm.masked_log_probs(tokens, hidden)
    again = renamed.masked_log_probs(order.argsort()[tokens], hidden)
    torch.testing.assert_close(again, answer[..., order], atol=1e-12, rtol=0)


# ---------------------------------------------------------------------- positions, special tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_every_position_can_be_used_and_no_more(family):
    lm = make_lm(family)
    positions = POSITIONS - UNUSED_POSITIONS.get(family, 0)
    assert lm.length == positions - 2
    tokens, hidden = some_question(lm, t=lm.length)
    plain = plain_log_probs(lm.model, tokens, hidden)
    answer = lm.masked_log_probs(tokens, hidden)
    torch.testing.assert_close(answer[hidden], plain[hidden], atol=1e-5, rtol=0)
    longer = torch.full((1, lm.length + 1), 5)
    with pytest.raises(ValueError, match=f"reads at most {lm.length} besides 2 special tokens"):
        lm.masked_log_probs(longer, longer == 5)
    if family != "modernbert":  # rotary positions have no end of their own
        with pytest.raises((IndexError, RuntimeError)):
            lm.model(input_ids=torch.full((1, positions + 1), 5))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("before", "after"), [((), ()), ((CLS,), ()), ((CLS, 8), (9, SEP, SEP))])
def test_special_tokens_stand_around_and_are_not_answered(family, before, after):
    lm = make_lm(family, torch.float64, before=before, after=after)
    tokens, hidden = some_question(lm, t=4)
    answer = lm.masked_log_probs(tokens, hidden)
    plain = plain_log_probs(lm.model, tokens, hidden, before, after)
    assert answer.shape == (3, 4, VOCAB)
    torch.testing.assert_close(answer[hidden], plain[hidden], atol=1e-10, rtol=0)


def test_positions_count_a_padding_token_like_any_other():
    """Given ids, Roberta skips padding when it counts positions; given vectors it cannot."""
    lm = make_lm("roberta", torch.float64, before=(), after=())
    tokens, hidden = torch.tensor([[5, 1, 6, 7]]), torch.tensor([[False, False, True, False]])
    seen = tokens.masked_fill(hidden, MASK)
    with torch.no_grad():
        placed = lm.model(input_ids=seen, position_ids=torch.arange(2, 6)[None]).logits
    law = placed.log_softmax(-1)
    answer = lm.masked_log_probs(tokens, hidden)
    torch.testing.assert_close(answer[hidden], law[hidden], atol=1e-10, rtol=0)
    skipped = plain_log_probs(lm.model, tokens, hidden, (), ())
    assert (skipped[hidden] - answer[hidden]).abs().max() > 1e-3


def test_a_row_does_not_depend_on_the_other_rows():
    lm = make_lm(dtype=torch.float64)
    tokens, hidden = some_question(lm, batch=4)
    together = lm.masked_log_probs(tokens, hidden)
    for row in range(4):
        alone = lm.masked_log_probs(tokens[row : row + 1], hidden[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], atol=1e-12, rtol=0)


# ---------------------------------------------------------------------- gradients


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_reach_the_vectors_and_no_weight(family):
    lm = make_lm(family, torch.float64)
    tokens, hidden = some_question(lm, batch=1, t=3)
    vectors = lm.embed(tokens, hidden).requires_grad_()
    lm.soft_masked_probs(vectors)[:, 0, 5].sum().backward()
    assert (vectors.grad.abs().amax(-1) > 0).all(), "every position has a say"
    for parameter in lm.model.parameters():
        assert parameter.grad is None
        assert not parameter.requires_grad
    assert not lm.model.training
    assert not lm.masked_log_probs(tokens, hidden).requires_grad


def test_the_gradient_is_the_slope():
    lm = make_lm(dtype=torch.float64, ids=torch.tensor([5, 6, 7]))
    tokens, hidden = some_question(lm, batch=1, t=2)
    vectors = lm.embed(tokens, hidden).requires_grad_()
    assert torch.autograd.gradcheck(lm.soft_masked_probs, (vectors,))


def test_dropout_is_off_although_the_model_came_in_training():
    model = make_model("bert", hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5).train()
    lm = PretrainedMaskedLM(model, MASK)
    tokens, hidden = some_question(lm)
    assert torch.equal(lm.masked_log_probs(tokens, hidden), lm.masked_log_probs(tokens, hidden))


def tuned(model, tokens, hidden, prompt):
    """-log p(word 0 at the first word) before and after 30 steps on a prompt of one vector."""
    prompt = prompt.clone().requires_grad_()
    inputs, losses = model.embed(tokens, hidden), []
    optimizer = torch.optim.Adam([prompt], lr=0.02)
    for _ in range(31):
        vectors = torch.cat([prompt.expand(len(tokens), -1, -1), inputs], dim=1)
        loss = -model.soft_masked_probs(vectors)[:, 1, 0].log().mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses[0], losses[-1]


@pytest.mark.parametrize("kind", ["hmm", *FAMILIES])
def test_one_soft_prompt_for_the_truth_and_the_pretrained(kind):
    if kind == "hmm":
        model = HMM.random(states=4, vocab_size=6, length=6, seed=0)
        prompt = torch.ones(1, 1, 4, dtype=torch.float64)
    else:
        model = make_lm(kind, torch.float64, ids=torch.arange(5, 11))
        prompt = model.embed(torch.zeros((1, 1), dtype=torch.long))
    tokens = torch.tensor([[1, 2, 3, 4], [4, 3, 1, 1]])
    hidden = torch.tensor([[True, False, False, False]]).expand(2, -1)
    before, after = tuned(model, tokens, hidden, prompt)
    assert after < before - 1e-3


# ---------------------------------------------------------------------- dtype and device


def test_half_precision_answers_in_float32():
    lm = make_lm(dtype=torch.float16)
    tokens, hidden = some_question(lm)
    assert lm.embed(tokens, hidden).dtype == torch.float16
    vectors = lm.embed(tokens, hidden).float().requires_grad_()
    soft = lm.soft_masked_probs(vectors)
    assert soft.dtype == torch.float32
    soft[:, 0, 5].sum().backward()
    assert vectors.grad.dtype == torch.float32
    exact = lm.masked_log_probs(tokens, hidden).exp()
    torch.testing.assert_close(soft[hidden].double(), exact[hidden], atol=1e-6, rtol=0)


def test_vectors_elsewhere_are_answered_by_a_sentence():
    lm = make_lm()
    with refused("vectors"):
        lm.soft_masked_probs(torch.zeros((1, 2, lm.width), device="meta"))


@pytest.mark.cuda
@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_on_a_gpu(family):
    lm = make_lm(family, torch.float64, ids=torch.arange(5, 11))
    tokens, hidden = some_question(lm)
    expected = lm.masked_log_probs(tokens, hidden)
    lm.model.to("cuda")  # ids follow
    answer = lm.masked_log_probs(tokens.cuda(), hidden.cuda())
    assert answer.device.type == lm.device.type == "cuda"
    torch.testing.assert_close(answer.cpu(), expected, atol=GPU_TOLERANCE[family], rtol=0)
    for call in (lambda: lm.embed(tokens), lambda: lm.masked_log_probs(tokens.cuda(), hidden)):
        with pytest.raises(UserError, match="is on cpu"):
            call()


# ---------------------------------------------------------------------- loading


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_and_loaded(family, tmp_path):
    model = make_model(family)
    model.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    made = PretrainedMaskedLM(model, MASK, None, (CLS,), (SEP,))
    lm = PretrainedMaskedLM.from_pretrained(tmp_path)
    assert (lm.mask_id, lm.before, lm.after, lm.ids) == (MASK, (CLS,), (SEP,), None)
    assert (lm.dtype, lm.device.type, lm.vocab_size) == (torch.float32, "cpu", VOCAB)
    tokens, hidden = some_question(lm)
    assert torch.equal(lm.masked_log_probs(tokens, hidden), made.masked_log_probs(tokens, hidden))
    assert "Linear" not in repr(lm)


def test_words_and_dtype_as_asked(folder):
    lm = PretrainedMaskedLM.from_pretrained(
        str(folder), dtype=torch.float64, local_files_only=True, words=("mat", "cat")
    )
    assert lm.ids.tolist() == [10, 6]
    assert lm.dtype == torch.float64
    tokens, hidden = torch.tensor([[0, 1]]), torch.tensor([[True, False]])
    assert lm.masked_log_probs(tokens, hidden).shape == (1, 2, 2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["cat", "the mat"], r"the word 'the mat' is 2 tokens .*\['the', 'mat'\]; each .* one"),
        (["cat", ""], r"the word '' is 0 tokens"),
        (["cat", "dog"], "the word 'dog' is not in the vocabulary"),
        (["cat", "a", "cat"], "the words 'cat' and 'cat' are the same token"),
        ([], "ids is empty"),
    ],
)
def test_a_word_that_is_not_one_token(folder, words, sentence):
    with pytest.raises(ValueError, match=sentence):
        PretrainedMaskedLM.from_pretrained(folder, words=words)


def test_words_that_are_a_string(folder, unchecked_shapes):
    with refused("words"):
        PretrainedMaskedLM.from_pretrained(folder, words="cat")


def test_an_unknown_name_says_how_to_use_a_folder():
    with pytest.raises(UserError, match="'no-such-model' could not be loaded.*pass that folder"):
        PretrainedMaskedLM.from_pretrained("no-such-model", local_files_only=True)
    with pytest.raises(UserError, match="could not be loaded"):
        PretrainedMaskedLM.from_pretrained("no/such/folder", local_files_only=True)


def test_damaged_folders(folder):
    (folder / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(UserError, match="could not be loaded"):
        PretrainedMaskedLM.from_pretrained(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(UserError, match="could not be loaded: .*not a valid JSON"):
        PretrainedMaskedLM.from_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match="is not a masked LM that transformers can load"):
        PretrainedMaskedLM.from_pretrained(folder)


def test_a_damaged_tokenizer(folder):
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="load"):
        PretrainedMaskedLM.from_pretrained(folder)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_a_folder_without_a_tokenizer(family, tmp_path):
    """transformers would make one up, in which the mask token has id 4 whatever the model."""
    make_model(family).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has no vocabulary for its tokenizer"):
        PretrainedMaskedLM.from_pretrained(tmp_path)


def test_a_tokenizer_without_a_mask_token(folder):
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["mask_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="has no mask token"):
        PretrainedMaskedLM.from_pretrained(folder)


def test_an_encoder_without_a_head_is_not_answered_at_random(folder):
    transformers.BertModel(config_of("bert")).save_pretrained(folder)
    with pytest.raises(ValueError, match="no weights for cls.predictions.* and 3 more: .* random"):
        PretrainedMaskedLM.from_pretrained(folder)


def test_a_causal_model_is_no_masked_model(folder):
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=8, n_layer=1, n_head=1, bos_token_id=2, eos_token_id=3
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    with pytest.raises(ValueError, match="is not a masked LM that transformers can load"):
        PretrainedMaskedLM.from_pretrained(folder)


def test_without_transformers_the_install_line_is_said(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match="pip install 'transformers>=5,<6'"):
        PretrainedMaskedLM.from_pretrained(tmp_path)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "odd", [{"token_dropout": True, "position_embedding_type": "rotary"}, {"token_dropout": False}]
)
def test_a_family_that_does_more_to_tokens_than_to_embed_them(odd):
    """ESM erases masks with token dropout, and gives vectors no learned positions."""
    with refused("mask_id"):
        make_lm("esm", **odd)


def test_its_other_members_are_welcome():
    lm = make_lm("esm", token_dropout=False, position_embedding_type="rotary")
    tokens, hidden = some_question(lm)
    plain = plain_log_probs(lm.model, tokens, hidden)
    answer = lm.masked_log_probs(tokens, hidden)
    torch.testing.assert_close(answer[hidden], plain[hidden], atol=1e-5, rtol=0)


def test_a_family_that_does_not_read_vectors():
    config = transformers.BartConfig(
        vocab_size=VOCAB,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=1,
        decoder_attention_heads=1,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
    )
    model = transformers.BartForConditionalGeneration(config)
    with pytest.raises(ValueError, match="does not answer when it is given vectors"):
        PretrainedMaskedLM(model, MASK)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"mask_id": VOCAB}, "mask_id is 11; the model's token ids are 0..10"),
        ({"mask_id": -1}, "mask_id is -1; it must be at least 0"),
        ({"before": (2, 99)}, r"before\[1\] is 99"),
        ({"after": (99,)}, r"after\[0\] is 99"),
        ({"ids": torch.tensor([5, 11])}, r"ids\[1\] is 11"),
        ({"ids": torch.tensor([5, 6, 5])}, r"ids\[0\] and ids\[2\] are both 5"),
        ({"ids": torch.tensor([[5]])}, "ids has shape"),
        ({"ids": torch.tensor([5.0])}, "ids has dtype"),
        ({"before": (CLS,) * POSITIONS}, "take 13 positions; this model has 12"),
        ({"model": torch.nn.Linear(2, 2)}, "model is a Linear; pass a model of transformers'"),
    ],
)
def test_bad_arguments(changed, sentence, unchecked_shapes):
    arguments = {"model": make_model("bert"), "mask_id": MASK, "after": (SEP,), **changed}
    with pytest.raises(ValueError, match=sentence):
        PretrainedMaskedLM(**arguments)


def test_bad_questions(unchecked_shapes):
    lm = make_lm(ids=torch.tensor([5, 6]))
    shown = torch.zeros((1, 2), dtype=torch.bool)
    with refused("hidden"):
        lm.masked_log_probs(torch.tensor([[0, 2]]), shown)
    with refused("hidden"):
        lm.embed(torch.tensor([[-1, 0]]))
    with refused("hidden"):
        lm.embed(torch.tensor([[0]]), shown)
    with refused("vectors"):
        lm.soft_masked_probs(torch.zeros(1, 2, 15))
    for at in (-1, 2):
        with refused("at"):
            lm.soft_masked_probs(torch.zeros(1, 2, 16), at=at)
