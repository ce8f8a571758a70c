"""Verifiers by their names, and rules of one's own in a process that can be stopped."""

import math
import os
import time

import pytest
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.lab.generating.rule_process import RuleFailed, RuleNotThere, RuleProcess
from triptych.lab.generating.rules import AskedRule, RuleSource, failure_reason, find_rule

RULES = """
import os, sys, time

def short(text):
    return len(text) <= 2

def half(text, finished):
    return 0.5 if finished else True

def bad(text):
    if "b" in text:
        raise ValueError("no\\nb")
    return True

def hang(text):
    while "h" in text:
        pass
    return True

def hang_in_c(text):
    if "h" in text:
        sum(range(10**12))
    return True

def die(text):
    if text:
        os.kill(os.getpid(), 11)
    return True

def leave(text):
    sys.exit(3) if text else None
    return True

def words(text):
    return "yes"

def nothing(text):
    print("a print does no harm")

def process(text):
    return os.getpid() / 1e9
"""


FORKING = """
import os, random, subprocess, sys, time

def is_a(text):
    return text == "a"

def both_return(text):
    return (text == "a") == (os.fork() != 0)

def the_other_raises(text):
    if os.fork() == 0:
        raise ValueError("in the other")
    return is_a(text)

def the_other_leaves(text):
    if os.fork() == 0:
        sys.exit(7)
    return is_a(text)

def the_other_is_late(text):
    if os.fork() == 0:
        time.sleep(0.05 * len(text))
        return not is_a(text)
    return is_a(text)

def in_a_library(text):
    random.fork_once = os.fork
    return is_a(text) if random.fork_once() else 1 / 0

def reads_what_is_asked(text):
    subprocess.run(["head", "-c", "1"], check=True)
    return is_a(text) if sys.stdin.read() == "" else True
"""
WRITING = """
import os

def write_everywhere(line):
    for descriptor in range(3, 20):
        try:
            os.write(descriptor, line)
        except OSError:
            pass

def an_answer(text):
    if text == "w":
        write_everywhere(b'{"value": 1.0}\\n')
    return text == "a"

def half_a_line(text):
    if text == "w":
        write_everywhere(b"1")
    return text == "a"

def a_number(text):
    if text == "w":
        write_everywhere(b"7\\n")
    return text == "a"

def afterwards(text):
    if text == "w" and os.fork() == 0:
        import time
        time.sleep(0.2)
        write_everywhere(b'{"number": 1, "value": 1.0}\\n')
        os._exit(0)
    return text == "a"
"""
HOLDING = """
import os, time

def dies(text):
    if text and os.fork() == 0:
        time.sleep(60)  # and keeps the pipes open
        os._exit(0)
    if text:
        os._exit(9)
    return True
"""


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    file = tmp_path_factory.mktemp("rules") / "rules.py"
    file.write_text(RULES)
    return file


@pytest.fixture
def asked(rules):
    made = []

    def make(name, timeout=30.0):
        made.append(AskedRule(find_rule(f"{rules}:{name}"), timeout))
        return made[-1]

    yield make
    for rule in made:
        rule.close()


def test_ready_made_rules(tmp_path):
    (tmp_path / "schema.json").write_text('{"enum": ["red"]}')
    for given, right, wrong in [
        ("json", "[1", "[1]]"),
        (f"json:{tmp_path / 'schema.json'}", '"re', '"b'),
        ("regex:a+:b", "aa:", "b"),
        ("regex:x.py:y", "xapy:", "y"),
        ("python", "if x", "x = )"),
        ("brackets", "([", "(]"),
    ]:
        rule = AskedRule(find_rule(given), 1.0)
        assert (rule(right), rule(wrong)) == (1.0, 0.0), given
    assert AskedRule(find_rule("brackets"), 1.0)("(", finished=True) == 0.0


def test_a_function_of_ones_own(asked):
    short, half = asked("short"), asked("half")
    assert (short("ab"), short("abc"), short("abc", finished=True)) == (1.0, 0.0, 0.0)
    assert (half("a"), half("a", finished=True)) == (1.0, 0.5)
    half.check()


def test_it_runs_in_a_process_of_its_own(asked):
    assert asked("process")("a") * 1e9 != os.getpid()


def test_a_function_that_raises(asked):
    rule = asked("bad")
    for _ in range(2):  # the second time from memory
        with pytest.raises(RuleFailed, match="ValueError: no b"):
            rule("ab")
    assert rule.failure == ("ValueError: no b", "ab")
    assert rule("a") == 1.0
    assert failure_reason("no", "x" * 300).count("x") < 200


@pytest.mark.parametrize("name", ["hang", "hang_in_c"])
def test_a_function_that_hangs_is_stopped(asked, name):
    """In a loop of Python and in one of C; afterwards it answers again, in a new process."""
    rule = asked(name, timeout=1.0)
    began = time.monotonic()
    with pytest.raises(RuleFailed, match=r"no answer in 1 seconds"):
        rule("h")
    with pytest.raises(RuleFailed):  # it is not asked again
        rule("h")
    assert time.monotonic() - began < 20
    assert rule("a") == 1.0


