"""A causal model of Hugging Face answers as ours do: tiny random models of several families.

The oracle is the model itself without a cache, on one whole prefix at a time.
"""

import gc
import importlib.util
import math
import weakref

import pytest
import torch
import transformers
from tests.support.refusals import refused
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from triptych.core.decoders import RecomputingDecoder
from triptych.core.foreign_models import on_disk_alone
from triptych.core.protocols import Decoder, NetworkDecoder, NextToken
from triptych.core.validation import UserError
from triptych.inference.guided import ancestral
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.models.pretrained.causal_cache import _block, attention_windows
from triptych.models.pretrained.causal_loading import as_dtype
from triptych.models.pretrained.encoder import PretrainedEncoder
from triptych.models.pretrained.fetching import cached
from triptych.models.pretrained.masked import PretrainedMaskedLM
from triptych.verifiers.process_reward import ProcessReward
from triptych.verifiers.reward import RewardModel
from triptych.verifiers.step_forms import StepTokens

VOCAB, PAD, BOS, EOS, CONTEXT, WIDTH, WINDOW = 50, 0, 1, 2, 40, 32, 4
FAMILIES = ["llama", "qwen2", "gpt2", "gemma2", "gemma3", "mistral"]
SPECIAL = ["[PAD]", "[BOS]", "[EOS]", "[UNK]", "[SAYS]"]
TEXT = "the a cat dog sat ran on under mat tree and then it was happy"
WORDS = [*SPECIAL, *TEXT.split()]
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[SAYS] {{ message['content'] }} [EOS]{% endfor %}"
    "{% if add_generation_prompt %}[SAYS]{% endif %}"
)


def config_of(family, **more):
    ends = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": WIDTH,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
    } | ends
    gemma = {"head_dim": 8, "sliding_window": WINDOW}
    mixed = {"layer_types": ["sliding_attention", "full_attention"]}
    kinds = {
        "llama": lambda: transformers.LlamaConfig(**sizes | more),
        "qwen2": lambda: transformers.Qwen2Config(**sizes | more),
        "gpt2": lambda: transformers.GPT2Config(
            **{"vocab_size": VOCAB, "n_embd": WIDTH, "n_layer": 2, "n_head": 4}
            | {"n_positions": CONTEXT}
            | ends
            | more
        ),
        "gemma2": lambda: transformers.Gemma2Config(**sizes | gemma | mixed | more),
        "gemma3": lambda: transformers.Gemma3TextConfig(**sizes | gemma | mixed | more),
        "mistral": lambda: transformers.MistralConfig(**sizes | {"sliding_window": WINDOW} | more),
    }
    return kinds[family]()


def make_model(family="llama", dtype=torch.float32, seed=0, **more):
    config = config_of(family, **more) if isinstance(family, str) else family
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)  # transformers draws its weights from the global generator
        model = transformers.AutoModelForCausalLM.from_config(config).to(dtype)
        for parameter in model.parameters():
            parameter += 0.15 * torch.randn(parameter.shape).to(dtype)
    return model


def make_lm(family="llama", dtype=torch.float32, tokenizer=None, length=None, bos=True, **more):
    return PretrainedCausalLM(make_model(family, dtype, **more), tokenizer, length=length, bos=bos)


def make_tokenizer(words=WORDS, *, template=None, adds_bos=True, pad="[PAD]", **more):
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    if adds_bos:
        tokenizer.post_processor = TemplateProcessing(
            single="[BOS] $A", special_tokens=[("[BOS]", BOS)]
        )
    named = {"bos_token": "[BOS]", "eos_token": "[EOS]", "unk_token": "[UNK]"} | more
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        extra_special_tokens=["[SAYS]"],
        **named,
    )
    made.chat_template = template
    return made


@torch.no_grad()
def plain(lm, tokens):
    """log p(· | tokens) by the model alone: one row, no cache, no mask."""
    start = [] if lm.bos_token is None else [lm.bos_token]
    logits = lm.model(input_ids=torch.tensor([[*start, *tokens]]), use_cache=False).logits
    return logits[0, -1].double().log_softmax(-1)


def rows_of(decoder):
    pairs = zip(decoder.tokens.tolist(), decoder.lengths.tolist(), strict=True)
    return [tokens[:length] for tokens, length in pairs]


