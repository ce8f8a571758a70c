"""Python, against its own parser: every prefix of what it parses is accepted."""

import ast
import random
import sysconfig
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.enumerated_text import all_texts
from tests.support.grids import some
from tests.support.refusals import refused

from triptych.verifiers.text_rules.python_source import PythonPrefix

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

STDLIB = Path(sysconfig.get_path("stdlib"))


def parses(text, mode="exec"):
    try:
        ast.parse(text, mode=mode)
    except (SyntaxError, ValueError):
        return False
    return True


def test_worked_values():
    rule = PythonPrefix()
    for text in (
        "if x",
        "if x:\n  y = (1,",
        "x = 'a",
        "x = ''",
        "def f(",
        "@f\n",
        "(a\n fo",
        "x = \\",
    ):
        assert rule(text), text
    for text in ("x = )", "if if ", "if x:\ny ", "x = = ", "(]", "'abc\n", "a b ", "$ ", "x\x00 "):
        assert not rule(text), text
        assert not rule(text, finished=True), text
    assert rule("x = 1", finished=True)
    assert not rule("x = (1", finished=True)
    assert repr(rule) == "PythonPrefix(mode='exec')"


def test_expressions():
    rule = PythonPrefix("eval")
    assert [rule(text) for text in ("", "x +", "f(x", "x = ", "x\n", "x\ny ", "x; ")] == [
        *(True, True, True, False, True, False, False)
    ]
    assert rule("x + 1", finished=True)
    assert not rule("x = 1", finished=True)


SAMPLE = '''#!/usr/bin/env python
# a comment (with [brackets
"""A docstring with 'quotes' and a \\\\ backslash."""
from . import (a,
    b as c)
x: int = .5 + 1e-3 - 0xfe_d * 1_000j if not ... else 3.
é, ñ_1 = '', ""
s = 'it\\'s' "two" \'\'\'three ' '' \'\'\' r'\\d' f"{x!r:>{x}} {{}} {d['a']:'^10} {x:%H:%M}"
t = f\'\'\'{
    x if x else {1: 2}[1]}
  {x=} \'\'\' f"a\\
b"
y = x if x else\\
    -1

@decorator(1)
async def f(a, /, b=1, *args, c: int, **kw) -> None:
    try:
        async with a as b, c: pass
    except* (ValueError, TypeError) as e: raise X from e
    else:
        return b'a' Rb'\\''
    finally:
        while (n := next(i)) != 1: break
        else: del a[1:2, ...], b.c
class A(B, metaclass=C):

    def f(self):  # comment
        return lambda *a, **k: (yield)
match x:
    case {"a": [1, *_], **rest} if rest: pass
    case A(b=1) | None: pass
if x: pass
elif"a"in b: pass
else: print(*a, sep="\\t"); a @= b >> 2 // 3 ** ~4
z = 1if x else 0; w = [1for _ in x]
'''


def test_every_cut_of_a_text_with_all_kinds_of_tokens():
    rule = PythonPrefix()
    for text in (SAMPLE, SAMPLE.replace("\n", "\r\n")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 1if is deprecated
            assert parses(text.replace("\r\n", "\n"))
        assert rule(text, finished=True)
        for end in range(len(text) + 1):
            assert rule(text[:end]), text[max(0, end - 60) : end]


@pytest.mark.parametrize("seed", some(1, range(3)))
def test_cuts_of_the_standard_library(seed):
    rule, draw = PythonPrefix(), random.Random(seed)
    files = sorted(path for path in STDLIB.glob("*.py") if path.stat().st_size < 40_000)
    for path in draw.sample(files, 25):
        text = path.read_text(encoding="utf-8")
        assert rule(text, finished=True), path
        for _ in range(5):
            end = draw.randint(0, len(text))
            assert rule(text[:end]), (path, end, text[max(0, end - 60) : end])


@pytest.mark.parametrize(
    ("alphabet", "mode"), [("x=(:)\n ", "exec"), ("f'{x}:", "exec"), ("1.x-[]", "eval")]
)
def test_every_short_program(alphabet, mode):
    """All prefixes of all programs of up to 5 characters are accepted, and most texts are not."""
    rule, texts = PythonPrefix(mode), list(all_texts(alphabet, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right = {text for text in texts if parses(text, mode)}
    starts = {text[:end] for text in right for end in range(len(text) + 1)}
    accepted = set()
    for text in texts:
        assert rule(text, finished=True) == (text in right), text
        if rule(text):
            accepted.add(text)
    assert starts <= accepted, sorted(starts - accepted)
    assert len(accepted) < len(texts) * (0.7 if "'" in alphabet else 0.5)


def test_most_mistakes_are_refused():
    """A token that is put into the middle of a program at random, followed by the rest of it."""
    rule, draw = PythonPrefix(), random.Random(0)
    wrong = refused = 0
    for name in ("bisect", "contextlib", "heapq", "keyword", "queue", "sched", "textwrap"):
        text = (STDLIB / f"{name}.py").read_text(encoding="utf-8")
        places = [i for i, c in enumerate(text) if c == " "]
        for _ in range(20):
            at, token = draw.choice(places), draw.choice([" ) ", " = ", " in ", " x ", " : ", "\n"])
            changed = text[:at] + token + text[at:]
            if not parses(changed):
                wrong += 1
                refused += not rule(changed)
    assert wrong > 60
    assert refused >= 0.95 * wrong


def test_warnings_are_no_mistakes():
    """An escape such as "\\d" warns, and here warnings are errors."""
    text = "x = '\\d' "
    with pytest.raises(SyntaxError, match="invalid escape"):
        compile(text, "", "exec")
    assert PythonPrefix()(text)
    assert PythonPrefix()(text, finished=True)


def test_threads_do_not_change_the_filters_of_warnings():
    before, rule = list(warnings.filters), PythonPrefix()
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(rule, ["x = '\\d' + ("] * 200))
    assert warnings.filters == before


def test_deep_texts():
    rule = PythonPrefix()
    assert rule("(" * 50)
    assert not rule("(" * 5000, finished=True)
    assert not rule("-" * 200_000 + "1", finished=True)
    assert rule("f'{" * 100)


def test_fields_of_f_strings_as_python_312_has_them():
    """Where the f-string ends, a token that fits nowhere is refused; before, nothing is."""
    rule = PythonPrefix()
    for text in ('x = f"{d["a', 'x = f"{d["a"', 'x = f"{f"{1}'):
        assert rule(text), text
    assert not rule('x = f"{1}" ) ')


@pytest.mark.parametrize("mode", ["single", "", 3, None, ["exec"]])
def test_modes_that_are_none(mode):
    with refused("mode"):
        PythonPrefix(mode)


def test_where_a_letter_beyond_ascii_may_follow():
    """In names, strings and comments; not after a number or a closed bracket. The worked values."""
    rule = PythonPrefix()
    for text in ("", "x", 'x = "', "# ", "x = ", "def ", "x = f'{"):
        assert rule.beyond_ascii(text), text
        assert any(rule(text + "é" + more, finished=True) for more in ENDINGS), text
    for text in ("x = (1)", "12", 'x = "a"', "x = (1) "):
        assert not rule.beyond_ascii(text), text
        assert not any(rule(text + "é" + more, finished=True) for more in ENDINGS), text


ENDINGS = ["", '"', " = 1", "}'", "(): pass", ")", "1", " + 1"]
