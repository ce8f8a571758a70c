"""The shape of a study's code: harmless edits do not change it, real ones do."""

import ast
import builtins
import copy
import random
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from triptych.lab.running import meanings, sources
from triptych.lab.running.discovery import find_studies, load_study
from triptych.lab.running.fingerprint import shape_digest, study_shape
from triptych.lab.running.shape import shape_of
from triptych.lab.running.sources import Source, bindings, bindings_in, is_own, parsed

STUDY_FILE = '''"""A study of one's own."""
from dataclasses import dataclass
from typing import ClassVar
import math
import torch.nn.functional as F
import ruler_of_mine
from sizes_of_mine import RATE, half
from triptych.core.validation import as_count
from triptych.inference.guided import vgb
from triptych.studies.api.study import Scale, Settings, Study, Unit

STEP = 2


@dataclass(frozen=True)
class Count(Unit):
    number: int
    power: float = 1.0

    def _square(self, extra: int = 0) -> int:
        return self.number**2 + extra

    def area(self) -> int:
        return self._square(extra=STEP)


@dataclass(frozen=True)
class Counted:
    number: int
    total: float


class Met:
    """Reached by the annotation of an argument alone."""

    least = 3


def units(settings: Settings) -> list[Count]:
    return [Count(number, seed=0) for number in range(3)]


def _total(number: int, scale: float = 1.5, *, shift: int = 0) -> float:
    """A sum."""
    result = 0.0
    for index in range(number):
        if index % 2 == 0 and index < 5:
            result += index * STEP * RATE
        else:
            result -= half(index)
    squares = [index * scale for index in range(number) if index > shift]
    try:
        return result + sum(squares) + ruler_of_mine.length(number)
    except ValueError as error:
        raise RuntimeError("no sum") from error


def _named(value, other):
    return value - other


def run(unit: Count, bench):
    def nested(word: str, met: "Met | None" = None):
        return len(word)

    total: float = _total(unit.number, shift=1)
    checked = as_count("number", unit.number)
    match checked:
        case 0:
            total += 1.0
        case int() as given:
            total += given
    pairs = {"value": total, "other": 1.0}
    ordered = sorted([total, 2.0], key=lambda item: -item)
    softened = F.softmax(ordered, 0)
    vgb.sample(softened)
    yield Counted(unit.number, math.sqrt(_named(**pairs)) + nested("ab") + unit.area())


STUDY = Study(
    "mine", "How many?", {Scale.SMOKE: Settings(), Scale.LAPTOP: Settings()}, units, run,
    (Counted,),
)
'''
SIZES = """RATE = 1.0

def half(number):
    return number / 2

def third(n):
    return n / 3
"""
RULER = "def length(number):\n    return number + 1\n"

Edit = tuple[str, str, str]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("sizes_of_mine", SIZES), ("ruler_of_mine", RULER)):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "mine.py").write_text(STUDY_FILE)
    return tmp_path


def digest(folder: Path, *edits: Edit) -> str:
    """The shape after some edits (file, pattern, replacement), which are taken back."""
    kept = {file: (folder / file).read_text() for file, _, _ in edits}
    try:
        for file, pattern, replacement in edits:
            text = (folder / file).read_text()
            changed = re.sub(pattern, replacement, text)
            assert changed != text, (file, pattern)
            (folder / file).write_text(changed)
        # the definitions are looked for in the files, so the study itself may stay as it was loaded
        source = Source("mine", (folder / "mine.py").resolve())
        roots = [(source, name) for name in ("run", "units", "Counted")]
        _clear()
        return shape_of(roots).text
    finally:
        for file, text in kept.items():
            (folder / file).write_text(text)
        _clear()


def _clear():
    sources._parsed.cache_clear()  # two edits in one tick of the clock look alike to it