def wander(decoder, steps, seed, check, longest=CONTEXT - 2):
    """Random appends, rollbacks and forks, on random rows; `check` after half of them."""
    rng = torch.Generator().manual_seed(seed)

    def below(n, *shape):
        return torch.randint(0, n, shape, generator=rng)

    for _ in range(steps):
        batch = len(decoder.lengths)
        rows = torch.randperm(batch, generator=rng)[: 1 + int(below(batch))]
        match int(below(5)):
            case 0 | 1 | 2:
                rows = rows[decoder.lengths[rows] < longest]
                decoder.append(below(VOCAB, len(rows)), rows)
            case 3:
                share = torch.rand(batch, generator=rng) * 0.6
                decoder.rollback((share * (decoder.lengths + 1)).long())
            case _:
                decoder = decoder.fork(below(batch, batch))
        if below(2):
            check(decoder, torch.randperm(batch, generator=rng)[: 1 + int(below(batch))])
    return decoder


# ------------------------------------------------------------------ the decoder is exact


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_decoder_answers_as_the_model_without_a_cache(family, seed):
    lm = make_lm(family)

    def check(decoder, rows):
        got, texts = decoder.next_log_probs(rows), rows_of(decoder)
        for answer, row in zip(got, rows.tolist(), strict=True):
            assert (answer - plain(lm, texts[row])).abs().max() < 1e-4

    prompts = [[5, 6, 7, 8, 9, 10, 11, 12, 13], [3], []]
    wander(lm.decoder(prompts), 40, seed, check)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_in_float64_the_cache_is_exact_to_rounding(family):
    lm = make_lm(family, torch.float64)

    def check(decoder, rows):
        got, texts = decoder.next_log_probs(rows), rows_of(decoder)
        for answer, row in zip(got, rows.tolist(), strict=True):
            # a rotation is computed in float32 whatever the model's dtype
            assert (answer - plain(lm, texts[row])).abs().max() < 1e-6

    wander(lm.decoder([[5, 6, 7], [8, 9]]), 30, 3, check)


@pytest.mark.parametrize("family", ["mistral", "gemma2"])
def test_a_window_counts_positions_whatever_was_erased(family):
    lm = make_lm(family)
    decoder = lm.decoder([[5, 6, 7, 8], [9]])
    for _ in range(3):  # erased tokens would fill a window that counts slots
        decoder.append([10, 11])
        decoder.next_log_probs()
        decoder.rollback([1, 1])
    got = decoder.next_log_probs()
    for answer, tokens in zip(got, [[5, 6, 7, 8], [9]], strict=True):
        assert (answer - plain(lm, tokens)).abs().max() < 1e-4
    if family == "mistral":  # two layers of window 4 see 7 positions: what is before does not count
        far = lm.next_token_log_probs([[5, *range(20, 29)], [6, *range(20, 29)]])
        near = lm.next_token_log_probs([[20, 5, *range(20, 25)], [20, 6, *range(20, 25)]])
        assert (far[0] - far[1]).abs().max() < 1e-6 < 1e-3 < (near[0] - near[1]).abs().max()


def test_a_row_does_not_depend_on_the_other_rows():
    lm = make_lm("gemma3", torch.float64)
    prompt = [5, 6, 7]
    alone = lm.decoder([prompt])
    for other in ([8], [8] * 30, []):
        both = lm.decoder([other, prompt])
        for token in (9, 10):
            both.append([token], [1])
            alone.append([token])
            got = both.next_log_probs()[1]
            assert (got - alone.next_log_probs()[0]).abs().max() < 1e-6
        alone.rollback([2])


def test_next_token_log_probs_are_those_of_the_recomputing_decoder():
    lm = make_lm("qwen2")
    ours, reference = lm.decoder([[5, 6], []]), RecomputingDecoder(lm, 2)
    reference.extend([[5, 6], [-1, -1]])
    assert (ours.next_log_probs() - reference.next_log_probs()).abs().max() < 1e-4
    assert ours.tokens.tolist() == reference.tokens.tolist() == [[5, 6], [-1, -1]]


def test_long_prompts_run_in_blocks(monkeypatch):
    lm = make_lm("mistral")
    prompts = [list(range(3, 33)), list(range(4, 20)), [5], [6, 7]]
    monkeypatch.setattr("triptych.models.pretrained.causal_cache._SLOTS_ON_A_CPU", 7)
    decoder = lm.decoder(prompts)
    for answer, prompt in zip(decoder.next_log_probs(), prompts, strict=True):
        assert (answer - plain(lm, prompt)).abs().max() < 1e-4
    assert decoder.slots_run == 30 + 16 + 1 + 2 + 4  # with BOS in every row


