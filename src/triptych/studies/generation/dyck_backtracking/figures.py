"""The figures of `dyck_backtracking`, next to the published values."""

import math
from collections.abc import Iterable

from triptych.core.estimates import mean
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.api.summaries import mean_series
from triptych.studies.generation.dyck_backtracking.comparisons import by_network
from triptych.studies.generation.dyck_backtracking.published import (
    PUBLISHED_ERRORS,
    PUBLISHED_QUOTAS,
    PUBLISHED_STRIDES,
)
from triptych.studies.generation.dyck_backtracking.rows import (
    Config,
    Picture,
    Quota,
    Refused,
    Row,
    Stride,
    Unseen,
)

LEAST_SHARE = 5e-5  # half an error in 10,000 stands for none on a logarithmic axis


def _geometric(label: str, kind: SeriesKind, rows: Iterable[Unseen]) -> Series:
    """Shares of errors in per cent, which differ tenfold between networks: means of logarithms."""
    shares: dict[float, list[tuple[int, float]]] = {}
    for row in rows:
        shares.setdefault(row.top_p, []).append((row.seed, row.errors / row.prompts))
    places = sorted(shares)
    logs = [
        mean([math.log(max(share, LEAST_SHARE)) for share in by_network(shares[x]).values()])
        for x in places
    ]
    low = [100 * math.exp(e.low if e.n > 1 else e.value) for e in logs]
    high = [100 * math.exp(e.high if e.n > 1 else e.value) for e in logs]
    return Series(label, kind, places, [100 * math.exp(e.value) for e in logs], low, high)


def strides_figure(rows: Rows[Row]) -> Figure:
    """Table 3.1."""
    found = rows.of(Stride)

    def along(config: Config, label: str, kind: SeriesKind) -> Series:
        here = [row for row in found if row.config in ("nucleus", config)]
        return mean_series([(float(row.stride), row.accuracy) for row in here], label, kind)

    published = list(PUBLISHED_STRIDES), [100 * value for value in PUBLISHED_STRIDES.values()]
    return Figure(
        "strides",
        "Accuracy after one backtrack at a prefix that led to an error, by how far back it goes",
        [
            Panel(
                [
                    along("erased", "erased, then sampled", "ours"),
                    along("erased, redone by argmax", "redone by argmax first", "control"),
                    Series("published", "published", *published),
                ],
                "tokens erased (B); 0 is plain nucleus sampling",
                "accuracy (%)",
            )
        ],
        "Prefixes on which the network erred once, completed again. Means over networks with 95 % "
        "intervals.",
    )


def quotas_figure(rows: Rows[Row]) -> Figure:
    """Tables 3.2 and 3.4, a panel for each quota."""
    panels = []
    for quota in sorted({row.quota for row in rows.of(Quota)}):
        here = [row for row in rows.of(Quota) if row.quota == quota and row.into_prompt]
        refused = [row for row in rows.of(Refused) if row.quota == quota]

        def accuracy(verify: bool, here: list[Quota] = here) -> list[tuple[float, float]]:
            return [
                (float(row.stride), row.accuracy) for row in here if row.verify_redone is verify
            ]

        published = {b: 100 * value for (q, b), value in PUBLISHED_QUOTAS.items() if q == quota}
        series = [
            mean_series(accuracy(True), "Algorithm 1, as the program does it", "ours"),
            mean_series(accuracy(False), "redone tokens not verified", "control"),
            mean_series(
                [(float(row.stride), row.nucleus) for row in refused],
                "refused there, then no backtrack",
                "control",
            ),
            Series("published", "published", list(published), list(published.values())),
        ]
        panels.append(Panel(series, "stride B", "accuracy (%)", f"quota Q = {quota}"))
    return Figure(
        "quotas",
        "Accuracy with a trained verifier at prefixes that led to an error, by quota and stride",
        panels,
        "Algorithm 1 of the authors' program verifies redone tokens too and may erase some of the "
        "prompt. As printed it does neither; the grey curve may erase the prompt. Means over "
        "networks with 95 % intervals.",
    )


def unseen_figure(rows: Rows[Row]) -> Figure:
    """Tables 3.3 and 3.16 as shares of the prompts."""
    found = rows.of(Unseen)

    def at(guided: bool, redo: bool = True, verify: bool = False) -> list[Unseen]:
        wanted = (guided, redo, verify)
        return [r for r in found if (r.quota > 0, r.redo_argmax, r.verify_redone) == wanted]

    def published(guided: bool) -> list[float]:
        return [PUBLISHED_ERRORS[top_p, guided] / 100 for top_p in (0.9, 1.0)]

    panel = Panel(
        [
            _geometric("plain", "control", at(False)),
            _geometric("Algorithm 1, as the program does it", "ours", at(True, verify=True)),
            _geometric("Algorithm 1, as printed", "ours", at(True)),
            _geometric("without the redo", "control", at(True, redo=False)),
            Series("published, plain", "published", (0.9, 1.0), published(False)),
            Series("published, Algorithm 1", "published", (0.9, 1.0), published(True)),
        ],
        "top_p of the nucleus",
        "errors (% of prompts)",
        y_log=True,
    )
    return Figure(
        "unseen",
        "Errors on unseen out-of-distribution prompts, with and without Algorithm 1",
        [panel],
        "Quota 4, stride 4. The authors' program verifies redone tokens too, the printed algorithm "
        "does not; “without the redo” samples the erased positions instead of taking the likeliest "
        "token. Geometric means over networks, which differ by a factor of ten and more; "
        "the comparison within each network is in the verdict.",
    )


def states_figure(rows: Rows[Row]) -> Figure:
    """Figure 3.1 for the first network."""
    pictures = sorted(rows.of(Picture), key=lambda row: row.seed)[:1]
    kinds: list[tuple[str, SeriesKind, int]] = [
        ("wrong strings", "ours", 0),
        ("correct strings with the same last tokens", "control", 1),
    ]
    series = []
    for label, kind, wanted in kinds:
        points = [
            point
            for row in pictures
            for point, correct in zip(row.points, row.correct, strict=True)
            if correct == wanted
        ]
        xs, ys = [x for x, _ in points], [y for _, y in points]
        series.append(Series(label, kind, xs, ys, line=False))
    said = "".join(
        f" {100 * row.agreement:.0f} % of the ten nearest neighbours are of the same kind, and "
        f"{row.clusters} clusters hold 90 % of the wrong strings."
        for row in pictures
    )
    return Figure(
        "states",
        "The network's states of wrong and of correct strings, in the plane",
        [Panel(series, "t-SNE 1", "t-SNE 2")],
        f"Last-layer states at the last token, one network.{said}",
    )


FIGURES = [strides_figure, quotas_figure, unseen_figure, states_figure]
