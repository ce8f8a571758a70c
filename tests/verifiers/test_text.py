"""Rules on text as verifiers of token ids: values by hand, prompts, threads, errors."""

import json
import math
import threading
import time

import numpy as np
import pytest
import torch
from tests.support.refusals import refused

from triptych.core.decoders import RecomputingDecoder
from triptych.core.enumeration import exact_law
from triptych.core.protocols import Ends, Question
from triptych.core.streams import RowStreams
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.inference.guided import (
    adaptive,
    backtracking,
    best_of_n,
    blocks,
    particles,
    rejection,
    tokenwise,
)
from triptych.inference.guided.algorithm import algorithms
from triptych.structures.uniform import Uniform
from triptych.verifiers.exact import Rule
from triptych.verifiers.text import MAX_HANGING, Reading, RuleError, TextRule
from triptych.verifiers.text_rules.brackets import BracketPrefix
from triptych.verifiers.text_rules.json_text import JsonPrefix
from triptych.verifiers.text_rules.python_source import PythonPrefix
from triptych.verifiers.text_rules.regular import RegexPrefix

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

INF = math.inf


def letters(tokens):
    return "".join("ab."[token] for token in tokens)


def from_bytes(tokens):
    return bytes(tokens).decode(errors="replace")


class Noted:
    """A rule that keeps what it is asked."""

    def __init__(self, answer=True):
        self.answer, self.asked = answer, []

    def __call__(self, text):
        self.asked.append(text)
        return self.answer


class NotedToTheEnd(Noted):
    def __call__(self, text, finished=False):
        self.asked.append((text, finished))
        return self.answer


def test_worked_values():
    few = TextRule(lambda text: text.count("b") <= 1, letters)
    assert few.log_value([[0, 1], [1, 1]]).tolist() == [0.0, -INF]
    assert TextRule(few.function, letters, start=1).log_value([[0, 1], [1, 1]]).tolist() == [0, 0]
    soft = TextRule(lambda text: 0.5 ** len(text), letters)
    assert soft.log_value(torch.zeros(2, 2).long()).tolist() == [math.log(0.25)] * 2
    assert soft.log_value(torch.zeros(1, 0).long()).tolist() == [0.0]
    assert soft.log_value(torch.zeros(0, 2).long()).shape == (0,)


def test_every_kind_of_answer():
    for kind in (bool, int, float, np.bool_, np.float32, torch.tensor, np.int8):
        assert TextRule(lambda text, kind=kind: kind(1), letters).log_value([[0]]).tolist() == [0.0]


def test_a_tokenizer_is_asked_by_its_method():
    """Tokenizers of Hugging Face can be called too, which encodes."""

    class Tokenizer:
        def decode(self, tokens):
            return letters(tokens)

        def __call__(self, text):
            raise AssertionError

    noted = Noted()
    TextRule(noted, Tokenizer()).log_value([[0, 1]])
    assert noted.asked == ["ab"]


def test_the_tokens_are_a_list_of_the_decoders_own():
    rule = TextRule(lambda text: True, lambda tokens: letters(tokens) + str(tokens.clear()))
    assert rule.log_value([[0, 1], [1, 1]]).tolist() == [0.0, 0.0]


def test_it_is_a_verifier_like_any_other():
    """The law of a guided generation is that of a rule on tokens which says the same."""
    text = TextRule(lambda text: "bb" not in text, letters, start=1)
    tokens = Rule(lambda row: not any(row[i] == row[i + 1] == 1 for i in range(1, len(row) - 1)))

    def law(verifier):
        def drawn(rng):
            decoder = RecomputingDecoder(Uniform(2, 3), 1)
            decoder.append(torch.tensor([1]))
            result = blocks.sample(decoder, verifier, length=3, n=2, block=1, rng=rng)
            return tuple(result.tokens[0].tolist())

        return exact_law(drawn)

    assert law(text) == law(tokens)


def test_a_generation_of_balanced_text():
    """Of 6 brackets, "()()()" and four others are balanced: all that rejection can accept."""
    rule = TextRule(BracketPrefix("()"), lambda ids: "".join("()"[i] for i in ids), length=6)
    decoder = RecomputingDecoder(Uniform(2, 6), 24)
    result = rejection.sample(decoder, rule, length=6, rng=RowStreams(0, torch.arange(24)))
    texts = {"".join("()"[i] for i in row) for row in result.tokens.tolist()}
    assert texts == {"()()()", "()(())", "(())()", "(()())", "((()))"}


# ------------------------------------------------------------------------------------ the end