def test_one_number_computed_by_hand():
    """All weights 0 but the embedding of BOS and the head: token 5 has odds e to 1 against others.

    With zero blocks the state is the norm of the embedding: 1 in the only coordinate that counts.
    """
    model = make_model("llama", tie_word_embeddings=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.model.norm.weight.fill_(1.0)
        model.get_input_embeddings().weight[BOS] = 3.0  # divided by its root mean square: ones
        model.get_output_embeddings().weight[5, 0] = 1.0
    lm = PretrainedCausalLM(model)
    expected = math.log(math.e / (math.e + VOCAB - 1))
    assert float(lm.next_token_log_probs([[]])[0, 5]) == pytest.approx(expected, abs=1e-6)
    assert float(lm.decoder([[]]).next_log_probs()[0, 5]) == pytest.approx(expected, abs=1e-6)


# ------------------------------------------------------------------ costs


def test_one_append_and_one_question_is_one_pass_of_one_token_a_row():
    lm = make_lm()
    decoder = lm.decoder([[5, 6, 7], [8], [9, 10]])
    decoder.next_log_probs()
    assert (decoder.passes, decoder.slots_run) == (1, 4 + 2 + 3)
    for step in range(1, 4):
        decoder.append([11, 12, 13])
        decoder.next_log_probs()
        decoder.next_log_probs()  # asked again: nothing to run
        assert (decoder.passes, decoder.slots_run) == (1 + step, 9 + 3 * step)


def test_only_the_rows_that_are_asked_run():
    decoder = make_lm().decoder([[5, 6, 7], [8], [9, 10]])
    decoder.next_log_probs([1])
    assert (decoder.passes, decoder.slots_run) == (1, 2)
    decoder.append([4], [2])
    assert decoder.passes == 1  # lazily
    decoder.next_log_probs([2, 1])
    assert (decoder.passes, decoder.slots_run) == (2, 2 + 4)


def test_after_a_rollback_the_last_token_runs_once_more_and_the_rest_does_not():
    decoder = make_lm().decoder([[5, 6, 7, 8], [9, 10]])
    decoder.next_log_probs()
    decoder.rollback([2, 0])
    decoder.next_log_probs()
    assert (decoder.passes, decoder.slots_run) == (2, 5 + 3 + 1)
    decoder.rollback([1, 1])
    decoder.append([8, 8])  # the same lengths as before, other tokens
    decoder.next_log_probs()
    assert (decoder.passes, decoder.slots_run) == (3, 9 + 2)


def test_tokens_that_were_rewritten_without_a_question_run_again():
    lm = make_lm()
    decoder = lm.decoder([[5, 6, 7, 8], [9, 10, 11]])
    decoder.next_log_probs()
    decoder.rollback([3, 1])
    for tokens in ([12, 13], [14, 15], [16, 17]):
        decoder.append(tokens)
    for answer, row in zip(decoder.next_log_probs(), rows_of(decoder), strict=True):
        assert (answer - plain(lm, row)).abs().max() < 1e-4
    assert decoder.slots_run == 5 + 4 + 3 + 3


@pytest.mark.parametrize("guided", [False, True])
def test_keys_and_values_are_freed_with_their_decoder(guided):
    """And do not wait for the garbage collector: on a GPU they are gigabytes."""
    decoder = make_lm().decoder([[5, 6], [7]], layer=1)
    decoder.next_log_probs()
    parts = [weakref.ref(part) for layer in decoder._cache.layers for part in layer.tensors]
    gc.disable()
    try:
        if guided:
            ancestral.sample(decoder, length=20, rng=0)
        decoder.fork([1, 0]).hidden_state()
        del decoder
        assert [part() for part in parts] == [None] * 4
    finally:
        gc.enable()


def test_equal_prompts_run_once():
    lm = make_lm("gemma2")
    decoder = lm.decoder([[5, 6], [7], [5, 6], [5], [5, 6]], layer=-1)
    got = decoder.next_log_probs()
    assert (decoder.passes, decoder.slots_run) == (1, 3 + 2 + 2)
    decoder.append([8, 9, 10, 11, 12])
    got = decoder.next_log_probs()
    for answer, tokens in zip(got, rows_of(decoder), strict=True):
        assert (answer - plain(lm, tokens)).abs().max() < 1e-4


def test_forks_are_independent_and_share_the_count():
    lm = make_lm()
    decoder = lm.decoder([[5, 6], [7]])
    before = decoder.next_log_probs()
    twin = decoder.fork([1, 1, 0])
    twin.append([9, 10, 11])
    twin.next_log_probs()
    assert (decoder.passes, twin.passes) == (2, 2)
    decoder.append([12, 13])
    decoder.rollback([1, 1])
    assert (decoder.next_log_probs() - before).abs().max() < 1e-5
    assert rows_of(twin) == [[7, 9], [7, 10], [5, 6, 11]]
    for answer, tokens in zip(twin.next_log_probs(), rows_of(twin), strict=True):
        assert (answer - plain(lm, tokens)).abs().max() < 1e-4
    assert decoder.fork([]).next_log_probs().shape == (0, VOCAB)


# ------------------------------------------------------------------ hidden states


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3"])
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_hidden_states_are_those_of_the_chosen_layer(family, layer):
    lm = make_lm(family)
    index = 2 if layer == -1 else layer

    def check(decoder, rows):
        got, texts = decoder.hidden_state(rows), rows_of(decoder)
        for state, row in zip(got, rows.tolist(), strict=True):
            ids = torch.tensor([[BOS, *texts[row]]])
            with torch.no_grad():
                every = lm.model(ids, output_hidden_states=True, use_cache=False).hidden_states
            assert (state - every[index][0, -1]).abs().max() < 1e-4

    decoder = wander(lm.decoder([[5, 6, 7], [8], []], layer=layer), 12, 5, check)
    decoder.next_log_probs()
    passes = decoder.passes
    decoder.hidden_state()
    assert decoder.passes == passes  # no second pass
    assert isinstance(decoder, NetworkDecoder)


def test_the_last_state_gives_the_answer():
    lm = make_lm("llama")
    decoder = lm.decoder([[5, 6], [7]], layer=-1)
    logits = lm.model.get_output_embeddings()(decoder.hidden_state())
    assert (logits.double().log_softmax(-1) - decoder.next_log_probs()).abs().max() < 1e-5


def test_a_decoder_without_a_layer_keeps_no_states():
    with pytest.raises(UserError, match="layer=-1"):
        make_lm().decoder([[5]]).hidden_state()


@pytest.mark.parametrize("layer", [3, -2, 1.0, True])
@pytest.mark.usefixtures("unchecked_shapes")
def test_layers_that_do_not_exist(layer):
    with refused("layer"):
        make_lm().decoder([[5]], layer=layer)


# ------------------------------------------------------------------ what it is


def test_protocols_and_sizes():
    model = make_model()
    model.train()
    lm = PretrainedCausalLM(model)
    assert isinstance(lm, NextToken)
    assert isinstance(lm.decoder([[5]]), Decoder)
    assert (lm.vocab_size, lm.length, lm.bos_token) == (VOCAB, CONTEXT - 1, BOS)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert "LlamaForCausalLM" in repr(lm)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_answers_are_laws_in_any_precision(family, dtype):
    lm = make_lm(family, dtype)
    prefix = [[5, 6, 7], [8, 9, 10]]
    for answer in (lm.next_token_log_probs(prefix), lm.decoder(prefix).next_log_probs()):
        assert answer.dtype == torch.float64
        assert answer.logsumexp(-1).abs().max() < 1e-12


def test_bfloat16_is_near_float32():
    rough, fine = make_lm("llama", torch.bfloat16), make_lm("llama")
    prefix = [[5, 6, 7]]
    exact = fine.next_token_log_probs(prefix).exp()
    for answer in (rough.next_token_log_probs(prefix), rough.decoder(prefix).next_log_probs()):
        assert (answer.exp() - exact).abs().sum() / 2 < 0.05
    state = rough.decoder(prefix, layer=-1).hidden_state()
    assert state.dtype == torch.float32


@pytest.mark.usefixtures("unchecked_shapes")
def test_the_length_is_the_context_without_bos():
    assert make_lm(bos=False).length == CONTEXT
    assert make_lm("gpt2").length == CONTEXT - 1
    assert make_lm(length=7).length == 7
    for length in (0, CONTEXT, 2.5):
        with refused("length"):
            make_lm(length=length)


def test_the_whole_length_can_be_used():
    for family in ("gpt2", "gemma3"):
        lm = make_lm(family)
        tokens = [3 + i % 40 for i in range(lm.length - 1)]
        decoder = lm.decoder([tokens])
        assert (decoder.next_log_probs()[0] - plain(lm, tokens)).abs().max() < 1e-4
        decoder.append([5])
        with refused("rows"):
            decoder.next_log_probs()
        with refused("prefix"):
            lm.next_token_log_probs([[*tokens, 5]])


def test_longrope_stops_at_its_original_context():
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "original_max_position_embeddings": 16,
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
        "factor": 2.5,
    }
    assert make_lm(rope_parameters=rope).length == 15


