"""Aligned sentences of many origins, split so that no origin is in two sets."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from triptych.core.validation import UserError, as_count

_PARTS = 20  # of all origins, one part is for validation and one for the test


class AlignedPair(NamedTuple):
    """A sentence, its translation, and where both come from (a package, a book)."""

    source: str
    target: str
    origin: str


def split_by_origin(
    pairs: Iterable[AlignedPair], *, held_out: int = 1000, most_words: int = 25
) -> dict[str, list[AlignedPair]]:
    """train, val and test, of different origins.

    About one origin in 20 is for val and one for test; `held_out` pairs of each are kept, evenly
    spread. Training pairs of which a side is also in val or test are dropped, as are repeated
    pairs and those with more than `most_words` words. Sides count as equal if their letters and
    digits are. The parts depend on the names of the origins alone, so they are the same every time.
    """
    held_out = as_count("held_out", held_out)
    most_words = as_count("most_words", most_words)
    found: dict[str, list[AlignedPair]] = {"train": [], "val": [], "test": []}
    seen: set[tuple[str, str]] = set()
    for pair in pairs:
        key = (letters(pair.source), letters(pair.target))
        longest = max(len(pair.source.split()), len(pair.target.split()))
        if all(key) and key not in seen and longest <= most_words:
            seen.add(key)
            found[part_of(pair.origin)].append(pair)
    for name in ("val", "test"):
        if not found[name]:
            raise UserError(
                f"no pair is left for {name}: too few origins; many names in the third column are "
                "needed, because about one in 20 goes to each set"
            )
        some = found[name]
        count = min(held_out, len(some))
        found[name] = [some[i * len(some) // count] for i in range(count)]
    kept = [pair for name in ("val", "test") for pair in found[name]]
    sources, targets = {letters(p.source) for p in kept}, {letters(p.target) for p in kept}
    found["train"] = [
        pair
        for pair in found["train"]
        if letters(pair.source) not in sources and letters(pair.target) not in targets
    ]
    return found


def part_of(origin: str) -> str:
    """The set of an origin, by a hash of its name."""
    number = int.from_bytes(hashlib.sha256(origin.encode()).digest()[:4], "big") % _PARTS
    return {0: "val", 1: "test"}.get(number, "train")


def letters(text: str) -> str:
    """Letters and digits alone, in lower case.

    Worked value: "Save _As..." has "saveas".
    """
    return "".join(sign for sign in text.lower() if sign.isalnum())
