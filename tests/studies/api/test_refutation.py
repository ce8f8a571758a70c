"""A claim that its own rows cannot refute, or cannot bear out, does not meet its demands."""

from dataclasses import dataclass

import pytest

from triptych.core.estimates import Status, mean
from triptych.studies.api.decide import Verdict, above, at_edge, at_least, decide, none, shown
from triptych.studies.api.refutation import demands, unmet
from triptych.studies.api.study import Claim


@dataclass(frozen=True)
class Trial:
    gain: float
    wrong: int = 0


def judge(rows):
    gains = [row.gain for row in rows.of(Trial)]
    needs = [at_least("trials", len(gains), 3)]
    if not gains:
        return decide(needs=needs)
    wrong = sum(row.wrong for row in rows.of(Trial))
    return decide(
        above("gain", mean(gains), 0.0),
        none("wrong labels", wrong, of=10),
        shown("trials", float(len(gains))),
        needs=needs,
    )


GOOD = [Trial(1.0 + 0.1 * n) for n in range(3)]
NO_GAIN = [Trial(-1.0 - 0.1 * n) for n in range(3)]
WRONG = [Trial(1.0 + 0.1 * n, wrong=1) for n in range(3)]


def claim(refuted_by=(NO_GAIN, WRONG), held_by=GOOD, judge=judge):
    return Claim("mine", judge, refuted_by, held_by)


def test_a_claim_with_good_rows_meets_every_demand():
    assert unmet(claim()) == []
    assert [demand.rule for demand in demands(claim())] == [
        "some rows refute it",
        "the judge says FAILS on rows that refute",
        "the judge says FAILS on rows that refute",
        "every check that decides can fail",
        "every check that decides can fail",
        "the judge says HOLDS on rows that bear it out",
        "the judge wants evidence",
    ]


def always_holds(rows):
    return Verdict(Status.HOLDS)


def silent(rows):
    return judge(rows) if len(rows) else Verdict(Status.UNDECIDED)


def raises_without_rows(rows):
    return decide(above("gain", mean([row.gain for row in rows]), 0.0))


def with_an_edge(rows):
    said = judge(rows)
    if said.outcome is Status.UNDECIDED:
        return said
    return decide(*said.checks, at_edge("at 0", none("wrong at the edge", 0, of=1)))


@pytest.mark.parametrize(
    ("weak", "said"),
    [
        (claim(refuted_by=[]), ["refuted_by: needed sets of rows that refute the claim, got none"]),
        (
            claim(refuted_by=[NO_GAIN, GOOD, WRONG]),
            ["set 2 of refuted_by: needed FAILS, got HOLDS"],
        ),
        (
            claim(refuted_by=[NO_GAIN, WRONG, NO_GAIN[:2]]),
            ["set 3 of refuted_by: needed FAILS, got UNDECIDED (trials: 2 of 3)"],
        ),
        (
            claim(refuted_by=[NO_GAIN]),
            ["the check 'wrong labels': needed a set of refuted_by on which it fails, got none"],
        ),
        (claim(held_by=GOOD[:1]), ["held_by: needed HOLDS, got UNDECIDED (trials: 1 of 3)"]),
        (claim(held_by=NO_GAIN), ["held_by: needed HOLDS, got FAILS"]),
        (claim(held_by=[]), ["held_by: needed rows on which the judge says HOLDS, got none"]),
        (
            claim(judge=with_an_edge),
            [
                "the check 'wrong at the edge': needed a set of refuted_by on which it fails, "
                "got none"
            ],
        ),
        (
            claim(refuted_by=[[]], judge=always_holds),
            [
                "set 1 of refuted_by: needed FAILS, got HOLDS",
                "no rows at all: needed UNDECIDED and what is missing, as needs=[at_least(...)] "
                "says, got HOLDS",
            ],
        ),
        (
            claim(judge=silent),
            [
                "no rows at all: needed UNDECIDED and what is missing, as needs=[at_least(...)] "
                "says, got UNDECIDED without a word on what is missing"
            ],
        ),
    ],
)
def test_what_a_weak_claim_is_told(weak, said):
    assert [str(demand) for demand in unmet(weak)] == said


def test_a_judge_that_raises_is_told_with_its_error():
    (demand,) = unmet(claim(refuted_by=[NO_GAIN], judge=raises_without_rows))
    assert demand.asked == "no rows at all"
    assert demand.got.startswith(("UserError: ", "ValueError: "))


def test_rows_where_lists_of_rows_are_meant(unchecked_shapes):
    (first, *_) = unmet(claim(refuted_by=NO_GAIN))
    assert str(first) == (
        "set 1 of refuted_by: needed FAILS, got a Trial, which is no list of rows"
    )
