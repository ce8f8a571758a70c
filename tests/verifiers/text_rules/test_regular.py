"""Regular expressions, against `re` on every short continuation."""

import random
import re

import pytest
from tests.support.enumerated_text import all_texts, check_exact, check_over

from triptych.core.validation import UserError
from triptych.verifiers.text_rules.regular import MAX_STATES, RegexPrefix

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def test_worked_values():
    rule = RegexPrefix("ab*c")
    assert [rule(text) for text in ("", "a", "abb", "ac", "b", "acc")] == [1, 1, 1, 1, 0, 0]
    assert [rule(text, finished=True) for text in ("", "a", "ac", "abbc", "acc")] == [0, 0, 1, 1, 0]
    assert repr(rule) == "RegexPrefix(pattern='ab*c')"


@pytest.mark.parametrize(
    "pattern",
    [
        "ab*a",
        "(a|ab)*b",
        "(?:a*)*",
        "(a|b){2,3}",
        "a{0,2}?b{2}",
        "(?:a??bb|b{2,4}b?)b",  # the partial matching of `regex` 2026.11 accepts "aa" here
        "a+?b|ba",
        "^(?:ab)+$",
        r"\Aa[^a]\Z",
        "(?i:A)b",
        "(?i)AB?",
        "a|[^\\s\\S]b",
        "(?P<name>a)(b|)",
        ".b",
        "",
        "a[a-b]{3}|b",
    ],
)
def test_every_short_text(pattern):
    right = re.compile(pattern).fullmatch
    check_exact(
        RegexPrefix(pattern),
        lambda text: right(text) is not None,
        all_texts("ab\n", 4),
        all_texts("ab", 5),
    )


def test_random_patterns():
    """A pattern of at most 8 letters needs at most 8 more characters to end a text of 3."""
    draw = random.Random(0)

    def pattern(depth):
        if depth == 0:
            return draw.choice("ab")
        inner = pattern(depth - 1)
        return draw.choice(
            [
                f"{inner}{pattern(depth - 1)}",
                f"(?:{inner}|{pattern(depth - 1)})",
                f"(?:{inner})*",
                f"(?:{inner})??",
                f"(?:{inner}){{1,2}}",
            ]
        )

    short, longer = list(all_texts("ab", 3)), list(all_texts("ab", 11))
    for _ in range(20):
        made = pattern(3)
        rule, right = RegexPrefix(made), re.compile(made).fullmatch
        matches = [text for text in longer if right(text)]
        starts = {text[:end] for text in matches for end in range(len(text) + 1)}
        for text in short:
            assert rule(text) == (text in starts), (made, text)
            assert rule(text, finished=True) == (right(text) is not None), (made, text)


@pytest.mark.parametrize(
    "pattern", ["ab*a", "(ab|b)c?", "a *", "a( b)?", " *a[ b]", "(a|ab)", "a{1,2} ?", "[^b]a|b"]
)
def test_texts_that_are_over(pattern):
    right = re.compile(pattern).fullmatch
    check_over(
        RegexPrefix(pattern),
        lambda text: right(text) is not None,
        all_texts("abc ", 4),
        all_texts("abc ", 5),
    )


def test_worked_values_of_what_may_follow():
    assert [RegexPrefix("ab*c?").over(text) for text in ("ac", "a", "ab", "b")] == [1, 0, 0, 0]
    assert RegexPrefix(r"a\s*").over("a")
    assert RegexPrefix(r"\d{4}-\d\d-\d\d").over("2001-12-31")
    assert not RegexPrefix("").over("a")
    assert RegexPrefix("ab?[é-ü]").beyond_ascii("a")
    assert not RegexPrefix("ab[é-ü]").beyond_ascii("a")


@pytest.mark.parametrize(
    "pattern", ["[a-z]+", "(?i)[a-z]+", "a|é", r"\w", r"(?a)\w", ".", "[^a]b", "aé?b", r"\d-\d"]
)
def test_which_characters_may_follow(pattern):
    """Against every character of the first plane, asked one by one."""
    rule = RegexPrefix(pattern)
    for text in ("", "a", "b", "1", "aé"):
        every = (chr(code) for code in range(128, 0x10000))
        assert rule.beyond_ascii(text) == any(rule(text + character) for character in every), text


def test_time_is_linear_where_backtracking_is_not():
    rule = RegexPrefix("(a|a)*(a|a)*(a|a)*c")
    assert rule("a" * 3000)
    assert not rule("a" * 3000 + "b")


def test_a_text_of_real_use():
    rule = RegexPrefix(r"\d{4}-(0[1-9]|1[0-2])-\d{2}")
    whole = "2024-11-30"
    assert all(rule(whole[:end]) for end in range(len(whole) + 1))
    assert rule(whole, finished=True)
    assert not rule("2024-13")
    assert not rule("2024-11-30 ")


@pytest.mark.parametrize(
    "pattern",
    [r"(a)\1", "(?=a)a", "(?!a)b", "(?<=a)b", r"\bab", "a++", "(?>a)b", "a$b", "a(?(1)b)"],
)
def test_patterns_that_are_not_regular(pattern):
    with pytest.raises(UserError, match="pattern is .*; it must be"):
        RegexPrefix(pattern)


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("(", r"pattern is '\('; it must be a regular expression: missing \)"),
        ("(?L)a", "pattern is .*; it must be a regular expression"),
        (f"a{{{MAX_STATES + 1}}}", f"at most {MAX_STATES} states"),
        ("((a{100}){100}){100}", f"at most {MAX_STATES} states"),
        (r"[^\s\S]", "it must match some text"),
        (3, "pattern is 3; it must be a string"),
        (b"a", "pattern is .*; it must be a string"),
    ],
)
def test_patterns_that_are_refused(pattern, sentence):
    with pytest.raises(UserError, match=sentence):
        RegexPrefix(pattern)