HARMLESS: list[tuple[Edit, ...]] = [
    (("mine.py", r"\bresult\b", "so_far"),),
    (("mine.py", r"\bindex\b", "place"),),
    (
        (
            "mine.py",
            r"for index in range\(number\) if index > shift",
            "for i in range(number) if i > shift",
        ),
        ("mine.py", r"\[index \* scale", "[i * scale"),
    ),
    (("mine.py", r"\bsquares\b", "areas"),),
    (("mine.py", r"\berror\b", "problem"),),
    (("mine.py", r"\bgiven\b", "seen"),),
    (("mine.py", r"\bnested\b", "measure"),),
    (("mine.py", r"\bword\b", "text"),),
    (("mine.py", r"\bitem\b", "each"),),
    (("mine.py", r"\bshift\b", "moved"),),  # an argument, with the call that names it
    (("mine.py", r"scale: float", "size: float"), ("mine.py", r"\* scale", "* size")),
    (("mine.py", r"\bunit\b(?!s)", "task"),),
    (("mine.py", r"\b_total\b", "_sum_up"),),
    (("mine.py", r"\bSTEP\b", "PACE"),),
    (("mine.py", r"\b_square\b", "_squared"),),
    (("mine.py", r'"""A sum."""', '"""Its sum."""'),),
    (("mine.py", r"\btotal: float = _total", "total = _total"),),
    (("mine.py", r"-> float:", "-> 'float | int':"),),
    (("mine.py", r"number: int, scale: float", "number, scale"),),
    (("mine.py", r"word: str,", "word,"),),
    (("mine.py", r"import math\n", "import math as m\n"), ("mine.py", r"math\.sqrt", "m.sqrt")),
    (("mine.py", r"import math\n", "from math import sqrt\n"), ("mine.py", r"math\.sqrt", "sqrt")),
    (("mine.py", r"import torch.nn.functional as F", "from torch.nn import functional as F"),),
    (("mine.py", r"triptych.core.validation import", "triptych.core.scalars import"),),
    (
        ("mine.py", r"import ruler_of_mine\n", "from ruler_of_mine import length\n"),
        ("mine.py", r"ruler_of_mine\.length", "length"),
    ),
    (
        ("mine.py", r"guided import vgb\n", "guided.vgb import sample as walk\n"),
        ("mine.py", r"vgb\.sample", "walk"),
    ),
    (
        ("mine.py", r"import RATE, half", "import RATE, half as halved"),
        ("mine.py", r"half\(index", "halved(index"),
    ),
    (("sizes_of_mine.py", r"number", "n"),),
    (("sizes_of_mine.py", r"n / 3", "n / 4"),),  # nobody reaches it
    (("sizes_of_mine.py", r"def half", "# a comment\ndef half"),),
    (
        ("mine.py", r"import RATE, half", "import RATE, half_of"),
        ("mine.py", r"half\(", "half_of("),
        ("sizes_of_mine.py", r"def half", "def half_of"),
    ),
    (
        ("mine.py", r"STEP = 2\n", ""),
        ("mine.py", r"import RATE, half", "import RATE, STEP, half"),
        ("sizes_of_mine.py", r"RATE = 1.0", "RATE = 1.0\nSTEP = 2"),
    ),
]

REAL: list[tuple[Edit, ...]] = [
    (("mine.py", r"STEP = 2", "STEP = 3"),),
    (("mine.py", r"RATE, half", "RATE, third as half"),),
    (("mine.py", r"result \+= index", "result -= index"),),
    (("mine.py", r"index < 5", "index <= 5"),),
    (("mine.py", r"% 2 == 0 and", "% 2 == 0 or"),),
    (("mine.py", r"scale: float = 1.5", "scale: float = 2.5"),),
    (("mine.py", r"shift: int = 0", "shift: int = 1"),),
    (("mine.py", r"shift=1", "scale=1"),),
    (("mine.py", r"_total\(unit.number, shift=1\)", "_total(unit.number)"),),
    (("mine.py", r"for index in range\(number\) if", "for index in range(STEP) if"),),
    (("mine.py", r"if index > shift", "if index > scale"),),
    (("mine.py", r"unit\.area\(\)", "unit.number"),),
    (("mine.py", r"number\*\*2 \+ extra", "number**2 - extra"),),
    (("mine.py", r"extra: int = 0", "extra: int = 1"),),
    (("mine.py", r"sum\(squares\)", "max(squares)"),),
    (("mine.py", r"math\.sqrt", "math.exp"),),
    (("mine.py", r"F\.softmax", "F.log_softmax"),),
    (("mine.py", r"torch.nn.functional as F", "scipy.special as F"),),
    (("mine.py", r"guided import vgb", "guided import tokenwise as vgb"),),
    (("mine.py", r"import as_count", "import as_seed as as_count"),),
    (("mine.py", r"vgb\.sample\(softened\)", "vgb.sample(ordered)"),),
    (("mine.py", r"-item", "item"),),
    (("mine.py", r"case 0:", "case 1:"),),
    (("mine.py", r"case int\(\)", "case float()"),),
    (("mine.py", r"total \+= given", "pass"),),
    (("mine.py", r"except ValueError", "except KeyError"),),
    (("mine.py", r"frozen=True\)\nclass Counted", "frozen=True, order=True)\nclass Counted"),),
    (("mine.py", r"    number: int\n    total", "    counted: int\n    total"),),
    (("mine.py", r"    number: int\n    total: float", "    total: float\n    number: int"),),
    (("mine.py", r"    power: float = 1.0", "    power: ClassVar[float] = 1.0"),),
    (("mine.py", r"    power: float = 1.0", "    power: float = 2.0"),),
    (("mine.py", r"least = 3", "least = 4"),),
    (("mine.py", r"range\(3\)", "range(2)"),),
    (("mine.py", r"seed=0", "seed=1"),),
    (
        ("mine.py", r"class Counted", "class Tallied"),
        ("mine.py", r"Counted\(", "Tallied("),
    ),
    (("mine.py", r"def _named\(value, other\)", "def _named(other, value)"),),
    (
        (
            "mine.py",
            r"_named\(value, other\):\n    return value - other",
            "_named(other, value):\n    return other - value",
        ),
    ),  # called with ** by these names
    (
        ("mine.py", r"\bscale: float = 1.5", "scale: float"),
        ("mine.py", r"_total\(unit.number, ", "_total(unit.number, 1.5, "),
    ),
    (("sizes_of_mine.py", r"number / 2", "2 / number"),),
    (("ruler_of_mine.py", r"number \+ 1", "number + 2"),),
    (("mine.py", r"    def nested", "    @staticmethod\n    def nested"),),
]


