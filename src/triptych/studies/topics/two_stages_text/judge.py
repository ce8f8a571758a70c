"""Some setting has two stages in every layer, by intervals over its runs [li, Figure 2.9].

The conditions are those of one layer on topic documents (`shared.stage_checks`), each in the layer
where it is worst; and W^V turns faster before the switch than after it. The source says that the
stages are approximate and depend on rates and initial scale, so one setting is enough. To refute,
every setting must fail, and some of them must be long enough for W^K and W^Q to grow.
"""

from collections.abc import Sequence
from dataclasses import replace

from triptych.studies.api.decide import Verdict, above, at_least, decide, shown
from triptych.studies.api.study import Rows
from triptych.studies.topics.shared.runs import mean_of_runs
from triptych.studies.topics.shared.stage_checks import clearest, rank
from triptych.studies.topics.shared.stages import EARLY, GROWN, HALF
from triptych.studies.topics.two_stages_text.rows import Diverged, LayerCurves, Setting

Row = LayerCurves | Diverged

RUNS = 3  # of a setting, before it counts
SETTINGS = 12  # fewest that decide: a claim that some setting has stages needs many to refute
LONG, LONG_SETTINGS = 1000, 6  # fewest settings with so many steps: in 400 our W^K hardly begin
SWITCH = 0.25  # published: step 100 of 400


def by_setting(rows: Sequence[LayerCurves]) -> dict[Setting, list[LayerCurves]]:
    """Runs of each optimiser, rate and scale."""
    found: dict[Setting, list[LayerCurves]] = {}
    for row in rows:
        found.setdefault(row.setting, []).append(row)
    return found


def judge(rows: Rows[Row]) -> Verdict:
    """The clearest setting decides; its confidence is corrected for the choice, if it may hold."""
    groups = {
        key: some for key, some in by_setting(rows.of(LayerCurves)).items() if len(some) >= RUNS
    }
    long = sum(key.steps >= LONG for key in groups)
    enough = [
        at_least(f"settings with {RUNS} runs", len(groups), SETTINGS),
        at_least(f"settings with {RUNS} runs of {LONG} steps or more", long, LONG_SETTINGS),
    ]
    if not groups:
        return decide(needs=enough)
    found = {key: [row.stages for row in some] for key, some in groups.items()}
    options = {"fewest": RUNS, "switch": SWITCH}
    chosen, checks = clearest(found, 0.95, **options)
    confidence = 0.95
    if rank(checks) > 0:
        confidence = 1 - 0.05 / (5 * len(groups))
        chosen, checks = clearest(found, confidence, **options)
    turning = mean_of_runs(
        [row.turning for row in groups[chosen]], fewest=RUNS, confidence=confidence
    )
    layers = [layer for some in groups.values() for row in some for layer in row.by_layer]
    own = sum(
        all(s.early < EARLY and s.when < HALF and s.grown > GROWN for s in some)
        for some in found.values()
    )
    fell = sum(row.first_loss - row.last_loss for row in groups[chosen]) / len(groups[chosen])
    return decide(
        *checks,
        above("clearest setting: turning of W^V before the switch over after it", turning, 1.0),
        shown("clearest setting: by how much the loss fell, nats", fell),
        shown("share of all layers with two stages", sum(s.two for s in layers) / len(layers)),
        shown("settings with two stages if every matrix has axes of its own", float(own)),
        needs=enough,
        measured={"settings": len(groups), "clearest": str(chosen)},
    )


# Norms at steps 0, 40, …, 400: W^V rises until 100, W^K and W^Q only after that.
_LATE = (0.1, 0.1, 0.1, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
_RISING = (0.1, 2.0, 3.6, 4.1, 4.2, 4.2, 4.3, 4.3, 4.3, 4.4, 4.4)
_TURNS = (0.5, 0.3, 0.2, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01)


def _curves(seed: int, rate: float, steps: int) -> LayerCurves:
    factor = 1 + 0.0001 * seed
    return LayerCurves(
        seed=seed,
        corpus="docstrings",
        optimiser="sgd",
        learning_rate=rate,
        init_scale=0.001,
        first_loss=7.0,
        last_loss=5.0,
        step=tuple(steps / 10 * i for i in range(11)),
        key=(_LATE,) * 4,
        query=(_LATE,) * 4,
        value=tuple(tuple(factor * norm for norm in _RISING) for _ in range(4)),
        rotation=tuple(tuple(factor * turn for turn in _TURNS) for _ in range(4)),
    )


HELD = [
    _curves(seed, 0.1 * i, 400 if i <= SETTINGS - LONG_SETTINGS else 2000)
    for i in range(1, SETTINGS + 1)
    for seed in range(RUNS)
]


def _last_layer(
    *,
    key: Sequence[float] = _LATE,
    value: Sequence[float] = _RISING,
    turns: Sequence[float] = _TURNS,
) -> list[Row]:
    """Every run with another last layer: all layers must have two stages."""
    found: list[Row] = []
    for row in HELD:
        factor = 1 + 0.0001 * row.seed
        norms = (*row.key[:-1], tuple(key))
        found.append(
            replace(
                row,
                key=norms,
                query=norms,
                value=(*row.value[:-1], tuple(factor * norm for norm in value)),
                rotation=(*row.rotation[:-1], tuple(factor * turn for turn in turns)),
            )
        )
    return found


REFUTED = [
    _last_layer(key=tuple(max(1.4, 3 * norm) for norm in _LATE)),  # W^K is never small
    _last_layer(key=(0.1, 0.3, 0.4, 0.4, 0.4, 0.5, 0.5, 0.6, 0.6, 0.7, 0.7)),  # W^K grows meanwhile
    _last_layer(  # W^V never stops
        value=(0.1, 0.8, 1.4, 2.1, 2.7, 3.4, 4.0, 4.7, 5.3, 6.0, 6.6), key=(*[0.1] * 9, 0.5, 3.0)
    ),
    _last_layer(key=(*[0.1] * 6, 0.11, 0.12, 0.12, 0.13, 0.13)),  # W^K stays
    _last_layer(turns=_TURNS[::-1]),  # W^V turns at the end
    _last_layer(key=_RISING),  # all three alike
]
