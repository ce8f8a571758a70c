"""The logits processor: its law against `tokenwise.law`, by enumeration on a tiny model."""

import math

import pytest
import torch
from tests.support.tiny_text_model import BOS, END, EOS, LETTERS, tiny_classifier, tiny_lm

from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.guidance.logits import ValueLogitsProcessor
from triptych.inference.guided import tokenwise
from triptych.verifiers.exact import Rule
from triptych.verifiers.probe import Probe
from triptych.verifiers.reward import RewardModel
from triptych.verifiers.text import TextRule
from triptych.verifiers.text_rules.regular import RegexPrefix

LM = tiny_lm()
MODEL, TOKENIZER, VOCAB = LM.model, LM.tokenizer, LM.vocab_size
PROMPT = [BOS, *LM.encode(["ab"])[0]]


def soft(text):
    """Between 1/9 and 1, never 0."""
    return (1 + text.count("a") + 2 * text.count("0")) / 9


def few_brackets(text):
    return not any(letter in text for letter in "()[]{}")


def scores_after(rows):
    with torch.no_grad():
        return MODEL(input_ids=torch.tensor(rows)).logits[:, -1]


def law_of(processor, length=2):
    """log q of every completion, step by step through the processor."""
    log_probs = torch.zeros(1, dtype=torch.float64)
    rows = [PROMPT]
    for _ in range(length):
        steps = torch.full((len(rows), VOCAB), -torch.inf, dtype=torch.float64)
        reached = [i for i in range(len(rows)) if log_probs[i] > -math.inf]
        ids = torch.tensor([rows[i] for i in reached])
        steps[reached] = processor(ids, scores_after(ids.tolist())).double().log_softmax(-1)
        log_probs = (log_probs[:, None] + steps).reshape(-1)
        rows = [[*row, token] for row in rows for token in range(VOCAB)]
    return log_probs


def table_of(length=2):
    """The model after the prompt, as a table of all completions."""
    return Table(VOCAB, length, law_of(lambda ids, scores: scores, length))


def verifier_of(function):
    return TextRule(function, LM.text_of, end_token=None)


@pytest.mark.parametrize(
    ("function", "accept", "threshold"),
    [(soft, "value", 0.5), (soft, "threshold", 0.3), (few_brackets, "value", 0.5)],
)
def test_the_law_is_that_of_tokenwise(function, accept, threshold):
    table = table_of()
    expected = tokenwise.law(table, verifier_of(function), accept=accept, threshold=threshold)
    processor = ValueLogitsProcessor(
        function,
        TOKENIZER,
        candidates=None,
        accept=accept,
        threshold=threshold,
        end_token=[],
        prompt_length=len(PROMPT),
    )
    found = law_of(processor)
    torch.testing.assert_close(found.exp(), expected.log_probs.exp(), rtol=1e-5, atol=1e-9)
    assert float(found.exp().sum()) == pytest.approx(1)


def test_worked_value():
    """p = (1/2, 1/4, 1/4) and V = (0.5, 1, 0) become (1/2, 1/2, 0)."""
    scores = torch.tensor([[0.5, 0.25, 0.25]]).log()

    class Values:
        def log_value(self, prefix):
            return torch.tensor([0.5, 1.0, 0.0], dtype=torch.float64)[prefix[:, -1]].log()

    after = ValueLogitsProcessor(Values())(torch.tensor([[2]]), scores).softmax(-1)
    assert after.tolist()[0] == pytest.approx([0.5, 0.5, 0])


def test_only_the_likeliest_are_asked_about():
    asked = []

    def rule(text):
        asked.append(text)
        return True

    scores = scores_after([PROMPT])
    after = ValueLogitsProcessor(rule, TOKENIZER, candidates=3)(torch.tensor([PROMPT]), scores)
    top = scores[0].topk(3).indices.tolist()
    assert sorted(torch.nonzero(after[0] > -math.inf)[:, 0].tolist()) == sorted(top)
    assert after[0, top].tolist() == scores[0, top].tolist()
    assert len(asked) <= 3


def test_when_all_are_refused_the_next_ones_are_asked():
    order = scores_after([PROMPT])[0].argsort(descending=True).tolist()
    letters = [t for t in order if t >= 4]
    wanted = LM.text_of([letters[9]])
    processor = ValueLogitsProcessor(
        lambda text, finished: not finished and text == wanted, TOKENIZER, candidates=2
    )
    after = processor(torch.tensor([PROMPT]), scores_after([PROMPT]))
    assert torch.nonzero(after[0] > -math.inf)[:, 0].tolist() == [letters[9]]
    never = ValueLogitsProcessor(lambda text: False, TOKENIZER)
    with pytest.raises(UserError, match="refuses every token after ''; a rule must accept"):
        never(torch.tensor([PROMPT]), scores_after([PROMPT]))


def test_inside_generate_every_text_is_accepted():
    inputs = torch.tensor([[0, 0, BOS, 4], [0, BOS, 4, 5], [BOS, 5, 4, 6]])
    options = {"attention_mask": (inputs > 0).long(), "do_sample": True, "max_new_tokens": 8}
    processor = ValueLogitsProcessor(few_brackets, TOKENIZER, end_token=[EOS, END])
    torch.manual_seed(0)
    for _ in range(2):  # the second generation begins where its own prompts end
        ids = MODEL.generate(input_ids=inputs, logits_processor=[processor], **options)
        assert all(few_brackets(LM.text_of(row)) for row in ids[:, 4:].tolist())
    longer = MODEL.generate(input_ids=ids[:, :5], logits_processor=[processor], max_new_tokens=2)
    assert all(few_brackets(LM.text_of(row)) for row in longer[:, 5:].tolist())
    beams = MODEL.generate(
        input_ids=inputs, logits_processor=[processor], num_beams=2, max_new_tokens=4
    )
    assert all(few_brackets(LM.text_of(row)) for row in beams[:, 4:].tolist())