# ------------------------------------------------------------------ BOS and the end


def test_the_empty_prefix_is_answered_through_bos():
    lm = make_lm()
    with torch.no_grad():
        expected = lm.model(torch.tensor([[BOS]])).logits[0, -1].double().log_softmax(-1)
    assert (lm.next_token_log_probs([[]])[0] - expected).abs().max() < 1e-6
    assert (lm.decoder([[]]).next_log_probs()[0] - expected).abs().max() < 1e-6
    assert lm.next_token_log_probs(torch.zeros(0, 3, dtype=torch.long)).shape == (0, VOCAB)


def test_a_model_without_bos_has_no_empty_prefix():
    for lm in (make_lm(bos=False), make_lm(bos_token_id=None)):
        with refused("prefix"):
            lm.next_token_log_probs([[]])
        with refused("rows"):
            lm.decoder([[5], []]).next_log_probs()
        assert (lm.next_token_log_probs([[5, 6]])[0] - plain(lm, [5, 6])).abs().max() < 1e-6
        decoder = lm.decoder([[5, 6, 7], [8]])
        decoder.rollback([1, 0])
        assert (decoder.next_log_probs()[0] - plain(lm, [5, 6])).abs().max() < 1e-4


@pytest.mark.usefixtures("unchecked_shapes")
def test_which_token_bos_is():
    assert make_lm(bos_token_id=9).bos_token == 9
    assert make_lm(bos_token_id=9, tokenizer=make_tokenizer()).bos_token == BOS
    assert make_lm(bos=7).bos_token == 7
    assert make_lm(tokenizer=make_tokenizer(bos_token=None)).bos_token is None
    for bos in (VOCAB, -1, "x"):
        with pytest.raises(UserError, match="BOS token|bos is"):
            make_lm(bos=bos)
    assert (make_lm(bos=7).next_token_log_probs([[5]]) - plain(make_lm(bos=7), [5])).abs().max() < (
        1e-6
    )


