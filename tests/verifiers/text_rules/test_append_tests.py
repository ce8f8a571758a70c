"""The rule for test cases: exact on all short texts, on random ones, and on cuts of right texts."""

import itertools
import random

import pytest
from tests.support.enumerated_text import all_texts, check_exact

from triptych.core.validation import UserError
from triptych.structures.append_tests.evaluate import Fault, _python, count_cases, evaluate
from triptych.structures.append_tests.prompts import draw_prompts
from triptych.verifiers.text import TextRule
from triptych.verifiers.text_rules.append_tests import AppendTestsPrefix, PromptedAppendTests

ONE = AppendTestsPrefix("f", cases=1)


def right_to_python(text):
    return _python(text, "f")[0] is Fault.NONE


def test_exact_on_short_results(unchecked_shapes):
    """Some ending of the same four characters makes the text right for Python, or none does."""
    texts = ("assert f([1],2)==[" + w for w in all_texts("12,]", 3))
    check_exact(ONE, right_to_python, texts, all_texts("12,]", 4))


def test_exact_on_short_arguments(unchecked_shapes):
    numbers = ("", "1", "11", "111")
    endings = [f"{v}],1)==[{w}1]" for v in numbers for w in ("", "1,", "11,", "111,")]
    endings += [f",1)==[{w}1]" for w in ("", "1,", "11,", "111,")]
    check_exact(ONE, right_to_python, ("assert f([" + w for w in all_texts("1]", 3)), endings)


def right_texts(count, seed, cases=3):
    """Texts of right cases, with spaces, quotes and comments of all kinds."""
    draw = random.Random(seed)

    def literal(depth=0):
        kind = draw.randint(0, 6 if depth < 2 else 4)
        if kind == 0:
            return draw.choice(["True", "False", "None"])
        if kind == 1:
            return draw.choice(["'ab'", '"c"', "''", "'it\\'s'", '"\\n#"'])
        if kind in (2, 3):
            return draw.choice(["0", "7", "-12", "123456789"])
        if kind == 4:
            return draw.choice(["0.5", "-3.25", "1.000001"])
        inner = [literal(depth + 1) for _ in range(draw.randint(0, 2))]
        if kind == 5:
            return f"[{', '.join(inner)}]"
        return f"({inner[0]},)" if len(inner) == 1 else f"({','.join(inner)})"

    def swapped(text):
        if text[0] in "'\"" and not set(text[1:-1]) & set("\\'\""):
            return f'"{text[1:-1]}"' if draw.random() < 0.5 else f"'{text[1:-1]}'"
        return text

    for _ in range(count):
        lines = []
        for number in range(cases):
            first = [literal() for _ in range(draw.randint(0, 3))] + [str(number)]
            item, space = literal(), draw.choice(["", " ", "  "])
            result = [*map(swapped, first), swapped(item)]
            lines.append(
                f"{space}assert f([{', '.join(first)}],{space}{item}) =={space}"
                f"[{(space + ',').join(result)}{draw.choice(['', ','])}]"
                f"{draw.choice(['', ';', ' # é'])}"
            )
        yield draw.choice(["", "\n", "\n \n"]) + "\n".join(lines)


@pytest.mark.parametrize("distinct", [False, True])
def test_every_cut_of_a_right_text_is_accepted(distinct, unchecked_shapes):
    rule = AppendTestsPrefix("f", cases=3, distinct=distinct)
    for text in right_texts(25, seed=1):
        assert rule(text, finished=True), text
        assert rule(text + "\nwhatever")
        assert evaluate(text, "f", cases=3, ended=True).correct == 3
        for cut in range(len(text)):
            assert rule(text[:cut]), text[:cut]
            lines = len([line for line in text[:cut].split("\n") if line.strip()])
            assert not rule(text[:cut], finished=True) or lines == 3


def test_after_a_wrong_character_nothing_is_right(unchecked_shapes):
    """A wrong character is refused where no right text begins so: the texts are all right ones of a
    small grammar, listed."""
    atoms = ["1", "12", "'a'", "None", "[]", "(1,)"]
    lists = [[], ["1"], ["12"], ["None", "1"]]
    whole = {
        f"assert f([{','.join(first)}],{item})==[{','.join([*first, item])}]"
        for first, item in itertools.product(lists, atoms)
    }
    beginnings = {text[:cut] for text in whole for cut in range(len(text) + 1)}
    draw, checked = random.Random(2), 0
    for text in sorted(whole):
        for cut in range(text.index("=="), len(text)):  # the arguments are known, the result is not
            wrong = text[:cut] + draw.choice("1a'][N(")
            if wrong not in beginnings:
                checked += 1
                assert not ONE(wrong), wrong
                endings = ("", "]", "1]", ",1]")
                assert not any(right_to_python(wrong + rest) for rest in endings), wrong
    assert checked > 200


