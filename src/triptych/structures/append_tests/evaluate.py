"""How many test cases of `append` are right, and how many of them differ [li, 3.2.2.1].

A completion is read line by line; blank lines are passed over and the first `cases` others count.
A line is correct when Python reads it as `assert NAME(LIST, ITEM) == RESULT` with literals of which
LIST + [ITEM] == RESULT is true. Nothing is evaluated but literals (`ast.literal_eval`).

Two readings of "distinct" differ. Footnote 8 of the thesis says that cases differ when their lists
or their items do, and leaves open among which cases. The authors' program pools all completions of
one prompt, and the value 0.013 of argmax decoding, whose completions are all alike, shows that the
tables do so too; the other reading counts the distinct cases of each completion by itself. Also in
their program 1, True and 1.0 are the same item, as they are in Python.
"""

import ast
import warnings
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from triptych.core.validation import Count, UserError, as_count, as_flag, as_list, as_text, shown
from triptych.structures.append_tests.plain import (
    Case,
    Cut,
    Refused,
    key,
    read_line,
    typed_key,
)
from triptych.structures.append_tests.prompts import MOST_CASES

MAX_LINE = 2000
"""Characters of a line that Python's parser is shown; a longer one must be plain to be right."""


class Fault(StrEnum):
    """What is wrong with a line, the first that applies; NONE: nothing."""

    NONE = "correct"
    UNFINISHED = "the text is over before the line is"
    NO_TEST = "no assertion that a call equals something"
    OTHER_FUNCTION = "a call of another function"
    NO_LITERALS = "something is no literal, or the first argument no list"
    ITEM_MISSING = "the item is missing"
    ITEM_FIRST = "the item stands first"
    ITEM_TWICE = "the item stands twice"
    OTHER_RESULT = "another wrong result"
    TOO_FEW = "the text ends before there are enough cases"


class Line(NamedTuple):
    """One line of a completion.

    start   where it begins in the completion
    case    what it tests, as keys by which Python's equals are the same; typed: told apart by type
    error   where the first wrong character of the completion stands, None for a correct line and
            one that is right so far
    """

    start: int
    fault: Fault
    case: Case | None = None
    typed: Case | None = None
    error: int | None = None


class Evaluation(NamedTuple):
    """The lines of one completion that count.

    first_error   where its first wrong character stands; the length of the text, if it ended too
                  early; None, if nothing is wrong so far
    """

    lines: tuple[Line, ...]
    first_error: int | None

    @property
    def correct(self) -> int:
        return sum(line.fault is Fault.NONE for line in self.lines)


def evaluate(text: str, name: str, *, cases: Count = 8, ended: bool = False) -> Evaluation:
    """Read a completion of a prompt that asks for `cases` test cases of the function `name`.

    ended   the model ended the text; then fewer lines than cases are a mistake. Otherwise the text
            was cut, and its last line may be unfinished.
    """
    text, name, ended = as_text("text", text), as_text("name", name), as_flag("ended", ended)
    cases = as_count("cases", cases, at_least=1, at_most=MOST_CASES)
    lines: list[Line] = []
    start = 0
    while start <= len(text) and len(lines) < cases:
        end = text.find("\n", start)
        last, end = end < 0, len(text) if end < 0 else end
        if text[start:end].strip():
            lines.append(_read(text[start:end], start, name, cut=last and not ended))
        start = end + 1
    errors = [line.error for line in lines if line.error is not None]
    first_error = errors[0] if errors else None
    if first_error is None and ended and len(lines) < cases:
        first_error = len(text)
        lines.append(Line(len(text), Fault.TOO_FEW, error=len(text)))
    return Evaluation(tuple(lines), first_error)


def _read(line: str, start: int, name: str, *, cut: bool) -> Line:
    try:
        first, item = read_line(line, name)
    except Cut:
        place = None if cut else len(line)  # the line break is what is wrong
    except Refused as refused:
        place = refused.at
    else:
        return _correct(start, first, item)
    fault, arguments = _python(line, name)
    if fault is Fault.NONE:
        return _correct(start, *arguments)
    if place is None:
        return Line(start, Fault.UNFINISHED)
    return Line(start, fault, error=start + place)


def _correct(start: int, first: Any, item: Any) -> Line:
    typed = Case(typed_key(first), typed_key(item))
    return Line(start, Fault.NONE, Case(key(first), key(item)), typed)


def _python(line: str, name: str) -> tuple[Fault, tuple[Any, ...]]:
    """What Python makes of a line, and the list and the item of a correct one."""
    if len(line) > MAX_LINE:
        return Fault.NO_TEST, ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes such as "\d"
            parsed = ast.parse(line.strip()).body
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError):
        return Fault.NO_TEST, ()
    match parsed:
        case [
            ast.Assert(
                ast.Compare(ast.Call(ast.Name(called), arguments, []), [ast.Eq()], [result]), None
            )
        ]:
            if called != name:
                return Fault.OTHER_FUNCTION, ()
            return _literals(arguments, result)
    return Fault.NO_TEST, ()


def _literals(arguments: Sequence[ast.expr], result: ast.expr) -> tuple[Fault, tuple[Any, ...]]:
    if len(arguments) != 2:
        return Fault.NO_LITERALS, ()
    try:
        first, item, found = (ast.literal_eval(each) for each in (*arguments, result))
        if not isinstance(first, list):
            return Fault.NO_LITERALS, ()
        if [*first, item] == found:
            return Fault.NONE, (first, item)
        named = [
            (Fault.ITEM_MISSING, first),
            (Fault.ITEM_FIRST, [item, *first]),
            (Fault.ITEM_TWICE, [*first, item, item]),
        ]
        return next((fault for fault, wrong in named if wrong == found), Fault.OTHER_RESULT), ()
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, OverflowError):
        return Fault.NO_LITERALS, ()


class Counts(NamedTuple):
    """Cases of the completions of some prompts, by both readings of "distinct".

    correct   correct cases, repetitions included
    within    distinct correct cases of each completion, summed
    pooled    distinct correct cases of all completions of a prompt, summed over prompts: what the
              thesis' tables count
    within_by_type, pooled_by_type   the same, where 1, True and 1.0 differ
    """

    correct: int
    within: int
    pooled: int
    within_by_type: int
    pooled_by_type: int


def count_cases(prompts: Sequence[Sequence[Evaluation]]) -> Counts:
    """Count the cases of every prompt's completions.

    Worked value: a prompt with two completions, each of which has the cases ([], 1), ([], True)
    and ([], 1) again: 6 are correct, 2 and 4 distinct within completions, 1 and 2 pooled.
    """
    what = "lists of evaluations"
    found = [as_list("a prompt", each, "evaluations") for each in as_list("prompts", prompts, what)]
    for evaluation in (each for prompt in found for each in prompt):
        if not isinstance(evaluation, Evaluation):
            raise UserError(
                f"prompts has {shown(evaluation)}; it must hold lists of what evaluate() answers",
                parameter="prompts",
            )

    def distinct(typed: bool, pooled: bool) -> int:
        total = 0
        for prompt in found:
            sets = [
                {line.typed if typed else line.case for line in each.lines if line.case}
                for each in prompt
            ]
            total += len(set[Any]().union(*sets)) if pooled else sum(map(len, sets))
        return total

    return Counts(
        correct=sum(each.correct for prompt in found for each in prompt),
        within=distinct(typed=False, pooled=False),
        pooled=distinct(typed=False, pooled=True),
        within_by_type=distinct(typed=True, pooled=False),
        pooled_by_type=distinct(typed=True, pooled=True),
    )
