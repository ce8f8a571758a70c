"""Figures as data: what to draw, not how. The report draws them; a unit never imports a plotter.

Kinds of marks have one look everywhere: `ours` what was measured, `control` a comparison,
`published` a value of the source, `truth` the exact answer. Uncertainty is always drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from triptych.core.deprecation import renamed_names
from triptych.studies.api.names import check_name

__getattr__ = renamed_names(__name__, Kind="SeriesKind")

SeriesKind = Literal["ours", "control", "published", "truth"]
Number = int | float


@dataclass(frozen=True)
class Series:
    """Points (x, y) with intervals [low, high]; `line` joins them, else they are marks."""

    label: str
    kind: SeriesKind
    x: Sequence[Number]
    y: Sequence[Number]
    low: Sequence[Number] = ()
    high: Sequence[Number] = ()
    line: bool = True

    def __post_init__(self) -> None:
        for name in ("x", "y", "low", "high"):
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        for name in ("y", "low", "high"):
            values = getattr(self, name)
            if (name == "y" or values) and len(values) != len(self.x):
                raise ValueError(
                    f"series {self.label!r} has {len(self.x)} x values and {len(values)} of {name}"
                )


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    x_names: words at x = 0, 1, …, where these stand for things and not for numbers.
    y_range: values of y that the axis shows in any case.
    legend: whether the series are named below it; a panel before may name the same ones.
    """

    series: Sequence[Series]
    x_label: str
    y_label: str
    title: str = ""
    x_log: bool = False
    y_log: bool = False
    x_names: Sequence[str] = ()
    y_range: Sequence[Number] = ()
    legend: bool = True

    def __post_init__(self) -> None:
        places = range(len(self.x_names))
        for series in self.series if self.x_names else ():
            if any(x not in places for x in series.x):
                raise ValueError(
                    f"panel {self.title!r} has names for {len(places)} places, and series "
                    f"{series.label!r} stands at {', '.join(f'{x:g}' for x in series.x)}"
                )


@dataclass(frozen=True)
class Heatmap:
    """A matrix as colours; rows from the top.

    x, y: what the columns and rows stand for, written at some of them; numbers 0, 1, … if empty.
    names: words for the rows and columns of a square matrix, written at all of them.
    limits: values of the first and last colour, so that several heat maps compare.
    """

    values: Sequence[Sequence[Number]]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    x: Sequence[Number] = ()
    y: Sequence[Number] = ()
    limits: tuple[float, float] | None = None
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        floats = tuple(tuple(float(value) for value in row) for row in self.values)
        object.__setattr__(self, "values", floats)
        columns = len(floats[0]) if floats else 0
        for name, count in (("x", columns), ("y", len(floats))):
            given = tuple(float(value) for value in getattr(self, name))
            object.__setattr__(self, name, given)
            if given and len(given) != count:
                raise ValueError(
                    f"heatmap {self.title!r} has {count} values along {name} and {len(given)} "
                    f"coordinates for them"
                )
            if self.names and len(self.names) != count:
                raise ValueError(
                    f"heatmap {self.title!r} has {count} values along {name} and "
                    f"{len(self.names)} names for them"
                )


@dataclass(frozen=True)
class Figure:
    """Panels side by side under a title that is a sentence, with a caption."""

    name: str  # "loss_gap": names its file
    title: str
    panels: Sequence[Panel | Heatmap]
    caption: str = ""

    def __post_init__(self) -> None:
        check_name("the name of a figure", self.name)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from triptych.studies.api.pictures import to_html  # which draws what is defined here

        return to_html(self)
