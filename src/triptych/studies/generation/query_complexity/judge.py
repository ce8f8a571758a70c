"""What the rows of `query_complexity` decide."""

from collections.abc import Sequence
from dataclasses import replace

from triptych.core.estimates import Estimate, mean
from triptych.studies.api.decide import (
    EXACT,
    Verdict,
    at_least,
    decide,
    exactly,
    largest,
    none,
    shown,
)
from triptych.studies.api.study import Claim, Rows
from triptych.studies.generation.query_complexity.rows import (
    Calls,
    Hidden,
    RareEven,
    Row,
    SubsetSum,
    TokenwiseLaw,
)

CONFIDENCE = 0.9999  # of each of some eighty intervals that are asked to contain their formula
LEAST_LENGTHS = 3  # to see growth


def agrees(samples: Sequence[float], expected: float) -> bool:
    """Whether the interval of the mean contains what is expected."""
    found, room = mean(samples, confidence=CONFIDENCE), EXACT * abs(expected)
    return found.low - room <= expected <= found.high + room


def judge_hidden(rows: Rows[Row]) -> Verdict:
    """There is a task that needs 2^(D-1) questions: the one whose even bit is rare.

    What we say of it must be sound before it decides: the formula is not below the bound by search
    through all strategies and within 1 % of it, and the measured means of the searchers agree with
    theirs.
    """
    tasks, searchers = rows.of(RareEven), rows.of(Hidden)
    searched = [(row.optimum, row.at_least) for row in tasks if row.at_least is not None]
    sound = sum(0.99 * optimum <= least <= optimum * (1 + EXACT) for optimum, least in searched)
    agreeing = sum(agrees(row.questions, row.expected) for row in searchers)
    printed = [row.optimum / row.printed for row in searchers if row.depth == _longest(searchers)]
    return decide(
        none(
            "lengths D at which the task with a rare even bit needs fewer than 2^(D-1) questions",
            sum(row.optimum < 2 ** (row.depth - 1) * (1 - EXACT) for row in tasks),
            of=len(tasks),
        ),
        *[
            shown(
                "fewest questions to the oracle of the proof, divided by 2^(D-1)",
                share,
                published=1.0,
            )
            for share in printed[:1]
        ],
        needs=[
            at_least("lengths D", len(tasks), LEAST_LENGTHS),
            at_least("lengths with all strategies gone through", len(searched), 1),
            at_least("of these, as the formula says", sound, len(searched)),
            at_least("searchers that need what their formula says", agreeing, len(searchers)),
        ],
        measured={"least": {f"D = {row.depth}": row.optimum for row in tasks}},
    )


def _longest(rows: Sequence[Hidden]) -> int:
    return max((row.depth for row in rows), default=0)


def judge_subset_sum(rows: Rows[Row]) -> Verdict:
    """Generation answers every instance as trying all subsets does: right, or FAIL if none is."""
    instances = rows.of(SubsetSum)
    solvable = sum(row.solvable for row in instances)
    return decide(
        none(
            "instances answered though unsolvable, or not answered though solvable",
            sum(row.answered != row.solvable for row in instances),
            of=len(instances),
        ),
        none("answers that are no solution", sum(not r.right for r in instances), of=solvable),
        needs=[
            at_least("solvable instances", solvable, 1),
            at_least("unsolvable instances", len(instances) - solvable, 1),
        ],
        measured={
            "most_calls_a_token": largest([row.calls / row.depth for row in instances])
            if instances
            else None
        },
    )


