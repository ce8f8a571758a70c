"""Prompts in, texts out: `guide` on a tiny model, against the algorithms themselves."""

from html.parser import HTMLParser

import pytest
import torch
from tests.support.tiny_text_model import END, EOS, tiny_lm

from triptych.core.streams import RowStreams
from triptych.core.validation import UserError
from triptych.guidance.batches import default_algorithm
from triptych.guidance.guide import guide
from triptych.inference.guided import ancestral, backtracking
from triptych.inference.guided.algorithm import algorithms
from triptych.inference.guided.backtracking import Backtracking
from triptych.inference.guided.costs import Budget
from triptych.inference.guided.rejection import Rejection
from triptych.inference.guided.tokenwise import Tokenwise
from triptych.inference.guided.transforms import Sampling
from triptych.verifiers.exact import Rule
from triptych.verifiers.text import TextRule
from triptych.verifiers.text_rules.brackets import BracketPrefix
from triptych.verifiers.text_rules.regular import RegexPrefix

LM = tiny_lm()
PROMPTS = ["a", "ab", "ba0", "(", "a"]


def few_zeros(text):
    return text.count("0") <= 1


def test_five_lines():
    found = guide(LM, PROMPTS, few_zeros, Backtracking(quota=50, stride=2), max_new_tokens=8, rng=0)
    assert found.prompts == PROMPTS
    assert all(map(few_zeros, found.texts))
    assert found.accepted == [True] * 5
    assert found.scores == [1.0] * 5
    assert all(found.complete)
    assert found.reasons == [None] * 5
    assert found.totals["generated"] == sum(row["generated"] for row in found.costs)
    assert repr(found) == "Guided(5 texts, 5 complete, 5 accepted)"


def test_without_a_verifier_it_is_the_model():
    """The same draws as `ancestral` on the model's own decoder, row by row."""
    found = guide(LM, PROMPTS, algorithm="ancestral", max_new_tokens=6, rng=3)
    for number, prompt in enumerate(PROMPTS):
        (row,) = LM.encode([prompt])
        result = ancestral.sample(
            LM.decoder([row]),
            length=len(row) + 6,
            end_token=LM.end_tokens,
            rng=RowStreams(3, torch.tensor([number])),
        )
        tokens = [t for t in result.completions()[0] if t not in (EOS, END)]
        assert found.texts[number] == LM.text_of(tokens)
    assert found.accepted == [None] * 5
    assert found.scores == [None] * 5


def test_a_text_does_not_depend_on_its_batch():
    given = {"max_new_tokens": 8, "rng": 1}
    together = guide(LM, PROMPTS, few_zeros, Backtracking(3, 2), **given)
    small = guide(LM, PROMPTS, few_zeros, Backtracking(3, 2), **given, batch=2)
    assert together.texts == small.texts
    assert together.costs == small.costs
    assert len(small.results) >= 3


def test_every_row_has_its_own_length():
    """`max_new_tokens` counts behind each prompt, however long it is."""
    found = guide(LM, ["a" * 20, "b"], algorithm="ancestral", max_new_tokens=3, rng=0)
    for result in found.results:
        for row, completion in enumerate(result.completions()):
            assert len(completion) <= 3
            assert result.complete[row]
            assert len(completion) == 3 or completion[-1] in (EOS, END)


@pytest.mark.parametrize("name", algorithms())
def test_every_algorithm_takes_text(name):
    found = guide(LM, ["a", "b0"], few_zeros, name, max_new_tokens=4, rng=0)
    assert len(found.texts) == 2
    for text, accepted, complete in zip(found.texts, found.accepted, found.complete, strict=True):
        assert accepted == (complete and few_zeros(text))
        assert "<e" not in text


def test_the_rule_sees_the_completion_alone_and_whether_it_is_over():
    seen = []

    def rule(text, finished=False):
        seen.append((text, finished))
        return True

    guide(LM, ["ab", "(0"], rule, "rejection", max_new_tokens=4, rng=0)
    assert not any(text.startswith(("ab", "(0")) and len(text) > 4 for text, _ in seen)
    assert any(finished for _, finished in seen)


def test_ready_rules_and_verifiers_of_tokens():
    many = Backtracking(quota=40, stride=2)
    found = guide(LM, ["(", "a"], BracketPrefix(), many, max_new_tokens=12, rng=0)
    for text, accepted in zip(found.texts, found.accepted, strict=True):
        assert accepted == BracketPrefix()(text, finished=True)
    no_b = Rule(lambda tokens: LM.encode(["b"])[0][0] not in tokens[2:])
    on_tokens = guide(LM, ["aa"], no_b, Rejection(attempts=500), max_new_tokens=4, rng=0)
    assert "b" not in on_tokens.texts[0]
    assert on_tokens.accepted == [True]
    assert on_tokens.scores == [None]


def test_soft_rules_have_scores_and_a_threshold():
    found = guide(LM, ["a"], lambda text: 0.4, "ancestral", max_new_tokens=2, rng=0)
    assert found.scores == pytest.approx([0.4])
    assert found.accepted == [False]
    low = guide(LM, ["a"], lambda text: 0.4, Tokenwise(threshold=0.3), max_new_tokens=2, rng=0)
    assert low.accepted == [True]


