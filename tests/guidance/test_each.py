"""Stop strings, greedy decoding with a rule, majority, prompts without end, rules that wait."""

import asyncio
import inspect
import itertools
import threading

import pytest
import torch
from tests.support.tiny_text_model import LETTERS, tiny_lm

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Question
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.guidance.guide import Encoded, guide, guide_each, make_job
from triptych.guidance.stops import Stops
from triptych.guidance.streaming import Done, Erased, Refused, Token, guide_stream
from triptych.inference.guided.adaptive import Adaptive
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.greedy import Greedy
from triptych.inference.guided.majority import Majority, winner
from triptych.inference.guided.result import Reason
from triptych.inference.guided.transforms import Sampling
from triptych.verifiers.exact import Rule
from triptych.verifiers.text import TextRule
from triptych.verifiers.text_rules.brackets import BracketPrefix

LM = tiny_lm()
PROMPTS = ["a", "ab", "ba0", "(", "a"]


def few_zeros(text):
    return text.count("0") <= 1


# ----------------------------------------------------------------------------- stop strings


@pytest.mark.parametrize("algorithm", ["ancestral", "best_of_n", "particles", "adaptive"])
def test_a_text_ends_before_a_stop_string(algorithm):
    """The same draws up to there, and nothing is drawn after it."""
    plain = guide(LM, PROMPTS, few_zeros, algorithm, max_new_tokens=12, rng=1)
    found = guide(LM, PROMPTS, few_zeros, algorithm, max_new_tokens=12, rng=1, stop=["]", "b"])
    assert not any(stop in text for text in found.texts for stop in ("]", "b"))
    assert found.totals["generated"] < plain.totals["generated"]
    if algorithm == "ancestral":
        cut = [min(text.partition(stop)[0] for stop in ("]", "b")) for text in plain.texts]
        assert [text.startswith(found.texts[b]) for b, text in enumerate(plain.texts)] == [True] * 5
        assert [len(text) for text in found.texts] <= [len(text) for text in cut]
        assert all(found.complete)


def test_a_rule_is_told_that_a_stopped_text_is_over():
    seen = set()

    def rule(text, finished):
        seen.add((text, finished))
        return True

    found = guide(LM, ["a"], rule, "tokenwise", max_new_tokens=12, rng=1, stop="]")
    assert (found.texts[0], True) in seen
    assert not any("]" in text for text, _ in seen)


def test_stops_by_hand(unchecked_shapes):
    stops = Stops(["b", "aaa"], lambda tokens: "".join("ab"[t] for t in tokens))
    rows = torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0], [0, 0, -1, -1], [1, 0, -1, -1]])
    lengths, starts = torch.tensor([4, 4, 2, 2]), torch.tensor([0, 2, 0, 1])
    asked = Question(rows, lengths, starts, lengths < 0, torch.arange(4))
    assert stops.over(asked).tolist() == [True, False, False, False]
    assert stops.cut([0, 0, 1, 0]) == "aa"
    assert stops.cut([0, 0, 0, 1]) == ""
    for stop, sentence in (
        ("", "stop is"),
        (["a", ""], "empty string"),
        ([3], "a stop string is 3"),
    ):
        if stop:
            with pytest.raises(UserError, match=sentence):
                guide(LM, ["a"], max_new_tokens=2, stop=stop)


# ----------------------------------------------------------------------------- greedy, majority


def test_temperature_0_with_a_rule_is_greedy_decoding():
    """Every token is the likeliest one that the rule accepts; the rule is kept."""
    rule = BracketPrefix("()")
    found = guide(LM, PROMPTS, rule, max_new_tokens=6, sampling=Sampling(temperature=0), rng=4)
    again = guide(LM, PROMPTS, rule, Greedy(), max_new_tokens=6, rng=9)
    assert found.texts == again.texts
    assert found.reasons == again.reasons
    plain = guide(LM, PROMPTS, max_new_tokens=6, sampling=Sampling(temperature=0))
    assert plain.texts == guide(LM, PROMPTS, max_new_tokens=6, sampling=Sampling(top_k=1)).texts
    for b, text in enumerate(found.texts):
        row = LM.encode([PROMPTS[b]])[0]
        law = LM.next_token_log_probs(torch.tensor([row]))[0]
        fine = [t for t in range(4, 4 + len(LETTERS)) if rule(LM.text_of([t]))]
        first = max([*fine, 2, 3], key=lambda t, law=law: float(law[t]))
        assert text == "" or text[0] == LM.text_of([first])


