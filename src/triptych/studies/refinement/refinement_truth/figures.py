"""Figures of `refinement_truth`, from its rows."""

from collections.abc import Sequence

from triptych.studies.api.figures import Figure, Number, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.api.summaries import mean_series
from triptych.studies.refinement.refinement_truth.rows import (
    WORLDS,
    Decoded,
    Learned,
    Row,
    Truth,
)

STEPS = 4
RIGHT = 0.15
MIXED = "sentences that mix ways (%)"


def _worlds(rows: Rows[Row]) -> list[str]:
    present = {row.world for row in rows.of(Truth)}
    return [world for world in WORLDS if world in present]


def _decoded(rows: Rows[Row], world: str, **wanted: object) -> list[Decoded]:
    """Rows of one world, trained as in the thesis unless `wanted` says otherwise."""
    fields: dict[str, object] = {
        "data": "truth",
        "right": RIGHT,
        "stages": 1,
        "decoding": "argmax",
        "remask": "previous",
        **wanted,
    }
    return [
        row
        for row in rows.of(Decoded)
        if row.world == world and all(getattr(row, name) == v for name, v in fields.items())
    ]


def _line(label: str, kind: SeriesKind, points: Sequence[tuple[Number, Number]]) -> list[Series]:
    """A line through points, in order; nothing without points."""
    ordered = sorted(points)
    return [Series(label, kind, [x for x, _ in ordered], [y for _, y in ordered])] if points else []


def dependency_figure(rows: Rows[Row]) -> Figure:
    """The equation: what one step loses is the total correlation."""
    panels = []
    for world in _worlds(rows):
        truth = [row for row in rows.of(Truth) if (row.world, row.data) == (world, "truth")]
        taught = [row for row in rows.of(Truth) if (row.world, row.data) == (world, "distilled")]
        series = [
            *_line(
                "total correlation",
                "truth",
                [(row.agreement, row.total_correlation) for row in truth],
            ),
            *(
                Series(series.label, "ours", series.x, series.y, line=False)
                for series in _line(
                    "KL from the truth to one step",
                    "ours",
                    [(row.agreement, row.one_step_kl) for row in truth],
                )
            ),
            *_line(
                "total correlation after distillation",
                "control",
                [(row.agreement, row.total_correlation) for row in taught],
            ),
        ]
        panels.append(Panel(series, "agreement", "nats", WORLDS[world]))
    return Figure(
        "dependency",
        "What one parallel step loses, by how often the whole sentence agrees",
        panels,
        "The marginals of every position are the same along the axis. At agreement 0 each position "
        "chooses its dialect or order alone, at 1 the whole sentence agrees on one. One step that "
        "knows the truth and no other position writes the product of the marginals. Exact.",
    )


def mixing_figure(rows: Rows[Row]) -> Figure:
    """Mixed sentences along the dial."""
    panels = []
    for world in _worlds(rows):
        truth = [row for row in rows.of(Truth) if (row.world, row.data) == (world, "truth")]
        series = _line("the truth", "truth", [(row.agreement, 100 * row.mixed) for row in truth])
        for label, wanted in (
            ("drawn, T = 1", {"decoding": "sample", "steps": 1}),
            (f"drawn, T = {STEPS}", {"decoding": "sample", "steps": STEPS}),
            ("argmax, T = 1", {"steps": 1}),
            (f"argmax, T = {STEPS}", {"steps": STEPS}),
        ):
            found = _decoded(rows, world, **wanted)
            series += _line(label, "ours", [(row.agreement, 100 * row.mixed) for row in found])
        taught = _decoded(rows, world, data="distilled", steps=1)
        points = [(row.agreement, 100 * row.mixed) for row in taught]
        series += _line("distilled, argmax, T = 1", "control", points)
        panels.append(Panel(series, "agreement", MIXED, WORLDS[world]))
    return Figure(
        "mixing",
        "Sentences that mix dialects or orders, by how often the truth agrees on one",
        panels,
        "The best refiner that training on 15 % right and 85 % random tokens can give, from a "
        "random start. Drawn: each token from its law. Argmax: the most probable token everywhere, "
        "so the random start alone decides between the ways. Exact.",
    )


