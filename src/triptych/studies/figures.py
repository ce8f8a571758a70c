"""Figures, under the name that studies without typed rows use."""

from triptych.studies.api.figures import Figure, Heatmap, Kind, Number, Panel, Series

__all__ = ["Figure", "Heatmap", "Kind", "Number", "Panel", "Series"]
