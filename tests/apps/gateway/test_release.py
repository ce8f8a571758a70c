"""What a stream may tell: nothing that is taken back, no half character, no begun stop string."""

import random

import pytest

from triptych.apps.gateway.release import Release
from triptych.inference.guided.ancestral import Ancestral
from triptych.inference.guided.backtracking import Backtracking
from triptych.inference.guided.result import Event

BYTES = "aé😀b\n".encode()  # of one, two, four, one and one bytes


def read_bytes(tokens):
    return bytes(tokens).decode(errors="replace")


def cut(text, stops):
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(places)] if places else text


def drawn(*tokens, action="draw"):
    return Event(0, action, tokens, None, 0, 0, 0)


def test_half_a_character_is_held_back():
    """Worked value: of the bytes of "aé😀b" a piece comes with byte 1, 3, 7 and 8."""
    release = Release(Ancestral(), read_bytes, ())
    told = [release.after(drawn(*BYTES[:n])) for n in range(1, 9)]
    assert told == ["a", "", "é", "", "", "", "😀", "b"]


def test_what_may_become_a_stop_string_is_held_back():
    """Worked value: with the stop "bc", b waits for what follows; "ba" is told with the a."""
    text = "abab bc"
    release = Release(Ancestral(), lambda tokens: cut("".join(map(chr, tokens)), ["bc"]), ["bc"])
    told = [release.after(drawn(*map(ord, text[:n]))) for n in range(1, len(text) + 1)]
    assert told == ["a", "", "ba", "", "b ", "", ""]
    assert release.rest("abab ") == ""


@pytest.mark.parametrize("stops", [[], ["ab"], ["aab", "b"], ["abab", "ba a"]])
def test_pieces_are_the_text_for_every_text(stops):
    rng = random.Random(0)
    for _ in range(200):
        text = "".join(rng.choice("ab ") for _ in range(rng.randint(0, 12)))
        final = cut(text, stops)
        release = Release(Ancestral(), lambda t: cut("".join(map(chr, t)), stops), stops)
        told = ""
        for n in range(1, len(text) + 1):
            told += release.after(drawn(*map(ord, text[:n])))
            assert final.startswith(told)
        assert told + release.rest(final) == final


def test_a_backtrack_takes_nothing_back():
    """Worked value: 1 backtrack of 2 tokens; after three accepted ones two are told, and after the
    backtrack all that is left."""
    release = Release(Backtracking(quota=1, stride=2), lambda t: "".join(map(chr, t)), ())
    told = []
    for action, text in [
        ("draw", "a"),
        ("accept", "a"),
        ("draw", "ab"),
        ("accept", "ab"),
        ("draw", "abc"),
        ("accept", "abc"),
        ("draw", "abcd"),
        ("reject", "abcd"),
        ("backtrack", "ab"),
        ("argmax", "abx"),
        ("draw", "abxy"),
    ]:
        told.append(release.after(drawn(*map(ord, text), action=action)))
    assert told == ["", "", "", "a", "", "b", "", "", "", "x", "y"]


def test_a_text_that_is_another_one_in_the_end_is_a_defect():
    release = Release(Ancestral(), lambda t: "".join(map(chr, t)), ())
    release.after(drawn(ord("a")))
    with pytest.raises(RuntimeError):
        release.rest("b")