def test_the_end_token_ends_a_text():
    noted = NotedToTheEnd()
    rule = TextRule(noted, letters, end_token=2, start=1)
    rule.log_value([[2, 0], [2, 2], [0, 1]])
    rule.log_value([[0, 1, 2, 1]])
    assert noted.asked == [("a", False), ("", True), ("b", False), ("b", True)]


def test_a_full_row_is_finished():
    noted = NotedToTheEnd()
    rule = TextRule(noted, letters, length=2)
    rule.log_value([[0]])
    rule.log_value([[0, 0]])
    assert noted.asked == [("a", False), ("aa", True)]


def test_a_row_that_is_cut_off_is_read_as_a_finished_text():
    noted = NotedToTheEnd()
    rule = TextRule(noted, letters, end_token=2, start=1)
    rule.log_values(Question.about(torch.tensor([[2, 0], [0, 2]]), over=True))
    assert noted.asked == [("a", True), ("", True)]


def test_half_a_character_is_refused_where_no_such_character_may_come():
    """Bytes as tokens: 0xE2 begins a character of three. JSON has it in strings alone."""
    rule = TextRule(JsonPrefix(), lambda ids: bytes(ids).decode(errors="replace"))

    def value(text: str) -> float:
        return rule.log_value([[*text.encode(), 0xE2]]).exp().item()

    assert value('{"a') == 1.0
    assert value('"\\"') == 1.0  # the quote is escaped: the string goes on
    assert value('"a"') == 0.0
    assert value("[1, ") == 0.0
    plain = TextRule(lambda text: True, lambda ids: bytes(ids).decode(errors="replace"))
    assert plain.log_value([[0x61, 0xE2]]).item() == 0.0  # any other rule: left out as before


def law_of(algorithm, rule, length=3, **options):
    """Completions of the empty prompt by three tokens alike, "a", "b" and an end."""

    def drawn(rng):
        decoder = RecomputingDecoder(Uniform(3, length), 1)
        result = algorithm.sample(decoder, rule, length=length, end_token=2, rng=rng, **options)
        return letters(result.completions()[0]) if result.complete[0] else None

    return exact_law(drawn).probs


def test_a_text_that_is_over_ends_without_an_end_token():
    """The law by hand: of "ab" and "b" both are over, and neither has to draw the end.

    One attempt accepts them with 1/9 and 1/3. Token by token with two tries each: "a" and "b" have
    1/3 + 1/9, and "b" after "a" has 1/3 + 2/9.
    """
    rule = TextRule(RegexPrefix("ab|b"), letters, end_token=2)
    assert isinstance(rule, Ends)
    for rows, over in (
        ([[0, 1], [1, 1], [0, 0]], [True, False, False]),
        ([[1]], [True]),
        ([[]], [False]),
    ):
        assert rule.over(Question.about(torch.tensor(rows).long())).tolist() == over
    one = law_of(rejection, rule, attempts=1)
    assert one == pytest.approx({"ab": 1 / 9, "b": 1 / 3, None: 5 / 9})
    two = law_of(tokenwise, rule, tries=2)
    assert two == pytest.approx({"ab": 20 / 81, "b": 4 / 9, None: 25 / 81})


def test_a_rule_that_cannot_say_what_is_over_ends_nothing():
    """The same rule as a plain function: here the end must be drawn, or the row be full."""
    rule = TextRule(lambda text, finished=False: RegexPrefix("ab|b")(text, finished), letters)
    assert not isinstance(rule, Ends)
    with_end = TextRule(rule.function, letters, end_token=2)
    two = law_of(tokenwise, with_end, tries=2)
    assert two["b."] == pytest.approx(4 / 9 * 5 / 9)
    assert two["ab."] == pytest.approx(20 / 81 * 5 / 9)


@pytest.mark.parametrize("algorithm", [particles, adaptive])
@pytest.mark.parametrize("pattern", ["ab|b", "a?b ?", "ab*"])
def test_the_law_of_particles_that_are_over(algorithm, pattern):
    rule = TextRule(RegexPrefix(pattern), letters, end_token=2)
    expected = algorithm.law(Uniform(3, 2), rule, 2, 2, end_token=2)
    found = law_of(algorithm, rule, length=2, n=2)
    assert {text: q for text, q in found.items() if text is not None} == pytest.approx(
        {letters(tokens): q for tokens, q in expected.items()}, abs=1e-6
    )


def test_laws_of_strings_of_full_length_refuse_a_rule_that_ends_texts():
    rule, table = TextRule(RegexPrefix("ab|b"), letters), Table.of(Uniform(3, 2))
    for law in (
        lambda: tokenwise.law(table, rule),
        lambda: blocks.law(table, rule, 1, 2),
        lambda: best_of_n.law(table, rule, 2),
        lambda: backtracking.law(Uniform(3, 2), rule, 2, 1, 1),
    ):
        with refused("verifier"):
            law()


