"""The figure of the memory theorems."""

from collections.abc import Sequence

from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.tuning.exact_memory.rows import HeadAlone, Prompted, Recovered, Row


def margin_figure(rows: Rows[Row]) -> Figure:
    """The error of the value against the margin of the assumption, for each number of cells."""

    def points(label: str, kind: SeriesKind, models: Sequence[Recovered]) -> Series:
        errors = [max(row.value_error, 1e-17) for row in models]
        return Series(label, kind, [row.margin for row in models], errors, line=False)

    heads, prompts = rows.of(HeadAlone), rows.of(Prompted)
    panels = [
        Panel(
            [
                points(
                    "head alone (Theorem 4.3)",
                    "control",
                    [row for row in heads if row.cells == cells],
                ),
                points(
                    f"prompt and head (Theorem {'4.6' if cells == 1 else 'C.6'})",
                    "ours",
                    [row for row in prompts if row.cells == cells],
                ),
            ],
            "margin of the recoverable emissions",
            "error of the value",
            title=f"{cells} memory cell{'s' if cells > 1 else ''}",
            x_log=True,
            y_log=True,
        )
        for cells in sorted({row.cells for row in rows})
    ]
    return Figure(
        "memory_margin",
        "Error of the values that the proofs' attention heads read",
        panels,
        "One point per random model: the largest difference between the value the head reads and "
        "r·μᵀP[M_j* | x], on all short strings and on strings of length 128. The models of the "
        "prompt violate the assumption of the head alone.",
    )
