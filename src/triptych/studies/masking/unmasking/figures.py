"""Distance to the truth against passes, and what the best plans leave."""

from triptych.core.estimates import mean
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.masking.unmasking.rows import Planned, Row, Sampled

STRUCTURES = ("hmm", "ising", "topics", "dyck", "translation")
NAMES = {
    "hmm": "HMM",
    "ising": "Ising",
    "topics": "Topics",
    "dyck": "Dyck",
    "translation": "Translations",
}
DRAWN: dict[str, SeriesKind] = {
    "random order": "ours",
    "confident position": "ours",
    "ancestral": "control",
    "confidence": "control",
}
LABELS = {"confidence": "confident token"}
FLOOR = 1e-6


def passes_figure(rows: Rows[Row]) -> Figure:
    """Total variation of four samplers, a panel for each structure."""
    panels = []
    for structure in STRUCTURES:
        own = [row for row in rows.of(Sampled) if row.structure == structure]
        series = []
        for way, kind in DRAWN.items():
            mine = [row for row in own if row.way == way]
            x, y, low, high = [], [], [], []
            for rounds in sorted({row.rounds or 0 for row in mine}):
                these = [row for row in mine if row.rounds == rounds]
                found = mean([row.tv for row in these])
                x.append(sum(row.passes for row in these) / len(these))
                y.append(found.value)
                low.append(found.low if found.n > 1 else found.value)
                high.append(found.high if found.n > 1 else found.value)
            if x:
                series.append(Series(LABELS.get(way, way), kind, x, y, low, high))
        if series:
            panels.append(Panel(series, "passes", "TV to the truth", NAMES[structure]))
    return Figure(
        "unmasking_passes",
        "Distance of four samplers to the truth by passes",
        panels,
        "The model is the truth. Means over random laws with 95 % intervals for HMM and Ising. One "
        "position a pass, random order and the confident position are exact.",
    )


def limits_figure(rows: Rows[Row]) -> Figure:
    """What plans lose by rounds, in nats."""
    panels = []
    for structure in STRUCTURES:
        own = [row for row in rows.of(Planned) if row.structure == structure]
        rounds = sorted({row.rounds for row in own})
        if not rounds:
            continue
        kinds: dict[str, SeriesKind] = {"sets": "truth", "sizes": "ours", "even": "control"}
        labels = {
            "sets": "best fixed sets",
            "sizes": "uniform sets, best sizes",
            "even": "uniform sets, even sizes",
        }
        series = [
            Series(
                labels[name],
                kind,
                rounds,
                [
                    max(
                        FLOOR,
                        mean([getattr(row, name) for row in own if row.rounds == number]).value,
                    )
                    for number in rounds
                ],
            )
            for name, kind in kinds.items()
        ]
        panels.append(Panel(series, "rounds", "KL (nats)", NAMES[structure], y_log=True))
    return Figure(
        "unmasking_limits",
        "What the best plans lose by rounds, from dynamic programming",
        panels,
        f"Means over random laws; losses under {FLOOR:g} are drawn there.",
    )
