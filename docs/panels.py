"""Where the panels of a picture lie, so that a page can show one column of them at a time."""

import re
from pathlib import Path
from typing import NamedTuple

# as `drawing.draw_figure` lays panels out, in points
PANEL, BETWEEN, MARGIN, LINE = 380.0, 16.0, 12.0, 18.0
EDGE = 8.0  # that a part shows around its panel


class Layout(NamedTuple):
    """A picture as `figures` writes it: its size, its title, and where the panels begin: points."""

    width: float
    height: float
    title: str
    top: float

    @classmethod
    def of(cls, path: Path) -> "Layout | None":
        """The layout, or None of a picture with one column of panels or of another kind."""
        text = path.read_text("utf-8")
        size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
        # the title is the first text of the whole figure
        title = re.search(r'^ {2}<g id="text_\d+">\s*<!-- (.*?) -->', text, re.M | re.S)
        if size is None or title is None:
            return None
        width, height = float(size[1]), float(size[2])
        columns = (width - 2 * MARGIN + BETWEEN) / (PANEL + BETWEEN)
        if columns < 2 or columns != round(columns):
            return None
        words = title[1].split("\n")
        return cls(width, height, " ".join(words), MARGIN + LINE * len(words))

    @property
    def columns(self) -> int:
        return round((self.width - 2 * MARGIN + BETWEEN) / (PANEL + BETWEEN))

    def frames(self) -> list[str]:
        """For each column of panels the opening tag of a frame that cuts a picture down to it."""
        wide, tall = PANEL + EDGE, self.height - self.top
        found = []
        for column in range(self.columns):
            left = MARGIN - EDGE / 2 + column * (PANEL + BETWEEN)
            shares = {"wide": self.width / wide, "left": -left / wide, "up": -self.top / wide}
            style = "; ".join(f"--{name}: {100 * share:.3f}%" for name, share in shares.items())
            found.append(f'<span class="panel" style="aspect-ratio: {wide:g} / {tall:g}; {style}">')
        return found
