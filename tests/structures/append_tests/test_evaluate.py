"""What is right about lines that a model wrote: Table 3.8 by hand, Python itself, hostile texts."""

import random
import time

import pytest

from triptych.core.validation import UserError
from triptych.structures.append_tests.evaluate import (
    Counts,
    Fault,
    _python,
    count_cases,
    evaluate,
)
from triptych.structures.append_tests.plain import Cut, Refused, read_line

SECOND_OF_TABLE = """
assert ovs([], 1) == [1]
assert ovs([2], 1) == [1, 2]
assert ovs([1, 2], 1) == [1, 1, 2]
assert ovs([1, 2], 3) == [1, 2, 3]
assert ovs([1, 2], 0) == [0, 1, 2]
assert ovs([1, 2, 3], 4) == [1, 2, 3, 4]
assert ovs([], 0) == [0]
assert ovs([1, 2], 0) == [0, 1, 2]
"""


def test_the_second_completion_of_table_3_8():
    found = evaluate(SECOND_OF_TABLE, "ovs")
    wrong = Fault.ITEM_FIRST
    right = Fault.NONE
    assert [line.fault for line in found.lines] == [
        *(right, wrong, wrong, right),
        *(wrong, right, right, wrong),
    ]
    assert found.correct == 4
    assert SECOND_OF_TABLE[: found.first_error].endswith("assert ovs([2], 1) == [")


def test_the_first_completion_of_table_3_8_lacks_a_case():
    lines = [f"assert knk({list(range(k))}, 2) == {[*range(k), 2]}" for k in range(7)]
    text = "\n".join(["", *lines, "def sum_list(l):", "    return sum(l)"])
    found = evaluate(text, "knk")
    assert found.correct == 7
    assert found.lines[-1].fault is Fault.NO_TEST
    assert text[found.first_error :].startswith("def sum_list")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("assert f([1], 2) == [1, 2]", Fault.NONE),
        ("  assert f( [1] ,2 )==[ 1,2 ] ; # a comment", Fault.NONE),
        ("assert f(['a'], \"b\") == [\"a\", 'b']", Fault.NONE),
        ("assert f([{1: 2}], {3}) == [{1: 2}, {3}]", Fault.NONE),  # not plain
        ("assert f([1], 2) == [1.0, 0b10]", Fault.NONE),  # equal as in Python
        ("assert (f([1], 2)) == ([1, 2])", Fault.NONE),
        ("assert f([1], 2) == [1]", Fault.ITEM_MISSING),
        ("assert f([1], 2) == [2, 1]", Fault.ITEM_FIRST),
        ("assert f([1], 2) == [1, 2, 2]", Fault.ITEM_TWICE),
        ("assert f([1], 2) == [1, 3]", Fault.OTHER_RESULT),
        ("assert f([1], 2) == (1, 2)", Fault.OTHER_RESULT),
        ("assert g([1], 2) == [1, 2]", Fault.OTHER_FUNCTION),
        ("assert f([1], x) == [1, x]", Fault.NO_LITERALS),
        ("assert f((1,), 2) == [1, 2]", Fault.NO_LITERALS),
        ("assert f([1]) == [1]", Fault.NO_LITERALS),
        ("assert f([1], 2) != [1, 3]", Fault.NO_TEST),
        ("assert f([1], item=2) == [1, 2]", Fault.NO_TEST),
        ("assert f([1], 2) == [1, 2], 'why'", Fault.NO_TEST),
        ("f([1], 2) == [1, 2]", Fault.NO_TEST),
        ("assert f([1], 2) == [1, 2", Fault.NO_TEST),
        ("assert f([__import__('os').system('false')], 1) == [1]", Fault.NO_LITERALS),
    ],
)
def test_faults_by_hand(line, fault):
    found = evaluate(f"{line}\n", "f", cases=1)
    assert [each.fault for each in found.lines] == [fault]
    assert (found.first_error is None) == (fault is Fault.NONE)


