"""What the rows of `bracket_attention` decide.

A network counts when it predicts at least 97 % of the closing brackets of its own distribution, as
all published ones do. Numbers are judged with a tolerance of half of the published value: the
source gives no interval, and the training data of the source cannot be made again.
"""

from collections.abc import Sequence
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
from triptych.studies.brackets.bracket_attention.rows import (
    Duration,
    Network,
    Row,
    Sentences,
    Setting,
)
from triptych.studies.brackets.shared.networks import Data, First, Positions
from triptych.studies.brackets.shared.spread import (
    distances,
    farther_from_others,
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


def good(rows: Rows[Row], *, first: First, wide: bool = False, **wanted: Any) -> list[Network]:
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


def of_variation(rows: Rows[Row], data: Data, first: First, positions: Positions) -> list[Network]:
    """The networks of a published variation; those with a minimal first layer at rate 0.01."""
    rate = 3e-3 if first == "standard" else 1e-2
    return good(rows, first=first, data=data, positions=positions, learning_rate=rate)


def variation(networks: Sequence[Network | Duration]) -> Estimate:
    found = [row.pattern for row in networks]
    return variation_over_networks(distances(found, found) if found else np.zeros((0, 0)))


# ------------------------------------------------------------------ Figure 2.11


def judge_patterns(rows: Rows[Row]) -> Verdict:
    """Few accurate networks have a stack-like last layer."""
    checks: list[Check] = []
    needs = []
    for positions, label in (("none", "without positions"), ("linear", "linear positions")):
        found = good(rows, first="standard", data="complete", positions=positions)
        needs.append(at_least(f"networks at 97 % or more, {label}", len(found), ENOUGH))
        if found:
            checks += [
                _stack_share(found, label),
                shown(f"{label}: mean weight", mean([row.likeness for row in found])),
                shown(f"{label}: the same, sentences", mean([row.sampled for row in found])),
                shown(f"{label}: share where it is largest", mean([row.top for row in found])),
            ]
    checks += _wide_networks(good(rows, first="standard", wide=True, data="complete"))
    return decide(*checks, needs=needs)


def _wide_networks(found: Sequence[Network]) -> list[Check]:
    """Those of Figures 2.11a and 2.12a, beside the others."""
    if len(found) < 2:
        return []
    label = f"width {found[0].width}, rate {found[0].learning_rate:g}"
    stacks = sum(row.likeness > STACK for row in found)
    return [
        shown(f"{label}: share of stack-like networks", proportion(stacks, len(found))),
        shown(f"{label}: mean weight on the innermost", mean([row.likeness for row in found])),
        shown(f"{label}: variation", variation(found)),
    ]


def _stack_share(found: Sequence[Network], label: str) -> Check:
    stacks = sum(row.likeness > STACK for row in found)
    return below(
        f"{label}: share of networks with most weight on the innermost open bracket",
        proportion(stacks, len(found)),
        0.5,
    )


# ------------------------------------------------------------------ Figure 2.12


def judge_minimal(rows: Rows[Row]) -> Verdict:
    """Patterns differ by embedding and by learning rate, and are mostly not stack-like."""
    kinds: dict[str, list[Network]] = {
        "(2.55), rate 0.01": good(rows, first="joint", data="complete", learning_rate=1e-2),
        "(2.55)": good(rows, first="joint", data="complete", learning_rate=3e-3),
        "(2.56)": good(rows, first="separate", data="complete", learning_rate=3e-3),
        "(2.57)": good(rows, first="angle", data="complete", learning_rate=3e-3),
    }
    checks = []
    for first, second in (
        ("(2.55), rate 0.01", "(2.55)"),
        ("(2.55)", "(2.56)"),
        ("(2.55)", "(2.57)"),
        ("(2.56)", "(2.57)"),
    ):
        if kinds[first] and kinds[second]:
            one, other = ([row.pattern for row in kinds[name]] for name in (first, second))
            sentence = f"{first} and {second}: farther apart than two of a kind, by"
            checks.append(above(sentence, farther_from_others(one, other), 0.0))
    every = [row for found in kinds.values() for row in found]
    if every:
        checks.append(_stack_share(every, "all four"))
    checks += [
        shown(f"{name}: variation", variation(found)) for name, found in kinds.items() if found
    ]
    checks += [
        shown(
            f"{name}: share of closing brackets with most weight on the innermost",
            mean([row.top for row in found]),
        )
        for name, found in kinds.items()
        if found
    ]
    checks += _wide_networks(good(rows, first="joint", wide=True, data="complete"))
    return decide(
        *checks,
        needs=[
            at_least(f"networks at 97 % or more, {name}", len(found), ENOUGH)
            for name, found in kinds.items()
        ],
    )


# ------------------------------------------------------------------ variation


def judge_variation(rows: Rows[Row]) -> Verdict:
    """The six numbers; that of random patterns, which is a formula, stands beside."""
    random = random_variation(WORD_LENGTH)
    checks = [shown("random patterns", random, published=RANDOM)]
    needs, measured = [], {"random": random}
    for kind, (name, published) in PUBLISHED.items():
        found = of_variation(rows, *kind)
        label = name.replace("_", " ")
        needs.append(at_least(f"networks at 97 % or more, {label}", len(found), ENOUGH))
        if len(found) >= 2:
            estimate = variation(found)
            measured[name] = estimate.value
            checks.append(within(label, estimate, published, by=TOLERANCE * published))
            sharp = mean([row.sharpness for row in found])
            checks.append(shown(f"{label}: Σ A² of a pattern", sharp))
    return decide(*checks, *_by_duration(rows), needs=needs, measured=measured)


def durations(rows: Rows[Row], data: Data) -> dict[int, list[Network | Duration]]:
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


def _by_duration(rows: Rows[Row]) -> list[Check]:
    """How the variation grows with training."""
    kinds: tuple[tuple[Data, str], ...] = (("complete", "whole strings"), ("prefixes", "prefixes"))
    checks = []
    for data, name in kinds:
        for steps, found in durations(rows, data).items():
            accuracy = 100 * float(np.mean([row.best for row in found]))
            label = f"{name}, no positions, {steps} steps, {accuracy:.1f} % accurate: variation"
            checks.append(shown(label, variation(found)))
    return checks


# ------------------------------------------------------------------ Table 2.6


def judge_table(rows: Rows[Row]) -> Verdict:
    """Layer 1 varies less than random patterns; the numbers of the layers above."""
    checks: list[Check] = []
    measured: dict[str, list[float]] = {}
    cells = set()
    for row in sorted(rows.of(Sentences), key=lambda row: (row.setting, row.layer)):
        cell = (row.types, row.max_depth, row.layers)
        if row.norm != "kept" or row.least < GOOD or len(row.apart) < ENOUGH:
            continue
        cells.add(cell)
        found, published = variation_over_networks(np.array(row.apart)), TABLE[cell]
        name = f"k{cell[0]}_m{cell[1]}_l{cell[2]}"
        measured.setdefault(name, []).append(found.value)
        wanted = published[row.layer - 1]
        if row.layer == 1:
            checks.append(below(f"{name}, layer 1", found, RANDOM_SENTENCE, published=wanted))
        else:
            label = f"{name}, layer {row.layer}"
            checks.append(within(label, found, wanted, by=TOLERANCE * wanted))
    return decide(
        *checks,
        *_other_architecture(rows),
        needs=[at_least("rows of the table, all networks at 97 % or more", len(cells), 2)],
        measured=measured,
    )


def _other_architecture(rows: Rows[Row]) -> list[Check]:
    """The last layer of networks without the added residual, on the same sentences."""
    found = [
        row
        for row in rows.of(Sentences)
        if row.norm == "feedforward" and row.layer == row.layers and len(row.apart) >= ENOUGH
    ]
    return [
        shown(
            f"{row.first} first layer, {row.data}, positions {row.positions}, width {row.width}, "
            f"rate {row.learning_rate:g}: last layer on the same sentences",
            variation_over_networks(np.array(row.apart)),
        )
        for row in found
    ]


# ------------------------------------------------------------------ rows that hold, and refute


def _pattern(*weights: float) -> tuple[tuple[float, ...], ...]:
    return (tuple(weights),)


def _networks(variance: float, centre: float = 0.0, **fields: Any) -> list[Network]:
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


PATTERNS_HELD = [*_networks(1.0), *_networks(1.0, positions="linear")]
PATTERNS_REFUTED = [
    [*_networks(1.0, likeness=0.9), *_networks(1.0, positions="linear")],
    [*_networks(1.0), *_networks(1.0, positions="linear", likeness=0.9)],
]

_JOINT = {"first": "joint", "layers": 1}
_FAST = _networks(0.01, 0.0, **_JOINT, learning_rate=1e-2)
_SLOW = _networks(0.01, 1.0, **_JOINT)
_SEPARATE = _networks(0.01, 2.0, first="separate", layers=1)
_ANGLE = _networks(0.01, 3.0, first="angle", layers=1)
MINIMAL_HELD = [*_FAST, *_SLOW, *_SEPARATE, *_ANGLE]
MINIMAL_REFUTED = [
    [*_networks(0.01, 1.0, **_JOINT, learning_rate=1e-2), *_SLOW, *_SEPARATE, *_ANGLE],
    [*_FAST, *_SLOW, *_networks(0.01, 1.0, first="separate", layers=1), *_ANGLE],
    [*_FAST, *_SLOW, *_SEPARATE, *_networks(0.01, 1.0, first="angle", layers=1)],
    [*_FAST, *_SLOW, *_SEPARATE, *_networks(0.01, 2.0, first="angle", layers=1)],
    [replace(row, likeness=0.9) for row in MINIMAL_HELD],
]


def _varied(changed: str = "", factor: float = 1.0) -> list[Row]:
    found: list[Row] = []
    for (data, first, positions), (name, published) in PUBLISHED.items():
        wanted = published * (factor if name == changed else 1.0)
        fields: dict[str, Any] = {"data": data, "first": first, "positions": positions}
        if first == "joint":
            fields |= {"layers": 1, "learning_rate": 1e-2}
        found += _networks(wanted * 11 / 24, **fields)
    return found


VARIATION_HELD = _varied()
VARIATION_REFUTED = [_varied(name, 4.0) for name, _ in PUBLISHED.values()]
VARIATION_REFUTED += [_varied("positions", 0.0)]


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
            steps=600,
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


TABLE_HELD = [*_cell((2, 4, 2)), *_cell((2, 4, 3))]
TABLE_REFUTED = [
    [*_cell((2, 4, 2), 1, 100.0), *_cell((2, 4, 3))],
    [*_cell((2, 4, 2), 2, 0.3), *_cell((2, 4, 3))],
    [*_cell((2, 4, 2)), *_cell((2, 4, 3), 1, 100.0)],
    [*_cell((2, 4, 2)), *_cell((2, 4, 3), 2, 2.0)],
    [*_cell((2, 4, 2)), *_cell((2, 4, 3), 3, 0.2)],
]

CLAIMS = [
    Claim("li.fig-2.11", judge_patterns, PATTERNS_REFUTED, PATTERNS_HELD),
    Claim("li.fig-2.12", judge_minimal, MINIMAL_REFUTED, MINIMAL_HELD),
    Claim("li.variation", judge_variation, VARIATION_REFUTED, VARIATION_HELD),
    Claim("li.tab-2.6", judge_table, TABLE_REFUTED, TABLE_HELD),
]
