"""Sentences of checks are read next to the paper: short, with units, and no number is nan."""

import math
import re

import pytest

from triptych.lab.running.discovery import find_studies
from triptych.studies.api.study import Rows

MOST_WORDS = 25
CLAIMS = [claim for study in find_studies().values() for claim in study.claims]
SAME = "ratio|distance|number|excess|difference|with|in"
UNCLEAR = re.compile(rf"\bthe same ({SAME})\b|\bthis list\b")


def problems(sentence):
    """What a reader stumbles over.

    Worked values: "BLEU lost" has none; "the same ratio" does not say which.
    """
    found = [f"{words} words"] if (words := len(sentence.split())) > MOST_WORDS else []
    found += ["what is the same?"] if UNCLEAR.search(sentence) else []
    return found + (["percentage points?"] if re.search(r"[,;] points$", sentence) else [])


def test_problems_by_hand():
    assert problems("BLEU lost") == []
    assert problems("attention: the same ratio") == ["what is the same?"]
    assert problems("accuracy lost, points") == ["percentage points?"]
    assert problems(" ".join(["word"] * 26)) == ["26 words"]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_sentences_of_checks_stand_alone(claim):
    verdict = claim.verdict(Rows(claim.held_by))
    checks = [*verdict.checks, *(verdict.printed.checks if verdict.printed else ())]
    assert checks
    told = {check.sentence: problems(check.sentence) for check in checks}
    assert {sentence: found for sentence, found in told.items() if found} == {}
    assert not any(math.isnan(check.value) for check in checks if check.outcome is not None)