@pytest.mark.parametrize("edits", HARMLESS, ids=lambda edits: edits[0][1])
def test_a_harmless_edit_does_not_change_it(folder, edits):
    assert digest(folder, *edits) == digest(folder)


@pytest.mark.parametrize("edits", REAL, ids=lambda edits: edits[0][1])
def test_a_real_edit_changes_it(folder, edits):
    assert digest(folder, *edits) != digest(folder)


def test_it_names_what_it_is_of(folder):
    study = load_study(folder / "mine.py")
    found = {own.name for own in study_shape(study).definitions}
    assert {"run", "units", "Counted", "Count", "Met", "_total", "STEP", "RATE", "half"} <= found
    assert not {"third", "STUDY", "Settings"} & found


def test_code_that_reads_names_keeps_them(folder):
    """A function that looks at `__name__` makes other rows after a renaming."""
    reads = ("mine.py", r"_named\(\*\*pairs\)", "len(_total.__name__)")
    renamed = ("mine.py", r"\b_total\b", "_sum_up")
    assert digest(folder, reads) != digest(folder, reads, renamed)


def test_the_text_of_a_small_definition(tmp_path, monkeypatch):
    """Worked by hand: `def run(unit, bench): return unit.a + STEP` with STEP = 2."""
    (tmp_path / "tiny_of_mine.py").write_text(
        "STEP: int = 2\n\ndef run(unit, bench):\n    return unit.a + STEP\n"
    )
    source = Source("tiny_of_mine", tmp_path / "tiny_of_mine.py")
    assert re.sub(r"\0.*?\0", "", shape_of([(source, "run")]).text) == (
        "0: FunctionDef(,[],0/2/0,,[],$0,$1,"
        "[Return(value=BinOp(left=$0.a,op=Add(),right=#1))])\n"
        "1: Assign(targets=[#1],value=Constant(value=2))"
    )


# ----------------------------------------------------------------- every study of ours, by syntax

STUDIES = find_studies()


@pytest.fixture
def changed(monkeypatch):
    """Let modules of studies be read through a change of their syntax."""

    def apply(change: Callable[[ast.Module], ast.Module], only: Source | None = None) -> None:
        @cache
        def read(source: Source):
            whole = parsed(source)
            if not is_own(source) or only not in (None, source):
                return whole
            tree = change(copy.deepcopy(whole[0]))
            return tree, bindings_in(tree)

        monkeypatch.setattr(meanings, "parsed", read)

    return apply


def renamed_locals(tree: ast.Module) -> ast.Module:
    """Every local gets another name, except arguments and what the module has too."""
    known = {*dir(builtins), *bindings_in(tree)}
    for top in tree.body:
        if isinstance(top, ast.FunctionDef | ast.ClassDef):
            names = _assigned(top) - known - set(_not_renamed(top))
            for node in ast.walk(top):
                if isinstance(node, ast.Name) and node.id in names:
                    node.id = f"{node.id}_renamed"
    return tree


