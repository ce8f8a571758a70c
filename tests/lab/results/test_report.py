"""The report is whole, self-contained, the same for the same rows, and escapes what it shows."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from triptych.core.estimates import Estimate, Status
from triptych.core.validation import UserError
from triptych.lab.results.changes import Change
from triptych.lab.results.chosen import ChosenClaim, figure_of
from triptych.lab.results.ledger import Entry, load_ledger
from triptych.lab.results.plots import (
    MANY_MARKS,
    SENTINELS,
    _without_bare_groups,
    notes,
    panel_svgs,
    share_styles,
    to_svg,
)
from triptych.lab.results.ranking import NotDrawn, StudyRun, UnitRecord, find, judge_ledger
from triptych.lab.results.report import render_report, write_report
from triptych.lab.results.report_claims import claim_view
from triptych.lab.results.report_text import duration, number
from triptych.lab.results.terminal import source
from triptych.studies.api.decide import Verdict, above, at_edge, decide, exactly, shown
from triptych.studies.api.figures import Figure, Heatmap, Panel, Series, SeriesKind
from triptych.studies.api.study import Claim

EVIL = "<script>alert('x')</script> & \"q\" $a_1$"
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Tags with their attributes, the ids, and whether every tag is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def ids(self) -> list[str | None]:
        return [attrs["id"] for _, attrs in self.tags if "id" in attrs]

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def series(kind: SeriesKind, label: str = "", *, line: bool = True, spread: float = 0.1) -> Series:
    x, y = [1.0, 10.0, 100.0], [1.0, 0.5, 0.1]
    low, high = ([v - spread for v in y], [v + spread for v in y]) if spread else ((), ())
    return Series(label or kind, kind, x, y, low, high, line)


def panel(*of: Series, **more: Any) -> Panel:
    return Panel(of, "steps", "loss", **more)


FIGURES = {
    "lines": panel(series("ours"), series("control"), series("truth", spread=0)),
    "marks": panel(*(series(k, line=False) for k in ("ours", "published", "truth"))),
    "log": panel(series("ours"), title="both axes", x_log=True, y_log=True),
    "many": panel(*(series("ours", f"run {i}") for i in range(7)), series("published")),
    "zero on a log axis": panel(Series("error", "ours", [1.0, 2.0], [0.0, 1e-16]), y_log=True),
    "unbounded": panel(Series("one", "ours", [1.0], [2.0], [-math.inf], [math.inf], line=False)),
    "not numbers": panel(Series("gap", "ours", [1.0, 2.0, 3.0], [math.nan, math.inf, 1.0])),
    "constant": panel(Series("flat", "control", [1.0, 1.0], [0.0, 0.0])),
    "empty": panel(),
    "empty series": panel(Series("none", "ours", [], [])),
    "tiny": panel(Series("tiny", "ours", [1.0, 2.0], [-3e-9, 2e-9])),
    "evil": panel(series("ours", EVIL), title=EVIL),
    "other letters": panel(series("ours", "損失 λ"), title="損失"),
    "heatmap": Heatmap([[0.0, 1.0], [2.0, 3.0]], "attention", "key", "query"),
    "signed heatmap": Heatmap([[-1.0, 1.0], [0.0, math.nan]]),
    "wide heatmap": Heatmap([[float(i) for i in range(200)]]),
    "tall heatmap": Heatmap([[float(i)] for i in range(50)]),
    "constant heatmap": Heatmap([[1.0, 1.0]]),
    "empty heatmap": Heatmap([]),
    "heatmap with limits": Heatmap([[0.25, 0.75]], limits=(0.0, 1.0)),
    "heatmap with coordinates": Heatmap([[1.0, 2.0]] * 11, x=(1e-4, 1e7), y=range(10, 120, 10)),
}


def figure(*panels: Panel | Heatmap) -> Figure:
    return Figure("toy", f"A sentence {EVIL}", panels, "A caption.")


def draw(rows: Any) -> Figure:
    return figure(FIGURES["lines"], FIGURES["heatmap"])


TRACE = "Traceback (most recent call last):\n  File x\n" + f"ValueError: {EVIL}"
UNITS = [
    UnitRecord("k=1, seed=0", 0, "done", 1.25, None, "cpu"),
    UnitRecord("k=1, seed=1", 1, "done", 100.0, None, "cpu"),
    UnitRecord(f"k={EVIL}", 2, "failed", 3.0, TRACE, "cuda:0"),
    UnitRecord("k=3, seed=3", 3, "pending", None, None, None),
]
ROWS: list[dict[str, Any]] = [{"step": i, "loss": 0.5, "note": EVIL} for i in range(60)]
DRAWN = (
    draw([]),
    draw([]),
    figure(FIGURES["evil"]),
    NotDrawn("cannot_draw", f"KeyError: {EVIL}"),
    figure(Heatmap([[1.0], [1.0, 2.0]])),  # raises when it is drawn
)


def said_by(outcome: Status) -> Verdict:
    gain = {
        Status.HOLDS: Estimate(6.8, 3.4, 10.3, 5),
        Status.FAILS: Estimate(-6.8, -10.3, -3.4, 5),
        Status.UNDECIDED: Estimate(2.0, -3.0, 7.0, 5),
    }[outcome]
    return decide(
        above(f"gain {EVIL}", gain, 0.0, published=10.7),
        at_edge("τ = T", exactly("error at the edge", 1.0)),
        shown("a control", 0.25),
        measured={EVIL: 0.25, "list": [1, 2]},
    )


def toy(
    name: str,
    scale: str,
    *claims: tuple[str, Status],
    rows: int = 60,
    units: Any = UNITS,
    **more: Any,
) -> StudyRun:
    run = StudyRun(
        name, f"Is it {EVIL}?", scale, {}, ROWS[:rows], units, figures=DRAWN if rows else ()
    )
    run = replace(run, larger=("paper",), needs=("ray",), **more)
    findings = {
        id: find(run, Claim(id, lambda rows, o=outcome: said_by(o), []), [])
        for id, outcome in claims
    }
    return replace(run, findings=findings)


FIRST = (
    ("wei.fig-3-left", Status.HOLDS),
    ("li.fig-2.5", Status.FAILS),
    ("li.tab-2.6", Status.UNDECIDED),
)
RUNS = [
    toy(
        "toy/first",
        "laptop",
        *FIRST,
        settings={"seeds": 3, "name": EVIL},
        changed={"seeds": 2},
        made="2026-11-15, commit abc",
    ),
    toy("toy/first", "smoke", *FIRST, settings={"seeds": 1}, rows=1, units=UNITS[:1]),
    toy("toy/second", "laptop", rows=0, units=[]),
]
AS_PUBLISHED = dict.fromkeys(("laptop", "paper"), "as published")
LEDGER = [replace(entry, scope=AS_PUBLISHED, differs={}) for entry in load_ledger()]
FIG_2_5 = next(i for i, entry in enumerate(LEDGER) if entry.id == "li.fig-2.5")
PLAIN = [replace(run, figures=()) for run in RUNS]  # nothing to draw
SHIPPED = [
    toy(
        "toy/first",
        "paper",
        *FIRST,
        settings={"seeds": 20},
        units=[*UNITS[:2], UNITS[3]],
        bundled=True,
        others=2,
        file=f"{EVIL}.json",
    ),
    toy("toy/kept", "paper", ("li.tab-3.1", Status.FAILS), units=UNITS[:1], bundled=True, file="k"),
]
OWN = toy("mine", "laptop", ("mine.claim", Status.HOLDS), units=UNITS[:2], own=True)


def render(
    runs: list[StudyRun],
    problems: tuple[str, ...] = (),
    own: Any = None,
    ledger: Any = LEDGER,
    **more: Any,
) -> str:
    return render_report(
        judge_ledger(ledger, runs),
        runs,
        generated="today",
        environment={"python": EVIL},
        own=own,
        problems=problems,
        **more,
    )


@pytest.fixture(scope="module")
def html() -> str:
    return render(RUNS)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.mark.parametrize("name", FIGURES)
def test_every_kind_of_figure_draws(name: str):
    drawn = to_svg(figure(FIGURES[name]))
    page = Page(drawn)
    assert [tag for tag, _ in page.tags].count("title") == 1
    root = page.tags[0][1]
    assert (root["width"], root["role"]) == ("100%", "img")
    assert root["aria-labelledby"] in page.ids
    assert "script" not in {tag for tag, _ in page.tags}
    assert "<style" not in drawn
    assert "dejavu" not in drawn.lower()
    for sentinel in SENTINELS.values():
        assert sentinel not in drawn
    fills = set(re.findall(r"(?:fill|stroke): ?([^;\"]+)", drawn))
    assert all(colour.startswith("var(--") or colour == "none" for colour in fills), fills


def test_kinds_have_one_look():
    drawn = to_svg(figure(panel(series("truth", spread=0), series("published", line=False))))
    dashed = [tag for tag in re.findall(r"<path[^>]*>", drawn) if "stroke-dasharray" in tag]
    assert dashed
    assert all("var(--truth" in tag for tag in dashed)
    assert "var(--published" in drawn
    assert "var(--ours" not in drawn


def test_intervals_are_drawn():
    with_band = to_svg(figure(panel(series("ours"))))
    without = to_svg(figure(panel(series("ours", spread=0))))
    assert "opacity:0.16" in with_band
    assert "opacity:0.16" not in without
    bars = to_svg(figure(panel(series("ours", line=False))))
    assert bars.count("opacity:0.75") == 3


def test_edges_are_explained():
    assert notes(figure(FIGURES["lines"], FIGURES["heatmap"])) == []
    assert "unbounded" in notes(figure(FIGURES["unbounded"]))[0]
    assert "zero or infinite" in notes(figure(FIGURES["zero on a log axis"]))[0]


def test_a_ragged_heatmap_is_refused():
    with pytest.raises(ValueError, match=r"rows of lengths \[1, 2\]"):
        to_svg(figure(Heatmap([[1.0], [1.0, 2.0]])))


def test_limits_are_the_ends_of_the_colours():
    drawn = to_svg(figure(FIGURES["heatmap with limits"]))
    assert all(f">{label}<" in drawn for label in ("0.2", "0.8", "1"))  # on the bar, beyond 0.75
    assert ">1<" not in to_svg(figure(Heatmap([[0.25, 0.75]], x=(2, 3), y=(4,))))


def test_a_heatmap_names_its_rows_and_columns():
    drawn = to_svg(figure(FIGURES["heatmap with coordinates"]))
    for label in ("1e−4", "1e7", ">10<", ">40<", ">70<", ">110<"):  # every third row, and the last
        assert label in drawn, label
    assert ">100<" not in drawn  # too near to the last
    with pytest.raises(ValueError, match="2 values along x and 3 coordinates"):
        Heatmap([[1.0, 2.0]], "pair", x=(1.0, 2.0, 3.0))


def test_numbers_at_an_axis_keep_their_digits():
    """0.001, 0.002 and 0.003 must not all become 0; coordinates are short."""
    series = Series("a", "ours", [0.0, 1.0], [0.001, 0.004])
    drawn = to_svg(Figure("axis", "An axis.", [Panel([series], "x", "y")]))
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert {"0.001", "0.002", "0.003", "0.004"} <= {text.rstrip("0") for text in labels}
    assert not re.search(r"<[^>]*\d\.\d{3,}[^>]*>", drawn)


def test_groups_that_say_nothing_are_left_out():
    """Worked value, and what a group with attributes holds stays inside it."""
    nested = '<g><g/><g id="a"><g><path d="M0 0"/></g></g></g><g clip-path="x"/>'
    assert _without_bare_groups(nested) == '<g id="a"><path d="M0 0"/></g>'
    drawn = to_svg(figure(FIGURES["lines"]))
    assert "<g>" not in drawn
    assert drawn.count("<g ") == drawn.count("</g>")


def test_a_style_of_many_marks_is_written_once():
    drawing = '<svg xmlns="s">' + '<path style="fill:var(--ours)"/>' * MANY_MARKS
    drawing += '<path style="fill:none"/></svg>'
    page = f'<head></head><p style="fill:none"></p>{drawing}'
    short = share_styles(page)
    assert short.count('<path class="d0"/>') == MANY_MARKS
    assert short.count(".d0{fill:var(--ours)}") == 1
    assert short.index(".d0{") < short.index("</head>")
    assert short.count('style="fill:none"') == 2  # too few, and outside of a drawing
    few = page.replace('<path style="fill:var(--ours)"/>', "", 1)
    assert share_styles(few) == few


def test_classes_stand_for_the_styles_that_were_there():
    """Every class put back gives the page as it was."""
    drawings = [to_svg(figure(FIGURES[name]), prefix=f"f{i}") for i, name in enumerate(FIGURES)]
    page = "<head></head>" + "".join(drawings)
    short = share_styles(page)
    rules = dict(re.findall(r"^\.(d\d+)\{(.*)\}$", short, re.M))
    assert rules
    assert len(short) < 0.9 * len(page)
    body = re.sub(r"<style>.*?</style>\n", "", short, count=1, flags=re.S)
    assert re.sub(r'class="(d\d+)"', lambda m: f'style="{rules[m[1]]}"', body) == page


def test_ids_do_not_clash_across_figures():
    pieces = [*panel_svgs(draw([]), prefix="a"), *panel_svgs(draw([]), prefix="b")]
    pieces += [to_svg(figure(FIGURES["log"])), to_svg(figure(FIGURES["marks"]))]
    page = Page("".join(pieces))
    assert len(page.ids) == len(set(page.ids))
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', "".join(pieces))
    assert set(used) <= set(page.ids)


def test_the_page_is_well_formed_with_unique_ids(page: Page):
    assert len(page.ids) == len(set(page.ids))
    targets = {a["href"] for tag, a in page.tags if tag in ("a", "use") and a.get("href")}
    targets |= {a["xlink:href"] for tag, a in page.tags if tag == "use" and a.get("xlink:href")}
    assert {t[1:] for t in targets if t and not t.startswith("#search=")} <= set(page.ids)


def test_the_page_loads_nothing(html: str, page: Page):
    for tag, attrs in page.tags:
        assert tag not in {"link", "iframe", "object", "embed", "base"}
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert (attrs.get(name) or "#").startswith(("#", "data:image/png;base64,")), attrs
    assert [attrs for tag, attrs in page.tags if tag == "script"] == [{}]
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    assert set(re.findall(r"https?://[^\"' )]+", html)) <= {
        "http://www.w3.org/2000/svg",
    }


def test_every_colour_is_one_of_the_page(html: str):
    assert set(re.findall(r"var\((--[\w-]+)", html)) <= set(re.findall(r"(--[\w-]+):", html))


def test_everything_is_escaped(html: str, page: Page):
    assert "<script>alert" not in html
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert page.text.count("<script>alert('x')</script>") > 20


def test_the_same_rows_are_the_same_bytes(html: str):
    assert render(RUNS) == html


def claims_of(page: Page) -> list[dict[str, str | None]]:
    """The attributes of every claim of the ledger."""
    return [attrs for tag, attrs in page.tags if tag == "details" and attrs.get("class") == "claim"]


def test_every_claim_is_there_and_can_be_searched(page: Page):
    claims = claims_of(page)
    assert [claim["id"] for claim in claims] == [entry.id for entry in LEDGER]
    smaller = {"holds-at-a-smaller-scale", "not-reproduced-at-a-smaller-scale"}  # changed settings
    assert {c["data-verdict"] for c in claims} == {*smaller, "undecided", "not-run-yet"}
    assert {c["data-kind"] for c in claims} == {"theorem", "number", "direction", "picture"}
    options = {a.get("value") for tag, a in page.tags if tag == "option"}
    assert {c["data-work"] for c in claims} == {"wei", "li"} <= options
    assert {c["data-part"] for c in claims} <= options
    chips = {a.get("data-verdict") for tag, a in page.tags if tag == "button"}
    assert {c["data-verdict"] for c in claims} <= chips
    for claim, entry in zip(claims, LEDGER, strict=True):
        words = f"{entry.id} {entry.title} {entry.source} {entry.kind}".lower().split()
        assert all(word in claim["data-search"] for word in words), entry.id
        assert claim["data-verdict"].replace("-", " ") in claim["data-search"]
    studies = [a for tag, a in page.tags if tag == "details" and a.get("class") == "study"]
    assert len(studies) == len(RUNS)
    assert all("toy/" in study["data-search"] for study in studies)
    fields = [a for tag, a in page.tags if tag == "input"]
    assert [field["type"] for field in fields] == ["search"]


def test_everything_but_the_summary_and_the_chosen_claims_is_folded(html: str, page: Page):
    folded = [attrs for tag, attrs in page.tags if tag == "details"]
    assert len(folded) > len(LEDGER)
    assert not any("open" in attrs for attrs in folded)
    before = html.index('<section id="ledger">')
    assert html.index('<section id="summary">') < html.index('<section id="chosen">') < before
    assert html.index('class="claim"') > before
    assert html.index('class="study"') > before


def test_the_summary_says_what_is_new_and_what_fails():
    changed = Change("li.fig-2.5", EVIL, "not run yet", "fails")
    text = Page(render(PLAIN, changes=[changed])).text
    assert "New since the run before li.fig-2.5 fails, was not run yet" in text
    assert "What fails as published Nothing that was run. 1 more is not reproduced" in text
    full = replace(toy("toy/first", "laptop", *FIRST), figures=())  # settings of its scale
    assert "What fails as published li.fig-2.5" in Page(render([full])).text
    assert "No verdict changed." in Page(render(PLAIN, changes=[])).text
    many = Page(render(PLAIN, changes=[changed] * 9)).text
    assert "and 3 more" in many
    assert "This folder has seen one run so far." in Page(render(PLAIN)).text


def test_a_lecture_is_a_short_page_of_chosen_claims():
    html = render(RUNS, lecture=["li.tab-2.6", "wei.fig-3-left"])
    page = Page(html)
    cards = [a["id"] for tag, a in page.tags if tag == "article"]
    assert cards == ["shown-li.tab-2.6", "shown-wei.fig-3-left"]
    assert claims_of(page) == []
    assert "6.8 [3.4, 10.3] > 0 published 10.7" in page.text
    assert "Its figure stands above" in page.text  # both are of one study
    targets = {a["href"] for tag, a in page.tags if tag in ("a", "use") and a.get("href")}
    assert {t[1:] for t in targets if t and not t.startswith("#search=")} <= set(page.ids)
    with pytest.raises(UserError, match=r"no claim 'li.tab-2.66'; did you mean li.tab-2.6\?"):
        render(RUNS, lecture=["li.tab-2.66"])


def test_formulas_are_typeset(html: str):
    assert html.count("<math") > 100
    assert "\\mathcal" not in html
    assert "P[Z|V]" not in re.sub(r' data-search="[^"]*"', "", html)


def test_a_study_says_what_happened(page: Page):
    for said in (
        "2 of 4 done",
        "1 failed",
        "1 pending",
        "1 min 44 s",
        "0 to 3",
        "ValueError:",
        "triptych run toy/first --scale laptop",
        "triptych run toy/first --scale paper",
        "changed; laptop scale has 2",
        "It could not be drawn. KeyError",
        "It could not be drawn. toy raised ValueError: heatmap",
        "2026-11-15, commit abc",
        "52 more rows are in the store",
        "It needs more than the core installation: ray",
        "Published values are read from a figure",
        "No figure: there are no rows yet.",
    ):
        assert said in page.text, said
    assert "Nothing has been run yet" not in page.text


@pytest.mark.parametrize("runs", [[], RUNS[2:]], ids=["no runs", "nothing started"])
def test_an_empty_store_says_what_to_type(runs: list[StudyRun]):
    page = Page(render(runs))
    assert "Nothing has been run yet" in page.text
    assert "triptych reproduce" in page.text
    assert len(claims_of(page)) == len(LEDGER)


def test_every_check_is_a_line(page: Page):
    for said in (
        "gain <script>alert('x')</script> & \"q\" $a_1$ 6.8 [3.4, 10.3] > 0 published 10.7",
        "error at the edge at τ = T",
        "shown: a control 0.25",
        "except τ = T",
        "smoke scale: code runs",
    ):
        assert said in page.text, said


def test_a_remark_and_an_extension_are_said():
    entry = Entry("wei.x", "theorem", "A title", "wei:3", remark=f"So {EVIL}", extension=True)
    page = Page(render([], ledger=[entry, *LEDGER]))
    assert "So <script>" in page.text
    assert "beyond the published results" in page.text
    counted = sum(not other.extension for other in LEDGER)
    assert f"What holds of {counted} published results" in page.text


def test_a_glance_leaves_out_extensions_that_were_not_run(html: str):
    """They are not counted, so an open mark would be one too many."""
    glance = html[html.index('class="glance"') : html.index('class="news"')]
    for entry in LEDGER:
        assert (f'href="#{entry.id}"' in glance) == (not entry.extension)


def test_own_claims_stand_apart():
    own = {"mine": judge_ledger([Entry("mine.claim", "direction", f"Mine {EVIL}", "")], [OWN])}
    page = Page(render([*RUNS, OWN], own=own))
    rows = claims_of(page)
    assert [row["id"] for row in rows] == [*(entry.id for entry in LEDGER), "mine.claim"]
    assert (rows[-1]["data-work"], rows[-1]["data-verdict"]) == ("own", "holds")
    assert "Your own mine 1 holds" in page.text
    assert "Your own studies mine" in page.text
    assert "Your own claims: 1 holds." in page.text
    assert len(page.ids) == len(set(page.ids))


def test_bundled_evidence_comes_first_where_it_is_stronger_and_is_called_so():
    html = render([*RUNS[:2], SHIPPED[0], RUNS[2], SHIPPED[1]], problems=(f"Broken {EVIL}.",))
    page = Page(html)
    assert len(page.ids) == len(set(page.ids))
    targets = {a["href"] for tag, a in page.tags if tag in ("a", "use") and a.get("href")}
    assert {t[1:] for t in targets if t and not t.startswith("#search=")} <= set(page.ids)
    assert "<script>alert" not in html
    for said in (
        "Prompt tuning beats head tuning at every number of hidden states, most when",
        "largest run, bundled: holds, except τ = T toy/first",
        "laptop scale: holds",  # next to
        "2 of 3 units",
        "2 more units of other settings are left out",
        "largest run, bundled",
        "These rows were not made by a run in this folder.",
        "2 of 3 done, 1 not run",
        "2 units of the file were made with other settings",
        "triptych import <script>",
        "The largest run has not been made here; its bundled rows are below.",
        "from 3 runs, whose units took",
        "and from the bundled rows of 2 runs",
        "4 of the verdicts rest on it",
        "52 more rows are in the file",
        "Broken <script>",
    ):
        assert said in page.text, said
    assert "Nothing has been run" not in page.text


def test_two_bundled_files_of_one_study_are_told_apart():
    """Each has its label, and its link leads to its own section."""
    files = ("toy.first.paper.json", "toy.first.linear-readout.paper.json")
    runs = [
        toy("toy/first", "paper", *FIRST, bundled=True, file=file, units=UNITS[:n])
        for n, file in enumerate(files, 1)
    ]
    assert [run.label for run in runs] == ["", "linear-readout"]
    assert [source(run.findings["li.fig-2.5"]) for run in runs] == [
        "largest run, bundled, cpu: fails",
        "largest run, bundled, linear-readout, cpu: fails",
    ]
    page = Page(render(runs))
    assert "largest run, bundled, linear-readout: fails toy/first" in page.text
    view = claim_view(judge_ledger(LEDGER, runs)[FIG_2_5], {r.run_name: r.label for r in runs})
    assert [(finding.label, link) for finding, link in view["findings"]] == [
        ("", ""),
        ("linear-readout", "linear-readout"),
    ]
    for run in runs:
        assert figure_of(ChosenClaim("li.fig-2.5"), run.findings["li.fig-2.5"], runs) == (run, 0)


def test_bundled_evidence_alone_is_not_a_run_of_ones_own():
    text = Page(render(SHIPPED)).text
    assert "Nothing has been run here yet." in text
    assert "4 of the verdicts rest on it" in text
    assert "bundled" not in Page(render(RUNS)).text


def test_numbers_and_durations_read_well():
    assert number(0.33333) == "0.3333"
    assert number(-2) == "−2"
    assert number([1, 2.5, True, None]) == "1, 2.5, yes, none"
    assert number({"value": 0.9, "low": 0.8, "high": 0.95}) == "0.9 [0.8, 0.95]"
    assert number({"ar": 33.5, "steps4": 33.49}) == "ar 33.5, steps4 33.49"
    said = [duration(s) for s in (None, 0.42, 12.3, 200.4, 59.9, 7500.0)]
    assert said == ["", "0.42 s", "12 s", "3 min 20 s", "1 min 0 s", "2 h 5 min"]


def test_the_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "deep" / "report.html"
    write_report(path, "<p>λ</p>\n")
    assert path.read_bytes() == "<p>λ</p>\n".encode()
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(full))
    with pytest.raises(
        UserError, match=r"report\.html cannot be written \(No space left on device\)"
    ):
        write_report(path, "half")
    assert path.read_bytes() == "<p>λ</p>\n".encode()
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_no_mark_is_dropped():
    """A line thins its markers; marks without a line are the data itself."""
    many = [float(i) for i in range(1, 41)]
    marks = Panel([Series("marks", "ours", many, many, line=False)], "x", "y")
    line = Panel([Series("line", "ours", many, many)], "x", "y")
    drawn = {
        name: to_svg(Figure(name, "A title", [panel])).count("<use")
        for name, panel in (("marks", marks), ("line", line))
    }
    assert drawn["marks"] >= 40
    assert drawn["line"] < 40