@pytest.mark.parametrize("name", ["adaptive", "backtracking", "blocks", "particles", "vgb"])
def test_every_algorithm_ends_a_text_that_is_over(name):
    """Nothing follows a whole match, in a batch and with a stream for each row."""
    record = algorithms()[name]
    rule = TextRule(RegexPrefix("(a|b){2}"), letters, end_token=2)
    result = record().sample(
        RecomputingDecoder(Uniform(3, 8), 20),
        rule,
        length=8,
        end_token=2,
        rng=RowStreams(0, torch.arange(20)),
    )
    texts = [letters(tokens) for tokens in result.completions()]
    assert result.complete.all()
    assert {text for text in texts if len(text) > 1} == {"aa", "ab", "ba", "bb"}
    if name not in ("backtracking", "blocks"):  # these may keep what the rule refuses
        assert result.accepted.all()


def test_ready_rules_are_told_the_end():
    cases = [
        (RegexPrefix("a+b"), "aa", "aab"),
        (JsonPrefix(), "[1", "[1]"),
        (PythonPrefix(), "f(x", "f(x)"),
        (BracketPrefix(), "((", "()"),
    ]
    for function, half, whole in cases:
        rule = TextRule(function, from_bytes, end_token=0)
        for text, values in ((half, [0.0, -INF]), (whole, [0.0, 0.0])):
            said = [rule.log_value([[*text.encode(), *end]]).item() for end in ([], [0])]
            assert said == values, (function, text)


def test_half_a_character_is_not_shown():
    """é is C3 A9 and € is E2 82 AC; three bytes of four may be missing."""
    noted = NotedToTheEnd()
    rule = TextRule(noted, from_bytes, end_token=0)
    for data in (b"a\xc3", b"a\xc3\xa9", b"\xe2\x82", b"\xe2\x82\xac", b"\xc3a"):
        rule.log_value([list(data)])
    assert [text for text, _ in noted.asked] == ["a", "aé", "", "€", "\ufffda"]
    rule.log_value([[*b"a\xc3", 0]])
    assert noted.asked[-1] == ("a\ufffd", True)  # a finished text ends with half a character


def test_at_most_three_marks_are_left_out():
    noted = Noted()
    TextRule(noted, lambda tokens: "a" + "\ufffd" * len(tokens)).log_value([[0] * 5])
    assert noted.asked == ["a\ufffd\ufffd"]


# ------------------------------------------------------------------------------------ prompts


def asked_of(*rows, starts, whose=None, over=False):
    """A question about rows of different lengths."""
    longest, number = max(map(len, rows)), len(rows)
    whose = range(number) if whose is None else whose
    return Question(
        torch.tensor([[*row, *[-1] * (longest - len(row))] for row in rows]),
        torch.tensor([len(row) for row in rows]),
        torch.tensor(starts),
        torch.full((number,), over),
        torch.tensor(whose),
    )


def test_a_question_says_where_completions_begin():
    """Of prompts that begin one another too: nobody guesses them."""
    noted = Noted()
    rule = TextRule(noted, letters, start=None)
    rows = [[0, 1, 0, 1], [0, 1, 1, 2], [0, 0, 2], [1]]
    rule.log_values(asked_of(*rows, starts=[2, 1, 0, 1]))
    assert noted.asked == ["ab", "bb.", "aa.", ""]
    assert rule.passes == 1


def test_a_start_of_its_own_is_kept():
    noted = Noted()
    TextRule(noted, letters).log_values(asked_of([0, 1], [1, 1, 0], starts=[1, 2]))
    assert noted.asked == ["ab", "bba"]
    with pytest.raises(UserError, match="prefix has a row of 1 tokens and start is 2"):
        TextRule(lambda text: True, letters, start=2).log_value([[0]])


# ------------------------------------------------------------------------------------ asking


ROWS = [[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1, 2)]


def slow(text):
    time.sleep(0.002 * text.count("b"))
    return 1 / (1 + text.count("b"))


def test_threads_and_batches_give_the_same_answers():
    want = TextRule(slow, letters).log_value(ROWS)
    for options in (
        {"threads": 4},
        {"threads": 30},
        {"timeout": 10},
        {"threads": 3, "timeout": 10, "on_error": "reject"},
    ):
        assert torch.equal(TextRule(slow, letters, **options).log_value(ROWS), want)
    for answers in (list, tuple, np.array, torch.tensor):
        rule = TextRule(
            lambda t, answers=answers: answers([slow(x) for x in t]), letters, batched=True
        )
        assert rule.log_value(ROWS).tolist() == pytest.approx(want.tolist())


