"""The figures of `code_cases`, next to the published values."""

from collections.abc import Callable, Iterable, Sequence

from triptych.core.estimates import Estimate
from triptych.studies.api.figures import Figure, Heatmap, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.generation.code_cases.comparisons import Trial, of, over_trials, share
from triptych.studies.generation.code_cases.configs import BEST, GROUPS, guided, named
from triptych.studies.generation.code_cases.judge_algorithm import BEST_OF
from triptych.studies.generation.code_cases.judge_verifiers import LAST
from triptych.studies.generation.code_cases.published import (
    GRID,
    LAYERS,
    MODEL_LAYERS,
    QUERIES,
    REQUESTED,
    SHARES,
)
from triptych.studies.generation.code_cases.rows import Completed, Probed, Row
from triptych.studies.generation.code_cases.writers import STAND_IN

DISTINCT = "distinct correct cases (% of requested)"


def _whose(rows: Sequence[Completed]) -> str:
    """For titles: which model the numbers are of."""
    models = {row.model for row in rows}
    return "a stand-in network" if models <= {STAND_IN} else " and ".join(sorted(models))


def _series(label: str, kind: SeriesKind, points: Iterable[tuple[float | int, Estimate]]) -> Series:
    """Estimates in per cent at places; one without an interval is drawn without."""
    known = [(x, e) for x, e in points if e.value == e.value]
    low = [max(0.0, e.low) if e.n > 1 else e.value for _, e in known]
    high = [min(100.0, e.high) if e.n > 1 else e.value for _, e in known]
    return Series(label, kind, [x for x, _ in known], [e.value for _, e in known], low, high)


def _marks(series: Series) -> Series:
    return Series(
        series.label, series.kind, series.x, series.y, series.low, series.high, line=False
    )


def queries_figure(rows: Rows[Row]) -> Figure:
    """Figure 3.3, with queries counted in two ways."""
    found = rows.of(Completed)
    groups: list[tuple[str, SeriesKind, list[str]]] = [
        ("sampling", "control", sorted({r.config for r in found if r.config.startswith("sampl")})),
        ("Algorithm 1", "ours", [guided(*at) for at in GROUPS] + [guided(1.0, 1.0, "B=10")]),
        ("best of n lines", "control", list(BEST_OF.values())),
        ("particles", "ours", ["2 particles", "4 particles"]),
        ("VGB", "ours", ["VGB"]),
    ]
    panels = []
    columns: list[tuple[str, Callable[[Completed], float]]] = [
        ("as the thesis counts", lambda r: r.limit_queries),
        ("all stop after the last case", lambda r: r.network_tokens),
    ]
    for title, cost in columns:
        series = []
        for label, kind, names in groups:
            kept = [n for n in names if "meaningful" not in n]
            spent = [over_trials(of(found, n, _per_case(cost))) for n in kept]
            gained = [over_trials(of(found, n)) for n in kept]
            points = [(x.value, y) for x, y in zip(spent, gained, strict=True) if x.n]
            if points:
                series.append(_marks(_series(label, kind, sorted(points, key=lambda p: p[0]))))
        if cost is columns[0][1]:
            for label, wanted in (("published, Algorithm 1", True), ("published, others", False)):
                names = [n for n in QUERIES if n.startswith("Algorithm") is wanted]
                xs = [QUERIES[n] / REQUESTED for n in names]
                ys = [100 * SHARES[n] for n in names]
                series.append(Series(label, "published", xs, ys, line=False))
        panels.append(Panel(series, "tokens per requested case", DISTINCT, title, x_log=True))
    return Figure(
        "code_queries",
        f"Distinct correct test cases against queries, {_whose(found)}",
        panels,
        "Every mark is one method at one top_p and temperature; cases are distinct among all "
        "completions of a prompt. Left: a completion of sampling or Algorithm 1 that we stopped "
        "after its last case is counted as if it had gone on to the limit. Right: tokens that went "
        "through the network, those that only a verifier asked about included. 95 % intervals "
        "over networks, or over repeats of one model.",
    )