def test_what_is_accepted_can_be_completed(unchecked_shapes):
    """From texts that the rule lets grow at random, it also leads to the end of a right text."""
    draw, alphabet = random.Random(3), "assert f([1,2.'N)] ==#oneTru\n-("
    rule = AppendTestsPrefix("f", cases=2, distinct=True)
    closers = "\n'])=[,1f(einoslrtuT0987654321.Na- #"
    for _ in range(60):
        text = "assert f("
        for _ in range(draw.randint(0, 25)):
            grown = [c for c in draw.sample(alphabet, len(alphabet)) if rule(text + c)]
            assert grown, text
            text += grown[0]
        for _ in range(400):
            if rule(text, finished=True):
                break
            begun = text.rpartition("\n")[2].strip()
            text += next(c for c in (closers if begun else "a") if rule(text + c))
        assert rule(text, finished=True), text
        found = evaluate(text, "f", cases=2, ended=True)
        assert count_cases([[found]]).within == 2, text


@pytest.mark.parametrize(
    ("item", "refused_at"),
    [
        ("'a'", 3),  # at the quote that closes it
        ("None", 1),  # nothing else begins with N
        ("True", 1),
        ("12", 3),  # the number may go on until something follows it
        ("[]", 2),
        ("0.123456", 8),  # there are no more digits
    ],
)
def test_a_case_that_was_there_is_refused_as_soon_as_it_must_be(item, refused_at):
    rule = AppendTestsPrefix("f", cases=2, distinct=True)
    before = f"assert f([], {item}) == [{item}]\nassert f([], "
    text = f"{before}{item}) == [{item}]"
    first = next(k for k in range(len(text) + 1) if not rule(text[:k]))
    assert first == len(before) + refused_at
    assert AppendTestsPrefix("f", cases=2)(text, finished=True)


def test_equal_items_are_the_same_case():
    rule = AppendTestsPrefix("f", cases=2, distinct=True)
    assert not rule("assert f([], 1) == [1]\nassert f([], T")
    assert not rule("assert f([], 1) == [1]\nassert f([], 1.000000")
    assert rule("assert f([], 1) == [1]\nassert f([], 1.00000")
    ten = "".join(f"assert f([], 1.00000{k}) == [1.00000{k}]\n" for k in range(10))
    assert not AppendTestsPrefix("f", cases=11, distinct=True)(f"{ten}assert f([], 1.00000")
    nine = "".join(f"assert f([], 1.00000{k}) == [1.00000{k}]\n" for k in range(9))
    assert AppendTestsPrefix("f", cases=11, distinct=True)(f"{nine}assert f([], 1.00000")


def test_worked_values():
    assert ONE("assert f([1], 2) == [1")
    assert not ONE("assert f([1], 2) == [2")
    assert ONE("assert f([1], 2) == [1, 2]", finished=True)
    assert not ONE("assert f([1], 2) == [1, 2", finished=True)
    assert not ONE("", finished=True)
    assert ONE("")
    assert not ONE("def")
    assert not ONE("assert g")
    assert not ONE("assert f((")
    assert not ONE("assert f(" + "[" * 21)
    assert not ONE("assert f([], 1234567890")
    assert not ONE("assert f([], 007")


def test_prompted_rule_reads_the_name_from_the_prompt():
    knk, ovs = draw_prompts(["knk", "ovs"], 0)
    rule = PromptedAppendTests(cases=8)
    assert rule(f"{knk.text}\nassert knk([], 1) == [1")
    assert not rule(f"{knk.text}\nassert ovs(")
    assert rule(f"{ovs.text}\nassert ovs(")
    assert not rule("\nassert knk(")
    verifier = TextRule(rule, lambda ids: "".join(map(chr, ids)))
    rows = [[*map(ord, f"{knk.text}\nassert {name}(")] for name in ("knk", "ovs")]
    assert verifier.log_value(rows).exp().tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: AppendTestsPrefix("a b"), "name is 'a b'"),
        (lambda: AppendTestsPrefix("f", cases=0), "cases is 0"),
        (lambda: AppendTestsPrefix("f", distinct=3), "distinct is 3"),
        (lambda: ONE(7), "text is 7"),
        (lambda: PromptedAppendTests(cases=-1), "cases is -1"),
    ],
)
def test_mistakes_of_users(call, sentence, unchecked_shapes):
    with pytest.raises(UserError, match=sentence):
        call()
