"""Every result has one judge in one study: with two, the later one would win in silence."""

from collections import Counter

from triptych.lab.results.ledger import load_ledger
from triptych.lab.running.discovery import find_studies

STUDIES = find_studies()


def judged_twice(claims):
    """Ids with more than one judge, and their studies; from pairs of a study and an id.

    Worked value: (a, 1), (b, 1) and (a, 2): 1 has judges in a and b.
    """
    claims = list(claims)
    counts = Counter(name for _, name in claims)
    return {
        name: [study for study, own in claims if own == name]
        for name, count in counts.items()
        if count > 1
    }


def test_two_judges_are_found_by_hand():
    assert judged_twice([("a", "1"), ("b", "1"), ("a", "2")]) == {"1": ["a", "b"]}
    assert judged_twice([("a", "1"), ("a", "1")]) == {"1": ["a", "a"]}


def test_every_result_has_one_judge():
    claims = [(study.name, claim.id) for study in STUDIES.values() for claim in study.claims]
    assert judged_twice(claims) == {}
    assert {name for _, name in claims} <= {entry.id for entry in load_ledger()}
