"""Text that lists correct test cases of a function that appends an item to a list [li, 3.2.2.6].

This is the rule-based ("groundtruth") verifier of Table 3.12.
"""

import functools
from dataclasses import dataclass

from triptych.core.validation import (
    UserError,
    as_count,
    as_flag,
    as_text,
    set_fields,
    shown,
)
from triptych.structures.append_tests.plain import Case, Cut, Refused, read_line
from triptych.structures.append_tests.prompts import MOST_CASES, name_and_completion

_LINES_REMEMBERED = 10_000


@dataclass(frozen=True)
class AppendTestsPrefix:
    """The first `cases` lines of the text can become, or are, correct test cases of `name`.

    name       of the function, as in "assert name([1], 2) == [1, 2]"
    distinct   no two cases test the same list and item, where 1, True and 1.0 are the same

    Both answers are exact for test cases in plain form, which `structures.append_tests.plain`
    describes: the result repeats the literals of the arguments as they were written. Blank lines
    are passed over, and what follows the last case is not read. A finished text with fewer cases
    is wrong.

    Worked value: for the name f and one case, "assert f([1], 2) == [1" can be continued, and
    "assert f([1], 2) == [2" cannot; "assert f([1], 2) == [1, 2]" is right.
    """

    name: str
    cases: int = 8
    distinct: bool = False

    def __post_init__(self) -> None:
        name = as_text("name", self.name)
        if not name.isidentifier():
            raise UserError(
                f"name is {shown(name)}; it must be the name of a function", parameter="name"
            )
        cases = as_count("cases", self.cases, at_least=1, at_most=MOST_CASES)
        set_fields(self, name=name, cases=cases, distinct=as_flag("distinct", self.distinct))

    def __call__(self, text: str, finished: bool = False) -> bool:
        text, finished = as_text("text", text), as_flag("finished", finished)
        found, used, start = 0, set[Case](), 0
        while found < self.cases:
            end = text.find("\n", start)
            if end < 0:
                break
            if (line := text[start:end]).strip(" \t"):
                case = _case_of(line, self.name)
                if case is None or (self.distinct and case in used):
                    return False
                used.add(case)
                found += 1
            start = end + 1
        if found == self.cases:
            return True
        line = text[start:]
        if finished and (found < self.cases - 1 or not line.strip(" \t")):
            return False
        if not line.strip(" \t"):
            return True
        try:
            read_line(line, self.name, used if self.distinct else frozenset())
        except Cut:
            return not finished
        except Refused:
            return False
        return True


@dataclass(frozen=True)
class PromptedAppendTests:
    """`AppendTestsPrefix` for a text that begins with its prompt, which says the name.

    Rows of a batch may have different names, so this rule reads prompt and completion; give it to
    `TextRule` with start=0. A text without a prompt is refused.

    Worked value: "<prompt that asks about knk>\\nassert knk([], 1) == [1" can be continued,
    "...\\nassert ovs(" cannot.
    """

    cases: int = 8
    distinct: bool = False

    def __post_init__(self) -> None:
        rule = AppendTestsPrefix("f", self.cases, self.distinct)
        set_fields(self, cases=rule.cases, distinct=rule.distinct)

    def __call__(self, text: str, finished: bool = False) -> bool:
        found = name_and_completion(as_text("text", text))
        if found is None:
            return False
        name, completion = found
        return AppendTestsPrefix(name, self.cases, self.distinct)(completion, finished)


@functools.lru_cache(_LINES_REMEMBERED)
def _case_of(line: str, name: str) -> Case | None:
    """What a whole line tests; None for one that is not right."""
    try:
        return Case.of(*read_line(line, name))
    except (Cut, Refused):
        return None
