"""What the rows say about VGB on test cases [li, 3.3.1].

The thesis says in a sentence that VGB has a favourable trade-off of quality and efficiency, with
generation of Python code as an example, and gives no numbers. Read at its mildest: VGB has more
distinct correct cases than sampling without a verifier, and more of them per query than the most
wasteful method that chooses, best of 8 lines.
"""

from triptych.studies.api.decide import Verdict, above, decide, shown
from triptych.studies.api.study import Claim, Rows
from triptych.studies.generation.code_cases.comparisons import (
    CASES,
    FEWEST,
    as_published,
    gains,
    of,
    over_trials,
    repeats_of_all,
    said,
    stands_for,
    trials,
)
from triptych.studies.generation.code_cases.configs import BEST, guided, named
from triptych.studies.generation.code_cases.judge_algorithm import efficiency
from triptych.studies.generation.code_cases.rows import Completed, Row

WALK, NONE, CHOSEN, DEAR = "VGB", named(*BEST), guided(*BEST), "best of 8 lines"


def judge_trade_off(rows: Rows[Row]) -> Verdict:
    found = rows.of(Completed)
    if not found:
        return decide(needs=trials([]))
    return decide(
        above(f"VGB minus {said(NONE)}, {CASES}", gains(found, WALK, NONE), 0.0),
        above(
            f"distinct correct cases per query of VGB, divided by those of {DEAR}",
            efficiency(found, WALK, DEAR, "queries"),
            1.0,
        ),
        shown("distinct correct cases of VGB, %", over_trials(of(found, WALK))),
        shown(f"VGB minus {said(CHOSEN)}, {CASES}", gains(found, WALK, CHOSEN)),
        shown(
            f"distinct correct cases per query of VGB, divided by those of {said(CHOSEN)}",
            efficiency(found, WALK, CHOSEN, "queries"),
        ),
        *stands_for(found),
        needs=[*trials(found), repeats_of_all(found, (WALK, NONE, DEAR), FEWEST)],
    )


_NAMES = (WALK, NONE, CHOSEN, DEAR)
_SHARES = {WALK: 0.75, NONE: 0.66, CHOSEN: 0.714, DEAR: 0.559}
_QUERIES = {WALK: 60_000, NONE: 38_000, CHOSEN: 39_000, DEAR: 120_000}

CLAIMS = [
    Claim(
        "li.vgb-code",
        judge_trade_off,
        refuted_by=[
            as_published(*_NAMES, shares=_SHARES | {WALK: 0.6}, queries=_QUERIES),
            as_published(*_NAMES, shares=_SHARES, queries=_QUERIES | {WALK: 600_000}),
            as_published(*_NAMES, shares=_SHARES | {WALK: 0.65}, queries=_QUERIES),  # no effect
        ],
        held_by=as_published(*_NAMES, shares=_SHARES, queries=_QUERIES),
    ),
]
