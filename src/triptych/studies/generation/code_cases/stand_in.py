"""A small language of prompts and imperfect test cases, instead of a pretrained model's world.

A text is a prompt as in the thesis, shorter, and the test cases that follow it. Most functions have
a random name and the body that appends; a few have a random name and another body. Those with a
name that means something do what it means, and every second one shows no body. Such a name is one
token, as it is for a pretrained model. So both name and body tell what a function does, and they
contradict each other in the prompts of Table 3.15 only. The cases of a text are mostly right. One
text in three is careless: most of its cases are wrong, all in the same way (the item is dropped,
put first or doubled, or an element is wrong), as those of the small pretrained model are. Numbers
have one digit.
"""

import keyword
import random
import re
import string
from collections.abc import Callable, Sequence
from typing import NamedTuple

from triptych.structures.append_tests.prompts import MEANINGFUL_NAMES, asked

APPEND, NOTHING = "    l.append(item)\n", "    ...\n"
TYPE, RETURN = "    assert type(l) is list\n", "    return l\n"

Meaning = Callable[[list[int], int], list[int]]
MEANINGS: dict[str, tuple[str, Meaning]] = {
    "pop": ("    l = [x for x in l if x != item]\n", lambda v, i: [x for x in v if x != i]),
    "add": ("    l = [(x + item) % 10 for x in l]\n", lambda v, i: [(x + i) % 10 for x in v]),
    "sub": ("    l = [abs(x - item) for x in l]\n", lambda v, i: [abs(x - i) for x in v]),
    "mul": ("    l = [x * item % 10 for x in l]\n", lambda v, i: [x * i % 10 for x in v]),
    "div": ("    l = [x // max(item, 1) for x in l]\n", lambda v, i: [x // max(i, 1) for x in v]),
    "max": ("    l = [max(x, item) for x in l]\n", lambda v, i: [max(x, i) for x in v]),
    "min": ("    l = [min(x, item) for x in l]\n", lambda v, i: [min(x, i) for x in v]),
    "std": ("    l.sort()\n", lambda v, _: sorted(v)),
    "avg": ("    l = [(x + item) // 2 for x in l]\n", lambda v, i: [(x + i) // 2 for x in v]),
    "exp": ("    l = [x**item % 10 for x in l]\n", lambda v, i: [x**i % 10 for x in v]),
}
assert set(MEANINGS) == set(MEANINGFUL_NAMES)

HEAD = "def f(a, b):\n    return a + b\n\n"
WORDS = (
    HEAD,
    "List ",
    " test cases of the above function ",
    ", one in each line:",
    "def ",
    "(l, item):\n",
    TYPE,
    APPEND,
    NOTHING,
    *(body for body, _ in MEANINGS.values()),
    RETURN,
    "assert f(",
    ") == ",
    "assert ",
    "([",
    "], ",
    ") == [",
    "]\n",
    *MEANINGFUL_NAMES,
    *(f", {digit}" for digit in range(10)),
    *"\n()[],= ",
    *string.digits,
    *string.ascii_lowercase,
)
_WORD = re.compile("|".join(re.escape(word) for word in sorted(WORDS, key=len, reverse=True)))
_ID = {word: number for number, word in enumerate(WORDS)}

END = len(WORDS)
"""The token that ends a text."""
VOCAB_SIZE = END + 1

# how likely a digit is, and how texts differ
_DIGITS = (1, 6, 5, 4, 3, 3, 2, 2, 2, 2)
_CARELESS, _WRONG_IF_CARELESS, _WRONG = 0.33, 0.6, 0.08
_OTHER_BODY, _MEANINGFUL, _SHOWN = 0.1, 0.2, 0.5


def encode(text: str) -> list[int]:
    """The tokens of a text, the longest word first."""
    tokens, at = [], 0
    while at < len(text):
        word = _WORD.match(text, at)
        if word is None:
            raise ValueError(f"no word begins at {text[at : at + 20]!r}")
        tokens.append(_ID[word[0]])
        at = word.end()
    return tokens


def text_of(tokens: Sequence[int]) -> str:
    """The text of tokens, up to the end token."""
    words = []
    for token in tokens:
        if token == END:
            break
        words.append(WORDS[token])
    return "".join(words)


class Sizes(NamedTuple):
    """cases            that a prompt asks for
    demonstrations   sums that it shows
    longest_list     of a test case
    """

    cases: int
    demonstrations: int
    longest_list: int


def longest_text(sizes: Sizes) -> int:
    """Tokens of the longest text of the language, its end token included."""
    numbers = list(range(sizes.longest_list))
    line = f"assert abc({numbers}, 0) == {[*numbers, 0, 0]}\n"
    return longest_prompt(sizes) + 1 + sizes.cases * len(encode(line)) + 1


def longest_prompt(sizes: Sizes) -> int:
    """Tokens of the longest prompt: every sum that it shows may have two digits."""
    return len(encode(_prompt(random.Random(0), sizes, "abc", APPEND))) + sizes.demonstrations


def write_text(rng: random.Random, sizes: Sizes) -> str:
    """A text of the language, without its end token."""
    draw, name = rng.random(), _random_name(rng)
    body, meaning = APPEND, _append
    if draw < _MEANINGFUL + _OTHER_BODY:
        meant = rng.choice(MEANINGFUL_NAMES)
        body, meaning = MEANINGS[meant]
        if draw < _MEANINGFUL:
            name, body = meant, body if rng.random() < _SHOWN else NOTHING
    careless = rng.random() < _CARELESS
    fault = rng.choice(_FAULTS)
    lines = []
    for _ in range(sizes.cases):
        numbers, item = _numbers(rng, sizes.longest_list)
        result = meaning(numbers, item)
        if rng.random() < (_WRONG_IF_CARELESS if careless else _WRONG):
            result = fault(rng, numbers, item, result)
        lines.append(f"\nassert {name}({numbers}, {item}) == {result}")
    return _prompt(rng, sizes, name, body) + "".join(lines) + "\n"


def _random_name(rng: random.Random) -> str:
    while True:
        name = "".join(rng.choices(string.ascii_lowercase, k=3))
        if name not in MEANINGS and not keyword.iskeyword(name):
            return name


def _prompt(rng: random.Random, sizes: Sizes, name: str, body: str) -> str:
    """As `make_prompt` writes it, with another body."""
    pairs = [(rng.randint(1, 9), rng.randint(1, 9)) for _ in range(sizes.demonstrations)]
    sums = "".join(f"assert f({a}, {b}) == {a + b}\n" for a, b in pairs)
    return (
        f"{HEAD}{asked(sizes.demonstrations, 'f')}\n{sums}\ndef {name}(l, item):\n{TYPE}{body}"
        f"{RETURN}\n\n{asked(sizes.cases, name)}"
    )


def _numbers(rng: random.Random, longest: int) -> tuple[list[int], int]:
    """A list and an item: consecutive numbers, or any."""
    count = rng.randint(0, longest)
    if rng.random() < 0.4:
        first = rng.randint(0, 9 - longest)
        return list(range(first, first + count)), first + count
    *numbers, item = rng.choices(range(10), _DIGITS, k=count + 1)
    return numbers, item


def _append(numbers: list[int], item: int) -> list[int]:
    return [*numbers, item]


def _dropped(rng: random.Random, numbers: list[int], item: int, right: list[int]) -> list[int]:
    return numbers


def _first(rng: random.Random, numbers: list[int], item: int, right: list[int]) -> list[int]:
    return [item, *numbers]


def _twice(rng: random.Random, numbers: list[int], item: int, right: list[int]) -> list[int]:
    return [*right, item]


def _element(rng: random.Random, numbers: list[int], item: int, right: list[int]) -> list[int]:
    place = rng.randrange(len(right)) if right else 0
    return [*right[:place], rng.randint(0, 9), *right[place + 1 :]]


_FAULTS = (_dropped, _first, _twice, _element)
