"""The figures of `masking_more`."""

from collections.abc import Sequence

from triptych.core.estimates import mean, proportion
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.masking.masking_more.errors import (
    complete,
    errors_by_size,
    in_published_order,
    limits,
)
from triptych.studies.masking.masking_more.rows import Fitted, Row


def _couplings(rows: Rows[Row]) -> list[float]:
    return sorted({row.coupling for row in rows.of(Fitted)})


def error_figure(rows: Rows[Row]) -> Figure:
    """n × error against n, by k, with the exact limits."""
    panels = []
    for coupling in _couplings(rows):
        by_size = errors_by_size(rows, coupling, "one")
        limit = limits(rows, coupling, "one")
        series = []
        for k in sorted(limit):
            whole = {n: complete(errors)[k] for n, errors in by_size.items()}
            found = {n: mean(errors) for n, errors in whole.items() if errors}
            value = [n * e.value for n, e in found.items()]
            low = [n * max(e.low, 0.0) for n, e in found.items()]
            high = [n * e.high for n, e in found.items()]
            series.append(Series(f"k = {k}", "ours", list(found), value, low, high))
        for k, level in sorted(limit.items()):
            ends = [min(by_size), max(by_size)]
            series.append(Series(f"limit {level:.1f}, k = {k}", "truth", ends, [level, level]))
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
        "Error of the parameters by spins hidden at once, one mask per sequence",
        panels,
        "Four spins, all coupled by J, no field; ten parameters fitted by predicting k hidden "
        "spins from the others, one random block of k spins per sequence. Means over data sets "
        "with 95 % bands; the dashed lines are the exact limits tr Γ for many sequences; k = 4 is "
        "maximum likelihood. Data sets without an estimate for some k are left out.",
    )


def gain_figure(rows: Rows[Row]) -> Figure:
    """n × error against k at the largest n: one mask against all masks."""
    panels = []
    kinds: Sequence[tuple[str, SeriesKind, str]] = (
        ("one", "ours", "one mask per sequence"),
        ("all", "control", "all masks of every sequence"),
    )
    for coupling in _couplings(rows):
        series, lines, n = [], [], 0
        for masks, kind, label in kinds:
            by_size = errors_by_size(rows, coupling, masks)
            if not by_size:
                continue
            n = max(by_size)
            whole = complete(by_size[n])
            ks = sorted(k for k in whole if whole[k])
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
            limit = limits(rows, coupling, masks)
            ks = sorted(limit)
            lines.append(Series(f"exact limit, {label}", "truth", ks, [limit[k] for k in ks]))
        title = f"J = {coupling:g}, n = {n}"
        panels.append(Panel(series + lines, "hidden spins k", "n × squared error", title))
    return Figure(
        "gain",
        "Error of the parameters with one mask per sequence, and with all masks of each",
        panels,
        "The same data as before. When each sequence is seen under one random block, k = 1 uses a "
        "quarter of what it shows; when it is seen under all blocks of k spins, which is what "
        "pseudolikelihood mostly means, every k uses all of it. Dashed lines are exact limits, "
        "tr Γ.",
    )


def ten_figure(rows: Rows[Row]) -> Figure:
    """How often an experiment of the published size shows the published order."""
    panels = []
    kinds: Sequence[tuple[bool, SeriesKind, str]] = (
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


FIGURES = [error_figure, gain_figure, ten_figure]
