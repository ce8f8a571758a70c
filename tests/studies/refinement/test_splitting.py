"""Pairs of many origins: no origin and no sentence is in two sets."""

import pytest

from triptych.core.validation import UserError
from triptych.studies.refinement.shared.splitting import (
    AlignedPair,
    letters,
    part_of,
    split_by_origin,
)


def pairs_of(origins: int, each: int) -> list[AlignedPair]:
    return [
        AlignedPair(f"Open file {o} {i}.", f"Datei {o} {i} öffnen.", f"package-{o}")
        for o in range(origins)
        for i in range(each)
    ]


def test_origins_are_in_one_set_only() -> None:
    found = split_by_origin(pairs_of(200, 5), held_out=10)
    origins = {name: {pair.origin for pair in pairs} for name, pairs in found.items()}
    assert origins["train"].isdisjoint(origins["val"] | origins["test"])
    assert origins["val"].isdisjoint(origins["test"])
    assert len(found["val"]) == len(found["test"]) == 10
    assert 160 <= len(origins["train"]) <= 195
    for name, pairs in found.items():
        assert all(part_of(pair.origin) == name for pair in pairs)


def test_a_sentence_of_a_test_set_is_not_trained_on() -> None:
    pairs = pairs_of(200, 2)
    test = next(pair for pair in pairs if part_of(pair.origin) == "test")
    training = next(pair for pair in pairs if part_of(pair.origin) == "train")
    same_source = AlignedPair(test.source.upper(), "etwas anderes", training.origin)
    same_target = AlignedPair("another thing", test.target + "!", training.origin)
    found = split_by_origin([*pairs, same_source, same_target])
    assert same_source not in found["train"]
    assert same_target not in found["train"]
    assert training in found["train"]


def test_repeated_empty_and_long_pairs_are_dropped() -> None:
    pairs = pairs_of(200, 1)
    kept = next(pair for pair in pairs if part_of(pair.origin) == "train")
    again = kept._replace(source=kept.source + "..")
    empty = kept._replace(source="...")
    long = AlignedPair("word " * 6, "Wort", kept.origin)
    found = split_by_origin([*pairs, again, empty, long], most_words=5)
    assert kept in found["train"]
    assert not {again, empty, long} & set(found["train"])


def test_too_few_origins_are_said() -> None:
    with pytest.raises(UserError, match="too few origins"):
        split_by_origin(pairs_of(1, 50))


def test_letters_by_hand() -> None:
    assert letters("Save _As...") == "saveas"
    assert letters("Größe: 3 %") == "größe3"
