"""The figures of `dyck_backtracking`, beside the published values."""

import math

from triptych.core.estimates import mean
from triptych.studies.dyck_tables import PUBLISHED_QUOTAS, PUBLISHED_STRIDES, by_network
from triptych.studies.figures import Figure, Kind, Panel, Series
from triptych.studies.judging import rows_of
from triptych.studies.study import Rows


def _series(
    label: str, kind: Kind, values: dict[float, dict[int, float]], *, percent: bool = True
) -> Series:
    """Means over networks at every x, with intervals where there are several."""
    factor = 100.0 if percent else 1.0
    places = sorted(x for x, found in values.items() if found)
    found = [mean(list(values[x].values())) for x in places]
    low = [factor * (e.low if e.n > 1 else e.value) for e in found]
    high = [factor * (e.high if e.n > 1 else e.value) for e in found]
    top = 100.0 if percent else float("inf")
    return Series(
        label,
        kind,
        places,
        [factor * e.value for e in found],
        [max(0.0, value) for value in low],
        [min(top, value) for value in high],
    )


def _geometric(label: str, kind: Kind, values: dict[float, dict[int, float]]) -> Series:
    """The same for shares that differ tenfold between networks: means of logarithms, in per cent.

    A share of 0 counts as half an error in 10,000.
    """
    places = sorted(x for x, found in values.items() if found)
    logs = [mean([math.log(max(v, 5e-5)) for v in values[x].values()]) for x in places]
    low = [100 * math.exp(e.low if e.n > 1 else e.value) for e in logs]
    high = [100 * math.exp(e.high if e.n > 1 else e.value) for e in logs]
    return Series(label, kind, places, [100 * math.exp(e.value) for e in logs], low, high)


def strides_figure(rows: Rows) -> Figure:
    """Table 3.1."""
    mine = rows_of(rows, "stride")
    strides = sorted({row["stride"] for row in mine if row["stride"]})
    start = by_network(mine, "accuracy", config="nucleus")

    def along(config: str) -> dict[float, dict[int, float]]:
        found = {float(b): by_network(mine, "accuracy", config=config, stride=b) for b in strides}
        return {0.0: start, **found}

    published = Series(
        "published",
        "published",
        list(PUBLISHED_STRIDES),
        [100 * value for value in PUBLISHED_STRIDES.values()],
    )
    return Figure(
        "strides",
        "One backtrack at a prefix that led to an error, by how far back it goes",
        [
            Panel(
                [
                    _series("erased, then sampled", "ours", along("erased")),
                    _series("redone by argmax first", "control", along("erased, redone by argmax")),
                    published,
                ],
                "tokens erased (B); 0 is plain nucleus sampling",
                "accuracy (%)",
            )
        ],
        "Prefixes on which the network erred once, completed anew. Means over networks with 95 % "
        "intervals.",
    )


def quotas_figure(rows: Rows) -> Figure:
    """Tables 3.2 and 3.4, a panel for each quota."""
    mine = rows_of(rows, "quota")
    panels = []
    for quota in sorted({row["quota"] for row in mine}):
        strides = sorted({row["stride"] for row in mine})
        some = [row for row in mine if row["quota"] == quota]
        may = [row for row in some if row["into_prompt"] and not row["verify_redone"]]
        also = [row for row in some if row["verify_redone"]]
        refused = [row for row in may if "with_refused_nucleus" in row]
        series = [
            _series(
                "Algorithm 1",
                "ours",
                {float(b): by_network(may, "accuracy", stride=b) for b in strides},
            ),
            _series(
                "redone tokens verified too",
                "control",
                {float(b): by_network(also, "accuracy", stride=b) for b in strides},
            ),
        ]
        if refused:
            series.append(
                _series(
                    "refused, then no backtrack",
                    "truth",
                    {
                        float(b): by_network(refused, "with_refused_nucleus", stride=b)
                        for b in strides
                    },
                )
            )
        published = {b: value for (q, b), value in PUBLISHED_QUOTAS.items() if q == quota}
        if published:
            series.append(
                Series(
                    "published",
                    "published",
                    list(published),
                    [100 * value for value in published.values()],
                )
            )
        panels.append(Panel(series, "stride B", "accuracy (%)", f"quota Q = {quota}"))
    return Figure(
        "quotas",
        "A trained verifier at prefixes that led to an error, by quota and stride",
        panels,
        "Algorithm 1, which may erase the prefix itself. In the variant redone tokens are verified "
        "too, and may be erased again. Means over networks with 95 % intervals.",
    )


def unseen_figure(rows: Rows) -> Figure:
    """Tables 3.3 and 3.16 as shares of the prompts."""
    mine = [row | {"share": row["errors"] / row["prompts"]} for row in rows_of(rows, "unseen")]
    quota = max((row["quota"] for row in mine), default=0)

    def at(top_p: float, q: int, redo: bool = True, verify: bool = False) -> dict[int, float]:
        where = {"redo_argmax": redo, "verify_redone": verify, "into_prompt": False}
        return by_network(mine, "share", top_p=top_p, quota=q, **where)

    nuclei = (0.9, 1.0)
    panel = Panel(
        [
            _geometric("plain", "control", {p: at(p, 0) for p in nuclei}),
            _geometric("Algorithm 1", "ours", {p: at(p, quota) for p in nuclei}),
            _geometric(
                "redone tokens verified too", "ours", {p: at(p, quota, verify=True) for p in nuclei}
            ),
            _geometric("without the redo", "control", {0.9: at(0.9, quota, redo=False)}),
            Series("published, plain", "published", nuclei, (2.400, 4.618)),
            Series("published, Algorithm 1", "published", nuclei, (1.794, 2.000)),
        ],
        "top_p of the nucleus",
        "errors (% of prompts)",
        y_log=True,
    )
    return Figure(
        "unseen",
        "Errors on unseen out-of-distribution prompts, with and without Algorithm 1",
        [panel],
        "Quota 4, stride 4; “without the redo” samples the erased positions instead of taking the "
        "likeliest token. Geometric means over networks, which differ by a factor of ten and more; "
        "the comparison within each network is in the verdict.",
    )


def states_figure(rows: Rows) -> Figure:
    """Figure 3.1 for the first network."""
    mine = sorted(rows_of(rows, "picture"), key=lambda row: row["seed"])[:1]
    series = []
    score = mine[0]["agreement"] if mine else float("nan")
    kinds: list[tuple[str, Kind, int]] = [
        ("wrong strings", "ours", 0),
        ("correct strings", "control", 1),
    ]
    for label, kind, wanted in kinds:
        points = [
            point
            for row in mine
            for point, correct in zip(row["points"], row["correct"], strict=True)
            if correct == wanted
        ]
        xs, ys = [x for x, _ in points], [y for _, y in points]
        series.append(Series(label, kind, xs, ys, line=False))
    return Figure(
        "states",
        "The network's states of wrong and of correct strings, in the plane",
        [Panel(series, "t-SNE 1", "t-SNE 2")],
        f"Last-layer states at the last token; {100 * score:.0f} % of the ten nearest neighbours "
        "are of the same kind (one network).",
    )


FIGURES = [strides_figure, quotas_figure, unseen_figure, states_figure]
