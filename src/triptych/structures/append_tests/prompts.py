"""Prompts that ask for test cases of a small function, as in Table 3.7 of the thesis.

A prompt shows a function `f` that adds two numbers with some asserted sums, then a function that
appends an item to a list under another name, and asks for test cases of it. The name and the
numbers are random. A name of three random letters means nothing; ten names have a meaning that is
not "append" (Table 3.14).
"""

import builtins
import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from triptych.core.deprecation import renamed
from triptych.core.protocols import Rng
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    Count,
    UserError,
    as_count,
    as_list,
    as_text,
    set_fields,
    shown,
)

TRAINING_NAMES = ("ovs", "cyk", "mcl", "heh", "fgu", "knk", "zmf")
"""Names that verifiers are trained on, and no test has."""

MEANINGFUL_NAMES = ("pop", "add", "sub", "mul", "div", "max", "min", "std", "avg", "exp")
"""Names with another meaning than "append"."""

MOST_CASES = 1000

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_KNOWN = frozenset((*TRAINING_NAMES, *MEANINGFUL_NAMES, *keyword.kwlist, *dir(builtins)))
_ASKED = re.compile(r"List [0-9]+ test cases of the above function ([a-z]+), one in each line:")


@dataclass(frozen=True)
class Prompt:
    """A prompt and what it asks for.

    text    ends after "one in each line:", without a line break
    name    of the function whose test cases are asked for
    cases   how many of them
    """

    text: str
    name: str
    cases: int

    def __post_init__(self) -> None:
        cases = as_count("cases", self.cases, at_least=1, at_most=MOST_CASES)
        set_fields(self, text=as_text("text", self.text), name=_as_name(self.name), cases=cases)


def asked(cases: Count, name: str) -> str:
    """The sentence that asks for test cases."""
    cases = as_count("cases", cases, at_least=1, at_most=MOST_CASES)
    return f"List {cases} test cases of the above function {_as_name(name)}, one in each line:"


def make_prompt(name: str, sums: Sequence[tuple[int, int]], *, cases: Count = 8) -> Prompt:
    """The prompt with this name, the asserted sums of these pairs, and this many cases.

    Worked value: for the name knk and the pairs (5, 5), (1, 5), ... it is the first one of
    Table 3.7.
    """
    name, cases = _as_name(name), as_count("cases", cases, at_least=1, at_most=MOST_CASES)
    lines = []
    for pair in as_list("sums", sums, "pairs of numbers"):
        numbers = as_list("a pair of sums", pair, "two numbers")
        if len(numbers) != 2:
            raise UserError(
                f"sums has {shown(pair)}; each of them must be a pair of numbers", parameter="sums"
            )
        a, b = (as_count("a number of sums", number) for number in numbers)
        lines.append(f"assert f({a}, {b}) == {a + b}\n")
    text = (
        f"def f(a, b):\n    return a + b\n\n{asked(max(1, len(lines)), 'f')}\n"
        + "".join(lines)
        + f"\ndef {name}(l, item):\n    assert type(l) is list\n    l.append(item)\n"
        + f"    return l\n\n\n{asked(cases, name)}"
    )
    return Prompt(text, name, cases)


def draw_prompts(
    names: Sequence[str], rng: RngLike, *, cases: Count = 8, demonstrations: Count | None = None
) -> list[Prompt]:
    """A prompt for every name; the numbers of its sums are uniform on 1..9.

    demonstrations   how many sums are shown, as many as cases are asked for if not given
    """
    cases = as_count("cases", cases, at_least=1, at_most=MOST_CASES)
    shown_sums = cases if demonstrations is None else demonstrations
    shown_sums = as_count("demonstrations", shown_sums, at_least=1, at_most=MOST_CASES)
    chosen = [_as_name(name) for name in as_list("names", names, "names")]
    numbers = _uniform(as_rng(rng), 9, 2 * shown_sums * len(chosen))
    prompts = []
    for number, name in enumerate(chosen):
        first = 2 * shown_sums * number
        own = [1 + drawn for drawn in numbers[first : first + 2 * shown_sums]]
        pairs = list(zip(own[::2], own[1::2], strict=True))
        prompts.append(make_prompt(name, pairs, cases=cases))
    return prompts


@renamed(count="n")
def random_names(n: Count, rng: RngLike, *, avoid: Sequence[str] = ()) -> list[str]:
    """Different names of three random letters, none of which is known.

    The names of training, those with a meaning, words of Python, and `avoid` are never drawn.
    """
    n, rng = as_count("n", n, at_most=10_000), as_rng(rng)
    others = [as_text("a name of avoid", name) for name in as_list("avoid", avoid, "names")]
    taken = {"f", *_KNOWN, *others}
    names: list[str] = []
    while len(names) < n:
        letters = _uniform(rng, 26, 3 * (n - len(names)))
        for first in range(0, len(letters), 3):
            name = "".join(_LETTERS[letter] for letter in letters[first : first + 3])
            if name not in taken:
                taken.add(name)
                names.append(name)
    return names


def name_and_completion(text: str) -> tuple[str, str] | None:
    """The name that a prompt asks about and what was written after it; None: there is no prompt.

    A prompt asks twice, once about the function of its demonstration. What a model writes may ask
    again; that is a part of the completion.
    """
    places = _ASKED.finditer(as_text("text", text))
    next(places, None)
    second = next(places, None)
    return None if second is None else (second[1], text[second.end() :])


def _as_name(name: str) -> str:
    name = as_text("name", name)
    if not re.fullmatch("[a-z]{1,20}", name) or keyword.iskeyword(name):
        raise UserError(
            f"name is {shown(name)}; it must be 1 to 20 lower-case letters, and no "
            "keyword of Python"
        )
    return name


def _uniform(rng: Rng, outcomes: int, count: int) -> list[int]:
    """Whole numbers from 0 to outcomes - 1, all alike."""
    device = getattr(rng, "device", "cpu")
    law = torch.zeros((1, outcomes), dtype=torch.float64, device=device).log_softmax(-1)
    rows = torch.zeros(count, dtype=torch.long, device=device)
    return rng.categorical(law, rows).tolist()
