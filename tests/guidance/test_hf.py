"""Guided algorithms as custom_generate: against `guide`, and against `generate` itself."""

import inspect
import types

import pytest
import torch
import transformers
from tests.support.tiny_text_model import BOS, END, EOS, tiny_classifier, tiny_lm, tiny_tokenizer

import triptych
from triptych import hf
from triptych.core.validation import UserError
from triptych.guidance.guide import guide
from triptych.inference.guided.algorithm import algorithms
from triptych.inference.guided.backtracking import Backtracking
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.transforms import Sampling
from triptych.verifiers.exact import Rule
from triptych.verifiers.reward import RewardModel

pytestmark = pytest.mark.usefixtures("unchecked_shapes")  # as they are for users, and fast
LM = tiny_lm()
MODEL, TOKENIZER = LM.model, LM.tokenizer
PROMPTS = ["a", "ab", "ba0"]


def inputs_of(prompts):
    """As tokenizers of Hugging Face make them: BOS first, filled up on the left."""
    rows = [[BOS, *row] for row in LM.encode(prompts)]
    longest = max(map(len, rows))
    ids = [[0] * (longest - len(row)) + row for row in rows]
    mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


INPUTS = inputs_of(PROMPTS)


def few_zeros(text):
    return text.count("0") <= 1


def anything(text):
    return True


def completed(ids, prompts=PROMPTS):
    """Texts behind the prompts."""
    start = inputs_of(prompts)["input_ids"].shape[1]
    return [LM.text_of(row[start:]) for row in ids.tolist()]


@pytest.mark.parametrize(
    "settings",
    [{}, {"temperature": 0.6}, {"top_k": 4}, {"top_p": 0.7}, {"temperature": 2.0, "top_p": 0.8}],
    ids=str,
)
def test_it_is_guide_inside_generate(settings):
    """The config's temperature, top-k and top-p are those of the library, and so are the draws."""
    search = hf.backtracking(few_zeros, quota=5, stride=2, tokenizer=TOKENIZER, rng=3)
    ids = MODEL.generate(
        **INPUTS, custom_generate=search, do_sample=True, max_new_tokens=6, **settings
    )
    own, sampling = Backtracking(quota=5, stride=2), Sampling(**settings)
    direct = guide(LM, PROMPTS, few_zeros, own, max_new_tokens=6, rng=3, sampling=sampling)
    assert completed(ids) == direct.texts
    assert [row.text for row in search.completions] == direct.texts
    assert [row.accepted for row in search.completions] == direct.accepted
    assert [row.costs for row in search.completions] == direct.costs


def test_every_record_has_a_function():
    assert set(algorithms()) <= set(dir(hf))
    for name, kind in algorithms().items():
        make = getattr(triptych.hf, name)
        known = inspect.signature(make).parameters
        options = kind.options()
        assert [known[each.name].default for each in options] == [e.default for e in options]
        assert kind.promise in make.__doc__
        verifier = few_zeros if kind.needs_verifier else None
        search = make(verifier, tokenizer=TOKENIZER)
        assert repr(search).startswith(f"triptych.hf.{name}(")
    with pytest.raises(AttributeError, match="has no 'beam'; it has ValueLogits"):
        hf.beam  # noqa: B018


@pytest.mark.parametrize("name", ["rejection", "best_of_n", "blocks", "particles", "vgb"])
def test_the_other_algorithms_run(name):
    search = getattr(hf, name)(few_zeros, tokenizer=TOKENIZER)
    MODEL.generate(**INPUTS, custom_generate=search, do_sample=True, max_new_tokens=2)
    direct = guide(LM, PROMPTS, few_zeros, name, max_new_tokens=2)
    assert [row.text for row in search.completions] == direct.texts
    assert [row.candidates for row in search.completions] == (direct.candidates or [None] * 3)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"repetition_penalty": 1.7},
        {"no_repeat_ngram_size": 1},
        {"min_new_tokens": 6},
        {"suppress_tokens": [4, 5, 19]},
        {"eos_token_id": [EOS, END, 12]},
        {"eos_token_id": None},
    ],
    ids=str,
)
def test_greedy_is_generate(settings):
    """do_sample=False takes the argmax behind every processor; ids and padding are the same."""
    options = {"do_sample": False, "max_new_tokens": 7, **settings}
    expected = MODEL.generate(**INPUTS, **options)
    search = hf.ancestral(tokenizer=TOKENIZER)
    assert MODEL.generate(**INPUTS, custom_generate=search, **options).tolist() == expected.tolist()


def test_without_do_sample_it_warns():
    search = hf.best_of_n(anything, n=2, tokenizer=TOKENIZER)
    with pytest.warns(UserWarning, match="best_of_n only ever sees the likeliest token"):
        ids = MODEL.generate(**INPUTS, custom_generate=search, max_new_tokens=3)
    assert ids.tolist() == MODEL.generate(**INPUTS, max_new_tokens=3).tolist()


def test_what_comes_back():
    search = hf.backtracking(few_zeros, tokenizer=TOKENIZER)
    output = MODEL.generate(
        **INPUTS,
        custom_generate=search,
        do_sample=True,
        max_length=9,
        num_return_sequences=2,
        return_dict_in_generate=True,
    )
    assert output.sequences.shape[0] == 6
    assert output.sequences.shape[1] <= 9
    assert output.sequences[::2, :4].tolist() == INPUTS["input_ids"].tolist()
    assert output["complete"].tolist() == [True] * 6
    assert output["accepted"].tolist() == [row.accepted for row in search.completions]
    assert len({row.text for row in search.completions[:2]}) == 2
    for row in output.sequences[:, 4:].tolist():
        ended = [i for i, token in enumerate(row) if token in (EOS, END)]
        assert not ended or set(row[ended[0] + 1 :]) <= {0}