def test_a_second_bos_is_refused():
    with refused("prompts"):
        make_lm().decoder([[5], [BOS, 5]])
    with refused("prompts"):
        make_lm(tokenizer=make_tokenizer()).decoder(["[BOS] the cat"])
    assert make_lm(bos=False).decoder([[BOS, 5]]).lengths.tolist() == [2]


def test_all_end_tokens_are_found():
    model = make_model(eos_token_id=[EOS, 9])
    model.generation_config.eos_token_id = [9, 12]
    assert PretrainedCausalLM(model).end_tokens == (EOS, 9, 12)
    assert PretrainedCausalLM(model, make_tokenizer(eos_token="then")).end_tokens == (2, 9, 12, 16)
    assert make_lm(eos_token_id=None).end_tokens == ()


# ------------------------------------------------------------------ text


def test_text_and_tokens():
    lm = make_lm(tokenizer=make_tokenizer())
    rows = lm.encode(["the cat sat", "a dog", ""])
    assert rows == [[5, 7, 9], [6, 8], []]  # the tokenizer would put BOS before each
    assert lm.decode(rows) == ["the cat sat", "a dog", ""]
    assert lm.decode([[5, 7, EOS]]) == ["the cat"]
    assert lm.decode([[5, 7, EOS]], special=True) == ["the cat [EOS]"]
    assert lm.text_of(torch.tensor([5, 7, -1, -1])) == "the cat"
    decoder = lm.decoder(["the cat sat", "a dog"])
    assert lm.decode(decoder.tokens) == ["the cat sat", "a dog"]
    given = lm.decoder(rows[:2]).next_log_probs()
    assert torch.equal(decoder.next_log_probs(), given)


def test_chat_by_the_template_and_without_its_bos():
    lm = make_lm(tokenizer=make_tokenizer(template=TEMPLATE))
    said = [{"role": "user", "content": "the cat sat"}, {"role": "assistant", "content": "it was"}]
    assert lm.chat("the cat") == [4, 5, 7, EOS, 4]
    assert lm.chat(said) == [4, 5, 7, 9, EOS, 4, 17, 18, EOS, 4]
    plain_lm = make_lm(tokenizer=make_tokenizer(template=TEMPLATE), bos=False)
    assert plain_lm.chat("the cat") == [BOS, 4, 5, 7, EOS, 4]
    assert lm.decoder([lm.chat("the cat")]).next_log_probs().shape == (1, VOCAB)


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [([], "messages is empty"), ([{"role": "user"}], r"messages\[0\]"), (5, "messages is 5")],
)
@pytest.mark.usefixtures("unchecked_shapes")
def test_conversations_that_are_none(messages, sentence):
    with pytest.raises(UserError, match=sentence):
        make_lm(tokenizer=make_tokenizer(template=TEMPLATE)).chat(messages)