def test_where_the_first_error_is():
    """The first character after which nothing is right; of an early end, the end itself."""
    assert evaluate("assert f([1], 2) == [1, 3]\n", "f").first_error == 24
    assert evaluate("assert f([1], 2) == [1]\n", "f").first_error == 22
    assert evaluate("assert f([1], 2) == [1,\n", "f").first_error == 23  # the line break
    assert evaluate("assert f([1], 2) == [1, 2]\n", "f", ended=True).first_error == 27
    assert evaluate("assert f([1], 2) == [1, 2]", "f", cases=1, ended=True).first_error is None
    cut = evaluate("assert f([1], 2) == [1,", "f", cases=1)
    assert (cut.lines[0].fault, cut.first_error) == (Fault.UNFINISHED, None)
    ended = evaluate("assert f([1], 2) == [1,", "f", cases=1, ended=True)
    assert ended.first_error == 23


def test_only_the_first_lines_count():
    text = "\n\nassert f([], 1) == [1]\n\nassert f([], 2) == [2]\nassert f([], 3) == [3]\n"
    assert evaluate(text, "f", cases=2).correct == 2


def test_both_readings_of_distinct():
    text = "assert f([], 1) == [1]\nassert f([], True) == [True]\nassert f([], 1) == [1]\n"
    same = evaluate(text, "f")
    assert count_cases([[same, same]]) == Counts(6, 2, 1, 4, 2)
    assert count_cases([[same], [same]]) == Counts(6, 2, 2, 4, 4)
    assert count_cases([]) == Counts(0, 0, 0, 0, 0)


def random_literal(draw, depth=0):
    kind = draw.random()
    if depth < 2 and kind < 0.2:
        values = [random_literal(draw, depth + 1) for _ in range(draw.randint(0, 2))]
        return values if kind < 0.1 else tuple(values)
    some = (0, 1, 12, -3, 1.5, True, None, "a", "b'c", 'd"', "x\ny", "")
    return draw.choice(some)


def test_a_line_is_right_where_python_says_so():
    """The reader of plain lines, the evaluator and Python agree, on right lines and wrong ones."""
    draw = random.Random(0)
    outcomes = set()
    for _ in range(400):
        first = [random_literal(draw) for _ in range(draw.randint(0, 3))]
        item = random_literal(draw)
        result = [*first, item]
        if draw.random() < 0.5:
            result = draw.choice([first, [item, *first], [*result, item], [*first, first]])
        line = f"assert f({first!r}, {item!r}) == {result!r}"
        try:
            exec(line, {"f": lambda values, one: [*values, one]})  # a line of ours
            right = True
        except AssertionError:
            right = False
        assert (evaluate(line, "f", cases=1, ended=True).correct == 1) == right, line
        assert (_python(line, "f")[0] is Fault.NONE) == right, line
        try:
            assert read_line(line, "f") == (first, item)
            plain = True
        except (Cut, Refused):
            plain = False
        # A plain line repeats what was written, so 1 for True is right and not plain.
        assert plain <= right, line
        assert plain or not right or repr([*first, item]) != repr(result), line
        outcomes.add(right)
    assert outcomes == {True, False}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "assert f(" + "[" * 200_000,
        "assert f([], " + "9" * 1_000_000,
        "assert f([" + "-" * 200_000,
        "assert f([" + "-" * 1_900 + "1], 1) == [1]",
        "assert f([" + "(" * 900 + ")" * 900 + "], 1) == [1]",
        "\x00\ud800\n" * 10,
        "assert f([], '" + "a" * 1_000_000,
        "assert f([], 1) == [2] #" + "\\" * 100_000,
        "assert f([1e999], 1) == [1e999, 2]\nassert f([{[]: 1}], 1) == [1]",
        "assert f(['\\d'], 1) == 1",
    ],
)
def test_hostile_texts_are_harmless(text):
    began = time.process_time()
    found = evaluate(text, "f", ended=True)
    assert found.correct == 0
    assert found.first_error is not None
    assert time.process_time() - began < 1


def test_a_long_line_in_plain_form_is_right():
    word = "a" * 5_000
    assert evaluate(f"assert f([], '{word}') == [\"{word}\"]", "f", cases=1).correct == 1


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: evaluate(3, "f"), "text is 3"),
        (lambda: evaluate("", "f", cases=0), "cases is 0"),
        (lambda: count_cases([["x"]]), "what evaluate"),
        (lambda: count_cases(3), "prompts is 3"),
    ],
)
def test_mistakes_of_users(call, sentence, unchecked_shapes):
    with pytest.raises(UserError, match=sentence):
        call()
