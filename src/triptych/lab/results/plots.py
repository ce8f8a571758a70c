"""Figures as inline SVG whose colours are CSS variables, so that one drawing suits light and dark.

Matplotlib draws with sentinel colours that nothing else uses; they are then replaced by
`var(--ours)` and the like, which the page sets. For files that stand alone see `figure_files`.
"""

import hashlib
import html
import io
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from matplotlib.figure import Figure as Canvas

from triptych.lab.results.drawing import USUAL, WIDTH, Size, draw_legend, draw_panel, look
from triptych.lab.results.kept_drawings import Drawing, kept_or_drawn
from triptych.lab.results.series_looks import THEMES
from triptych.lab.results.shared_axes import comparable, one_legend, outside
from triptych.studies.api.figures import Figure, Heatmap, Panel

# name of the CSS variable -> the colour that matplotlib draws in its place
SENTINELS = {
    "paper": "#f1e1d1",
    "ink": "#1e0e0d",
    "muted": "#5e4e4d",
    "grid": "#d1c1b1",
    "ours": "#0d1eb1",
    "ours-2": "#0d1eb2",
    "ours-3": "#0d1eb3",
    "control": "#7d7e71",
    "control-2": "#7d7e72",
    "control-3": "#7d7e73",
    "published": "#d1510d",
    "truth": "#0d7e51",
}

_PREFIX = "prefix-of-the-page"  # stands for the prefix in a drawing that is kept

MANY_MARKS = 20
"""A style of at least this many marks of a page becomes a class."""


def css_variables(theme: str) -> str:
    """The colours of a theme as CSS, for `:root` of a page with these drawings."""
    colours = "".join(f"--{name}: {colour}; " for name, colour in THEMES[theme].items())
    return f"{colours}--sans: system-ui, sans-serif;"


def to_svg(figure: Figure, *, prefix: str | None = None) -> str:
    """One SVG with the panels side by side; ids start with `prefix` (default: from the content)."""
    prefix = prefix or _digest(figure)
    panels = one_legend(comparable(figure.panels))
    drawn = [_drawn(panel, f"{prefix}-{i}") for i, panel in enumerate(panels)]
    left, bodies = 0.0, []
    for body, width, _ in drawn:
        bodies.append(f'<g transform="translate({left:.1f} 0)">{body}</g>')
        left += width
    height = max((height for _, _, height in drawn), default=1.0)
    return _wrapped("".join(bodies), max(left, 1.0), height, figure.title, prefix)


def panel_svgs(figure: Figure, *, prefix: str | None = None) -> list[str]:
    """One SVG per panel, for a page that lets them stack where it is narrow."""
    prefix = prefix or _digest(figure)
    svgs = []
    for i, panel in enumerate(one_legend(comparable(figure.panels))):
        body, width, height = _drawn(panel, f"{prefix}-{i}")
        title = f"{figure.title}: {panel.title}" if panel.title else figure.title
        svgs.append(_wrapped(body, width, height, title, f"{prefix}-{i}"))
    return svgs


def row_svgs(figure: Figure, *, prefix: str, size: Size) -> tuple[list[str], list[str]]:
    """Panels that stand in one row, and one legend for all: as wide as the row, and narrow.

    There is no legend where there is no series.
    """
    shared = one_legend(comparable(figure.panels))
    bare = [replace(each, legend=False) if isinstance(each, Panel) else each for each in shared]
    svgs = []
    for i, panel in enumerate(bare):
        body, width, height = _drawn(panel, f"{prefix}-{i}", size)
        svgs.append(_wrapped(body, width, height, panel.title or figure.title, f"{prefix}-{i}"))
    named = [panel for panel in shared if isinstance(panel, Panel) and panel.series]
    legends = []
    for name, wide in (("wide", size.panel * max(1.1, len(bare))), ("narrow", WIDTH)):
        if named:
            row = size._replace(panel=wide)
            drawing = _taken(lambda row=row: draw_legend(named, SENTINELS, row))
            own = f"{prefix}-{name}"
            body = drawing.body.replace(_PREFIX, own)
            legends.append(_wrapped(body, drawing.width, drawing.height, "Legend", own))
    return svgs, legends


def share_styles(page: str) -> str:
    """The same page, with styles that many marks of its drawings have written once, as classes.

    Worked value: 20 marks with style="fill:var(--ours)" become 20 marks with class="d0", and the
    head of the page gets the rule .d0{fill:var(--ours)}.
    """
    drawing = re.compile(r'<svg xmlns="[^"]*".*?</svg>', re.DOTALL)
    styled = re.compile(r' style="([^"]*)"')
    counts = Counter(style for svg in drawing.findall(page) for style in styled.findall(svg))
    shared = [style for style, count in counts.most_common() if count >= MANY_MARKS]
    if not shared:
        return page
    classes = {style: f' class="d{i}"' for i, style in enumerate(shared)}
    rules = "".join(f".d{i}{{{style}}}\n" for i, style in enumerate(shared))

    def one(svg: re.Match[str]) -> str:
        return styled.sub(lambda style: classes.get(style[1], style[0]), svg[0])

    return drawing.sub(one, page).replace("</head>", f"<style>\n{rules}</style>\n</head>", 1)