def test_what_needs_a_tokenizer_says_so():
    lm = make_lm()
    for question in (
        lambda: lm.encode(["the"]),
        lambda: lm.decode([[5]]),
        lambda: lm.text_of([5]),
        lambda: lm.chat("the"),
        lambda: lm.decoder(["the"]),
    ):
        with pytest.raises(UserError, match="no tokenizer"):
            question()
    with pytest.raises(UserError, match="no chat template"):
        make_lm(tokenizer=make_tokenizer()).chat("the cat")


def test_the_tokenizer_of_another_model():
    many = [*WORDS, *(f"word{i}" for i in range(VOCAB))]
    with refused("tokenizer"):
        make_lm(tokenizer=make_tokenizer(many))
    with refused("tokenizer"):
        make_lm(tokenizer="llama")


def test_added_tokens_beyond_the_model_are_refused_where_they_are_used():
    """Gemma's tokenizer has a token for images that the text model has not."""
    words = [*WORDS, *(f"word{i}" for i in range(VOCAB - len(WORDS)))]
    tokenizer = make_tokenizer(words)
    tokenizer.add_tokens(["[IMAGE]"])
    lm = make_lm(tokenizer=tokenizer)
    assert lm.encode(["the cat"]) == [[5, 7]]
    with refused("texts"):
        lm.encode(["the [IMAGE]"])


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("prompts", "sentence"),
    [
        ([[5, VOCAB]], r"prompts\[0\] has the token 50"),
        ([[5], [-3]], r"prompts\[1\] has the token -3"),
        ([[5, -1, 6]], r"prompts\[0\] has the token -1"),
        ([[5.0]], "whole number"),
        ([5, 6], r"prompts\[0\] is 5"),
        ([], "prompts is empty"),
        ("the cat", "pass a list of prompts"),
        (None, "prompts is None"),
        ([[5] * (CONTEXT - 1)], "has 39 tokens; sequences of this model have at most 39"),
        ([["the"], "cat"], r"texts\[0\]"),
        (torch.tensor([[0.5]]), "prompts"),
        ([[5, 6, PAD], [5, 6, 7]], "padding token 0"),
        ([[PAD, 5, 6]], "padding token 0"),
    ],
)
@pytest.mark.usefixtures("unchecked_shapes")
def test_prompts_that_are_refused(prompts, sentence):
    with pytest.raises(UserError, match=sentence):
        make_lm(tokenizer=make_tokenizer()).decoder(prompts)


def test_padding_that_is_also_the_end_token():
    lm = make_lm(tokenizer=make_tokenizer(pad="[EOS]"))
    assert lm.decoder([[5, EOS]]).lengths.tolist() == [2]  # it may be meant
    for prompt in ([5, EOS, EOS], [EOS, EOS, 5]):
        with pytest.raises(UserError, match="padding token 2"):
            lm.decoder([prompt])


def test_a_tensor_of_prompts_is_padded_at_its_end():
    decoder = make_lm().decoder(torch.tensor([[5, 6, 7], [8, -1, -1]]))
    assert decoder.lengths.tolist() == [3, 1]
    assert decoder.tokens.tolist() == [[5, 6, 7], [8, -1, -1]]


@pytest.mark.parametrize("prefix", [[[5, VOCAB]], [[-1]], [5, 6], [["a"]], [[5] * CONTEXT]])
@pytest.mark.usefixtures("unchecked_shapes")
def test_prefixes_that_are_refused(prefix):
    with pytest.raises(UserError):
        make_lm().next_token_log_probs(prefix)


@pytest.mark.parametrize("tokens", [[VOCAB, 5], [5], [5.5, 6], [-1, 5]])
@pytest.mark.usefixtures("unchecked_shapes")
def test_tokens_that_cannot_be_appended_change_nothing(tokens):
    lm = make_lm()
    decoder = lm.decoder([[5, 6], [7]])
    decoder.next_log_probs()
    with pytest.raises(UserError):
        decoder.append(tokens)
    with refused("counts"):
        decoder.rollback([0, 2])
    for answer, row in zip(decoder.next_log_probs(), [[5, 6], [7]], strict=True):
        assert (answer - plain(lm, row)).abs().max() < 1e-4


