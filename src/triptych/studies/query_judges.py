"""The judges and figures of `query_complexity`."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from triptych.core.estimates import Estimate, Outcome, mean
from triptych.studies.figures import Figure, Kind, Panel, Series
from triptych.studies.judging import EXACT, largest, rows_of
from triptych.studies.study import Row, Rows, Verdict
from triptych.theory import queries

CONFIDENCE = 0.9999  # of each of some eighty intervals that are asked to contain their formula
_RARE = 2 / 3  # even so often after ŝ, the printed bound is met
_NO_ROWS = Verdict(Outcome.UNDECIDED, "there are no rows yet")


def all_numbers(rows: Sequence[Row], columns: Sequence[str]) -> bool:
    """Whether none of these numbers is nan; None stands for "there is none"."""
    values = [row.get(column) for row in rows for column in columns]
    return not any(isinstance(value, float) and math.isnan(value) for value in values)


def _contains(estimate: Estimate, value: float) -> bool:
    room = EXACT * abs(value)
    return estimate.low - room <= value <= estimate.high + room


# ------------------------------------------------------------------ Theorem 3.1.1


def judge_parity(rows: Rows) -> Verdict:
    """FAILS when an algorithm that was run needs fewer than the printed 2^(D-1) questions.

    The claim is about the oracle of the proof, which is even after ŝ always. That some task needs
    2^(D-1) questions is true of another: if it is even after ŝ with probability ⅔, N + ½ are
    needed, N = 2^(D-1).

    Its expectation must be confirmed: measured means must agree with it, none may be below the best
    possible, and that must be what the search through all strategies finds. Any of these broken
    also FAILS, with its own sentence: then the rows and the theory do not fit.
    """
    mine = rows_of(rows, "parity")
    columns = ("expected", "printed", "optimum", "searched")
    if not mine:
        return _NO_ROWS
    if not all_numbers(mine, columns):
        return Verdict(Outcome.UNDECIDED, "a number of questions is nan")
    measured: dict[str, Any] = {}
    for row in mine:
        name, expected = f"{row['algorithm']}, D = {row['depth']}", row["expected"]
        found = mean(row["questions"], confidence=CONFIDENCE)
        measured[name] = [expected, found.value, found.low, found.high]
        if not _contains(found, expected):
            return Verdict(Outcome.FAILS, f"the mean excludes the formula: {name}", measured)
        if row["searched"] is not None and not abs(row["searched"] / row["optimum"] - 1) <= EXACT:
            because = f"the best strategy needs {row['searched']:g}, not {row['optimum']:g}: {name}"
            return Verdict(Outcome.FAILS, because, measured)
        if not expected >= row["optimum"] * (1 - EXACT):
            return Verdict(Outcome.FAILS, f"fewer questions than possible: {name}", measured)
    below = [row for row in mine if row["expected"] < row["printed"] * (1 - EXACT)]
    depths = sorted({row["depth"] for row in mine})
    shown = f"D = {depths[0]}..{depths[-1]}"
    if below:
        worst = max(below, key=lambda row: row["depth"])
        found, depth = mean(worst["questions"]), worst["depth"]
        rare = queries.fewest_questions_if_even_is_rare(depth, _RARE)
        because = (
            f"the printed bound 2^(D-1) for this oracle fails, by a factor "
            f"{worst['printed'] / worst['expected']:.2f} at D = {depth}: to ask "
            f"{worst['algorithm']}, needs {worst['expected']:.5g} questions (measured "
            f"{_number(found.value)} ± {_number(found.half_width)}), not {worst['printed']:g}. No "
            "algorithm is below (N + 1)/2 - 1/N, N = 2^(D-1), the least possible, which doubles "
            f"with every bit ({shown}). The statement that such a task exists is saved by another "
            "oracle, with a rare even bit: where it comes after ŝ two times in three, the least is "
            f"N + ½, {rare:g} at D = {depth}"
        )
        return Verdict(Outcome.FAILS, because, measured)
    if len(depths) < 3:
        return Verdict(Outcome.UNDECIDED, "three lengths are needed to see growth", measured)
    because = f"every algorithm needs at least 2^(D-1) questions, {shown}"
    return Verdict(Outcome.HOLDS, because, measured)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _parity_row(depth: int, **changes: Any) -> Row:
    n = 2.0 ** (depth - 1)
    row: Row = {
        "kind": "parity",
        "depth": depth,
        "algorithm": "a random prefix each time",
        "expected": n,
        "questions": [n - 1, n, n + 1],
        "printed": n,
        "optimum": (n + 1) / 2 - 1 / n,
        "searched": (n + 1) / 2 - 1 / n,
    }
    return row | changes


PARITY_HELD = [_parity_row(2), _parity_row(3), _parity_row(4)]
PARITY_REFUTED = [
    [_parity_row(3, expected=2.25, questions=[1.0, 2.0, 3.0, 3.0])],
    [*PARITY_HELD, _parity_row(3, questions=[9.0, 9.1, 9.2] * 4)],
    [*PARITY_HELD, _parity_row(3, searched=2.0)],
    [*PARITY_HELD, _parity_row(3, optimum=4.5, searched=4.5)],
]


def parity_figure(rows: Rows) -> Figure:
    """Questions against D for every algorithm; and as shares of the printed bound."""
    mine = sorted(rows_of(rows, "parity"), key=lambda row: row["depth"])
    names = list(dict.fromkeys(row["algorithm"] for row in mine))
    bounds = {row["depth"]: row for row in mine}
    depths = list(bounds)
    best = [bounds[d]["optimum"] for d in depths]
    printed = [bounds[d]["printed"] for d in depths]
    every, shares = [], []
    for name in names:
        found = _means([row for row in mine if row["algorithm"] == name], "questions", name, "ours")
        found = replace(found, kind="ours" if name.startswith("each") else "control", line=True)
        if "random start" not in name:  # the same line
            every.append(found)
        if "rejection" not in name:
            scaled = {
                side: [v / n for v, n in zip(getattr(found, side), printed, strict=True)]
                for side in ("y", "low", "high")
            }
            shares.append(replace(found, **scaled))
    least = "best possible: (N + 1)/2 − 1/N"
    every.append(Series(least, "truth", depths, best))
    shares.append(
        Series(least, "truth", depths, [b / n for b, n in zip(best, printed, strict=True)])
    )
    shares.append(Series("printed bound: N = 2^(D−1)", "published", depths, [1.0] * len(depths)))
    return Figure(
        "hidden_parity",
        "A hidden string costs exponentially many questions, but half as many as printed",
        [
            Panel(every, "string length D", "questions to the model", y_log=True),
            Panel(shares, "string length D", "questions / 2^(D−1)"),
        ],
        "Means over secrets and runs with 95 % intervals. To ask each prefix of D − 1 bits at most "
        "once is the best possible, and lies below the printed bound at every D; a searcher "
        "that forgets what it asked meets it.",
    )


def _means(rows: Sequence[Row], column: str, label: str, kind: Kind) -> Series:
    found = [mean(row[column]) for row in rows]
    low = [max(e.low, min(row[column]) / 2) for e, row in zip(found, rows, strict=True)]
    return Series(
        label,
        kind,
        [row["depth"] for row in rows],
        [e.value for e in found],
        low,
        [e.high for e in found],
        line=False,
    )


# ------------------------------------------------------------------ Theorem 3.1.2


def judge_knapsack(rows: Rows) -> Verdict:
    """Generation answers every instance as trying all subsets does: right, or FAIL if none is.

    What can be checked of an NP-hardness proof is its reduction. UNDECIDED until there are
    instances of both sorts.
    """
    mine = rows_of(rows, "knapsack")
    if not mine:
        return _NO_ROWS
    if not all_numbers(mine, ("calls",)):
        return Verdict(Outcome.UNDECIDED, "a number of calls is nan")
    solvable = sum(row["solvable"] for row in mine)
    wrong = sum(row["answered"] != row["solvable"] for row in mine)
    false = sum(not row["right"] for row in mine)
    dearest = largest([row["calls"] / row["depth"] for row in mine])
    measured = {
        "instances": len(mine),
        "solvable": solvable,
        "answered_otherwise": wrong,
        "not_a_solution": false,
        "most_calls_a_token": dearest,
    }
    if wrong or false:
        because = f"{wrong} instances are answered otherwise, {false} answers are no solutions"
        return Verdict(Outcome.FAILS, because, measured)
    if solvable == 0 or solvable == len(mine):
        return Verdict(Outcome.UNDECIDED, "solvable and unsolvable instances are needed", measured)
    because = (
        f"{solvable} solvable instances are solved and {len(mine) - solvable} unsolvable ones "
        f"answered FAIL, as by trying all subsets; at most {dearest:.1f} calls a token"
    )
    return Verdict(Outcome.HOLDS, because, measured)


_SOLVED: Row = {
    "kind": "knapsack",
    "depth": 3,
    "solvable": True,
    "answered": True,
    "right": True,
    "calls": 6.0,
}
_UNSOLVED = _SOLVED | {"solvable": False, "answered": False, "calls": 0.0}
KNAPSACK_HELD = [_SOLVED, _UNSOLVED]
KNAPSACK_REFUTED = [
    [_SOLVED | {"answered": False}, _UNSOLVED],
    [_SOLVED, _UNSOLVED | {"answered": True}],
    [_SOLVED | {"right": False}, _UNSOLVED],
]


def knapsack_figure(rows: Rows) -> Figure:
    """Calls with a process verifier, with a membership test alone, and the cost of that test."""
    mine = [row for row in rows_of(rows, "knapsack") if row["solvable"]]
    depths = sorted({row["depth"] for row in mine})

    def middle(column: str) -> tuple[list[float], list[float], list[float]]:
        of = [sorted(row[column] for row in mine if row["depth"] == d) for d in depths]
        return (
            [v[len(v) // 2] for v in of],
            [v[len(v) // 4] for v in of],
            [v[-1 - len(v) // 4] for v in of],
        )

    without, guided = middle("rejection_calls"), middle("calls")
    return Figure(
        "subset_sum",
        "Subset sum by generation: cheap with the process verifier, exponential without",
        [
            Panel(
                [
                    Series("rejection, membership test only (exact)", "control", depths, *without),
                    Series("tokenwise, process verifier", "ours", depths, *guided),
                    Series(
                        "operations of one membership test",
                        "truth",
                        depths,
                        middle("membership_operations")[0],
                    ),
                ],
                "number of weights D",
                "calls of the model",
                y_log=True,
            )
        ],
        "Solvable instances with weights up to 2^D: medians and quartiles. The price of the "
        "process verifier itself is a table of all sums, exponential in the digits of the weights.",
    )


# ------------------------------------------------------------------ Proposition 3.1.1


def judge_calls(rows: Rows) -> Verdict:
    """Expected calls equal 2^D D and 2D exactly; intervals of the measured means agree.

    UNDECIDED while an interval is wider than half of what it should contain.
    """
    mine = rows_of(rows, "queries")
    if not mine:
        return _NO_ROWS
    exact, outside, wide, measured = [], [], [], {}
    for row in mine:
        depth = row["depth"]
        published = {"rejection": 2.0**depth * depth, "tokenwise": 2.0 * depth}
        for name, value in published.items():
            exact.append(abs(row[f"{name}_expected"] / value - 1))
            estimate = mean(row[f"{name}_calls"], confidence=CONFIDENCE)
            measured[f"{name}, D = {depth}"] = [value, estimate.value, estimate.low, estimate.high]
            if not _contains(estimate, value):
                outside.append(f"{name} at D = {depth}")
            if not estimate.half_width <= value / 2:
                wide.append(f"{name} at D = {depth}")
    off = largest(exact)
    if not off <= EXACT:
        return Verdict(Outcome.FAILS, f"the exact expectation is off by {off:.1e}", measured)
    if outside:
        because = "the measured mean excludes the formula: " + ", ".join(outside)
        return Verdict(Outcome.FAILS, because, measured)
    if wide:
        because = "too few runs to tell: " + ", ".join(wide)
        return Verdict(Outcome.UNDECIDED, because, measured)
    depths = ", ".join(str(row["depth"]) for row in mine)
    because = f"exact expectations are 2^D D and 2D, and measured means agree, for D = {depths}"
    return Verdict(Outcome.HOLDS, because, measured)


_CALLS: Row = {
    "kind": "queries",
    "depth": 2,
    "rejection_calls": [7.9, 8.0, 8.0, 8.0, 8.1] * 4,
    "tokenwise_calls": [3.9, 4.0, 4.0, 4.0, 4.1] * 4,
    "rejection_expected": 8.0,
    "tokenwise_expected": 4.0,
}
CALLS_HELD = [_CALLS]
CALLS_REFUTED = [
    [_CALLS | {"tokenwise_calls": [8.0, 8.1, 8.2] * 4}],
    [_CALLS | {"rejection_calls": [16.0, 16.1, 16.2] * 4}],
    [_CALLS | {"rejection_expected": 8.1}],
    [_CALLS | {"tokenwise_expected": 4.1}],
]


def calls_figure(rows: Rows) -> Figure:
    """Measured calls against the formulas."""
    mine = sorted(rows_of(rows, "queries"), key=lambda row: row["depth"])
    depths = [row["depth"] for row in mine]
    series = [
        _means(mine, "rejection_calls", "rejection", "control"),
        _means(mine, "tokenwise_calls", "token by token", "ours"),
        Series("2^D D", "truth", depths, [2.0**d * d for d in depths]),
        Series("2 D", "truth", depths, [2.0 * d for d in depths]),
    ]
    return Figure(
        "queries",
        "Rejection needs 2^D D calls to hit one string, token-by-token rejection 2D",
        [Panel(series, "string length D", "calls of the model", y_log=True)],
        "Means over runs with 95 % intervals; the lines are the exact expectations.",
    )


# ------------------------------------------------------------------ Proposition 3.1.2


def judge_law(rows: Rows) -> Verdict:
    mine = rows_of(rows, "law")
    if not mine:
        return _NO_ROWS
    off = largest([abs(row["special_probability"] * 2 ** (row["depth"] - 1) - 1) for row in mine])
    apart = -largest([-row["total_variation"] for row in mine])
    measured = {"largest_relative_error": off, "smallest_total_variation": apart}
    if off <= EXACT and apart > EXACT:
        because = (
            f"1…10 has probability 2^-(D-1) to {off:.0e}; TV to the restricted law ≥ {apart:.2g}"
        )
        return Verdict(Outcome.HOLDS, because, measured)
    return Verdict(Outcome.FAILS, f"off by {off:.1e}, total variation {apart:.1e}", measured)


_LAW: Row = {
    "kind": "law",
    "depth": 3,
    "special_probability": 1 / 4,
    "total_variation": 1 / 4 - 1 / 7,
}
LAW_HELD = [_LAW]
LAW_REFUTED = [[_LAW | {"special_probability": 1 / 7}], [_LAW | {"total_variation": 0.0}]]


def law_figure(rows: Rows) -> Figure:
    """How far tokenwise rejection is from the restricted law."""
    mine = sorted(rows_of(rows, "law"), key=lambda row: row["depth"])
    depths = [row["depth"] for row in mine]
    special = [row["special_probability"] for row in mine]
    return Figure(
        "tokenwise_law",
        "Token-by-token rejection does not sample the restricted law: 1…10 gets 2^-(D-1)",
        [
            Panel(
                [
                    Series("token by token (exact)", "ours", depths, special),
                    Series(
                        "restricted law",
                        "truth",
                        depths,
                        [row["restricted_probability"] for row in mine],
                    ),
                ],
                "string length D",
                "probability of 1…10",
                y_log=True,
            )
        ],
        "Both laws by enumeration; there is no sampling noise.",
    )
