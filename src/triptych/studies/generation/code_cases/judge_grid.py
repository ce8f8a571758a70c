"""What the rows say about sampling without a verifier: the grid of Table 3.13 [li, 3.2.2.5].

The best of many settings is the best partly by luck. So the published best one is compared with
settings that the source names, not with our own best.
"""

from collections.abc import Mapping, Sequence

from triptych.studies.api.decide import Verdict, above, at_least, decide, shown
from triptych.studies.api.study import Claim, Rows
from triptych.studies.generation.code_cases.comparisons import (
    CASES,
    as_published,
    gains,
    of,
    over_trials,
    said,
    stands_for,
    trials,
)
from triptych.studies.generation.code_cases.configs import BEST, named
from triptych.studies.generation.code_cases.published import GRID
from triptych.studies.generation.code_cases.rows import Completed, Row

NEAR = 0.15  # settings that the table has so far below its best one are compared one by one
OTHERS = [at for at in GRID if at != BEST]
RIVALS = [at for at in OTHERS if GRID[BEST] - GRID[at] < NEAR]
REST = [at for at in OTHERS if at not in RIVALS]
FAR = "sampling at the best of the other settings"


def points(at: tuple[float, float]) -> float:
    """What the best setting has more in the table, in percentage points."""
    return round(100 * (GRID[BEST] - GRID[at]), 1)


def ranks(values: Sequence[float]) -> list[float]:
    """Places from the smallest, 0, 1, …; equal values share the mean of theirs.

    Worked value: 5, 1, 5 have the places 1.5, 0, 1.5.
    """
    below = [sum(other < value for other in values) for value in values]
    equal = [sum(other == value for other in values) for value in values]
    return [b + (e - 1) / 2 for b, e in zip(below, equal, strict=True)]


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's; the correlation of the places."""
    one, two = ranks(first), ranks(second)
    middle = (len(one) - 1) / 2
    products = sum((a - middle) * (b - middle) for a, b in zip(one, two, strict=True))
    spreads = [sum((a - middle) ** 2 for a in some) for some in (one, two)]
    return products / (spreads[0] * spreads[1]) ** 0.5 if all(spreads) else float("nan")


def judge_grid(rows: Rows[Row]) -> Verdict:
    found = rows.of(Completed)
    if not found:
        return decide(needs=trials([]))
    means = {at: over_trials(of(found, named(*at))).value for at in GRID}
    known = [at for at in GRID if means[at] == means[at]]
    best = named(*BEST)
    checks = [
        above(
            f"{said(best)} minus {said(named(*at))}, {CASES}",
            gains(found, best, named(*at)),
            0.0,
            published=points(at),
        )
        for at in RIVALS
    ]
    far = max((at for at in known if at in REST), key=lambda at: means[at], default=None)
    checks.append(
        above(
            f"{said(best)} minus {FAR}, {CASES}",
            gains(found, best, named(*far)) if far else over_trials({}),
            0.0,
            published=min(points(at) for at in REST),
        )
    )
    highest = max(known, key=lambda at: means[at], default=BEST)
    numbers = [
        shown(
            f"distinct correct cases of {said(best)}, %", means[BEST], published=100 * GRID[BEST]
        ),
        shown("highest share of distinct correct cases in the grid, %", means[highest]),
        shown("top_p of the setting with the highest share", highest[0], published=BEST[0]),
        shown("temperature of the setting with the highest share", highest[1], published=BEST[1]),
    ]
    if len(known) == len(GRID):
        correlation = rank_correlation([means[at] for at in GRID], [GRID[at] for at in GRID])
        sentence = "rank correlation of our shares with the published ones, over the grid"
        numbers.append(shown(sentence, correlation))
    return decide(
        *checks,
        *numbers,
        *stands_for(found),
        needs=[*trials(found), at_least("settings of the grid", len(known), len(GRID))],
    )


_NAMES = tuple(named(*at) for at in GRID)


def grid(changed: Mapping[tuple[float, float], float] | None = None) -> list[Completed]:
    """The published grid, with some shares changed."""
    return as_published(
        *_NAMES, shares={named(*at): v for at, v in {**GRID, **(changed or {})}.items()}
    )


CLAIMS = [
    Claim(
        "li.tab-3.13",
        judge_grid,
        refuted_by=[
            *(grid({at: GRID[BEST] + 0.02}) for at in [*RIVALS, REST[0]]),
            grid(dict.fromkeys(GRID, 0.6)),  # no effect
        ],
        held_by=grid(),
    ),
]
