"""Parts of pages that Sphinx makes otherwise: formulas, and pictures with several panels."""

import html
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from panels import Layout
from sphinx.transforms.post_transforms import SphinxPostTransform


def formula(writer: Any, node: nodes.math) -> None:
    """A formula in a line, as MathML."""
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed_formula(writer: Any, node: nodes.math_block) -> None:
    """A formula on a line of its own."""
    writer.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def brackets_are_no_links(app: Any, name: str, source: list[str]) -> None:
    """A string of a Dyck language in a title, as ](((, begins no link."""
    source[0] = source[0].replace("](((", "]\\(((")


class Panels(SphinxPostTransform):
    """A picture of several panels becomes one part for each column of panels, and parts may stack.

    Each part shows a rectangle of the same file, so letters are as large as in a single panel.
    """

    default_priority = 200
    formats = ("html",)

    def run(self, **_: Any) -> None:
        for image in list(self.document.findall(nodes.image)):
            path = Path(self.app.srcdir) / image["uri"]
            if path.suffix == ".svg" and path.is_file() and (layout := Layout.of(path)) is not None:
                image.replace_self(_parts(image, layout))


def _parts(image: nodes.image, layout: Layout) -> list[nodes.Node]:
    """The title as text, and the picture once for each column, each in a frame that cuts it."""
    title = f'<strong class="panels-title">{html.escape(layout.title)}</strong>'
    found: list[nodes.Node] = [_html(f'{title}<span class="panels">')]
    for column, frame in enumerate(layout.frames()):
        part = image.deepcopy()
        if column:  # the first one says what all of them are
            part["alt"] = ""
        found += [_html(frame), part, _html("</span>")]
    return [*found, _html("</span>")]


def _html(text: str) -> nodes.raw:
    return nodes.raw("", text, format="html")