def judge_calls(rows: Rows[Row]) -> Verdict:
    """Expected calls are 2^D D and 2D exactly, and the measured means agree with that.

    A measured interval counts once it is no wider than half of what it should contain.
    """
    found = [
        (expected / formula, mean(samples, confidence=CONFIDENCE), samples, formula)
        for row in rows.of(Calls)
        for expected, samples, formula in (
            (row.rejection_expected, row.rejection_calls, 2.0**row.depth * row.depth),
            (row.tokenwise_expected, row.tokenwise_calls, 2.0 * row.depth),
        )
    ]
    narrow = [(s, f) for _, estimate, s, f in found if estimate.half_width <= f / 2]
    return decide(
        exactly(
            "expected calls divided by 2^D D (rejection) or 2 D (tokenwise), minus 1, largest",
            largest([abs(ratio - 1) for ratio, *_ in found]),
        ),
        none(
            "measured mean calls whose 99.99 % interval excludes the formula",
            sum(not agrees(samples, formula) for samples, formula in narrow),
            of=len(narrow),
        ),
        needs=[at_least("measured means with narrow intervals", len(narrow), max(1, len(found)))],
        measured={"means": [_shown(estimate) for _, estimate, *_ in found]},
    )


def _shown(estimate: Estimate) -> list[float]:
    return [estimate.value, estimate.low, estimate.high]


def judge_law(rows: Rows[Row]) -> Verdict:
    laws = rows.of(TokenwiseLaw)
    off = [abs(row.special_probability * 2 ** (row.depth - 1) - 1) for row in laws]
    return decide(
        exactly("probability of 1…10 divided by 2^-(D-1), minus 1, largest error", largest(off)),
        none(
            "lengths D at which tokenwise rejection has the restricted law",
            sum(not row.total_variation > EXACT for row in laws),
            of=len(laws),
        ),
        needs=[at_least("lengths D", len(laws), 1)],
    )


# --------------------------------------------------------------------- rows that hold and refute


def _searcher(depth: int) -> Hidden:
    n = 2.0 ** (depth - 1)
    best = (n + 1) / 2 - 1 / n
    return Hidden(depth, "a random prefix each time", n, (n - 1, n, n + 1), n, best, best)


_TASKS = [RareEven(d, 2 / 3, 2 ** (d - 1) + 0.5, 2 ** (d - 1) + 0.49) for d in (2, 3, 4)]
_HIDDEN = [*map(_searcher, (2, 3, 4)), *_TASKS]
_SOLVED = SubsetSum(3, True, True, True, 6, 6, 24.0)
_UNSOLVED = SubsetSum(3, False, False, True, 0, 6, None)
_CALLS = Calls(2, (7.9, 8.0, 8.0, 8.0, 8.1) * 4, (3.9, 4.0, 4.0, 4.0, 4.1) * 4, 8.0, 4.0)
_LAW = TokenwiseLaw(3, 1 / 4, 1 / 7, 1 / 4 - 1 / 7)

CLAIMS = [
    Claim(
        "li.thm-3.1.1",
        judge_hidden,
        refuted_by=[
            [*_HIDDEN[:5], RareEven(4, 2 / 3, 6.0, 5.99)],
            [*_HIDDEN[:3], *(replace(t, optimum=0.5 * t.optimum, at_least=None) for t in _TASKS)],
        ],
        held_by=_HIDDEN,
    ),
    Claim(
        "li.thm-3.1.2",
        judge_subset_sum,
        refuted_by=[
            [replace(_SOLVED, answered=False), _UNSOLVED],
            [_SOLVED, replace(_UNSOLVED, answered=True)],
            [replace(_SOLVED, right=False), _UNSOLVED],
        ],
        held_by=[_SOLVED, _UNSOLVED],
    ),
    Claim(
        "li.prop-3.1.1",
        judge_calls,
        refuted_by=[
            [replace(_CALLS, tokenwise_calls=_CALLS.rejection_calls)],
            [replace(_CALLS, rejection_calls=(16.0, 16.1, 16.2) * 4)],
            [replace(_CALLS, rejection_expected=8.1)],
            [replace(_CALLS, tokenwise_expected=8.0)],
        ],
        held_by=[_CALLS],
    ),
    Claim(
        "li.prop-3.1.2",
        judge_law,
        refuted_by=[
            [replace(_LAW, special_probability=1 / 7)],
            [replace(_LAW, total_variation=0.0)],
        ],
        held_by=[_LAW],
    ),
]
