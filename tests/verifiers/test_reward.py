"""Reward models: against the classifier itself, one text at a time, on tiny random weights."""

import pytest
import torch
from tests.support.refusals import refused
from tests.support.tiny_text_model import tiny_classifier, tiny_lm, tiny_tokenizer

from triptych.core.validation import UserError
from triptych.guidance.guide import guide
from triptych.verifiers.reward import RewardModel

TEXTS = ["a", "ab01", "((", "b" * 7]
CHAT = "{% for m in messages %}{{ m['content'] }}:{% endfor %}"


def plain_tokenizer():
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    return tokenizer


@pytest.fixture(scope="module", params=["llama", "bert"])
def classifier(request):
    return tiny_classifier(family=request.param)


def scores(model, text):
    ids = plain_tokenizer()(text, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0].double()


def test_one_label_is_the_sigmoid_of_the_score(classifier):
    reward = RewardModel(classifier, plain_tokenizer(), batch=3)
    expected = [float(1 / (1 + (-scores(classifier, text)[0]).exp())) for text in TEXTS]
    assert reward(TEXTS) == pytest.approx(expected, rel=1e-5)
    assert reward([]) == []
    assert 0 < reward([""])[0] < 1


def test_worked_value():
    """Scores of 0 are V = 1/2, for one label and for two."""
    for labels in (1, 2):
        model = tiny_classifier(labels=labels)
        with torch.no_grad():
            model.score.weight.zero_()
        assert RewardModel(model, plain_tokenizer())(["ab"]) == pytest.approx([0.5])


def test_several_labels_are_a_softmax_and_a_choice():
    model = tiny_classifier(labels=2)
    law = scores(model, "ab01").softmax(-1)
    assert RewardModel(model, plain_tokenizer())(["ab01"]) == pytest.approx([float(law[1])])
    first = RewardModel(model, plain_tokenizer(), label="LABEL_0")
    assert first(["ab01"]) == pytest.approx([float(law[0])])
    assert repr(first) == "RewardModel(LlamaForSequenceClassification, reads label 0 of 2)"
    with refused("label"):
        RewardModel(tiny_classifier(labels=3), plain_tokenizer())


def test_prompt_and_completion_are_read_together():
    model = tiny_classifier()
    pairs = RewardModel(model, plain_tokenizer())
    assert pairs(["b0"], ["a("]) == pytest.approx([float(scores(model, "a(b0")[0].sigmoid())])
    talking = tiny_tokenizer()
    talking.chat_template = CHAT
    chat = RewardModel(model, talking)
    expected = [float(scores(model, "a(:b0:")[0].sigmoid())]
    assert chat(["b0"], "a(") == pytest.approx(expected)
    assert chat(["b0"], [{"role": "user", "content": "a("}]) == pytest.approx(expected)


def test_a_long_text_loses_its_beginning_and_that_is_said():
    model = tiny_classifier()
    reward = RewardModel(model, plain_tokenizer(), length=5)
    with pytest.warns(UserWarning, match="a text has 8 tokens and this reward model reads 5"):
        values = reward(["aaab01()", "ab"])
    assert reward.truncated == 1
    assert values[0] == pytest.approx(float(scores(model, "b01()")[0].sigmoid()))
    assert RewardModel(model, plain_tokenizer()).length == 40


def test_without_a_padding_token_it_works():
    model = tiny_classifier()
    model.config.pad_token_id = None
    tokenizer = plain_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token = None
    alone = RewardModel(model, tokenizer)(TEXTS)
    model.config.pad_token_id = 0
    assert alone == pytest.approx(RewardModel(model, plain_tokenizer())(TEXTS), rel=1e-5)


def test_half_precision_is_normalised_in_full():
    model = tiny_classifier().to(torch.bfloat16)
    with torch.no_grad():
        model.score.weight.mul_(100)
    (value,) = RewardModel(model, plain_tokenizer())(["ab01"])
    assert value == float(scores(model, "ab01")[0].sigmoid())
    assert 0 < value < 1


@pytest.mark.parametrize("algorithm", ["best_of_n", "particles", "blocks", "vgb"])
def test_it_guides(algorithm):
    lm, reward = tiny_lm(), RewardModel(tiny_classifier(), plain_tokenizer())
    found = guide(lm, ["a", "b0"], reward, algorithm, max_new_tokens=3, rng=0)
    assert found.scores == pytest.approx(reward(found.texts, found.prompts), rel=1e-5)
    if algorithm == "best_of_n":
        for text, several in zip(found.texts, found.candidates, strict=True):
            assert max(several, key=lambda candidate: candidate.value).text == text


def test_saved_and_loaded(tmp_path):
    model, tokenizer = tiny_classifier(), plain_tokenizer()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = RewardModel.from_pretrained(tmp_path, local_files_only=True)
    assert loaded(TEXTS) == pytest.approx(RewardModel(model, tokenizer)(TEXTS), rel=1e-5)


def test_bad_input_gets_a_sentence(tmp_path, unchecked_shapes):
    tokenizer, model = plain_tokenizer(), tiny_classifier()
    tiny_lm().model.save_pretrained(tmp_path / "causal")
    tokenizer.save_pretrained(tmp_path / "causal")
    reward = RewardModel(model, tokenizer)
    for given, sentence in [
        (lambda: RewardModel(3, tokenizer), "model is 3; pass a model"),
        (lambda: RewardModel(tiny_lm().model, tokenizer), "AutoModelForSequenceClassification"),
        (lambda: RewardModel(model, None), "tokenizer is None"),
        (lambda: RewardModel(model, tokenizer, label="good"), "label is 'good'; this classifier"),
        (lambda: RewardModel(model, tokenizer, label=1), "label is 1"),
        (lambda: RewardModel(model, tokenizer, length=41), "length is 41; it must be at most 40"),
        (lambda: RewardModel(model, tokenizer, batch=0), "batch is 0"),
        (lambda: RewardModel.from_pretrained(""), "where is ''"),
        (lambda: RewardModel.from_pretrained(tmp_path), "could not be loaded"),
        (lambda: RewardModel.from_pretrained(tmp_path / "causal"), "has no weights for score"),
        (lambda: RewardModel.from_pretrained("x", dtype="int8"), "dtype is 'int8'"),
        (lambda: reward("ab"), "texts is the string 'ab'"),
        (lambda: reward([3]), r"texts\[0\] is 3"),
        (lambda: reward(["a"], ["b", "c"]), "2 prompts for 1 texts"),
        (lambda: reward(["a"], [[{"role": "user"}]]), "a message is a dictionary"),
    ]:
        with pytest.raises(UserError, match=sentence):
            given()