def test_threads_ask_at_once():
    """Four calls wait for each other: with fewer at once they would wait forever."""
    meeting = threading.Barrier(4, timeout=20)
    rule = TextRule(lambda text: meeting.wait() >= 0, letters, threads=4)
    assert rule.log_value([[0, 0], [0, 1], [1, 0], [1, 1]]).tolist() == [0.0] * 4


def test_no_more_threads_than_allowed():
    lock, running, most = threading.Lock(), [0], [0]

    def counted(text):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1
        return True

    TextRule(counted, letters, threads=2).log_value(ROWS)
    assert most[0] == 2


def test_a_text_is_asked_once():
    for options in ({}, {"threads": 2}):
        noted = Noted()
        rule = TextRule(noted, letters, start=1, **options)
        rule.log_value([[0, 1], [1, 1], [2, 0]])
        rule.log_value([[2, 1], [1, 0]])
        assert sorted(noted.asked) == ["a", "b"]


def test_batches_hold_new_texts_only():
    asked = []

    def together(texts, finished):
        asked.append(list(zip(texts, finished, strict=True)))
        return [True] * len(texts)

    rule = TextRule(together, letters, batched=True, end_token=2)
    rule.log_value([[0], [1]])
    rule.log_value([[0], [2]])
    rule.log_value([[0], [1]])
    assert asked == [[("a", False), ("b", False)], [("", True)]]


def test_only_so_many_texts_are_remembered(monkeypatch):
    monkeypatch.setattr("triptych.verifiers.text._REMEMBERED", 3)
    noted = Noted()
    rule = TextRule(noted, letters)
    for _ in range(2):
        assert rule.log_value([[0, 0], [0, 1], [1, 0], [1, 1]]).tolist() == [0.0] * 4
    assert noted.asked == ["aa", "ab", "ba", "bb", "aa"]


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("answer", [None, "yes", 2, -0.1, math.nan, [True], 1j, torch.ones(2)])
@pytest.mark.parametrize("options", [{}, {"threads": 2}, {"on_error": "reject"}])
def test_answers_that_are_none(answer, options):
    rule = TextRule(lambda text: answer, letters, **options)
    with refused("answer"):
        rule.log_value([[0, 1]])


@pytest.mark.parametrize("options", [{}, {"threads": 2}, {"timeout": 5.0}])
def test_a_function_that_raises(options):
    rule = TextRule(lambda text: json.loads(text), letters, **options)
    sentence = "function failed with JSONDecodeError: Expecting value.* on the text 'ab'; mend it"
    with pytest.raises(UserError, match=sentence) as caught:
        rule.log_value([[0, 1]])
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)
    assert rule.errors == []


@pytest.mark.parametrize("options", [{}, {"threads": 2}, {"timeout": 5.0}])
def test_errors_that_refuse(options):
    def picky(text):
        if text == "b":
            raise KeyError("two\nlines")
        return 0.5

    rule = TextRule(picky, letters, on_error="reject", **options)
    for _ in range(2):  # the second time it is remembered
        assert rule.log_value([[0], [1]]).tolist() == [math.log(0.5), -INF]
    assert rule.errors == [RuleError("b", "KeyError: 'two\\nlines'")]


def test_a_batch_that_fails():
    def failing(texts):
        raise RuntimeError("down")

    with refused("function"):
        TextRule(failing, letters, batched=True).log_value([[0], [1]])
    rule = TextRule(failing, letters, batched=True, on_error="reject")
    assert rule.log_value([[0], [1]]).tolist() == [-INF, -INF]
    assert [error.text for error in rule.errors] == ["a", "b"]
    for answers, sentence in (
        ([True], "answered 1 values to 2 texts"),
        (True, "answered True to 2 texts; with batched=True it must answer a list"),
        ("ab", "answered 'ab' to 2 texts"),
        ([True, None], "answered None to the text 'b'"),
    ):
        rule = TextRule(lambda texts, answers=answers: answers, letters, batched=True)
        with pytest.raises(UserError, match=sentence):
            rule.log_value([[0], [1]])


def test_a_call_that_hangs_is_a_refusal():
    release = threading.Event()

    def hanging(text):
        return release.wait(60) if text == "b" else True

    rule = TextRule(hanging, letters, threads=2, timeout=0.2)
    began = time.monotonic()
    assert rule.log_value([[1], [0]]).tolist() == [-INF, 0.0]
    assert rule.log_value([[1], [0]]).tolist() == [-INF, 0.0]  # remembered
    assert time.monotonic() - began < 30
    assert rule.errors == [RuleError("b", "no answer in 0.2 seconds")]
    release.set()