def stutter_figure(rows: Rows[Row]) -> Figure:
    """Stutter by T, for three rules of remasking and for networks."""
    panels = []
    for world in [w for w in _worlds(rows) if w != "dialects"]:
        dial = _shown_agreement(rows, world)
        truth = [
            row
            for row in rows.of(Truth)
            if (row.world, row.data, row.agreement) == (world, "truth", dial)
        ]
        series: list[Series] = []
        lines: list[tuple[str, SeriesKind, dict[str, str]]] = [
            ("ideal, stutter put back", "ours", {}),
            ("ideal, stutter made random", "ours", {"remask": "random"}),
            ("ideal, stutter kept", "ours", {"remask": "keep"}),
            ("ideal, distilled", "control", {"data": "distilled"}),
        ]
        for label, kind, wanted in lines:
            found = _decoded(rows, world, agreement=dial, **wanted)
            points = [(row.steps, 100 * row.word_stutter) for row in found]
            series += _line(label, kind, points)
        if series:
            steps = [series[0].x[0], series[0].x[-1]]
            ends = [(x, 100 * row.word_stutter) for row in truth for x in steps]
            series += _line("the truth", "truth", ends)
        nets = [
            (row.steps, row.word_stutter)
            for row in rows.of(Learned)
            if (row.world, row.variant, row.agreement) == (world, "base", dial)
        ]
        if nets:
            series.append(mean_series(nets, "trained networks", "ours"))
        panels.append(Panel(series, "steps T", "equal neighbouring words (%)", _title(world, dial)))
    return Figure(
        "stutter",
        "Repeated words by the number of steps, for three ways to treat stutter between steps",
        panels,
        "Before repeated tokens are dropped at the end. Dropping mends the left panel, where a "
        "word is a token; a repeated word of two tokens has no two equal tokens in a row. "
        "Argmax from a random start; exact. Networks: two stages of training, mean over seeds with "
        "95 % intervals.",
    )


def _title(world: str, agreement: float) -> str:
    return f"{WORLDS[world]}, agreement {agreement:g}"


def _shown_agreement(rows: Rows[Row], world: str) -> float:
    """Where networks were trained, else the largest agreement."""
    trained = [row.agreement for row in rows.of(Learned) if row.world == world]
    known = [row.agreement for row in rows.of(Truth) if row.world == world]
    both = [value for value in trained if value in known]
    return max(both or known)


def training_figure(rows: Rows[Row]) -> Figure:
    """Mixed sentences by the share of right tokens in training, for one and two stages."""
    panels = []
    for world in [w for w in _worlds(rows) if w != "dialects"]:
        dial = _shown_agreement(rows, world)
        series: list[Series] = []
        for stages, label in ((1, "ideal, one stage"), (2, "ideal, two stages")):
            points = [
                (100 * row.right, 100 * row.mixed)
                for row in rows.of(Decoded)
                if (row.world, row.agreement, row.data) == (world, dial, "truth")
                and (row.decoding, row.remask) == ("argmax", "previous")
                and (row.stages, row.steps) == (stages, STEPS)
            ]
            series += _line(label, "ours" if stages == 1 else "control", points)
        for variant, right, label in (
            ("one stage", 15, "networks, one stage"),
            ("base", 15, "networks, two stages"),
            ("half right", 50, "networks, two stages, 50 % right"),
        ):
            nets = [
                (right, row.mixed)
                for row in rows.of(Learned)
                if (row.world, row.variant, row.agreement) == (world, variant, dial)
                and row.steps == STEPS
            ]
            if nets:
                found = mean_series(nets, label, "ours" if variant == "one stage" else "control")
                series.append(
                    Series(label, found.kind, found.x, found.y, found.low, found.high, line=False)
                )
        panels.append(Panel(series, "right tokens in training (%)", MIXED, _title(world, dial)))
    return Figure(
        "training",
        "Sentences that mix ways after four steps, by the hypotheses seen in training",
        panels,
        "The other tokens are random. Lines: the best possible refiner. Marks: trained networks, "
        "mean over seeds with 95 % intervals.",
    )


FIGURES = [dependency_figure, mixing_figure, stutter_figure, training_figure]
