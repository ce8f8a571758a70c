"""Methods: what they get, what they may answer, and how often the baselines are right."""

import textwrap

import numpy as np
import pytest
import torch
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.lab.traps.baselines import ablation, pumped
from triptych.lab.traps.methods import Gallery, Method, checked, load_method
from triptych.lab.traps.scoring import ASKED, is_right, lines, score_method
from triptych.lab.traps.truth import Truth
from triptych.theory.brackets.lookups import lookup_accuracy

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def truthful(trap):
    """A method that knows the truth, by the network it is asked about."""
    known = {id(member.network): member.truth for member in trap.members}

    def answer(question):
        return lambda subject: getattr(known[id(subject._network)], question)

    return Method("truthful", {question: answer(question) for question in ASKED})


@pytest.fixture(scope="module")
def scores(small_trap):
    return score_method(small_trap, truthful(small_trap))


def test_the_truth_is_always_right(scores):
    mine = [score for score in scores.scores if score.method == "truthful"]
    assert {(score.question, score.kind) for score in mine} == {
        (question, kind)
        for question, kinds in ASKED.items()
        for kind in kinds
        if not kind.startswith("trained")
    }
    for score in mine:
        assert score.pairs.value == 1.0
        assert score.right == score.answers
    assert scores.ranking["truthful", "needs_pattern"] == 1.0


def test_ablation_finds_the_truth(scores):
    for score in scores.scores:
        if score.method == "ablation":
            assert score.pairs.value == 1.0, score
    assert scores.looked_at["ablation"] == [
        "interventions",
        "own sentences",
        "patterns",
        "predictions",
    ]


@pytest.mark.parametrize("name", ["stack", "entropy"])
def test_patterns_alone_are_never_right_about_both(scores, name):
    """One answer for both networks: exactly one of them is right, unless it is neither."""
    assert scores.looked_at[name] == ["patterns"]
    for kind, question in (
        ("pattern", "needs_pattern"),
        ("function", "needs_pattern"),
        ("pattern", "important_head"),
        ("head", "important_head"),
        ("balance", "is_balanced"),
    ):
        score = scores.of(name, question, kind)
        assert score.pairs.value == 0.0
        assert 2 * score.right == score.answers


def test_the_table_has_a_line_for_each_kind(small_trap, scores):
    text = "\n".join(lines(small_trap, scores))
    assert "10 pairs, 20 networks, made from seed 3." in text
    assert text.count("same attention, one needs its pattern") == 2
    assert "100 [34, 100]" in text
    assert "coin looked at: nothing." in text
    one = Method("one", {"is_balanced": lambda network: network.patterns[0, 0, 0, 0] > 0.5})
    told = "\n".join(lines(small_trap, score_method(small_trap, one, compare=False)))
    assert "important_head" not in told
    assert "it cannot have both right." in told


def test_right_by_hand():
    truth = Truth(True, 1, False)
    assert is_right("needs_pattern", 0.6, truth)
    assert not is_right("needs_pattern", 0.5, truth)
    assert is_right("is_balanced", 0.4, truth)
    assert not is_right("is_balanced", 0.5, truth)
    assert is_right("important_head", 1, truth)
    assert not is_right("important_head", 0, truth)


def test_what_a_method_gets(small_trap):
    network = small_trap.members[0].network
    subject = Gallery().subject(network)
    assert subject.tokens.shape == (20, 28)
    assert subject.patterns.shape == (20, 2, 29, 29)
    assert subject.predictions.shape == (20, 29, 2 * subject.types)
    assert len(subject.texts[0]) == 28
    assert subject.looked_at == {"patterns", "predictions"}
    assert lookup_accuracy(subject.run(), subject.lookups) == 1.0
    assert "vectors" in subject.weights
    subject.patterns.zero_()
    assert subject.patterns.sum() > 0, "what a method changes is its own copy"
    assert torch.equal(subject.run(subject.tokens), subject.predictions)
    subject.run(patterns=subject.patterns)
    assert subject.looked_at >= {"weights", "own sentences", "interventions"}


def test_pumped_by_hand():
    assert pumped(1, 2, 1).tolist() == [0, 1, 0, 0, 1, 1]
    assert len(pumped(2, 3, 5)) == 2 * 5 * 2 * 3 + 4


def test_answers_of_a_wrong_kind_get_a_sentence():
    assert checked("m", "needs_pattern", True, 2) == 1.0
    assert checked("m", "is_balanced", torch.tensor(0.25), 2) == 0.25
    assert checked("m", "is_balanced", torch.tensor([True]), 2) == 1.0
    assert checked("m", "is_balanced", np.bool_(False), 2) == 0.0
    assert checked("m", "important_head", torch.tensor(1), 2) == 1
    for question, given, told in (
        ("needs_pattern", 2.0, "must be at most 1"),
        ("needs_pattern", float("nan"), "is nan; it must be a number from 0 to 1"),
        ("is_balanced", "yes", "the answer of m is 'yes'"),
        ("important_head", 2, "must be at most 1"),
        ("important_head", 0.5, "must be a whole number"),
        ("needs_pattern", None, "the answer of m is None"),
    ):
        with pytest.raises(UserError, match=told):
            checked("m", question, given, 2)


def written(folder, text):
    file = folder / "mine.py"
    file.write_text(textwrap.dedent(text))
    return file


def test_a_file_of_ones_own(tmp_path, small_trap):
    file = written(
        tmp_path,
        """
        from dataclasses import dataclass

        @dataclass
        class Peak:
            value: float

        def needs_pattern(network):
            return Peak(float(network.patterns.amax())).value
        """,
    )
    method = load_method(file)
    assert method.name == "mine"
    assert list(method.functions) == ["needs_pattern"]
    found = score_method(small_trap, method, compare=False)
    assert {score.question for score in found.scores} == {"needs_pattern"}
    assert found.to_json()["looked_at"] == {"mine": ["patterns"]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def f(:", "mine.py cannot be read: SyntaxError"),
        ("import no_such_module", "mine.py cannot be read: ModuleNotFoundError"),
        ("x = 1", "has none of the functions needs_pattern"),
        ("needs_pattern = 0.5", r"needs_pattern is not a function; it must be needs_pattern\(net"),
    ],
)
def test_a_bad_file_gets_one_sentence(tmp_path, text, told):
    with pytest.raises(UserError, match=told):
        load_method(written(tmp_path, text))


def test_a_method_that_fails_gets_one_sentence(tmp_path, small_trap):
    method = load_method(written(tmp_path, "def needs_pattern(network):\n    return 1 / 0"))
    with pytest.raises(UserError, match="mine: needs_pattern fails with ZeroDivisionError"):
        score_method(small_trap, method, compare=False)
    with refused("file"):
        load_method(tmp_path / "missing.py")
    with refused("file"):
        load_method(tmp_path / "mine.txt")
    with refused("method"):
        score_method(small_trap, ablation())