def refused_configs():
    small = {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2}
    yield transformers.MambaConfig(**small), "recurrent state"
    yield transformers.BloomConfig(vocab_size=VOCAB, hidden_size=16, n_layer=2, n_head=2), "cache"
    neo = {"num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]}
    yield (
        transformers.GPTNeoConfig(vocab_size=VOCAB, hidden_size=16, **neo),
        "counts slots of the cache",
    )


@pytest.mark.parametrize(
    ("config", "sentence"), [*refused_configs()], ids=lambda value: type(value).__name__
)
def test_families_that_cannot_be_rolled_back_exactly(config, sentence):
    with pytest.raises(UserError, match=sentence):
        PretrainedCausalLM(make_model(config), length=20, bos=1)


def test_kinds_of_layers():
    assert attention_windows(make_model("llama")) == {"full_attention": None}
    assert attention_windows(make_model("mistral")) == {"sliding_attention": WINDOW}
    mixed = {"sliding_attention": WINDOW, "full_attention": None}
    assert attention_windows(make_model("gemma3")) == mixed
    model = make_model("gemma3")
    model.config.layer_types = ["chunked_attention", "full_attention"]
    with pytest.raises(UserError, match="'chunked_attention'"):
        PretrainedCausalLM(model)
    model = make_model()
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(UserError, match="attn_implementation"):
        PretrainedCausalLM(model)


def test_eager_attention_reads_the_same_masks():
    model = make_model("gemma2")
    model.set_attn_implementation("eager")
    lm = PretrainedCausalLM(model)
    decoder = lm.decoder([[5, 6, 7, 8, 9, 10], [7]])
    for answer, row in zip(decoder.next_log_probs(), rows_of(decoder), strict=True):
        assert (answer - plain(lm, row)).abs().max() < 1e-4


def test_a_family_that_ignores_positions_is_refused():
    """As a model would be that counts positions from the number of slots in the cache."""
    model = make_model("gpt2")
    forward = model.forward

    def deaf(*args, position_ids=None, **options):
        return forward(*args, **options)

    model.forward = deaf
    with pytest.raises(UserError, match=r"differently with a cache|cannot be asked through a"):
        PretrainedCausalLM(model)


@pytest.mark.parametrize("model", [None, "gpt2", torch.nn.Linear(2, 2)])
def test_models_that_are_none(model):
    with refused("model"):
        PretrainedCausalLM(model)


def test_a_model_without_a_head_and_one_with_an_encoder():
    with refused("model"):
        PretrainedCausalLM(transformers.AutoModel.from_config(config_of("llama")))
    sizes = {"vocab_size": VOCAB, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1}
    t5 = transformers.T5ForConditionalGeneration(
        transformers.T5Config(**sizes, num_heads=2, decoder_start_token_id=0)
    )
    with refused("model"):
        PretrainedCausalLM(t5)


# ------------------------------------------------------------------ loading


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_folder_is_loaded(family, tmp_path):
    model = make_model(family)
    model.save_pretrained(tmp_path)
    make_tokenizer(template=TEMPLATE).save_pretrained(tmp_path)
    lm = PretrainedCausalLM.from_pretrained(tmp_path, length=20)
    assert (lm.dtype, lm.length, lm.bos_token) == (torch.float32, 20, BOS)
    expected = PretrainedCausalLM(model).next_token_log_probs([[5, 6]])
    assert (lm.next_token_log_probs([[5, 6]]) - expected).abs().max() < 1e-6
    assert lm.chat("the cat") == [4, 5, 7, EOS, 4]
    rough = PretrainedCausalLM.from_pretrained(str(tmp_path), dtype="bfloat16", bos=False)
    assert (rough.dtype, rough.bos_token) == (torch.bfloat16, None)


def test_an_encoder_is_not_loaded_as_a_causal_model(tmp_path):
    config = transformers.LlamaConfig(
        **config_of("llama").to_dict() | {"tie_word_embeddings": False}
    )
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match="has no weights for lm_head"):
        PretrainedCausalLM.from_pretrained(tmp_path)