def notes(figure: Figure) -> list[str]:
    """What a reader must know about marks at the edge of the axes."""
    panels = [panel for panel in figure.panels if isinstance(panel, Panel)]
    said = []
    bounds = [v for p in panels for s in p.series for v in (*s.low, *s.high)]
    if any(math.isinf(v) for v in bounds):
        said.append("An interval that reaches both edges is unbounded: there is one sample.")
    if any(outside(v, p.y_log) for p in panels for s in p.series for v in s.y):
        said.append(
            "A triangle at an edge is a value that the axis cannot show (zero or infinite)."
        )
    return said


def _digest(figure: Figure) -> str:
    return "f" + hashlib.sha256(repr(figure).encode()).hexdigest()[:10]


def _wrapped(body: str, width: float, height: float, title: str, prefix: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" '
        f'role="img" aria-labelledby="{prefix}-title" width="100%" '
        f'viewBox="0 0 {width:.1f} {height:.1f}" stroke-linejoin="round" '
        'style="font-family:var(--sans)">'
        f'<title id="{prefix}-title">{html.escape(title)}</title>{body}</svg>'
    )


def _drawn(panel: Panel | Heatmap, prefix: str, size: Size = USUAL) -> Drawing:
    """The SVG elements of one panel; their ids begin with the prefix."""
    kept = kept_or_drawn(panel, size, lambda: _drawn_anew(panel, size))
    return kept._replace(body=kept.body.replace(_PREFIX, prefix))


def _drawn_anew(panel: Panel | Heatmap, size: Size) -> Drawing:
    return _taken(lambda: draw_panel(panel, SENTINELS, size))


def _taken(draw: Callable[[], Canvas]) -> Drawing:
    with look(**{"svg.fonttype": "none"}):
        canvas = draw()
        out = io.StringIO()
        # no "Date": the same figure is the same bytes
        canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        width, height = canvas.get_size_inches() * 72
    return Drawing(_variables(out.getvalue(), _PREFIX), float(width), float(height))


def _variables(svg: str, prefix: str) -> str:
    """The elements inside matplotlib's SVG: own ids, variables for colours, the page's font."""
    body = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)  # it would style the whole page
    used = dict.fromkeys(re.findall(r'(?:href="#|url\(#)([^")]+)', body))
    own = {name: f"{prefix}-{i}" for i, name in enumerate(used)}
    body = re.sub(r' id="([^"]*)"', lambda m: f' id="{own[m[1]]}"' if m[1] in own else "", body)
    body = re.sub(r'(href="#|url\(#)([^")]+)', lambda m: m[1] + own[m[2]], body)
    body = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--sans)", body)
    for name, sentinel in SENTINELS.items():
        body = body.replace(sentinel, f"var(--{name})")
    return _slim(body)


def _slim(body: str) -> str:
    """The same picture in a third of the bytes: short numbers and paths, nothing said twice."""
    body = re.sub(r'<path d="[^"]*" style="fill: none; opacity: 0"/>', "", body)
    body = re.sub(r' transform="rotate\(-0[^"]*"', "", body)
    body = body.replace("font-family: var(--sans); ", "").replace("xlink:href", "href")
    # coordinates only: the numbers at an axis are text between tags
    body = re.sub(r"<[^>]*>", lambda tag: re.sub(r"-?\d+\.\d{3,}", _short, tag[0]), body)
    body = re.sub(r"\s*\n\s*", " ", body).replace("> <", "><").replace(' "', '"').strip()
    body = re.sub(r' d="([^"]*)"', _short_path, body)
    body = re.sub(r'style="([^"]*)"', lambda found: f'style="{_tight(found[1])}"', body)
    # the mark of a tick has its stroke already
    body = body.replace(' style="fill:var(--muted);stroke:var(--muted);stroke-width:0.8"/>', "/>")
    body = re.sub(r'(<use href="[^"]*" x="[^"]*" y="[^"]*" (style="[^"]*")/>){2,}', _together, body)
    return re.sub(r"<defs></defs>", "", _without_bare_groups(body))


def _without_bare_groups(body: str) -> str:
    """The same elements without the groups that have no attributes: they change nothing.

    Worked value: <g><g/><g id="a"><g><path/></g></g></g> is <g id="a"><path/></g>.
    """
    kept: list[bool] = []  # of the groups that are open, whether each stays

    def kept_tag(tag: re.Match[str]) -> str:
        if tag[0] == "</g>":
            return tag[0] if kept.pop() else ""
        if tag[0].endswith("/>"):
            return ""
        kept.append(tag[0] != "<g>")
        return tag[0] if kept[-1] else ""

    return re.sub(r"<g(?: [^>]*)?/?>|</g>", kept_tag, body)


def _short_path(found: re.Match[str]) -> str:
    path = re.sub(" ?([A-Za-z]) ?", r"\1", found[1])
    return f' d="{path}"'


def _tight(style: str) -> str:
    return style.replace(": ", ":").replace("; ", ";")


def _together(found: re.Match[str]) -> str:
    """Marks that follow each other, with the style that they share said once where it is one."""
    styles = set(re.findall(r'style="[^"]*"', found[0]))
    if len(styles) > 1:
        return found[0]
    (style,) = styles
    return f"<g {style}>{found[0].replace(f' {style}', '')}</g>"


def _short(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".rstrip("0").rstrip(".")