def _per_case(cost: Callable[[Completed], float]) -> Callable[[Completed], float]:
    return lambda row: cost(row) / row.requested


def groups_figure(rows: Rows[Row]) -> Figure:
    """Tables 3.6, 3.10, 3.15 and 3.17."""
    found = rows.of(Completed)

    def at(names: Sequence[str], label: str, kind: SeriesKind) -> Series:
        points = [(x, over_trials(of(found, n))) for x, n in enumerate(names)]
        return _marks(_series(label, kind, points))

    def told(names: Sequence[str], label: str) -> Series:
        places = [x for x, n in enumerate(names) if n in SHARES]
        ys = [100 * SHARES[n] for n in names if n in SHARES]
        return Series(label, "published", places, ys, line=False)

    plain, with_it = [named(*g) for g in GROUPS], [guided(*g) for g in GROUPS]
    cautious, default = with_it, [guided(*g, "threshold 0.5") for g in GROUPS]
    lines = [named(*BEST), *BEST_OF.values()]
    names = [
        [named(*BEST), named(*BEST, names="meaningful")],
        [guided(*BEST), guided(*BEST, "meaningful names")],
    ]
    settings = [f"p = {p:g}, T = {t:g}" for p, t in GROUPS]
    panels = [
        Panel(
            [
                at(with_it, "Algorithm 1", "ours"),
                at(default, "Algorithm 1, threshold 0.5", "ours"),
                at(plain, "sampling", "control"),
                told(cautious, "published, Algorithm 1"),
                told(plain, "published, sampling"),
            ],
            "",
            DISTINCT,
            "Tables 3.6 and 3.10",
            x_names=settings,
        ),
        Panel(
            [
                at(lines, "best of n lines", "control"),
                at([guided(*BEST)] * len(lines), "Algorithm 1", "ours"),
                told(lines, "published, best of n lines"),
            ],
            "",
            DISTINCT,
            "Table 3.6, p = 0.95, T = 1",
            x_names=["sampling", *(f"best of {n}" for n in BEST_OF)],
        ),
        Panel(
            [
                at(names[1], "Algorithm 1", "ours"),
                at(names[0], "sampling", "control"),
                told(names[1], "published, Algorithm 1"),
                told(names[0], "published, sampling"),
            ],
            "",
            DISTINCT,
            "Table 3.15",
            x_names=["random names", "names with a meaning"],
        ),
    ]
    return Figure(
        "code_groups",
        f"Distinct correct test cases by method, {_whose(found)}",
        panels,
        "Means with 95 % intervals over networks, or over repeats of one model; the comparisons on "
        "the same prompts are in the verdicts. Published: CodeLlama with 7 billion parameters.",
    )


