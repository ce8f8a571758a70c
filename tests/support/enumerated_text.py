"""Short texts, all of them, and whether some continuation of a text is right."""

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any


def all_texts(alphabet: str, longest: int) -> Iterator[str]:
    for length in range(longest + 1):
        for characters in product(alphabet, repeat=length):
            yield "".join(characters)


def check_exact(
    rule: Callable[..., bool],
    right: Callable[[str], bool],
    texts: Iterable[str],
    endings: Iterable[str],
) -> tuple[int, int]:
    """The rule says of every text whether some ending makes it right; how many can, and cannot."""
    endings, counts = list(endings), [0, 0]
    for text in texts:
        wanted = any(right(text + ending) for ending in endings)
        assert rule(text) == wanted, (text, wanted)
        assert rule(text, finished=True) == right(text), text
        counts[not wanted] += 1
    assert min(counts) > 0, "the texts are all alike"
    return counts[0], counts[1]


def check_over(
    rule: Any, right: Callable[[str], bool], texts: Iterable[str], endings: Iterable[str]
) -> None:
    """The rule says of every text whether it is right and only space can make it another right one.

    `endings` must have every ending that can.
    """
    signs, counts = [ending for ending in endings if ending.strip()], [0, 0]
    for text in texts:
        wanted = right(text) and not any(right(text + ending) for ending in signs)
        assert rule.over(text) == wanted, (text, wanted)
        counts[not wanted] += 1
    assert min(counts) > 0, "the texts are all alike"