def test_prompts_that_begin_each_other_run_together():
    """Everybody's completion is read, whichever prompt is the beginning of another one."""
    seen = set()

    def rule(text, prompt):
        seen.add((prompt, text[:1]))
        return True

    found = guide(LM, ["a", "ab", "a", "abb"], rule, "rejection", max_new_tokens=3, rng=0)
    assert found.members == [[0, 1, 2, 3]]
    first = {(p, t[:1]) for p, t in zip(found.prompts, found.texts, strict=True)}
    assert seen == first


def test_transforms_are_those_of_the_library():
    likeliest = guide(
        LM, PROMPTS, algorithm="ancestral", max_new_tokens=5, rng=0, sampling=Sampling(top_k=1)
    )
    other = guide(
        LM, PROMPTS, algorithm="ancestral", max_new_tokens=5, rng=7, sampling=Sampling(top_p=1e-09)
    )
    cold = guide(
        LM,
        PROMPTS,
        algorithm="ancestral",
        max_new_tokens=5,
        rng=8,
        sampling=Sampling(temperature=0.001),
    )
    assert likeliest.texts == other.texts == cold.texts


def test_conversations():
    said = guide(LM, ["ab", "b"], algorithm="ancestral", max_new_tokens=3, chat=True, rng=0)
    written = guide(LM, ["ab:", "b:"], algorithm="ancestral", max_new_tokens=3, rng=0)
    assert said.texts == written.texts
    assert said.prompts == ["ab", "b"]
    talk = [[{"role": "user", "content": "ab"}]]
    assert guide(LM, talk, algorithm="ancestral", max_new_tokens=3, chat=True).prompts == ["ab"]


def test_a_whole_match_is_accepted():
    """The end token need not be drawn: this model draws it seldom, and here never."""
    rule = RegexPrefix(r"[ab]{2}0")
    for algorithm in (None, "tokenwise"):
        found = guide(LM, PROMPTS, rule, algorithm, max_new_tokens=16, rng=0)
        assert found.accepted == [True] * len(PROMPTS)
        assert all(len(text) == 3 and rule(text, finished=True) for text in found.texts)


@pytest.mark.parametrize(
    ("verifier", "name"),
    [(None, "ancestral"), (few_zeros, "adaptive"), (Rule(lambda tokens: True), "backtracking")],
)
def test_the_algorithm_follows_the_verifier(verifier, name):
    assert default_algorithm(verifier) == name
    told = guide(LM, PROMPTS, verifier, name, max_new_tokens=4, rng=0)
    assert guide(LM, PROMPTS, verifier, max_new_tokens=4, rng=0).texts == told.texts


def test_a_budget_gives_a_reason():
    budget = Budget(verifier_calls=3)
    found = guide(LM, ["a"], lambda text: False, "tokenwise", max_new_tokens=5, budget=budget)
    assert found.complete == [False]
    assert found.reasons == ["verifier budget used up"]
    assert found.accepted == [False]


def test_the_page():
    page = guide(LM, ["<b>", "a"], few_zeros, max_new_tokens=3, rng=0)._repr_html_()
    HTMLParser().feed(page)
    assert "&lt;b&gt;" in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prompts": []}, "prompts is empty"),
        ({"prompts": [3]}, r"prompts\[0\]"),
        (
            {"prompts": ["a" * 39]},
            r"has 39 tokens and max_new_tokens is 4; .* at most",
        ),
        (
            {"algorithm": "beam"},
            "there is no algorithm 'beam'; there are adaptive, ancestral, backtracking",
        ),
        ({"verifier": None, "algorithm": "vgb"}, "vgb needs a verifier"),
        ({"verifier": 3}, "verifier is 3"),
        ({"verifier": lambda text: "yes"}, "answered 'yes' to the text"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"sampling": {"temperature": 0}}, "sampling is a dict; it must be a Sampling"),
        ({"lm": 3}, "lm is"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, sentence, unchecked_shapes):
    given = {"lm": LM, "prompts": ["a"], "verifier": few_zeros, "max_new_tokens": 4}
    with pytest.raises((UserError, RuntimeError), match=sentence):
        guide(**given | arguments)


def test_it_is_the_algorithm_with_the_rule():
    """One prompt through `guide`, and by hand with TextRule."""
    found = guide(LM, ["ab"], few_zeros, Backtracking(3, 2), max_new_tokens=8, rng=5)
    (row,) = LM.encode(["ab"])
    rule = TextRule(few_zeros, LM.text_of, start=len(row), end_token=LM.end_tokens)
    result = backtracking.sample(
        LM.decoder([row]),
        rule,
        length=len(row) + 8,
        quota=3,
        stride=2,
        end_token=LM.end_tokens,
        rng=RowStreams(5, torch.tensor([0])),
    )
    assert found.results[0].completions() == result.completions()
    assert found.costs[0]["verifier_calls"] == int(result.costs.verifier_calls[0])
