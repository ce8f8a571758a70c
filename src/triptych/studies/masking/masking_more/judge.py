"""The judges of `masking_more`: does the squared error fall at every step of k?

The figures print no numbers, but Remark 4.1.2 does: n times the error tends to tr Γ_k. What a step
of k saves is measured in units of that, (tr Γ_k - tr Γ_{k+1}) / n; so 1 is the published effect,
and 0 none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from triptych.core.estimates import Estimate, mean, paired_difference, proportion
from triptych.studies.api.decide import Check, Verdict, above, at_least, decide, shown
from triptych.studies.api.study import Claim, Rows
from triptych.studies.api.summaries import scaled
from triptych.studies.masking.masking_more.errors import (
    Errors,
    complete,
    errors_by_size,
    fits,
    in_published_order,
    limit_ratios,
    limits,
)
from triptych.studies.masking.masking_more.rows import (
    BLOCKS,
    PEAKY,
    WEAK,
    Descended,
    Fitted,
    Row,
)

FEWEST = 100  # data sets of one size
SIZES = 2  # sizes of data sets
MISSING = 0.05  # of the data sets of a size may have no estimate; else the size is not judged
MINIMUM = 1e-6  # gradient at an estimate
SAME = 1e-3  # distance of a parameter between two ways to minimise
EFFECT = 1.0  # what a step of k saves, in units of what tr Γ_k says


def judge(rows: Rows[Row], coupling: float) -> Verdict:
    """Paired differences at every size and step of k, jointly at 95 per cent (Bonferroni).

    A check shows the size at which its step is worst.
    """
    by_size = errors_by_size(rows, coupling, "one")
    sizes = [n for n, errors in by_size.items() if _judged(errors)]
    limit = limits(rows, coupling, "one")
    confidence = 1 - 0.05 / max(1, len(sizes) * (len(BLOCKS) - 1))
    checks = []
    for k in BLOCKS[:-1] if sizes else ():
        found = []
        for n in sizes:
            whole = complete(by_size[n])
            saved = paired_difference(whole[k], whole[k + 1], confidence=confidence)
            found.append(scaled(saved, n / (limit[k] - limit[k + 1])))
        sentence = (
            f"k = {k} to {k + 1}: squared error saved, in units of what the limit Tr(Γ)/n "
            "promises, smallest of all n"
        )
        checks.append(above(sentence, _worst(found), 0.0, published=EFFECT))
    every = fits(rows, coupling, "one")
    reached = [row for row in every if row.largest_gradient <= MINIMUM]
    return decide(
        *checks,
        *(_beside(rows, coupling, sizes) if sizes else []),
        needs=[
            at_least(
                f"sizes with {FEWEST} data sets and estimates for {1 - MISSING:.0%} of them",
                len(sizes),
                SIZES,
            ),
            at_least("fits that reached the minimum of their loss", len(reached), len(every)),
            at_least(
                "values of k for which gradient descent ends where Newton's method does",
                len(_same_minimum(rows, coupling)),
                len(BLOCKS),
            ),
        ],
    )


def _judged(errors: Errors) -> bool:
    few = min(map(len, errors.values())) < FEWEST
    missing = max(list(column).count(None) / len(column) for column in errors.values())
    return tuple(sorted(errors)) == BLOCKS and not few and missing <= MISSING


def _worst(found: Sequence[Estimate]) -> Estimate:
    """One that excludes half of the effect, if there is one; else the least low end."""
    return min(found, key=lambda estimate: (not estimate.high < EFFECT / 2, estimate.low))


def _same_minimum(rows: Rows[Row], coupling: float) -> set[int]:
    """The k for which both ways to minimise agree, on at least one data set."""
    descents = [row for row in rows.of(Descended) if row.coupling == coupling]
    apart = {row.k for row in descents if row.gap is not None and not row.gap <= SAME}
    return {row.k for row in descents if row.data_sets >= 1 and row.gap is not None} - apart


def _beside(rows: Rows[Row], coupling: float, sizes: Sequence[int]) -> list[Check]:
    """How near the limit is, whether ten data sets are enough, and what all masks leave to gain."""
    by_size, last = errors_by_size(rows, coupling, "one"), sizes[-1]
    checks = [
        shown(f"k = {k}: squared error divided by its limit Tr(Γ)/n, at the largest n", ratio)
        for k, ratio in limit_ratios(rows, coupling, last).items()
    ]
    for same, label in ((True, "the same data for every k"), (False, "data of its own for each")):
        found = [in_published_order(by_size[n], same=same) for n in sizes]
        ordered, experiments = (sum(counts) for counts in zip(*found, strict=True))
        share = scaled(proportion(ordered, experiments), 100.0)
        checks.append(
            shown(f"experiments of ten data sets whose errors fall at every k, {label}, %", share)
        )
    every = errors_by_size(rows, coupling, "all").get(last)
    if every:
        control = {k: mean(column).value for k, column in complete(every).items()}
        sentence = (
            "every sequence seen under all its masks: squared error of k = 1 divided by that "
            "of k = 4"
        )
        checks.append(shown(sentence, control[1] / control[4]))
    return checks


# ------------------------------------------------------------------ rows made by hand

_LEVELS = {1: 28.0, 2: 15.0, 3: 11.0, 4: 10.0}  # tr Γ_k


def made(coupling: float, levels: Mapping[int, float] = _LEVELS) -> list[Row]:
    """Data sets whose errors are levels[k] / n, give or take a tenth; limits as in theory."""
    found: list[Row] = [
        Fitted(
            coupling=coupling,
            samples=n,
            seed=0,
            k=k,
            masks="one",
            errors=tuple(level / n * (1 + 0.1 * (-1) ** i) for i in range(FEWEST)),
            without_estimate=0,
            largest_gradient=1e-12,
            limit=_LEVELS[k],
        )
        for n in (1000, 10_000)
        for k, level in levels.items()
    ]
    return found + [Descended(coupling, 1000, 0, k, 10, 1e-6, 100) for k in BLOCKS]


def refuting(coupling: float) -> list[list[Row]]:
    """Errors that do not fall at one step of k, at all sizes or at one alone; or at no step."""
    broken = [
        {**_LEVELS, 1: 15.0},
        {**_LEVELS, 2: 11.0, 3: 12.0},
        {**_LEVELS, 4: 12.0},
        dict.fromkeys(BLOCKS, 10.0),
    ]
    once: list[Row] = [
        replace(row, errors=tuple(2 * e for e in row.errors if e is not None))
        if isinstance(row, Fitted) and (row.samples, row.k) == (1000, 4)
        else row
        for row in made(coupling)
    ]
    return [*(made(coupling, levels) for levels in broken), once]


CLAIMS: list[Claim[Row]] = [
    Claim(name, partial(judge, coupling=coupling), refuting(coupling), made(coupling))
    for name, coupling in (("li.fig-4.1", WEAK), ("li.fig-4.2", PEAKY))
]