def test_too_many_calls_that_hang(monkeypatch):
    monkeypatch.setattr("triptych.verifiers.text.MAX_HANGING", 3)
    assert MAX_HANGING == 100
    release = threading.Event()
    rule = TextRule(lambda text: release.wait(60), letters, threads=12, timeout=0.05)
    with refused("function"):
        rule.log_value(ROWS)
    release.set()


def test_long_texts_are_shown_by_their_end():
    rule = TextRule(lambda text: None, lambda tokens: "x" * 500 + "the end")
    with refused("answer"):
        rule.log_value([[0]])


def test_decoders_that_fail():
    for decode, sentence in (
        (letters, r"decode failed with IndexError: .* on the tokens \[7\]"),
        (lambda tokens: b"a", r"decode answered b'a' to the tokens \[7\]; it must answer a string"),
        (lambda tokens: None, "decode answered None"),
    ):
        rule = TextRule(lambda text: True, decode, on_error="reject")
        with pytest.raises(UserError, match=sentence):
            rule.log_value([[7]])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"function": 3}, "function is 3; it must be a function"),
        ({"decode": 3}, r"decode is 3; it must be a function, decode\(list of token ids\)"),
        ({"start": -1}, "start is -1"),
        ({"start": 1.0}, "start is 1.0"),
        ({"prompt_texts": 3}, "prompt_texts is 3"),
        ({"length": 0}, "length is 0"),
        ({"end_token": -1}, "end_token is -1"),
        ({"batched": 1}, "batched is 1"),
        ({"threads": 0}, "threads is 0"),
        ({"threads": 10**6}, "threads is 1000000"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": "1"}, "timeout is '1'"),
        ({"batched": True, "threads": 2}, "batched is True, threads is 2"),
        ({"batched": True, "timeout": 1}, "batched is True"),
        ({"on_error": "ignore"}, "on_error is 'ignore'; it must be 'raise' or 'reject'"),
    ],
)
def test_options_that_are_refused(change, sentence):
    with pytest.raises(UserError, match=sentence):
        TextRule(**({"function": lambda text: True, "decode": letters} | change))


def test_numbers_of_numpy_are_kept_as_plain_ones():
    rule = TextRule(Noted(), letters, start=np.int64(1), length=np.uint8(4), timeout=np.float32(2))
    assert (type(rule.start), type(rule.length), type(rule.timeout)) == (int, int, float)


def test_records():
    assert Reading("a", True) == ("a", True, None)
    assert repr(TextRule(BracketPrefix(), letters)) == "TextRule(BracketPrefix)"
    two = TextRule(str.isalpha, letters, prompt_texts=["a", "b"])
    assert repr(two) == "TextRule(isalpha after 2 prompts)"


def test_a_rule_is_told_the_prompt_it_asks_for():
    """Rows of equal prompts share their answers."""
    seen = []

    def rule(text, prompt):
        seen.append((text, prompt))
        return len(text) <= len(prompt)

    told = TextRule(rule, letters_of, start=None, prompt_texts=["first", "x", "first"])
    rows = [[0, 1], [0, 0], [1, 1, 0, 0], [0, 1]]
    asked = asked_of(*rows, starts=[1, 1, 2, 1], whose=[0, 0, 1, 2])
    assert told.log_values(asked).exp().tolist() == [1, 1, 0, 1]
    assert seen == [("b", "first"), ("a", "first"), ("aa", "x")]
    assert told.finished_values(["aa", "aa"], [0, 1]) == [1, 0]
    decoded = TextRule(rule, letters_of, start=2)
    assert decoded.log_value([[0, 1, 1]]).exp().tolist() == [1]
    assert seen[-1] == ("b", "ab")
    with pytest.raises(UserError, match="3 prompt_texts, and the question is about row 3"):
        told.log_values(asked_of([0], starts=[0], whose=[3]))


def letters_of(tokens):
    return "".join("ab"[token] for token in tokens)


@pytest.mark.parametrize(
    "function", [lambda: True, lambda text, other: True, lambda *, finished: True, lambda prompt: 1]
)
def test_a_function_that_takes_no_text_is_refused(function):
    with refused("function"):
        TextRule(function, letters_of)


def test_texts_need_their_rows():
    with pytest.raises(UserError, match="2 texts have 1 rows"):
        TextRule(lambda text: True, letters_of).finished_values(["a", "b"], [0])
