"""What a claim must show before it is judged: that rows can refute it, and can bear it out.

A judge that nothing refutes says nothing. So a claim brings rows, and its judge must answer:

    refuted_by    FAILS on every set, and every check that decides fails on one of them
    held_by       HOLDS
    no rows       UNDECIDED, and it names what is missing

These demands are for our studies, in the tests, and for a user's own, when they run.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from triptych.core.display import cut
from triptych.core.estimates import Status
from triptych.studies.api.decide import Verdict
from triptych.studies.api.study import Claim


class Demand(NamedTuple):
    """One thing that a claim must show, and what it shows instead; `got` is "" where it does."""

    rule: str
    asked: str
    wanted: str
    got: str = ""

    @property
    def met(self) -> bool:
        return not self.got

    def __str__(self) -> str:
        return f"{self.asked}: needed {self.wanted}, got {self.got or 'that'}"


def demands(claim: Claim[Any]) -> list[Demand]:
    """Every demand on a claim, met or not."""
    held = _Answer(claim, claim.held_by)
    refuting = [_Answer(claim, rows) for rows in claim.refuted_by]
    return [
        Demand(
            "some rows refute it",
            "refuted_by",
            "sets of rows that refute the claim",
            "" if refuting else "none",
        ),
        *(
            _says("the judge says FAILS on rows that refute", f"set {n} of refuted_by", "FAILS", a)
            for n, a in enumerate(refuting, 1)
        ),
        *_checks_that_can_fail(held, refuting),
        _says("the judge says HOLDS on rows that bear it out", "held_by", "HOLDS", held),
        _without_rows(_Answer(claim, [])),
    ]


def unmet(claim: Claim[Any]) -> list[Demand]:
    """The demands that a claim does not meet."""
    return [demand for demand in demands(claim) if not demand.met]


class _Answer:
    """What a judge says of some rows; `raised` says why there is no verdict."""

    def __init__(self, claim: Claim[Any], rows: Sequence[Any]) -> None:
        self.rows, self.raised = rows, ""
        self.verdict = Verdict(Status.UNDECIDED)
        if not isinstance(rows, Sequence):  # refuted_by=[row] where [[row]] is meant
            self.raised = f"a {type(rows).__name__}, which is no list of rows"
            return
        try:
            self.verdict = claim.verdict(rows)
        except Exception as error:  # a user's judge may raise anything
            self.raised = f"{type(error).__name__}: {cut(str(error), 200)}"

    def __str__(self) -> str:
        """As "UNDECIDED (trials: 1 of 5)"."""
        missing = "; ".join(self.verdict.missing)
        said = self.verdict.outcome.value.upper() + (f" ({missing})" if missing else "")
        return self.raised or said


def _says(rule: str, asked: str, wanted: str, answer: _Answer) -> Demand:
    if isinstance(answer.rows, Sequence) and not answer.rows and wanted == "HOLDS":
        return Demand(rule, asked, "rows on which the judge says HOLDS", "none")
    right = not answer.raised and answer.verdict.outcome.value.upper() == wanted
    return Demand(rule, asked, wanted, "" if right else str(answer))


def _checks_that_can_fail(held: _Answer, refuting: Sequence[_Answer]) -> Iterator[Demand]:
    """A check is known by its sentence, which is therefore the same whatever the rows are."""
    broken = {
        check.sentence
        for answer in refuting
        for check in answer.verdict.checks
        if check.outcome is Status.FAILS
    }
    deciding = [check.sentence for check in held.verdict.checks if check.outcome is not None]
    for sentence in dict.fromkeys(deciding) if refuting else ():
        yield Demand(
            "every check that decides can fail",
            f"the check {sentence!r}",
            "a set of refuted_by on which it fails",
            "" if sentence in broken else "none",
        )


def _without_rows(answer: _Answer) -> Demand:
    said = str(answer)
    if not answer.raised and answer.verdict.outcome is Status.UNDECIDED:
        said = "" if answer.verdict.missing else "UNDECIDED without a word on what is missing"
    wanted = "UNDECIDED and what is missing, as needs=[at_least(...)] says"
    return Demand("the judge wants evidence", "no rows at all", wanted, said)