def _assigned(top: ast.AST) -> set[str]:
    return {
        node.id
        for function in ast.walk(top)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _not_renamed(top: ast.AST) -> Iterator[str]:
    """Names that are written as texts somewhere, or that are arguments, fields or imports."""
    for node in ast.walk(top):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
            if isinstance(node, ast.ClassDef):
                yield from (n.id for line in node.body for n in _names_of_line(line))


def _names_of_line(line: ast.stmt) -> list[ast.Name]:
    return [n for n in ast.walk(line) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


@pytest.mark.parametrize("name", STUDIES)
def test_locals_of_every_study_may_be_renamed(name, changed):
    before, count = shape_digest(STUDIES[name]), [0]

    def change(tree):
        old = ast.dump(tree)
        tree = renamed_locals(tree)
        count[0] += ast.dump(tree) != old
        return tree

    changed(change)
    assert shape_digest(STUDIES[name]) == before
    assert count[0] > 0, "no local was renamed"


def constants_in_run(study) -> list[ast.AST]:
    """The numbers and texts in the function `run` of a study."""
    own = study_shape(study).definitions[0]
    (node,) = bindings(own.source)[own.name]
    return [n for n in _code(node) if isinstance(n, ast.Constant) and n.value is not None]


class Mutations(ast.NodeTransformer):
    """Change the one node that stands at a place; `kind` says what was done."""

    def __init__(self, line: int, column: int, what: type) -> None:
        self.place, self.what, self.done = (line, column), what, 0

    def visit(self, node):
        here = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        if here == self.place and type(node) is self.what and not self.done:
            self.done += 1
            return mutated(node)
        return self.generic_visit(node)


_OTHER = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Mod: ast.Mult, ast.FloorDiv: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
    ast.MatMult: ast.Mult, ast.BitXor: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


def mutated(node: ast.AST) -> ast.AST:
    """The same syntax with another operator, constant, target of a call, name, or branch."""
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bool) or value is None or value is Ellipsis:
            return ast.Constant("changed")
        return ast.Constant(value + "x" if isinstance(value, str) else value + type(value)(1))
    if isinstance(node, ast.BinOp):
        return ast.BinOp(node.left, _OTHER[type(node.op)](), node.right)
    if isinstance(node, ast.Compare):
        return ast.Compare(
            node.left, [_OTHER[type(node.ops[0])](), *node.ops[1:]], node.comparators
        )
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    if isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return node
    if isinstance(node, ast.Call):
        node.func = ast.Name("print", ast.Load())
        return node
    if isinstance(node, ast.UnaryOp):
        return node.operand
    if isinstance(node, ast.Attribute):
        return ast.Attribute(node.value, f"{node.attr}x", node.ctx)
    if isinstance(node, ast.keyword):
        return ast.keyword(f"{node.arg or ''}x", node.value)
    raise AssertionError(type(node))


_CHANGEABLE = (
    ast.Constant, ast.BinOp, ast.Compare, ast.BoolOp, ast.If, ast.IfExp, ast.Call, ast.UnaryOp,
    ast.Attribute, ast.keyword,
)  # fmt: skip


def check_changes(study, changed, places: list[tuple[Source, ast.AST]]) -> None:
    before = shape_digest(study)
    for where, node in places:
        mutation = Mutations(node.lineno, node.col_offset, type(node))  # pyright: ignore
        changed(mutation.visit, where)
        assert shape_digest(study) != before, (where.name, node.lineno, ast.unparse(node))
        assert mutation.done == 1


@pytest.mark.parametrize("name", STUDIES)
def test_a_constant_in_run_may_not_be_changed(name, changed):
    study = STUDIES[name]
    source = study_shape(study).definitions[0].source
    constants = [(source, node) for node in constants_in_run(study)]
    if not constants:  # then one in what it reaches
        constants = [
            (where, node)
            for where, node in places_in(study)
            if isinstance(node, ast.Constant) and node.value is not None
        ]
    check_changes(study, changed, [random.Random(name).choice(constants)])


@pytest.mark.parametrize("places", [2, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", STUDIES)
def test_what_a_study_reaches_may_not_be_changed(name, places, changed):
    """Operators, constants, calls, attributes, keywords and branches of what is under seal."""
    check_changes(STUDIES[name], changed, random_places(STUDIES[name], places))


def random_places(study, count: int) -> list[tuple[Source, ast.AST]]:
    places = places_in(study)
    return random.Random(f"{study.name} {count}").sample(places, min(count, len(places)))


def places_in(study) -> list[tuple[Source, ast.AST]]:
    """What can be changed in the definitions under seal."""
    return [
        (own.source, node)
        for own in study_shape(study).definitions
        for top in bindings(own.source)[own.name]
        for node in _code(top)
        if isinstance(node, _CHANGEABLE)
    ]


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """All syntax but annotations and docstrings."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for inner in value if isinstance(value, list) else [value]:
            text = getattr(getattr(inner, "value", None), "value", None)
            if isinstance(inner, ast.Expr) and isinstance(text, str):
                continue
            if isinstance(inner, ast.AST):
                yield from _code(inner)