def test_a_majority_of_texts_by_their_answer():
    answered = []

    def last(text):
        answered.append(text)
        return text[-1:]

    found = guide(LM, ["a", "b"], few_zeros, Majority(7, last), max_new_tokens=3, rng=2)
    assert all(isinstance(text, str) for text in answered)
    for text, candidates in zip(found.texts, found.candidates, strict=True):
        votes = {}
        for each in candidates:
            votes[each.text[-1:]] = votes.get(each.text[-1:], 0) + each.value
        assert votes[text[-1:]] == max(votes.values())
    assert winner([(0,), (1,), (1,)], [1.0, 0.5, 0.25]) == (0, pytest.approx(4 / 7))
    assert winner([(0,), (1,), (1,)], [1.0, 1.0, 1.0]) == (1, pytest.approx(2 / 3))
    assert winner([(0,), (1,)], [0.0, 0.0]) == (0, 0.0)
    assert winner([(0, 2), (1, 2)], [0.0, 1.0], lambda x: x[1]) == (1, 1.0)


# ----------------------------------------------------------------------------- what is left


def test_adaptive_keeps_its_best_unfinished_text():
    """Nothing follows 1 1: a row that comes there stands there, with the reason."""
    lm = Table.random(vocab_size=2, length=4, seed=0)
    stuck = Rule(lambda x: x in ([1], [1, 1]))
    result = Adaptive(3).sample(RecomputingDecoder(lm, 2), stuck, length=4, rng=0)
    assert result.completions() == [(1, 1), (1, 1)]
    assert result.reasons == (Reason.PARTICLES,) * 2
    assert not result.complete.any()
    budget, anything = Budget(tokens=4), Rule(lambda x: True)
    short = Adaptive(2).sample(RecomputingDecoder(lm, 1), anything, length=4, rng=0, budget=budget)
    assert (len(short.completions()[0]), short.reasons) == (2, (Reason.TOKENS,))


# ----------------------------------------------------------------------------- prompts without end


def test_prompts_of_an_iterable_get_the_texts_of_guide():
    whole = guide(LM, PROMPTS, few_zeros, max_new_tokens=5, rng=3)
    taken = []

    def prompts():
        for prompt in itertools.chain(PROMPTS, itertools.repeat("b")):
            taken.append(prompt)
            yield prompt

    each = guide_each(LM, prompts(), few_zeros, max_new_tokens=5, rng=3, batch=2)
    assert taken == []
    found = list(itertools.islice(each, 5))
    assert [row.text for row in found] == whole.texts
    assert [row.costs for row in found] == whole.costs
    assert len(taken) == 6  # three batches of two


# ----------------------------------------------------------------------------- streaming


@pytest.mark.parametrize("algorithm", ["tokenwise", "backtracking", "rejection", "vgb"])
def test_a_stream_tells_what_happens_in_order_and_ends_with_the_texts_of_guide(algorithm):
    def no_letters(text):
        return not set(text) & set("ab01")

    given = {"max_new_tokens": 6, "rng": 3}
    whole = guide(LM, PROMPTS, no_letters, algorithm, **given)
    events = list(guide_stream(LM, PROMPTS, no_letters, algorithm, batch=2, **given))
    for number, text in enumerate(whole.texts):
        own = [event for event in events if event.prompt == number]
        assert isinstance(own[-1], Done)
        assert own[-1].completion.text == text
        assert own[-1].completion.costs == whole.costs[number]
        assert [type(event) for event in own].count(Done) == 1
        for before, after in itertools.pairwise(own[:-1]):
            if isinstance(before, Token) and isinstance(after, Token) and algorithm != "tokenwise":
                assert after.text.startswith(before.text)
            if isinstance(before, Token) and isinstance(after, Erased):
                assert before.text.startswith(after.text)
    recorded = guide(LM, PROMPTS, no_letters, algorithm, record=True, **given)
    actions = [event.action for result in recorded.results for event in result.trace]
    assert {"backtracking": "backtrack", "vgb": "up"}.get(algorithm, "reject") in actions
    for kind, names in ((Erased, ("backtrack", "restart", "up")), (Refused, ("reject",))):
        assert sum(isinstance(event, kind) for event in events) == sum(map(actions.count, names))
    refused = [event for event in events if isinstance(event, Refused)]
    assert all(not no_letters(event.text) for event in refused)
    assert sum(isinstance(event, Token) for event in events) == whole.totals["generated"]


