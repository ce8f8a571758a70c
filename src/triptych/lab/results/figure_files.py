"""Figures as files: PNG for slides, PDF for papers, SVG that every program draws alike.

Text in an SVG is drawn as outlines and a PDF carries its fonts, so that a figure looks the same
where DejaVu is not installed. The same figure is the same bytes.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from triptych.core.errors import UserError
from triptych.core.files import replacing
from triptych.lab.results.drawing import LETTERS, POINTS_PER_CM, draw_figure, look
from triptych.lab.results.ranking import StudyRun
from triptych.lab.results.series_looks import THEMES
from triptych.studies.api.figures import Figure

FORMATS = ("svg", "png", "pdf")
_DOTS_PER_INCH = 144
_FONTS = {"svg.fonttype": "path", "pdf.fonttype": 42}
_METADATA = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


def write_figures(
    runs: Sequence[StudyRun],
    folder: Path,
    *,
    formats: Sequence[str] = ("svg",),
    themes: Sequence[str] = ("light",),
    studies: Sequence[str] = (),
    width: float | None = None,
    font: float = LETTERS,
) -> list[Path]:
    """Every figure of every run: STUDY-SCALE[-bundled[-LABEL]]-NAME[-dark].FORMAT in `folder`.

    studies
        Names of studies; all of them by default.
    width, font
        Of a figure and of its letters, in points; panels stand beneath each other where they
        would be too narrow.
    """
    check_formats(formats, themes)
    _refuse_unknown("study", studies, tuple(dict.fromkeys(run.study for run in runs)))
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for run in runs:
        if studies and run.study not in studies:
            continue
        for figure in run.figures:
            if isinstance(figure, Figure):
                stem = folder / f"{run.source}-{figure.name}"
                written += write_figure(
                    figure, stem, formats=formats, themes=themes, width=width, font=font
                )
    return written


def write_figure(
    figure: Figure,
    stem: Path,
    *,
    formats: Sequence[str],
    themes: Sequence[str],
    width: float | None = None,
    font: float = LETTERS,
) -> list[Path]:
    """One figure as files; `stem` is their path without "-dark" and without the format."""
    written = []
    for theme in themes:
        canvas = draw_figure(figure, theme, width=width, font=font)
        for format in formats:
            end = f"-{theme}" if theme != "light" else ""
            path = stem.with_name(f"{stem.name}{end}.{format}")
            with look(**_FONTS), replacing(path) as part:
                canvas.savefig(part, format=format, dpi=_DOTS_PER_INCH, metadata=_METADATA[format])
            written.append(path)
    return written


def check_formats(formats: Sequence[str], themes: Sequence[str]) -> None:
    """Refuse what cannot be written, before anything is drawn."""
    _refuse_unknown("format", formats, FORMATS)
    _refuse_unknown("theme", themes, tuple(THEMES))


def points_of(width: str) -> float:
    """A width as a user writes it, in points.

    Worked value: "2.54cm" and "1in" are 72 points, and "16" is 16 cm.
    """
    units = {"cm": POINTS_PER_CM, "mm": POINTS_PER_CM / 10, "in": 72.0, "pt": 1.0}
    text = width.strip().lower()
    unit = text[-2:] if text[-2:] in units else ""
    try:
        points = float(text.removesuffix(unit)) * units[unit or "cm"]
    except ValueError:
        points = math.nan
    if not 0 < points < math.inf:
        raise UserError(
            f"--width is {width!r}; write it as 16cm, 160mm, 6.3in or 450pt", parameter="width"
        )
    return points


def _refuse_unknown(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    if what != "study" and not given:
        raise UserError(f"no {what} is given: choose from {', '.join(known)}", parameter="given")
    for name in given:
        if name not in known:
            raise UserError(
                f"there is no {what} {name!r}: choose from {', '.join(known)}", parameter="known"
            )
