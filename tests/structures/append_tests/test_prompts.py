"""Prompts as in Table 3.7, names, and what is read back from a prompt."""

import keyword

import pytest

from triptych.core.validation import UserError
from triptych.structures.append_tests.prompts import (
    MEANINGFUL_NAMES,
    TRAINING_NAMES,
    asked,
    draw_prompts,
    make_prompt,
    name_and_completion,
    random_names,
)

FIRST_OF_TABLE = """\
def f(a, b):
    return a + b

List 8 test cases of the above function f, one in each line:
assert f(5, 5) == 10
assert f(1, 5) == 6
assert f(2, 8) == 10
assert f(6, 2) == 8
assert f(6, 9) == 15
assert f(4, 5) == 9
assert f(9, 6) == 15
assert f(6, 1) == 7

def knk(l, item):
    assert type(l) is list
    l.append(item)
    return l


List 8 test cases of the above function knk, one in each line:"""


def test_the_first_prompt_of_the_table():
    sums = [(5, 5), (1, 5), (2, 8), (6, 2), (6, 9), (4, 5), (9, 6), (6, 1)]
    prompt = make_prompt("knk", sums)
    assert prompt.text == FIRST_OF_TABLE
    assert (prompt.name, prompt.cases) == ("knk", 8)
    assert asked(8, "knk") == FIRST_OF_TABLE.splitlines()[-1]


def test_the_function_of_a_prompt_appends():
    source = FIRST_OF_TABLE.split("\n\n")[2]
    scope = {}
    exec(source, scope)  # a text of ours
    assert scope["knk"]([1], 2) == [1, 2]


def test_drawn_sums_are_right_and_of_one_digit():
    first, second = draw_prompts(["abc", "add"], 0, cases=3, demonstrations=2)
    assert (first.name, second.name) == ("abc", "add")
    assert first.cases == 3
    assert "List 3 test cases of the above function abc," in first.text
    for line in first.text.splitlines():
        if line.startswith("assert f("):
            exec(line, {"f": lambda a, b: a + b})
            assert all(
                1 <= int(digit) <= 9 for digit in line.split("(")[1].split(")")[0].split(", ")
            )
    assert first.text.count("assert f(") == 2
    assert draw_prompts(["abc"], 1)[0] == draw_prompts(["abc"], 1)[0]
    assert draw_prompts(["abc"], 1)[0] != draw_prompts(["abc"], 2)[0]


def test_random_names_are_new():
    names = random_names(300, 0, avoid=["abc"])
    assert len(set(names)) == 300
    assert all(len(name) == 3 and name.isalpha() and name.islower() for name in names)
    known = {*TRAINING_NAMES, *MEANINGFUL_NAMES, "abc", *keyword.kwlist}
    assert not known & set(names)
    everything = random_names(10_000, 0)  # of 17,576
    assert not ({*TRAINING_NAMES, *MEANINGFUL_NAMES, "for", "len"} & set(everything))


def test_what_was_written_after_a_prompt():
    text = (
        "\nassert knk([], 1) == [1]\nList 8 test cases of the above function ovs, one in each line:"
    )
    assert name_and_completion(FIRST_OF_TABLE + text) == ("knk", text)
    assert name_and_completion(FIRST_OF_TABLE) == ("knk", "")
    assert name_and_completion("assert knk([], 1) == [1]") is None


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: make_prompt("Knk", [(1, 2)]), "name is 'Knk'"),
        (lambda: make_prompt("for", [(1, 2)]), "no keyword"),
        (lambda: make_prompt("knk", [(1, 2, 3)]), "pair of numbers"),
        (lambda: make_prompt("knk", [(1, 2)], cases=0), "cases is 0"),
        (lambda: draw_prompts("knk", 0), "list of names"),
    ],
)
def test_mistakes_of_users(call, sentence, unchecked_shapes):
    with pytest.raises(UserError, match=sentence):
        call()