def test_a_stream_that_is_closed_stops_its_work():
    asked = []

    def rule(text):
        asked.append(text)
        return True

    stream = guide_stream(LM, ["a"] * 40, rule, "tokenwise", max_new_tokens=30, batch=1)
    assert isinstance(next(stream), Token)
    before = threading.active_count()
    stream.close()
    assert threading.active_count() < before
    assert len(asked) < 1200


def test_an_error_of_the_rule_comes_out_of_the_stream():
    with pytest.raises(UserError, match="ZeroDivisionError"):
        list(guide_stream(LM, ["a"], lambda text: 1 / 0, "tokenwise", max_new_tokens=3))
    with pytest.raises(UserError, match="prompts is empty"):
        guide_stream(LM, [], max_new_tokens=3)


def test_a_bar_says_how_far_it_is(capsys):
    guide(LM, PROMPTS, few_zeros, max_new_tokens=3, batch=2, progress=True)
    lines = capsys.readouterr().err.split("\r")[1:]
    assert [line.split("] ")[1].split(" ")[0] for line in lines] == ["0/5", "2/5", "4/5", "5/5"]
    assert [line.count("#") for line in lines] == [0, 9, 19, 24]
    guide(LM, ["a"], few_zeros, max_new_tokens=3)
    assert capsys.readouterr().err == ""


def test_guide_has_few_parameters():
    assert len(inspect.signature(guide).parameters) <= 13
    kinds = {p.kind for p in inspect.signature(guide).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


# ----------------------------------------------------------------------------- rules that wait


def test_questions_to_a_coroutine_are_in_flight_together_and_keep_their_order():
    flying, most = 0, 0

    async def slow(text):
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.01 * (3 - len(text)))
        flying -= 1
        return 0.5 ** len(text)

    rule = TextRule(slow, lambda ids: "a" * ids[0])
    values = rule.log_value([[0], [2], [1], [2], [3]]).exp().tolist()
    assert values == pytest.approx([1, 0.25, 0.5, 0.25, 0.125])
    assert most == 4

    async def few(text):
        return few_zeros(text)

    given = {"max_new_tokens": 5, "rng": 3}
    assert guide(LM, PROMPTS, few, **given).texts == guide(LM, PROMPTS, few_zeros, **given).texts


def test_a_coroutine_that_fails_or_hangs():
    async def failing(text):
        raise KeyError(text)

    async def hanging(text):
        await asyncio.sleep(30)

    with pytest.raises(UserError, match="function failed with KeyError: 'a' on the text 'a'"):
        TextRule(failing, lambda ids: "a").log_value([[0]])
    rule = TextRule(hanging, lambda ids: "a", timeout=0.05, on_error="reject")
    assert rule.log_value([[0]]).exp().tolist() == [0]
    assert "no answer in 0.05 seconds" in rule.errors[0].reason
    assert threading.active_count() < 50


def test_a_coroutine_works_where_a_loop_runs_already():
    async def rule(text):
        return len(text) < 3

    async def notebook():
        return TextRule(rule, lambda ids: "a" * len(ids)).log_value([[0], [1]]).exp().tolist()

    assert asyncio.run(notebook()) == [1, 1]


def test_prompts_that_are_tokens_already():
    """`Encoded` prompts: the texts of the same tokens, and the rule is told what they stand for."""
    told = []

    def rule(text, prompt):
        told.append(prompt)
        return True

    rows = LM.encode(["ab", "a"])
    given = [Encoded(row, name) for row, name in zip(rows, ["first", "second"], strict=True)]
    job = make_job(LM, given, rule, "tokenwise", max_new_tokens=4, rng=3)
    [batch] = job.run(2)
    found = [row.text for row in job.completions(batch)]
    wanted = guide(LM, ["ab", "a"], lambda text: True, "tokenwise", max_new_tokens=4, rng=3)
    assert found == wanted.texts
    assert set(told) == {"first", "second"}


def test_a_row_that_nobody_waits_for_ends_and_the_others_do_not_change():
    left = []
    given = [Encoded(row, "") for row in LM.encode(["ab", "a", "b"])]

    def listen(row, event):
        if row == 1 and len(event.tokens) == 2:
            left.append(row)

    job = make_job(
        LM, given, None, None, max_new_tokens=12, rng=1, listen=listen, left=lambda row: row in left
    )
    [batch] = job.run(3)
    lengths = [len(tokens) for tokens in batch.result.completions()]
    whole = guide(LM, ["ab", "a", "b"], max_new_tokens=12, rng=1)
    texts = [row.text for row in job.completions(batch)]
    assert lengths[1] == 2
    assert (texts[0], texts[2]) == (whole.texts[0], whole.texts[2])
    assert whole.costs[1]["generated"] > 2
