"""Judges and figures of `masking_more`: does the error fall with k, and whence comes the gain?"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from triptych.core.estimates import Estimate, Outcome, above, mean, paired_difference, proportion
from triptych.studies.figures import Figure, Kind, Panel, Series
from triptych.studies.judging import all_of, largest, rows_of, without_nan
from triptych.studies.study import Row, Rows, Verdict

WEAK, PEAKY = 0.05, 0.3  # J of Figures 4.1 and 4.2
FEWEST = 100  # data sets of one size
SIZES = 2  # sizes of data sets
MISSING = 0.05  # of the data sets of a size may have no estimate; else the size is not judged
MINIMUM = 1e-6  # gradient at an estimate
SAME = 1e-3  # distance of a parameter between two ways to minimise
LIMIT = 0.1  # the interval of error / limit at the largest n must come this near to 1, for every k
PUBLISHED_REPEATS = 10

Errors = Mapping[int, Sequence[float | None]]  # by k, data sets in the same order


def errors_by_size(rows: Rows, coupling: float, masks: str) -> dict[int, Errors]:
    """n -> k -> squared errors, all seeds one after the other."""
    found: dict[int, dict[int, list[float | None]]] = {}
    mine = [row for row in rows_of(rows, "fit") if _is(row, coupling, masks)]
    for row in sorted(mine, key=lambda row: row["seed"]):
        found.setdefault(row["samples"], {}).setdefault(row["k"], []).extend(row["errors"])
    return dict(sorted(found.items()))


def _is(row: Mapping[str, Any], coupling: float, masks: str) -> bool:
    return row["coupling"] == coupling and row["masks"] == masks


def complete(errors: Errors) -> dict[int, list[float]]:
    """The data sets that have an estimate for every k.

    Those left out would have counted against the k without an estimate, mostly k = 1.
    """
    together = [one for one in zip(*errors.values(), strict=True) if None not in one]
    return {k: [float(one[i]) for one in together] for i, k in enumerate(errors)}  # type: ignore


def in_published_order(errors: Errors, *, same: bool = True) -> tuple[int, int]:
    """Of experiments with ten data sets each: in how many the mean falls at every step of k.

    With `same`, every k is fitted to the same ten; else each k takes its ten from another
    experiment, as if it had been given data of its own.
    """
    whole = complete(errors)
    ks = sorted(whole)
    experiments = len(whole[ks[0]]) // PUBLISHED_REPEATS
    ordered = 0
    for i in range(experiments):
        means = []
        for shift, k in enumerate(ks):
            at = (i if same else (i + shift) % experiments) * PUBLISHED_REPEATS
            means.append(math.fsum(whole[k][at : at + PUBLISHED_REPEATS]))
        ordered += all(a > b for a, b in pairwise(means))
    return ordered, experiments


def _judged(errors: Errors) -> bool:
    few = min(map(len, errors.values())) < FEWEST
    missing = max(column.count(None) / len(column) for column in errors.values())
    return sorted(errors) == [1, 2, 3, 4] and not few and missing <= MISSING


def _judge(rows: Rows, coupling: float) -> Verdict:
    """Paired differences at every size and step of k, jointly at 95 per cent (Bonferroni)."""
    fits = [row for row in rows_of(rows, "fit") if _is(row, coupling, "one")]
    by_size = errors_by_size(rows, coupling, "one")
    sizes = [n for n, errors in by_size.items() if _judged(errors)]
    if len(sizes) < SIZES:
        because = (
            f"{len(sizes)} sizes with at least {FEWEST} data sets and estimates for all but "
            f"{MISSING:.0%} of them; {SIZES} are needed"
        )
        return Verdict(Outcome.UNDECIDED, because)
    if not largest([row["largest_gradient"] for row in fits]) <= MINIMUM:
        return Verdict(Outcome.UNDECIDED, "some fits did not reach the minimum of their loss")
    descents = [row for row in rows_of(rows, "descent") if row["coupling"] == coupling]
    if not _same_minimum(descents):
        because = (
            "it is not known that gradient descent ends where Newton's method does: that needs a "
            f"data set for every k, and parameters that agree to {SAME:g}"
        )
        return Verdict(Outcome.UNDECIDED, because)
    n = sizes[-1]
    ratios = limit_ratios(rows, coupling, n)
    off = {k: r for k, r in ratios.items() if not (r.high >= 1 - LIMIT and r.low <= 1 + LIMIT)}
    if off:
        shown = ", ".join(f"{ratio} for k = {k}" for k, ratio in off.items())
        because = (
            f"at n = {n} the error is not near its exact limit: over it, {shown}, an interval that "
            f"does not come within {LIMIT:.0%} of 1"
        )
        return Verdict(Outcome.UNDECIDED, because)
    steps = [(n, k) for n in sizes for k in (1, 2, 3)]
    confidence = 1 - 0.05 / len(steps)
    outcomes, gains = [], {}
    for n, k in steps:
        whole = complete(by_size[n])
        found = paired_difference(whole[k], whole[k + 1], confidence=confidence)
        outcomes.append(above(found, 0.0))
        gains[f"n = {n}, k = {k} to {k + 1}"] = str(found)
    outcome = all_of(outcomes)
    said = {
        Outcome.HOLDS: "falls at every step of k",
        Outcome.FAILS: "rises with k somewhere",
        Outcome.UNDECIDED: "falls at some steps of k, and the others are too close to call",
    }[outcome]
    ordered = {size: in_published_order(by_size[size]) for size in sizes}
    own = {size: in_published_order(by_size[size], same=False) for size in sizes}
    shares = [sum(a for a, _ in o.values()) / sum(b for _, b in o.values()) for o in (ordered, own)]
    every = errors_by_size(rows, coupling, "all").get(n)
    control = {k: mean(column).value * n for k, column in complete(every).items()} if every else {}
    because = (
        f"with one mask per sequence the squared error {said}, at {len(sizes)} sizes of data; at "
        f"n = {n} it is {min(r.value for r in ratios.values()):.2f} to "
        f"{max(r.value for r in ratios.values()):.2f} times its exact limit (half-widths up to "
        f"{max(r.half_width for r in ratios.values()):.2f}). Experiments of ten data sets show the "
        f"whole order {shares[0]:.0%} of the time, or {shares[1]:.0%} if each k has data of its own"
    )
    if control:
        because += (
            f". With all masks of every sequence k = 1 errs {control[1] / control[4]:.3f} times as "
            "much as k = 4"
        )
    return Verdict(
        outcome,
        because,
        {
            "gain": gains,
            "error over limit": {f"k = {k}": str(ratio) for k, ratio in ratios.items()},
            "n error, all masks": {f"k = {k}": value for k, value in control.items()},
            "ten data sets in order": {f"n = {s}": f"{a} of {b}" for s, (a, b) in ordered.items()},
            "ten data sets for each k in order": {
                f"n = {s}": f"{a} of {b}" for s, (a, b) in own.items()
            },
            "without estimate": {f"n = {s}": _missing(by_size[s]) for s in by_size},
        },
    )


def _missing(errors: Errors) -> str:
    counts = [f"k = {k}: {column.count(None)}" for k, column in sorted(errors.items())]
    return f"{', '.join(counts)}, of {len(next(iter(errors.values())))}"


def _same_minimum(descents: Sequence[Row]) -> bool:
    """Whether both ways to minimise agree, on at least one data set for every k."""
    seen = {row["k"] for row in descents if row["data_sets"] >= 1}
    gaps = [row["gap"] for row in descents if row["gap"] is not None]
    return seen >= {1, 2, 3, 4} and largest(gaps) <= SAME


def limit_ratios(rows: Rows, coupling: float, n: int) -> dict[int, Estimate]:
    """Mean squared error over tr Γ_k / n, by k; intervals of 95 per cent for all k together."""
    whole = complete(errors_by_size(rows, coupling, "one")[n])
    limits = _limits(rows, coupling, "one")
    confidence = 1 - 0.05 / len(whole)
    return {
        k: mean([n * error / limits[k] for error in column], confidence=confidence)
        for k, column in sorted(whole.items())
    }


def _limits(rows: Rows, coupling: float, masks: str) -> dict[int, float]:
    return {row["k"]: row["limit"] for row in rows_of(rows, "fit") if _is(row, coupling, masks)}


@without_nan
def judge_weak(rows: Rows) -> Verdict:
    """Figure 4.1: J = 0.05."""
    return _judge(rows, WEAK)


@without_nan
def judge_peaky(rows: Rows) -> Verdict:
    """Figure 4.2: J = 0.3."""
    return _judge(rows, PEAKY)


# ------------------------------------------------------------------ figures


def _couplings(rows: Rows) -> list[float]:
    return sorted({row["coupling"] for row in rows_of(rows, "fit")})


def error_figure(rows: Rows) -> Figure:
    """n × error against n, by k, with the exact limits."""
    panels = []
    for coupling in _couplings(rows):
        by_size = errors_by_size(rows, coupling, "one")
        limits = _limits(rows, coupling, "one")
        series = []
        for k in sorted(limits):
            found = {n: mean(complete(errors)[k]) for n, errors in by_size.items()}
            value = [n * e.value for n, e in found.items()]
            low = [n * max(e.low, 0.0) for n, e in found.items()]
            high = [n * e.high for n, e in found.items()]
            series.append(Series(f"k = {k}", "ours", list(found), value, low, high))
        for k, limit in sorted(limits.items()):
            ends = [min(by_size), max(by_size)]
            series.append(Series(f"limit {limit:.1f}, k = {k}", "truth", ends, [limit, limit]))
        panels.append(
            Panel(
                series,
                "sequences in a data set, n",
                "n × squared error of the parameters",
                f"J = {coupling:g}",
                x_log=True,
            )
        )
    return Figure(
        "error",
        "With one mask per sequence, hiding more spins at once gives a smaller error",
        panels,
        "Four spins, all coupled by J, no field; ten parameters fitted by predicting k hidden "
        "spins from the others, one random block of k spins per sequence. Means over data sets "
        "with 95 % bands; the dashed lines are the exact limits tr Γ for many sequences, from top "
        "(k = 1) to bottom (k = 4, maximum likelihood). Data sets without an estimate for some k "
        "are left out.",
    )


def gain_figure(rows: Rows) -> Figure:
    """n × error against k at the largest n: one mask against all masks."""
    panels = []
    for coupling in _couplings(rows):
        series = []
        kinds: Sequence[tuple[str, Kind, str]] = (
            ("one", "ours", "one mask per sequence"),
            ("all", "control", "all masks of every sequence"),
        )
        n = 0
        for masks, kind, label in kinds:
            by_size = errors_by_size(rows, coupling, masks)
            n = max(by_size)
            whole = complete(by_size[n])
            ks = sorted(whole)
            found = [mean(whole[k]) for k in ks]
            series.append(
                Series(
                    label,
                    kind,
                    ks,
                    [n * e.value for e in found],
                    [n * e.low for e in found],
                    [n * e.high for e in found],
                    line=False,
                )
            )
        for masks, _, label in kinds:
            limits = _limits(rows, coupling, masks)
            ks = sorted(limits)
            series.append(Series(f"exact limit, {label}", "truth", ks, [limits[k] for k in ks]))
        title = f"J = {coupling:g}, n = {n}"
        panels.append(Panel(series, "hidden spins k", "n × squared error", title))
    return Figure(
        "gain",
        "Nearly all of the gain comes from seeing more predictions of each sequence",
        panels,
        "The same data as before. When each sequence is seen under one random block, k = 1 uses a "
        "quarter of what it shows. When it is seen under all blocks of k spins, which is what "
        "pseudolikelihood mostly means, k hardly matters: here k = 2, 3 and 4 are the same "
        "estimate, data set by data set. Dashed lines are exact limits, tr Γ.",
    )


def ten_figure(rows: Rows) -> Figure:
    """How often an experiment of the published size shows the published order."""
    panels = []
    kinds: Sequence[tuple[bool, Kind, str]] = (
        (True, "ours", "the same ten data sets for every k"),
        (False, "control", "ten of its own for each k"),
    )
    for coupling in _couplings(rows):
        series = []
        for same, kind, label in kinds:
            by_size = errors_by_size(rows, coupling, "one")
            of = {n: in_published_order(errors, same=same) for n, errors in by_size.items()}
            of = {n: found for n, found in of.items() if found[1]}
            shares = [proportion(a, b) for a, b in of.values()]
            series.append(
                Series(
                    label,
                    kind,
                    list(of),
                    [100 * e.value for e in shares],
                    [100 * e.low for e in shares],
                    [100 * e.high for e in shares],
                )
            )
        panels.append(
            Panel(
                series,
                "sequences in a data set, n",
                "experiments that show the whole order, %",
                f"J = {coupling:g}",
                x_log=True,
            )
        )
    return Figure(
        "ten_data_sets",
        "Are ten data sets, as published, enough to see the order of k = 1, 2, 3, 4?",
        panels,
        "An experiment has ten data sets and counts if the mean squared error falls from k = 1 to "
        "2, from 2 to 3 and from 3 to 4. Bands are 95 % intervals. The source does not say whether "
        "its k shared their data.",
    )


# ------------------------------------------------------------------ rows made by hand


def _rows(coupling: float, levels: Mapping[int, float], **changes: Any) -> list[Row]:
    """Data sets whose errors are levels[k] / n, give or take a tenth."""
    found: list[Row] = [
        {
            "kind": "fit",
            "coupling": coupling,
            "samples": n,
            "seed": 0,
            "k": k,
            "masks": "one",
            "errors": [level / n * (1 + 0.1 * (-1) ** i) for i in range(FEWEST)],
            "without_estimate": 0,
            "largest_gradient": 1e-12,
            "limit": level,
        }
        | changes
        for n in (1000, 10_000)
        for k, level in levels.items()
    ]
    common = {"kind": "descent", "coupling": coupling, "samples": 1000, "seed": 0}
    descent = [common | {"k": k, "gap": 1e-6, "data_sets": 10, "steps": 100} for k in (1, 2, 3, 4)]
    return [*found, *descent]


def held(coupling: float) -> list[Row]:
    """Errors that fall with k."""
    return _rows(coupling, {1: 28.0, 2: 15.0, 3: 11.0, 4: 10.0})


def refuted(coupling: float) -> list[list[Row]]:
    """Errors that rise at one step of k, at all sizes or at one alone."""
    rising = [
        {1: 14.0, 2: 15.0, 3: 11.0, 4: 10.0},
        {1: 28.0, 2: 15.0, 3: 16.0, 4: 10.0},
        {1: 28.0, 2: 15.0, 3: 11.0, 4: 12.0},
    ]
    once = [
        row | {"errors": [2 * e for e in row["errors"]]}
        if row["kind"] == "fit" and row["samples"] == 1000 and row["k"] == 4
        else row
        for row in held(coupling)
    ]
    return [*(_rows(coupling, levels) for levels in rising), once]