@pytest.mark.usefixtures("unchecked_shapes")
def test_places_that_do_not_exist(tmp_path):
    with refused("shown_name"):
        PretrainedCausalLM.from_pretrained(tmp_path, local_files_only=True)
    with pytest.raises(UserError, match="no file"):
        PretrainedCausalLM.from_pretrained(tmp_path / "model.gguf")
    for kind in (PretrainedCausalLM, PretrainedMaskedLM, PretrainedEncoder, RewardModel):
        for where in ("", 5):
            with pytest.raises(UserError, match=r"is (''|5); pass a folder"):
                kind.from_pretrained(where)
        with pytest.raises(UserError, match="is None.*triptych fetch"):
            kind.from_pretrained(None)  # what `cached` says of a model that is not here


@pytest.mark.parametrize("dtype", ["float8", "int64", torch.int64, None, 32])
@pytest.mark.usefixtures("unchecked_shapes")
def test_dtypes_that_are_refused(dtype):
    with refused("dtype"):
        as_dtype(dtype)
    assert as_dtype("float16") == torch.float16
    assert as_dtype(torch.bfloat16) == torch.bfloat16


@pytest.mark.parametrize(("file", "package"), [("m", "transformers"), ("m.gguf", "gguf")])
def test_a_package_that_is_missing_is_named(file, package, tmp_path, monkeypatch):
    (tmp_path / "m.gguf").write_bytes(b"")
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == package else find(name)
    )
    with pytest.raises(ModuleNotFoundError, match=f"pip install {package}"):
        PretrainedCausalLM.from_pretrained(tmp_path / file)


# ------------------------------------------------------------------ the block of slots


def test_a_ragged_block_ends_with_every_rows_last_token():
    rows, known, needed = torch.tensor([2, 4]), torch.tensor([3, 0]), torch.tensor([4, 3])
    block = _block(rows, known, needed)
    assert block.slots.tolist() == [[3, 3, 3], [0, 1, 2]]
    assert (block.upto, block.new) == (4, 4)
    assert block.fresh is not None
    assert block.fresh[0].tolist() == [2, 4, 4, 4]
    assert block.fresh[1].tolist() == [3, 0, 1, 2]
    level = _block(torch.tensor([2, 3]), torch.tensor([3, 3]), torch.tensor([5, 5]))
    assert level.fresh is None
    assert level.rows == slice(2, 4)
    assert level.slots.tolist() == [[3, 4], [3, 4]]


class Silent:
    """A client of a hub that answers nobody."""

    asked = 0

    def head(self, *_, **__):
        Silent.asked += 1
        raise OSError("no route")


LOADERS = {
    "causal": PretrainedCausalLM.from_pretrained,
    "masked": PretrainedMaskedLM.from_pretrained,
    "encoder": PretrainedEncoder.from_pretrained,
    "reward": RewardModel.from_pretrained,
    "process reward": lambda name: ProcessReward.from_pretrained(name, StepTokens("<extra_0>")),
}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_a_hub_that_does_not_answer_is_asked_once(load, tmp_path, monkeypatch):
    """Then the disk is read, and a name that is not there gets a sentence."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "is_offline_mode", lambda: False)
    monkeypatch.setattr("huggingface_hub.utils.get_session", Silent)
    Silent.asked = 0
    with pytest.raises(UserError, match="the hub does not answer"):
        load("some-owner/no-such-model")
    assert Silent.asked == 1
    (tmp_path / "models--some-owner--no-such-model").mkdir()
    with pytest.raises(UserError) as refused:  # it is in the cache, though not whole
        load("some-owner/no-such-model")
    assert "does not answer" not in str(refused.value)
    monkeypatch.setattr(constants, "is_offline_mode", lambda: True)
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set"):
        load("some-owner/another")
    assert Silent.asked == 2


def test_a_hub_that_answers_is_left_to_transformers(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("triptych.core.foreign_models._hub_answers", lambda: True)
    assert on_disk_alone("some-owner/no-such-model", False) is False
    assert on_disk_alone("some-owner/no-such-model", True) is True
    assert on_disk_alone(str(tmp_path), False) is False


@pytest.mark.parametrize("loader", [PretrainedCausalLM, PretrainedEncoder])
@pytest.mark.parametrize("name", ["gemma3-270m", "minilm"])
def test_a_model_that_was_not_fetched_gets_the_sentence_of_the_command(
    loader, name, tmp_path, monkeypatch, unchecked_shapes
):
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"run `triptych fetch {name}`"):
        loader.from_pretrained(name)
    with pytest.raises(UserError, match="triptych fetch NAME"):
        loader.from_pretrained(cached(name))
