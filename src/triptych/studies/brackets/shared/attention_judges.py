"""What rows of trained attention decide, in `bracket_attention` and `bracket_training`.

A network counts when it predicts at least 97 % of the closing brackets of its own distribution, as
all published ones do. Numbers are judged with a tolerance of half of the published value: the
source gives no interval, and the training data of the source cannot be made again.

How long the source trained is not known. For the variation its text says only that the networks are
at 97 % or more, and the program that measured it is not public. So one rule is used for all six
numbers: the first of the kept lengths of training at which the mean accuracy is 97 % or more. For
Table 2.6 the text says "to convergence": every cell needs 5,760 steps, four times the 40 passes of
the settings that are public. `bracket_training` has the rows of both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from triptych.core.estimates import Estimate, mean, proportion
from triptych.studies.api.decide import (
    Check,
    Verdict,
    above,
    at_least,
    below,
    decide,
    shown,
    within,
)
from triptych.studies.api.study import Claim, Rows
from triptych.studies.brackets.shared.attention_rows import (
    Duration,
    Network,
    Row,
    Sentences,
    Setting,
)
from triptych.studies.brackets.shared.networks import Data, First, Positions
from triptych.studies.brackets.shared.spread import (
    Matrix,
    distances,
    variation_over_networks,
)
from triptych.theory.brackets.patterns import random_variation

GOOD = 0.97  # accuracy of the published networks
STACK = 0.5  # a pattern is stack-like when more than half of the weight is where a stack looks
ENOUGH = 10  # networks of a setting
TOLERANCE = 0.5  # of a published number
WORD_LENGTH = 16
WIDE_STANDARD, WIDE_MINIMAL = 200, 500  # of Figures 2.11a and 2.12a; all others have 50
WIDE = (WIDE_STANDARD, WIDE_MINIMAL)
RANDOM_SENTENCE = random_variation(20)  # random patterns on 19 brackets and a start token

PUBLISHED: dict[tuple[Data, First, Positions], tuple[str, float]] = {
    ("complete", "standard", "linear"): ("positions", 2.20),
    ("complete", "standard", "none"): ("no_positions", 2.27),
    ("complete", "joint", "none"): ("minimal_first_layer", 0.24),
    ("prefixes", "joint", "none"): ("prefix_minimal", 0.34),
    ("prefixes", "standard", "none"): ("prefix_no_positions", 14.51),
    ("prefixes", "standard", "linear"): ("prefix_positions", 11.92),
}
RANDOM = 2.85
LENGTHS = 4  # of training, among which the first accurate one is chosen
FIRST = {
    "standard": "two layers on tokens",
    "joint": "minimal first layer (2.55)",
    "separate": "minimal first layer (2.56)",
    "angle": "minimal first layer (2.57)",
}
DATA = {"complete": "whole strings", "prefixes": "prefixes"}
POSITIONS = {"none": "no positions", "linear": "linear positions"}
BOTH_POSITIONS: tuple[tuple[Positions, str], ...] = (
    ("none", "without positions"),
    ("linear", "linear positions"),
)
CONVERGED = 5760  # steps of 100 strings; 40 passes are 1,440
NAMES = {
    "positions": "whole strings, linear positions",
    "no_positions": "whole strings, no positions",
    "minimal_first_layer": "whole strings, minimal first layer",
    "prefix_minimal": "prefixes, minimal first layer",
    "prefix_no_positions": "prefixes, no positions",
    "prefix_positions": "prefixes, linear positions",
}

TABLE: dict[tuple[int, int, int], tuple[float, ...]] = {
    (2, 4, 2): (0.047, 7.721),
    (2, 4, 3): (0.070, 5.072, 24.063),
    (2, 8, 2): (0.087, 7.583),
    (2, 8, 3): (0.059, 5.560, 23.590),
    (3, 4, 2): (0.182, 9.313),
    (3, 4, 3): (0.225, 8.426, 25.749),
    (3, 8, 2): (0.178, 7.000),
    (3, 8, 3): (0.154, 6.280, 25.451),
}


# ------------------------------------------------------------------ which networks


def good(rows: Rows[Any], *, first: First, wide: bool = False, **wanted: Any) -> list[Network]:
    """The accurate networks on Dyck_{2,4} of the published architecture, by their fields."""
    wanted = {"types": 2, "max_depth": 4, "norm": "feedforward", "first": first, **wanted}
    wanted["layers"] = 2 if first == "standard" else 1
    return [
        row
        for row in rows.of(Network)
        if row.best >= GOOD
        and (row.width in WIDE) == wide
        and all(getattr(row, name) == wanted[name] for name in wanted)
    ]


def of_variation(rows: Rows[Any], data: Data, first: First, positions: Positions) -> list[Network]:
    """The networks of a published variation; those with a minimal first layer at rate 0.01."""
    rate = 3e-3 if first == "standard" else 1e-2
    return good(rows, first=first, data=data, positions=positions, learning_rate=rate)


def variation(networks: Sequence[Network | Duration]) -> Estimate:
    found = [row.pattern for row in networks]
    return variation_over_networks(distances(found, found) if found else np.zeros((0, 0)))


def stack_share(found: Sequence[Network], label: str) -> Check:
    stacks = sum(row.likeness > STACK for row in found)
    return below(
        f"{label}: share of stack-like networks, with more than half of the weight of closing "
        "brackets on the innermost open bracket",
        proportion(stacks, len(found)),
        0.5,
    )


# ------------------------------------------------------------------ figures on prefixes


def judge_prefix_patterns(rows: Rows[Any]) -> Verdict:
    """Figure 2.14: on prefixes, two layers are not stack-like either, and patterns differ."""
    checks: list[Check] = []
    needs = []
    for positions, label in BOTH_POSITIONS:
        found = longest(good(rows, first="standard", data="prefixes", positions=positions))
        needs.append(at_least(f"networks at 97 % or more, {label}", len(found), ENOUGH))
        if len(found) > 1:
            checks += [
                stack_share(found, label),
                above(
                    f"{label}: variation of two networks, divided by that of random patterns",
                    over(variation(found), random_variation(WORD_LENGTH)),
                    1.0,
                ),
                shown(
                    f"{label}: mean weight on the innermost open bracket",
                    mean([row.likeness for row in found]),
                ),
            ]
    return decide(*checks, needs=needs)


def judge_prefix_minimal(rows: Rows[Any]) -> Verdict:
    """Figure 2.16: on prefixes, a minimal first layer does not make stacks either."""
    found = longest(good(rows, first="joint", data="prefixes", learning_rate=1e-2))
    checks: list[Check] = []
    if found:
        checks = [
            stack_share(found, "minimal first layer"),
            shown("mean weight on the innermost open bracket", mean([r.likeness for r in found])),
            shown(
                "share of closing brackets with the largest weight on the innermost open one",
                mean([row.top for row in found]),
            ),
        ]
    return decide(*checks, needs=[at_least("networks at 97 % or more", len(found), ENOUGH)])


def judge_longer(rows: Rows[Any]) -> Verdict:
    """Figure 2.15: networks trained on prefixes are farther apart on longer sequences."""
    checks: list[Check] = []
    needs = []
    for positions, label in BOTH_POSITIONS:
        networks = longest(of_variation(rows, "prefixes", "standard", positions))
        on_word = [row.pattern for row in sorted(networks, key=lambda row: row.seed)]
        longer = [
            np.array(row.apart)
            for row in rows.of(Sentences)
            if (row.data, row.first, row.positions) == ("prefixes", "standard", positions)
            and row.layer == row.layers
            and row.least >= GOOD
            and row.steps == max((each.steps for each in networks), default=0)
            and len(row.apart) == len(on_word)
        ]
        needs.append(at_least(f"networks at 97 % or more, {label}", len(on_word), ENOUGH))
        needs.append(at_least(f"networks compared on sentences, {label}", len(longer), 1))
        if longer and len(on_word) > 2:
            more = variation_over_networks(longer[0] - distances(on_word, on_word))
            checks.append(
                above(
                    f"{label}: variation of two networks on sentences of 19 brackets minus that "
                    "on the word of 16",
                    more,
                    0.0,
                )
            )
    return decide(*checks, needs=needs)


def over(found: Estimate, unit: float) -> Estimate:
    """An estimate in multiples of `unit`. Worked value: 6 [3, 9] over 3 is 2 [1, 3]."""
    return Estimate(found.value / unit, found.low / unit, found.high / unit, found.n)


def longest(networks: Sequence[Network]) -> list[Network]:
    """Those of them that were trained for the most steps."""
    most = max((row.steps for row in networks), default=0)
    return [row for row in networks if row.steps == most]


# ------------------------------------------------------------------ variation


def judge_variation(rows: Rows[Any]) -> Verdict:
    """The six numbers by one rule for how long to train; random patterns, a formula, are shown too.

    The rule is at the head of this file. All networks of a length count, accurate or not, since the
    rule is about their mean.
    """
    random = random_variation(WORD_LENGTH)
    checks = [shown("variation ‖A - A'‖² of two random patterns", random, published=RANDOM)]
    needs, measured = [], {"random": random}
    for kind, (name, published) in PUBLISHED.items():
        label = NAMES[name]
        lengths = {n: some for n, some in by_length(rows, *kind).items() if len(some) >= 2}
        found = first_accurate(lengths)
        needs.append(at_least(f"lengths of training, {label}", len(lengths), LENGTHS))
        needs.append(at_least(f"networks at 97 % on average, {label}", len(found), ENOUGH))
        if found:
            estimate = variation(found)
            measured[name] = estimate.value
            checks.append(
                within(
                    f"variation of two networks: {label}",
                    estimate,
                    published,
                    by=TOLERANCE * published,
                )
            )
        for steps, some in lengths.items():
            accuracy = 100 * float(np.mean([row.best for row in some]))
            said = f"{label}: variation after {steps} steps, at {accuracy:.1f} % accuracy"
            checks.append(shown(said, variation(some)))
    return decide(*checks, needs=needs, measured=measured)


def by_length(
    rows: Rows[Any], data: Data, first: First, positions: Positions
) -> dict[int, list[Network | Duration]]:
    """The networks of a published variation by their number of steps, accurate or not."""
    found: dict[int, list[Network | Duration]] = {}
    rate = 3e-3 if first == "standard" else 1e-2
    layers = 2 if first == "standard" else 1
    for row in rows.of(Network):
        wanted = Setting(2, 4, data, first, layers, positions, "feedforward", rate, row.width)
        if row.setting == wanted and row.width not in WIDE:
            found.setdefault(row.steps, []).append(row)
    if (first, positions) == ("standard", "none"):
        for row in rows.of(Duration):
            if row.data == data:
                found.setdefault(row.steps, []).append(row)
    return dict(sorted(found.items()))


def first_accurate(
    lengths: Mapping[int, Sequence[Network | Duration]],
) -> Sequence[Network | Duration]:
    """Those of the first length whose mean accuracy is 97 % or more; none where no length is."""
    accurate = (some for some in lengths.values() if np.mean([row.best for row in some]) >= GOOD)
    return next(accurate, [])


def durations(rows: Rows[Any], data: Data) -> dict[int, list[Network | Duration]]:
    """The networks without positions by their number of steps, those of the settings among them;
    accurate or not, since few steps are the question."""
    found: dict[int, list[Network | Duration]] = {}
    for row in rows.of(Duration):
        if row.data == data:
            found.setdefault(row.steps, []).append(row)
    if found:
        for row in rows.of(Network):
            wanted = Setting(2, 4, data, "standard", 2, "none", "feedforward", 3e-3, row.width)
            if row.setting == wanted and row.width not in WIDE:
                found.setdefault(row.steps, []).append(row)
    return dict(sorted(found.items()))


# ------------------------------------------------------------------ Table 2.6


def judge_table(rows: Rows[Any]) -> Verdict:
    """Layer 1 varies less than random patterns; the numbers of the layers above."""
    checks: list[Check] = []
    measured: dict[str, list[float]] = {}
    cells: dict[tuple[int, int, int], int] = {}
    for row in sorted(rows.of(Sentences), key=lambda row: (row.setting, row.layer)):
        cell = (row.types, row.max_depth, row.layers)
        if row.norm != "kept" or row.least < GOOD or len(row.apart) < ENOUGH:
            continue
        cells[cell] = row.steps
        found, published = variation_over_networks(np.array(row.apart)), TABLE[cell]
        name = f"k{cell[0]}_m{cell[1]}_l{cell[2]}"
        said = (
            f"variation of two networks: {cell[0]} types, depth {cell[1]}, {cell[2]} layers, layer "
            f"{row.layer}"
        )
        measured.setdefault(name, []).append(found.value)
        wanted = published[row.layer - 1]
        if row.layer == 1:
            checks.append(below(said, found, RANDOM_SENTENCE, published=wanted))
        else:
            checks.append(within(said, found, wanted, by=TOLERANCE * wanted))
    return decide(
        *checks,
        *_other_architecture(rows),
        needs=[
            at_least("rows of the table, all networks at 97 % or more", len(cells), len(TABLE)),
            at_least("steps of training of every row", min(cells.values(), default=0), CONVERGED),
        ],
        measured=measured,
    )


def _other_architecture(rows: Rows[Any]) -> list[Check]:
    """The last layer of networks without the added residual, on the same sentences."""
    every = [
        row
        for row in rows.of(Sentences)
        if row.norm == "feedforward" and row.layer == row.layers and len(row.apart) >= ENOUGH
    ]
    most = max((row.steps for row in every), default=0)
    found = [row for row in every if row.steps == most]
    return [
        shown(
            f"variation without the added residual: {FIRST[row.first]}, "
            f"{DATA[row.data]}, {POSITIONS[row.positions]}, width {row.width}, learning rate "
            f"{row.learning_rate:g}",
            variation_over_networks(np.array(row.apart)),
        )
        for row in found
    ]


# ------------------------------------------------------------------ rows that hold, and refute


def _pattern(*weights: float) -> tuple[tuple[float, ...], ...]:
    return (tuple(weights),)


def made_networks(variance: float, centre: float = 0.0, **fields: Any) -> list[Network]:
    """Twelve networks whose mean variation is 2 · 12/11 · variance."""
    sides = [centre + (variance**0.5 if i % 2 else -(variance**0.5)) for i in range(12)]
    row = Network(
        seed=0,
        types=2,
        max_depth=4,
        data="complete",
        first="standard",
        layers=2,
        positions="none",
        norm="feedforward",
        learning_rate=3e-3,
        steps=600,
        batch=16,
        best=0.99,
        sure=0.98,
        likeness=0.1,
        sampled=0.1,
        top=0.1,
        sharpness=4.0,
        pattern=_pattern(0.0),
    )
    return [replace(row, seed=i, pattern=_pattern(side), **fields) for i, side in enumerate(sides)]


JOINT = {"first": "joint", "layers": 1}


def _varied(changed: str = "", factor: float = 1.0) -> list[Row]:
    found: list[Row] = []
    for (data, first, positions), (name, published) in PUBLISHED.items():
        wanted = published * (factor if name == changed else 1.0)
        fields: dict[str, Any] = {"data": data, "first": first, "positions": positions}
        if first == "joint":
            fields |= {"layers": 1, "learning_rate": 1e-2}
        found += made_networks(wanted * 11 / 24, **fields)
    return found


def _lengths(changed: str = "", factor: float = 1.0) -> list[Row]:
    """Four lengths: networks that are not accurate yet, then accurate ones, farther and farther."""
    kept = ((90, 0.95, 9.0), (180, 0.98, 1.0), (360, 0.99, 9.0), (720, 0.99, 9.0))
    return [
        replace(row, steps=steps, best=best, pattern=_times(row.pattern, apart**0.5))
        for steps, best, apart in kept
        for row in _varied(changed, factor)
        if isinstance(row, Network)
    ]


def _times(pattern: Matrix, factor: float) -> Matrix:
    return tuple(tuple(value * factor for value in row) for row in pattern)


VARIATION_HELD = _lengths()
VARIATION_REFUTED = [_lengths(name, 4.0) for name, _ in PUBLISHED.values()]
VARIATION_REFUTED += [_lengths("positions", 0.0)]

_PREFIX: dict[str, Any] = {"data": "prefixes"}


def _on_prefixes(variance: float = 10.0, **changed: Any) -> list[Row]:
    """Networks of both kinds; `changed` are fields of those with the positions it names."""
    which = changed.pop("which", None)
    found: list[Row] = []
    both: tuple[Positions, ...] = ("none", "linear")
    for positions in both:
        mine = which in (None, positions)
        found += made_networks(
            variance if mine else 10.0, positions=positions, **_PREFIX, **(changed if mine else {})
        )
    return found


PREFIX_HELD = _on_prefixes()
PREFIX_REFUTED = [
    _on_prefixes(which=positions, **changed)
    for positions in ("none", "linear")
    for changed in ({"likeness": 0.9}, {"variance": 0.1})
]
_MINIMAL_PREFIX = {**JOINT, **_PREFIX, "learning_rate": 1e-2}
PREFIX_MINIMAL_HELD = made_networks(0.1, **_MINIMAL_PREFIX)
PREFIX_MINIMAL_REFUTED = [made_networks(0.1, **_MINIMAL_PREFIX, likeness=0.9)]


def _compared(none: float = 60.0, linear: float = 60.0) -> list[Row]:
    """Networks on prefixes that are about 22 apart on the word, and so far on longer sentences."""
    found = _on_prefixes()
    for positions, apart in (("none", none), ("linear", linear)):
        (row,) = _cell((2, 4, 2))[1:]
        found.append(
            replace(
                row,
                data="prefixes",
                positions=positions,
                norm="feedforward",
                steps=600,
                apart=_all_at(apart),
            )
        )
    return found


def _cell(cell: tuple[int, int, int], changed: int = 0, factor: float = 1.0) -> list[Row]:
    return [
        Sentences(
            seed=0,
            types=cell[0],
            max_depth=cell[1],
            data="complete",
            first="standard",
            layers=cell[2],
            positions="none",
            norm="kept",
            learning_rate=3e-3,
            steps=CONVERGED,
            batch=16,
            layer=layer,
            apart=_all_at(published * (factor if layer == changed else 1.0)),
            by_sentence=(published,),
            random=random_variation(20),
            least=0.98,
        )
        for layer, published in enumerate(TABLE[cell], 1)
    ]


def _all_at(distance: float) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(0.0 if i == j else distance for j in range(12)) for i in range(12))


def _table(changed: tuple[int, int, int] = (0, 0, 0), layer: int = 0) -> list[Row]:
    """All cells as published; one of them far off: layer 1 far above, the others at a third."""
    return [
        row
        for cell in TABLE
        for row in _cell(cell, layer if cell == changed else 0, 100.0 if layer == 1 else 0.3)
    ]


TABLE_HELD = _table()
TABLE_REFUTED = [_table(cell, layer) for cell in TABLE for layer in range(1, cell[2] + 1)]

LONGER_HELD = _compared()
LONGER_REFUTED = [_compared(none=5.0), _compared(linear=5.0)]

ON_PREFIXES = [
    Claim("li.fig-2.14", judge_prefix_patterns, PREFIX_REFUTED, PREFIX_HELD),
    Claim("li.fig-2.15", judge_longer, LONGER_REFUTED, LONGER_HELD),
    Claim("li.fig-2.16", judge_prefix_minimal, PREFIX_MINIMAL_REFUTED, PREFIX_MINIMAL_HELD),
]
OF_LENGTHS = [
    Claim("li.variation", judge_variation, VARIATION_REFUTED, VARIATION_HELD),
    Claim("li.tab-2.6", judge_table, TABLE_REFUTED, TABLE_HELD),
]
