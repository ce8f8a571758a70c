"""Pictures of translation by the number of training pairs."""

from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Rows
from triptych.studies.refinement.translation_pairs.rows import Left, Row, Scored

_SETS = ("test", "test_2017_flickr")
_SYSTEMS = {
    "beam 5": "beam search",
    "T=10": "refinement, 10 steps",
    "T=4": "refinement, 4 steps",
    "T=1": "refinement, 1 step",
}


def pairs_figure(rows: Rows[Row]) -> Figure:
    """BLEU, and BLEU's factor for short outputs, by the number of pairs."""
    scored = [row for row in rows.of(Scored) if row.on in _SETS]
    panels = []
    for name, value in (("BLEU", "bleu"), ("BLEU's factor for short outputs", "brevity")):
        series = []
        for system, label in _SYSTEMS.items():
            points: dict[int, list[float]] = {}
            for row in scored:
                found = getattr(row, value)
                if row.system == system and found is not None:
                    points.setdefault(row.pairs, []).append(found)
            places = sorted(points)
            if places:
                series.append(
                    Series(
                        label,
                        "control" if system == "beam 5" else "ours",
                        places,
                        [sum(points[n]) / len(points[n]) for n in places],
                        [min(points[n]) for n in places],
                        [max(points[n]) for n in places],
                    )
                )
        panels.append(Panel(series, "training pairs", name, x_log=True))
    return Figure(
        "translation_by_pairs",
        "Refinement comes closer to beam search with more training pairs",
        panels,
        "Software texts, English to German, on test texts of packages that no training saw. Means "
        "over seeds, from the lowest to the highest.",
    )


def left_figure(rows: Rows[Row]) -> Figure:
    """Dependency that is left, and sentences that mix ways, by the number of pairs, exactly."""
    left = rows.of(Left)
    lost, mixed = [], []
    for world in dict.fromkeys(row.world for row in left):
        own = sorted((row for row in left if row.world == world), key=lambda row: row.pairs)
        pairs = [row.pairs for row in own]
        lost.append(Series(world, "truth", pairs, [row.total_correlation for row in own]))
        mixed.append(Series(world, "truth", pairs, [100 * row.mixed[2] for row in own]))
    return Figure(
        "dependency_left_by_pairs",
        "The dependency that is left falls with the number of pairs, where the law is known",
        [
            Panel(lost, "training pairs", "total correlation left, nats", x_log=True),
            Panel(mixed, "training pairs", "sentences that mix ways, 4 steps, %", x_log=True),
        ],
        "Exact values. Who has seen a pair with the same clue knows in which way a sentence is "
        "written, and who has not expects a mixture of ways. One parallel step loses the total "
        "correlation that is left; decoding from left to right loses nothing.",
    )
