"""Errors of `masking_more` by size of data and k: which data sets count, and what they say."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from triptych.core.estimates import Estimate, mean
from triptych.studies.api.study import Rows
from triptych.studies.api.summaries import scaled
from triptych.studies.masking.masking_more.rows import Fitted, Row

PUBLISHED_REPEATS = 10

Errors = Mapping[int, Sequence[float | None]]  # by k, data sets in the same order


def fits(rows: Rows[Row], coupling: float, masks: str) -> list[Fitted]:
    """The fits of one coupling, under one block per sequence or all."""
    return [row for row in rows.of(Fitted) if row.coupling == coupling and row.masks == masks]


def errors_by_size(rows: Rows[Row], coupling: float, masks: str) -> dict[int, Errors]:
    """n -> k -> squared errors, all seeds one after the other."""
    found: dict[int, dict[int, list[float | None]]] = {}
    for row in sorted(fits(rows, coupling, masks), key=lambda row: row.seed):
        found.setdefault(row.samples, {}).setdefault(row.k, []).extend(row.errors)
    return dict(sorted(found.items()))


def limits(rows: Rows[Row], coupling: float, masks: str) -> dict[int, float]:
    """k -> tr Γ_k."""
    return {row.k: row.limit for row in fits(rows, coupling, masks)}


def complete(errors: Errors) -> dict[int, list[float]]:
    """The data sets that have an estimate for every k.

    Those left out would have counted against the k without an estimate, mostly k = 1. A nan is no
    number to average; a verdict does not hold where a row has one.
    """
    whole: dict[int, list[float]] = {k: [] for k in errors}
    for together in zip(*errors.values(), strict=True):
        known = [error for error in together if error is not None and not math.isnan(error)]
        if len(known) == len(together):
            for k, error in zip(errors, known, strict=True):
                whole[k].append(error)
    return whole


def limit_ratios(rows: Rows[Row], coupling: float, n: int) -> dict[int, Estimate]:
    """Mean squared error over tr Γ_k / n, by k; intervals of 95 per cent for all k together."""
    whole, limit = complete(errors_by_size(rows, coupling, "one")[n]), limits(rows, coupling, "one")
    confidence = 1 - 0.05 / len(whole)
    return {
        k: scaled(mean(column, confidence=confidence), n / limit[k])
        for k, column in sorted(whole.items())
    }


def in_published_order(errors: Errors, *, same: bool = True) -> tuple[int, int]:
    """Experiments with ten data sets each: in how many the mean falls at every step of k.

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
