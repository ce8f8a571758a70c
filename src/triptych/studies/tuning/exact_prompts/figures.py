"""The figure of the soft prompts."""

from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.tuning.exact_prompts.rows import Prompted, Row


def contrast_figure(rows: Rows[Row]) -> Figure:
    """Wrong labels with and without the prompt, and the error against the margin."""
    models = rows.of(Prompted)
    ratios = [row.states / row.vocab for row in models]
    alone = [row.head_alone_wrong_share for row in models]
    prompted = [row.wrong_labels / row.inputs for row in models]

    def errors(label: str, kind: SeriesKind, some: list[Prompted]) -> Series:
        margins = [row.margin for row in some]
        return Series(
            label, kind, margins, [max(row.identity_error, 1e-17) for row in some], line=False
        )

    labels = [
        Series("head alone, least hinge loss", "control", ratios, alone, line=False),
        Series("prompt and head of the proof", "ours", ratios, prompted, line=False),
    ]
    margins = [
        errors("|H| ≤ |X|", "control", [row for row in models if row.states <= row.vocab]),
        errors("|H| > |X|", "ours", [row for row in models if row.states > row.vocab]),
    ]
    sigma = "smallest singular value of the essential emission columns"
    return Figure(
        "prompt_contrast",
        "The prompt and head that the proof builds, and the best head alone",
        [
            Panel(labels, "|H| / |X|", "share of wrong labels"),
            Panel(margins, sigma, "largest error of b·G2", x_log=True, y_log=True),
        ],
        "One point per random HMM and task on its essential states. Left: every string of a short "
        "length. Right: also long strings; errors relative to the head's largest weight.",
    )