def verifiers_figure(rows: Rows[Row]) -> Figure:
    """Tables 3.9, 3.11 and 3.12: layers, depths and the rule."""
    found, probed = rows.of(Completed), rows.of(Probed)
    layers: dict[int, dict[Trial, float]] = {}
    depths: dict[int, dict[Trial, float]] = {}
    chosen = guided(*BEST)
    for row in found:
        if row.config == chosen or row.config.startswith(f"{chosen}, layer "):
            layers.setdefault(row.layer or 0, {})[row.seed, row.repeat] = share(row)
        if row.config == chosen or row.config.startswith(f"{chosen}, depth "):
            depths.setdefault(row.depth or 0, {})[row.seed, row.repeat] = share(row)
    whole = max((LAST.get(row.model, 1) for row in found), default=1)
    last = max([whole, *layers])
    ends = (0.0, 1.0)

    def level(config: str, label: str, kind: SeriesKind, places: Sequence[float]) -> Series:
        estimate = over_trials(of(found, config))
        return _series(label, kind, [(place, estimate) for place in places])

    def accuracy(label: str, place: Callable[[Probed], float], chosen: Iterable[Probed]) -> Series:
        by_place: dict[float, dict[Trial, float]] = {}
        for row in chosen:
            by_place.setdefault(place(row), {})[row.seed, 0] = 100 * row.accuracy
        points = [(x, over_trials(values)) for x, values in sorted(by_place.items())]
        return _series(label, "ours", points)

    linear = [row for row in probed if row.level == "token" and row.depth == 1]
    layer = next((row.layer for row in found if row.config == chosen), None)
    deep = [row for row in probed if row.level == "token" and row.layer == layer]
    at_layers = [(k / last, over_trials(values)) for k, values in sorted(layers.items())]
    at_depths = [(float(k), over_trials(values)) for k, values in sorted(depths.items())]
    panels = [
        Panel(
            [
                _series("Algorithm 1", "ours", at_layers),
                level(guided(*BEST, "rule"), "Algorithm 1 with the rule", "truth", ends),
                level(guided(*BEST, "random verifier"), "random verifier", "control", ends),
                level(named(*BEST), "no verifier", "control", ends),
                Series(
                    "published, Algorithm 1",
                    "published",
                    [k / MODEL_LAYERS for k in sorted(LAYERS)],
                    [100 * LAYERS[k] for k in sorted(LAYERS)],
                ),
            ],
            "layer that the verifier reads, of the last one",
            DISTINCT,
            "layers",
        ),
        Panel(
            [
                _series("Algorithm 1", "ours", at_depths),
                Series(
                    "published, Algorithm 1",
                    "published",
                    [1, 2, 4, 8],
                    [100 * SHARES[n] for n in (chosen, *_deeper())],
                ),
            ],
            "layers of the verifier",
            DISTINCT,
            "depths",
            x_log=True,
        ),
        Panel(
            [
                accuracy("one layer, by what it reads", lambda row: row.layer / last, linear),
                accuracy("by depth, over 8", lambda row: row.depth / 8, deep),
            ],
            "layer that is read, of the last one; or depth, of 8",
            "right about states left out (%)",
            "accuracy of the verifiers",
        ),
    ]
    return Figure(
        "code_verifiers",
        f"Which verifier helps: by layer and depth, {_whose(found)}",
        panels,
        "Distinct correct cases of Algorithm 1 (Q = B = 4, threshold 0.1, top_p = 0.95) by the "
        "layer whose states its verifier reads and by the verifier's depth, and how often the "
        "verifier is right about states that were left out. 95 % intervals over networks, or over "
        "repeats of one model.",
    )


def _deeper() -> list[str]:
    return [guided(*BEST, f"depth {depth}") for depth in (2, 4, 8)]


def grid_figure(rows: Rows[Row]) -> Figure:
    """The baselines of Table 3.13."""
    found = rows.of(Completed)
    plain = [row for row in found if row.method == "sampling" and row.names == "random"]
    top_ps = sorted({row.top_p for row in plain if row.top_p > 0})
    grid = sorted({row.temperature for row in plain})
    whole = [
        t for t in grid if all(of(found, named(p, t)) for p in top_ps)
    ]  # temperatures that were tried with every top_p
    ours = [[over_trials(of(found, named(p, t))).value for p in top_ps] for t in whole]
    published = [0.7, 0.8, 0.9, 0.95, 1.0]
    degrees = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2]
    theirs = [[100 * GRID[p, t] for p in published] for t in degrees]
    labels = {"x_label": "top_p", "y_label": "temperature"}
    return Figure(
        "code_grid",
        f"Sampling without a verifier by top_p and temperature, {_whose(found)}",
        [
            Heatmap(ours, "ours", x=top_ps, y=whole, limits=(0.0, 100.0), **labels),
            Heatmap(theirs, "published", x=published, y=degrees, limits=(0.0, 100.0), **labels),
        ],
        "Distinct correct cases in per cent of those requested.",
    )


FIGURES = [queries_figure, groups_figure, verifiers_figure, grid_figure]
