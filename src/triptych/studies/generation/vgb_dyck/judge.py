"""What the rows say about VGB on a trained network [li, 3.3.1].

The thesis says in a sentence that VGB has a favourable trade-off of quality and efficiency, with
Dyck grammar as an example, and gives no numbers. Quality is read as the share of right strings, and
efficiency as the questions to the network, which the thesis counts as query complexity. Favourable
then means two things: more right strings than every other algorithm at the largest budget of each,
and fewer questions than those algorithms that write several strings for each one they give. The
experiments of the thesis return the first leaf that the walk reaches, and so does what is judged.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from triptych.core.estimates import Estimate, mean
from triptych.studies.api.decide import Verdict, above, at_least, below, decide, shown
from triptych.studies.api.study import Claim, Rows
from triptych.studies.api.summaries import scaled
from triptych.studies.generation.vgb_dyck.rows import Row, Sampled

FEWEST_NETWORKS = 8
"""Differences vary by 2 to 16 percentage points from network to network: three leave them open."""
WALK = "VGB, first leaf"
OTHERS = {  # name in the rows -> in a sentence
    "no verifier": "sampling without a verifier",
    "rejection": "rejection sampling",
    "tokenwise rejection": "tokenwise rejection sampling",
    "Algorithm 1": "Algorithm 1",
    "best of n": "best of n",
    "block best of n": "best of n for each block of two tokens",
}
SEVERAL = ("rejection", "best of n", "block best of n")  # write several strings for one

Number = Callable[[Sampled], float]


def at_largest_budgets(rows: Iterable[Sampled]) -> dict[tuple[str, int], Sampled]:
    """The row with the largest budget of each algorithm and network, by name and seed."""
    found: dict[tuple[str, int], Sampled] = {}
    for row in sorted(rows, key=lambda row: row.budget):
        found[row.algorithm, row.seed] = row
    return found


def over_networks(values: Sequence[float]) -> Estimate:
    """Mean over networks with a t interval; nan, which decides nothing, where there are none."""
    if not values or any(math.isnan(value) for value in values):
        return Estimate(math.nan, math.nan, math.nan, 0)
    return mean(values)


def judge_trade_off(rows: Rows[Row]) -> Verdict:
    largest = at_largest_budgets(rows.of(Sampled))
    seeds = sorted(seed for name, seed in largest if name == WALK)

    def each(name: str, compare: Callable[[Sampled, Sampled], float]) -> list[float]:
        """A comparison of VGB and another algorithm in every network that has both."""
        both = [(largest[WALK, seed], largest.get((name, seed))) for seed in seeds]
        return [compare(walk, other) for walk, other in both if other is not None]

    def minus(name: str, number: Number) -> Estimate:
        return over_networks(each(name, lambda walk, other: number(walk) - number(other)))

    def over(name: str, number: Number) -> Estimate:
        """The geometric mean of a quotient."""
        log = over_networks(each(name, lambda a, b: math.log(number(a) / number(b))))
        ends = [math.inf if end > MAX_POWER else math.exp(end) for end in (log.low, log.high)]
        return replace(log, value=math.exp(log.value), low=ends[0], high=ends[1])

    return decide(
        *(
            above(
                f"right strings of VGB minus those of {said}, percentage points",
                scaled(minus(name, lambda row: row.accuracy), 100.0),
                0.0,
            )
            for name, said in OTHERS.items()
        ),
        *(
            below(
                f"questions to the network that VGB asks for a string, divided by those of "
                f"{OTHERS[name]}",
                over(name, lambda row: row.generator_calls),
                1.0,
            )
            for name in SEVERAL
        ),
        *(
            shown(
                "tokens that VGB runs through the network for a string, divided by those of "
                f"{OTHERS[name]}",
                over(name, lambda row: row.network_tokens),
            )
            for name in SEVERAL
        ),
        shown(
            "total variation of VGB to the network's law of right strings, minus that of best of n",
            minus("best of n", lambda row: row.total_variation),
        ),
        needs=[
            at_least("trained networks", len(seeds), FEWEST_NETWORKS),
            at_least(
                "algorithms besides VGB",
                len({name for name, _ in largest} & OTHERS.keys()),
                len(OTHERS),
            ),
        ],
    )


MAX_POWER = 700.0  # beyond it, exp overflows


def _sampled(algorithm: str, accuracy: float, questions: float) -> Sampled:
    return Sampled(
        0, algorithm, 8, 20, accuracy, 1.0, 9.0, 0.5, 0.1, 0.3, questions, 40.0, 20.0, questions
    )


_HELD = {
    row.algorithm: row
    for row in (
        _sampled(WALK, 0.8, 30.0),
        _sampled("no verifier", 0.3, 9.0),
        _sampled("rejection", 0.5, 45.0),
        _sampled("tokenwise rejection", 0.4, 25.0),
        _sampled("Algorithm 1", 0.35, 20.0),
        _sampled("best of n", 0.55, 72.0),
        _sampled("block best of n", 0.45, 72.0),
    )
}


def rows_of(*changed: Sampled, networks: int = FEWEST_NETWORKS) -> list[Row]:
    """Rows of a favourable trade-off for several networks, some of them changed."""
    rows = _HELD | {row.algorithm: row for row in changed}
    return [replace(row, seed=seed) for seed in range(networks) for row in rows.values()]


CLAIMS = [
    Claim(
        "li.vgb-dyck",
        judge_trade_off,
        refuted_by=[
            *(rows_of(replace(_HELD[name], accuracy=0.9)) for name in OTHERS),
            *(rows_of(replace(_HELD[name], generator_calls=10.0)) for name in SEVERAL),
            rows_of(replace(_HELD[WALK], accuracy=0.1, generator_calls=500.0)),
            rows_of(
                *(replace(row, accuracy=0.3, generator_calls=72.0) for row in _HELD.values()),
                replace(_HELD[WALK], accuracy=0.299, generator_calls=72.5),
            ),  # no effect
        ],
        held_by=rows_of(),
    ),
]
