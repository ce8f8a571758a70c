"""Networks that copy brackets: what is measured on them, and what it decides [li, 2.2.4.1].

The learned patterns are replaced, in all layers or in one. `copying_patterns` says how the networks
are made.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.estimates import Estimate, mean, proportion
from triptych.models.transformer import Transformer
from triptych.studies.api.decide import Check, Verdict, above, at_least, decide, shown
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows, Unit
from triptych.studies.api.summaries import scaled
from triptych.studies.brackets.shared.pictures import WORD, picture
from triptych.studies.brackets.shared.spread import Matrix
from triptych.training.objectives import Prediction

TYPES, MAX_DEPTH = 2, 4
LENGTH = 28


@dataclass(frozen=True)
class TrainCopying(Unit):
    """Networks with seeds seed, seed + 1, …, trained at once to copy prefixes of 28 brackets."""

    layers: int
    steps: int
    batch: int
    width: int
    learning_rate: float
    strings: int
    members: int
    tested: int


@dataclass(frozen=True)
class Copying:
    """One trained network.

    accuracy      share of brackets that are copied
    uniform       the same with uniform attention in all layers;  swapped: with the patterns of
                  another string;  one_uniform: with uniform attention in one layer
    closing       for each layer, weight on closing brackets over their share among the positions
    itself        for each layer, weight on the position itself
    one_kind      for each layer, the largest such ratio of a bracket of one kind
    pictures      patterns on [[[[]]]](((())))
    """

    seed: int
    layers: int
    steps: int
    batch: int
    accuracy: float
    uniform: float
    swapped: float
    one_uniform: tuple[float, ...]
    closing: tuple[float, ...]
    itself: tuple[float, ...]
    one_kind: tuple[float, ...]
    pictures: tuple[Matrix, ...]


class Copier:
    """A network that is asked for the token it reads; `fit_ensemble` trains it."""

    def __init__(self, net: Transformer) -> None:
        self.net = net

    def token_logits(
        self, seen: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        return self.net(seen)


def copying(tokens: Int[Tensor, "batch length"]) -> Prediction:
    """Predict every token from the string that has it."""
    return Prediction(tokens, tokens, torch.ones_like(tokens, dtype=torch.bool), None)


@torch.no_grad()
def measured(
    net: Transformer,
    tokens: Int[Tensor, "batch t"],
    word: Int[Tensor, "1 n"],
    seed: int,
    unit: TrainCopying,
) -> Copying:
    """What a network copies with its own patterns and with others."""
    learned = net.inspect(tokens)
    patterns = list(learned.patterns)
    t = tokens.shape[1]
    weights = torch.ones(t, t, device=tokens.device).tril()
    flat = (weights / weights.sum(-1, keepdim=True)).expand_as(patterns[0])

    def share(attention: Sequence[Tensor]) -> float:
        return float((net(tokens, attention=attention).argmax(-1) == tokens).float().mean())

    kinds = [ratio_on(patterns, tokens == token) for token in range(2 * TYPES)]
    seen = net.inspect(word).patterns
    return Copying(
        seed=seed,
        layers=unit.layers,
        steps=unit.steps,
        batch=unit.batch,
        accuracy=float((learned.logits.argmax(-1) == tokens).float().mean()),
        uniform=share([flat] * unit.layers),
        swapped=share([pattern.roll(1, 0) for pattern in patterns]),
        one_uniform=tuple(
            share([flat if i == layer else pattern for i, pattern in enumerate(patterns)])
            for layer in range(unit.layers)
        ),
        closing=ratio_on(patterns, tokens % 2 == 1),
        itself=tuple(float(p[:, 0].diagonal(dim1=-2, dim2=-1).mean()) for p in patterns),
        one_kind=tuple(max(ratios) for ratios in zip(*kinds, strict=True)),
        pictures=tuple(
            tuple(tuple(round(value, 4) for value in row) for row in pattern[0, 0].tolist())
            for pattern in seen
        ),
    )


def ratio_on(patterns: Sequence[Tensor], chosen: Tensor) -> tuple[float, ...]:
    """Weight on the chosen positions, over what uniform attention has there.

    Worked value: all weight on one of two positions that are allowed is a ratio of 2.
    """
    t = chosen.shape[1]
    allowed = torch.ones(t, t, device=chosen.device).tril()
    even = (allowed / allowed.sum(-1, keepdim=True) * chosen[:, None, :]).sum()
    return tuple(float((p[:, 0] * chosen[:, None, :]).sum() / even) for p in patterns)


# ------------------------------------------------------------------ the judge

WANTED = {1: 0.90, 4: 0.96}  # accuracy of the published networks
ENOUGH = 10
UNCHANGED = 0.02  # of the accuracy
LOOKS = 1.5  # a layer looks meaningful: so much more weight on some kind of bracket than uniform
SOMETIMES = 0.05  # the source says "sometimes": more than one network in twenty


def good(rows: Rows[Copying], layers: int) -> list[Copying]:
    return [r for r in rows.of(Copying) if r.layers == layers and r.accuracy >= WANTED[layers]]


def looks_meaningful(row: Copying) -> bool:
    return looks(row) > LOOKS


def misleading(row: Copying) -> bool:
    """The attention looks meaningful, and the network copies as well with uniform attention."""
    return looks_meaningful(row) and row.accuracy - row.uniform < UNCHANGED


def judge_four_layers(rows: Rows[Copying]) -> Verdict:
    """Figure 2.19: such networks of four layers exist, and are more than a rare exception."""
    return judge_misleading(rows, 4)


def judge_misleading(rows: Rows[Copying], layers: int) -> Verdict:
    """Networks exist whose attention looks meaningful and is not needed.

    The source says "sometimes" and shows single networks, so that a lower bound of their share is
    judged, and not the mean over all networks.
    """
    every = good(rows, layers)
    needs = [at_least("networks as accurate as published", len(every), ENOUGH)]
    if not every:
        return decide(needs=needs)
    found = [row for row in every if looks_meaningful(row)]
    checks: list[Check] = [
        above(
            "share of networks whose attention looks meaningful and is not needed",
            proportion(sum(map(misleading, every)), len(every)),
            SOMETIMES,
        ),
        shown(
            "share of networks whose attention looks meaningful",
            proportion(len(found), len(every)),
        ),
        shown(
            "largest weight on a kind of bracket, uniform attention 1, mean of all networks",
            lost([looks(row) for row in every]),
        ),
    ]
    if found:
        checks += [
            shown(
                "networks that look meaningful: accuracy lost with uniform attention, "
                "percentage points",
                scaled(lost([row.accuracy - row.uniform for row in found]), 100.0),
            ),
            shown(
                "networks that look meaningful: accuracy lost with the patterns of another string, "
                "percentage points",
                scaled(lost([row.accuracy - row.swapped for row in found]), 100.0),
            ),
        ]
    return decide(*checks, needs=needs)


def lost(values: Sequence[float]) -> Estimate:
    """The mean; of one network, its value alone."""
    return mean(values) if len(values) > 1 else Estimate(values[0], values[0], values[0], 1)


def looks(row: Copying) -> float:
    """The largest ratio of a layer: how much its attention is about some kind of bracket."""
    return max([*row.closing, *row.one_kind])


def copying_figure(rows: Rows[Copying]) -> Figure:
    """Four layers that look meaningful, and what the attention of all networks is worth."""
    found = sorted(good(rows, 4), key=lambda row: -looks(row))
    maps = [
        picture(pattern, f"layer {layer}: {closing:.2f} × uniform on closing brackets")
        for row in found[:1]
        for layer, (pattern, closing) in enumerate(zip(row.pictures, row.closing, strict=True), 1)
    ]
    kinds: tuple[tuple[int, SeriesKind], ...] = ((4, "ours"), (1, "control"))
    series = [
        Series(
            f"{layers} layer" + "s" * (layers > 1),
            kind,
            [looks(row) for row in good(rows, layers)],
            [100 * (row.accuracy - row.uniform) for row in good(rows, layers)],
            line=False,
        )
        for layers, kind in kinds
        if good(rows, layers)
    ]
    caption = "A point is a network that copies as well as the published ones."
    if found:
        row = found[0]
        caption = (
            f"Heat maps: the network with the most weight on brackets of one kind, on {WORD}. It "
            f"copies {row.accuracy:.1%} of the brackets, {row.uniform:.1%} with uniform attention, "
            f"{row.swapped:.1%} with the patterns of another string. Points: every network that "
            "copies as well as the published ones; the accuracy it loses with uniform attention, "
            "against the largest weight on a kind of bracket over that of uniform attention."
        )
    return Figure(
        "copying_patterns",
        "Attention of networks that copy their input, and what it is worth",
        [
            *maps,
            Panel(
                series,
                "largest weight on a kind of bracket, × uniform",
                "accuracy lost with uniform attention, percentage points",
                "All networks",
            ),
        ],
        caption,
    )


ROW = Copying(
    seed=0,
    layers=1,
    steps=60,
    batch=16,
    accuracy=0.99,
    uniform=0.99,
    swapped=0.99,
    one_uniform=(0.99,),
    closing=(2.0,),
    itself=(0.1,),
    one_kind=(2.0,),
    pictures=(((1.0,),),),
)
FOUR = replace(
    ROW,
    layers=4,
    one_uniform=(0.99,) * 4,
    closing=(2.0,) * 4,
    itself=(0.1,) * 4,
    one_kind=(2.0,) * 4,
    pictures=(((1.0,),),) * 4,
)


def many(row: Copying, **fields: Any) -> list[Copying]:
    """This many networks that a share of 0 is below one in twenty: its interval ends at 0.037."""
    return [replace(row, seed=i, **fields) for i in range(100)]


HELD = many(FOUR)
REFUTED = [
    many(FOUR, uniform=0.5),
    many(FOUR, closing=(1.0,) * 4, one_kind=(1.0,) * 4),
]
