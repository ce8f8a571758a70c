"""Brackets, against their definition: pairs that are removed until none is left."""

import pytest
from tests.support.enumerated_text import all_texts, check_exact
from tests.support.refusals import refused

from triptych.verifiers.text_rules.brackets import BracketPrefix

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def balanced(text):
    text = text.replace("x", "")
    while (shorter := text.replace("()", "").replace("[]", "")) != text:
        text = shorter
    return text == ""


def test_worked_values():
    rule = BracketPrefix()
    assert [rule(text) for text in ("", "([", "([])", "(]", ")", "a(b")] == [1, 1, 1, 0, 0, 1]
    assert [rule(text, finished=True) for text in ("", "([", "([])", "a")] == [1, 0, 1, 1]
    assert repr(rule) == "BracketPrefix(pairs='()[]{}')"


def test_every_short_text():
    """The only endings to try are the closing brackets, in every order."""
    rule = BracketPrefix("()[]")
    check_exact(rule, balanced, all_texts("()[]x", 5), all_texts(")]", 5))


def test_other_brackets_are_read_over():
    assert BracketPrefix("<>")("(<]>", finished=True)


@pytest.mark.parametrize("pairs", ["", "(", "((", "()(]", 3, None, ["(", ")"]])
def test_pairs_that_are_none(pairs):
    with refused("pairs"):
        BracketPrefix(pairs)


def test_what_is_no_text_is_refused():
    with refused("text"):
        BracketPrefix()(3)
    with refused("finished"):
        BracketPrefix()("(", finished=1)