def test_where_a_generation_begins():
    processor = ValueLogitsProcessor(lambda text: True, TOKENIZER)
    prompts = torch.tensor([[5, 6], [7, 8]])
    assert processor._start(prompts) == 2
    assert processor._start(torch.tensor([[5, 6, 9], [7, 8, 9]])) == 2
    assert processor._start(torch.tensor([[5, 6, 9, 9], [7, 8, 9, 9]])) == 2
    assert processor._start(torch.tensor([[5, 4, 9, 9, 9], [7, 8, 9, 9, 9]])) == 5
    assert processor._start(prompts) == 2
    assert processor._start(torch.tensor([[5, 6, 9]])) == 3


def test_a_row_that_ended_is_left_alone_and_the_end_is_told():
    seen = set()

    def rule(text, finished):
        seen.add((text, finished))
        return True

    processor = ValueLogitsProcessor(rule, TOKENIZER, candidates=None, prompt_length=1)
    rows = [[BOS, 4, EOS], [BOS, 4, 5]]
    scores = scores_after(rows)
    after = processor(torch.tensor(rows), scores)
    assert after[0].tolist() == scores[0].tolist()
    assert seen == {("ab", True), ("ab", False), *(("ab" + one, False) for one in LETTERS)}


def test_verifiers_of_tokens_do_not_see_the_padding():
    seen = []

    def rule(tokens):
        seen.append(tokens)
        return True

    rows = torch.tensor([[0, 0, BOS, 4], [BOS, 5, 4, 6]])
    processor = ValueLogitsProcessor(Rule(rule), TOKENIZER, candidates=1)
    processor(rows, scores_after(rows.tolist()))
    assert sorted(len(tokens) for tokens in seen) == [3, 5]


def test_a_reward_model_weighs_tokens():
    reward = RewardModel(tiny_classifier(), TOKENIZER)
    processor = ValueLogitsProcessor(reward, TOKENIZER, candidates=4)
    scores = scores_after([PROMPT])
    after = processor(torch.tensor([PROMPT]), scores)
    for token in scores[0].topk(4).indices.tolist():
        (value,) = reward([LM.text_of([token])], "ab")
        gain = float(after[0, token] - scores[0, token])
        assert gain == pytest.approx(math.log(value), rel=1e-3)


def test_the_end_comes_where_a_text_is_over():
    """Of "aa" nothing may follow but the end; a row that is not over is asked about as before."""
    a, b = LM.encode(["ab"])[0]
    processor = ValueLogitsProcessor(RegexPrefix("aa|ab?b"), TOKENIZER, prompt_length=1)
    ids = torch.tensor([[BOS, a, a], [BOS, a, b]])
    after = processor(ids, scores_after(ids.tolist()))
    allowed, end = after > -math.inf, TOKENIZER.eos_token_id
    assert torch.nonzero(allowed[0])[:, 0].tolist() == [end]
    assert after[0, end] == 0.0
    assert allowed[1, [a, b, end]].tolist() == [False, True, True]


def test_the_end_comes_where_a_text_is_over_whatever_pads_its_prompt():
    """A verifier of token ids that names its start by the prompt, with padding before it."""
    a, b = LM.encode(["ab"])[0]
    pad, end = TOKENIZER.pad_token_id, TOKENIZER.eos_token_id
    rule = TextRule(RegexPrefix("aa"), LM.text_of, start=1, end_token=end)
    processor = ValueLogitsProcessor(rule, TOKENIZER, prompt_length=3)
    ids = torch.tensor([[pad, pad, b, a, a], [pad, pad, b, a, a]])
    after = processor(ids, scores_after(ids.tolist()))
    assert torch.nonzero(after > -math.inf).tolist() == [[0, end], [1, end]]


def test_bad_input_gets_a_sentence(unchecked_shapes):
    class Above:
        def log_value(self, prefix):
            return torch.ones(len(prefix))

    class Short:
        def log_value(self, prefix):
            return torch.zeros(1)

    probe = Probe(torch.zeros(1), torch.ones(1), (torch.zeros(2, 1),), (torch.zeros(2),), 1)
    ids, scores = torch.tensor([PROMPT]), scores_after([PROMPT])
    for given, sentence in [
        (lambda: ValueLogitsProcessor(None, TOKENIZER), "verifier is None"),
        (lambda: ValueLogitsProcessor(soft), "there is no tokenizer"),
        (lambda: ValueLogitsProcessor(3, TOKENIZER), "verifier is 3"),
        (lambda: ValueLogitsProcessor(soft, 3), "tokenizer is 3"),
        (lambda: ValueLogitsProcessor(probe), "Probe reads hidden states"),
        (lambda: ValueLogitsProcessor(soft, TOKENIZER, candidates=0), "candidates is 0"),
        (lambda: ValueLogitsProcessor(soft, TOKENIZER, accept="all"), "accept is 'all'"),
        (lambda: ValueLogitsProcessor(soft, TOKENIZER, threshold=2), "threshold is 2"),
        (lambda: ValueLogitsProcessor(Above())(ids, scores), "Above says log V = 1"),
        (lambda: ValueLogitsProcessor(Short())(ids, scores), "one number a prefix"),
        (
            lambda: ValueLogitsProcessor(lambda text: "yes", TOKENIZER)(ids, scores),
            "answered 'yes'",
        ),
    ]:
        with pytest.raises(UserError, match=sentence):
            given()
