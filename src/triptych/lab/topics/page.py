"""A page with the tables, the figures and the topics; and the figures as files next to it."""

import html
from pathlib import Path

from triptych.core.files import write_json, write_text
from triptych.lab.results.figure_files import write_figure
from triptych.lab.results.plots import css_variables, panel_svgs
from triptych.lab.topics.reading import Reading
from triptych.lab.topics.table import TextTable, tables
from triptych.studies.api.figures import Figure
from triptych.studies.topics.real_text import figures
from triptych.theory.topics.real_text import Fitted

_STYLE = (
    f""":root {{ {css_variables("light")} }}
@media (prefers-color-scheme: dark) {{ :root {{ {css_variables("dark")} }} }}
"""
    + """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 74rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--paper); }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: right; padding: .2rem .7rem; border-bottom: 1px solid var(--grid); }
td { white-space: nowrap; }
.wide { overflow-x: auto; }
.panels { display: flex; flex-wrap: wrap; gap: 1rem; }
.panels > div { flex: 0 1 24rem; min-width: 18rem; }
svg { width: 100%; height: auto; }
figure { margin: 2rem 0; }
ol { columns: 20rem; }
"""
)


def write_page(reading: Reading, folder: Path) -> Path:
    """topics.html, topics.json and an SVG file for every figure, in a folder."""
    drawn = [
        figures.map_figure(reading.rows),
        figures.ratios_figure(reading.rows),
        figures.layers_figure(reading.rows),
        figures.closed_form_figure(reading.rows),
        figures.heads_figure(reading.rows),
    ]
    drawn = [figure for figure in drawn if figure.panels]
    page = folder / "topics.html"
    for figure in drawn:
        write_figure(figure, folder / figure.name, formats=["svg"], themes=["light"])
    write_json(folder / "topics.json", reading.to_json())
    write_text(page, _page(reading, drawn))
    return page


def _page(reading: Reading, drawn: list[Figure]) -> str:
    title = f"Topics of {reading.corpus} in {reading.model}"
    (first, *_) = reading.rows.of(Fitted)
    about = (
        f"{first.documents} documents, {first.tokens} tokens. LDA with {len(first.topics)} topics "
        f"on {first.words} words, {reading.seeds} fits. Intervals resample topics for embeddings "
        "and passages for attention. matched: pairs of different topics that are as frequent. "
        "shuffled: topics dealt to other words. random: a copy with random weights, whose cosine "
        "is that of the first layer's inputs."
    )
    topics = "".join(f"<li>{html.escape(' '.join(words))}</li>" for words in first.topics)
    parts = [
        f"<h1>{html.escape(title)}</h1><p>{html.escape(about)}</p>",
        *(_table(table) for table in tables(reading)),
        *(_figure(figure, f"topics-{i}") for i, figure in enumerate(drawn)),
        f"<h2>Topics of the first fit</h2><ol>{topics}</ol>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _table(table: TextTable) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return (
        f'<h2>{html.escape(table.title)}</h2><div class="wide"><table><tr>{head}</tr>{body}'
        "</table></div>"
    )


def _figure(figure: Figure, prefix: str) -> str:
    panels = "".join(f"<div>{svg}</div>" for svg in panel_svgs(figure, prefix=prefix))
    return (
        f'<figure><h2>{html.escape(figure.title)}</h2><div class="panels">{panels}</div>'
        f"<figcaption>{html.escape(figure.caption)}</figcaption></figure>"
    )