def test_calls_go_on_drawing():
    options = {"do_sample": True, "max_new_tokens": 6}
    search = hf.ancestral(tokenizer=TOKENIZER, rng=1)
    first, second = (MODEL.generate(**INPUTS, custom_generate=search, **options) for _ in "12")
    again = hf.ancestral(tokenizer=TOKENIZER, rng=1)
    assert first.tolist() != second.tolist()
    assert MODEL.generate(**INPUTS, custom_generate=again, **options).tolist() == first.tolist()


def test_the_model_is_as_it_was():
    model = tiny_lm(seed=1).model
    model.train()
    model.model.embed_tokens.eval()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" in name)
    search = hf.backtracking(few_zeros, tokenizer=TOKENIZER)
    model.generate(**INPUTS, custom_generate=search, do_sample=True, max_new_tokens=2)
    assert model.training
    assert not model.model.embed_tokens.training
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == ("norm" in name)


def test_a_streamer_gets_the_finished_text():
    streamer = transformers.TextIteratorStreamer(
        TOKENIZER, skip_prompt=True, timeout=5, skip_special_tokens=True
    )
    search = hf.backtracking(few_zeros, tokenizer=TOKENIZER)
    MODEL.generate(
        **inputs_of(["ab"]),
        custom_generate=search,
        streamer=streamer,
        do_sample=True,
        max_new_tokens=5,
    )
    assert "".join(streamer) == search.completions[0].text


def test_verifiers_of_other_kinds():
    b = LM.encode(["b"])[0][0]
    options = {"do_sample": True, "max_new_tokens": 4}
    on_tokens = hf.rejection(Rule(lambda tokens: b not in tokens[4:]), attempts=300)
    ids = MODEL.generate(**INPUTS, custom_generate=on_tokens, **options)
    assert b not in ids[:, 4:]
    seen = []

    def told(text, prompt):
        seen.append(prompt)
        return True

    search = hf.backtracking(told, tokenizer=TOKENIZER)
    MODEL.generate(**INPUTS, custom_generate=search, **options)
    assert set(seen) == set(PROMPTS)
    reward = RewardModel(tiny_classifier(), TOKENIZER)
    best = hf.best_of_n(reward, n=3, tokenizer=TOKENIZER)
    MODEL.generate(**INPUTS, custom_generate=best, **options)
    for row in best.completions:
        assert row.score == pytest.approx(max(one.value for one in row.candidates), rel=1e-5)


def test_budgets():
    search = hf.tokenwise(
        lambda text: False, tokenizer=TOKENIZER, tries=10**6, budget=Budget(verifier_calls=5)
    )
    ids = MODEL.generate(**INPUTS, custom_generate=search, do_sample=True, max_new_tokens=4)
    assert ids.tolist() == INPUTS["input_ids"].tolist()
    assert search.completions[0].reason == "verifier budget used up"
    search = hf.tokenwise(lambda text: False, tokenizer=TOKENIZER, tries=10**6)
    MODEL.generate(
        **INPUTS, custom_generate=search, do_sample=True, max_new_tokens=4, max_time=0.05
    )
    assert search.completions[0].reason == "time budget used up"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"num_beams": 2}, "generate was asked for beam s"),
        ({"assistant_model": MODEL}, "asked for assisted generation"),
        ({"prompt_lookup_num_tokens": 2}, "asked for assisted generation"),
        ({"output_scores": True, "return_dict_in_generate": True}, "output_scores: an algorithm"),
        ({"max_new_tokens": 60}, "may follow; this model reads at most 40"),
        (
            {"stopping_criteria": [types.SimpleNamespace(max_length=3)]},
            "SimpleNamespace cannot be honoured",
        ),
        ({"guidance_scale": 2.0}, "has a memory of its own"),
        ({"suppress_tokens": list(range(20))}, "leave no token after"),
        (
            {"attention_mask": torch.tensor([[1, 1, 1, 0]] * 3)},
            "fill prompts up on the left",
        ),
        ({"inputs_embeds": torch.zeros(3, 4, 16)}, "only token ids can be guided"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_honoured_is_refused(arguments, sentence):
    search = hf.backtracking(anything, tokenizer=TOKENIZER)
    given = {**INPUTS, "do_sample": True, "max_new_tokens": 3, **arguments}
    with pytest.raises(UserError, match=sentence):
        MODEL.generate(**given, custom_generate=search)


def test_bad_input_gets_a_sentence():
    other = tiny_tokenizer()
    other.add_tokens(["word"])
    for given, sentence in [
        (lambda: hf.backtracking(few_zeros), "there is no tokenizer; pass tokenizer="),
        (lambda: hf.backtracking(tokenizer=TOKENIZER), "backtracking needs a verifier"),
        (lambda: hf.backtracking(3, tokenizer=TOKENIZER), "verifier is 3"),
        (lambda: hf.backtracking(few_zeros, tokenizer=3), "tokenizer is 3"),
        (lambda: hf.backtracking(few_zeros, tokenizer=TOKENIZER, strides=1), "no --strides"),
        (lambda: hf.backtracking(few_zeros, tokenizer=TOKENIZER, rng=-1), "rng is -1"),
        (
            lambda: hf.backtracking(few_zeros, tokenizer=TOKENIZER)(MODEL, INPUTS["input_ids"]),
            "pass it to model.generate",
        ),
    ]:
        with pytest.raises(UserError, match=sentence):
            given()