def test_a_process_that_dies(asked):
    with pytest.raises(RuleFailed, match="died with signal 11"):
        asked("die")("a")
    with pytest.raises(RuleFailed, match="exited with code 3"):
        asked("leave")("a")


@pytest.mark.parametrize(
    "name",
    [
        "both_return",
        "the_other_raises",
        "the_other_leaves",
        "the_other_is_late",
        "in_a_library",
        "reads_what_is_asked",
    ],
)
def test_what_a_rule_forks_does_not_answer(tmp_path, name):
    """Each text gets its own verdict, in a long row of questions."""
    file = tmp_path / "forking.py"
    file.write_text(FORKING)
    rule = RuleProcess(file, name, 30.0)
    texts = ["a", "", "b", "a", "a", "bb", "a", "b"] * 3
    try:
        assert [rule(text) for text in texts] == [float(text == "a") for text in texts]
    finally:
        rule.close()


def test_what_a_file_forks_while_it_is_read_does_not_answer(tmp_path):
    file = tmp_path / "forks.py"
    file.write_text("import os\nfirst = os.fork() != 0\ndef f(text): return first\n")
    rule = RuleProcess(file, "f", 30.0)
    try:
        assert [rule(text) for text in "abc"] == [1.0, 1.0, 1.0]
    finally:
        rule.close()


@pytest.mark.parametrize("name", ["an_answer", "half_a_line", "a_number", "afterwards"])
def test_a_line_among_the_answers_is_no_answer(tmp_path, name):
    """A question fails, and the others get their own verdicts from a new process."""
    file = tmp_path / "writing.py"
    file.write_text(WRITING)
    rule = RuleProcess(file, name, 30.0)
    try:
        assert (rule("a"), rule("b")) == (1.0, 0.0)
        failures = []
        for text in "wabab":
            try:
                assert rule(text) == float(text == "a")
            except RuleFailed as error:
                failures.append(str(error))
            time.sleep(0.3 if name == "afterwards" else 0)
        assert ["among its answers" in failure for failure in failures] == [True]
    finally:
        rule.close()


def test_a_rule_that_dies_is_seen_where_what_it_forked_lives_on(tmp_path):
    """With no limit too, although nobody closes the pipe."""
    file = tmp_path / "holding.py"
    file.write_text(HOLDING)
    rule = RuleProcess(file, "dies", math.inf)
    began = time.monotonic()
    with pytest.raises(RuleFailed, match="exited with code 9"):
        rule("a")
    assert time.monotonic() - began < 30
    rule.close()


def test_no_process_is_left(rules):
    rule = RuleProcess(rules, "short", 1.0)
    child = rule._child
    rule.close()
    assert child.poll() is not None


@pytest.mark.parametrize("name", ["words", "nothing"])
def test_answers_of_a_wrong_kind(asked, name):
    with pytest.raises(UserError, match=r"the answer is ('yes'|None); it must be True, False"):
        asked(name).check()


def test_a_rule_that_raises_on_the_empty_text_may_go_on(tmp_path):
    (tmp_path / "rule.py").write_text("def last(text):\n    return text[-1] != 'x'\n")
    rule = AskedRule(find_rule(f"{tmp_path / 'rule.py'}:last"), 10.0)
    rule.check()
    assert rule.failure is None
    assert rule("a") == 1.0
    rule.close()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("jsn", "there is no verifier 'jsn'; did you mean json"),
        ("none.py:f", "a rule in 'none.py' cannot be read .No such file"),
        ("rule.py", "given as rule.py:function"),
        ("rule.py:a b", "given as rule.py:function"),
        ("json:none.json", "a schema in 'none.json' cannot be read"),
        ("regex:(", "must be a regular expression"),
        ("regex", "there is no verifier 'regex'"),
    ],
)
def test_names_that_are_no_rules(given, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=sentence):
        find_rule(given)


def test_files_that_are_no_rules(tmp_path, rules):
    def start(text, name="f"):
        file = tmp_path / "rule.py"
        file.write_text(text)
        return AskedRule(find_rule(f"{file}:{name}"), 1.0)

    with pytest.raises(UserError, match=r"has no function f; it has g"):
        start("def g(text): return True")
    with pytest.raises(UserError, match=r"has no function f; it has no function"):
        start("f = 3")
    with pytest.raises(UserError, match="cannot be imported: SyntaxError"):
        start("def f(")
    with pytest.raises(UserError, match="cannot be imported: ModuleNotFoundError"):
        start("import no_such_module")
    with pytest.raises(UserError, match="cannot be started: its process exited with code 5"):
        start("import os; os._exit(5)")
    (tmp_path / "schema.json").write_text("{")
    with refused("file"):
        find_rule(f"json:{tmp_path / 'schema.json'}")
    with pytest.raises(RuleNotThere, match="there is no file"):
        RuleProcess(tmp_path / "gone.py", "f", 1.0)
    assert find_rule(f"{rules}:short") == RuleSource(
        "own", str(rules), "short", find_rule(f"{rules}:bad").digest
    )
