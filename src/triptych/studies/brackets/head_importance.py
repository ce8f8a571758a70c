"""Which head matters, and does it look like a stack [li, 2.2.4.2]?

The thesis conjectures that two kinds of experiments disagree because they mean two things by the
importance of a head:

    fixed      the head is switched off, and all other weights stay as they are
    adapted    the head is switched off, and all other weights are trained further; a network that
               keeps all its heads is trained as much further, and compared

Next to, heads are pruned one by one until one is left: of those that are still there, the head goes
whose absence costs least after the others adapted. Stack-likeness of a head is its mean weight on
the innermost open bracket, where a network must look back. All of it is on networks of one layer on
a minimal first layer, whose heads start with different patterns.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from scipy import stats

from triptych.core.estimates import Estimate, mean
from triptych.core.randomness import TorchRng
from triptych.studies.api.decide import Check, Verdict, above, at_least, below, decide, shown
from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study, Unit
from triptych.studies.brackets.shared.heads import TrainedHeads, heads_recipe, train
from triptych.studies.brackets.shared.networks import Language
from triptych.theory.brackets.lookups import Lookups, lookup_accuracy, lookup_weight, lookups

TYPES, MAX_DEPTH = 2, 3
FIRST_SEED = 200  # smaller ones were used to choose the sizes and the number of networks


@dataclass(frozen=True)
class HeadImportance(Settings):
    """Sizes.

    seeds        networks;  together: how many are trained at once
    steps        of training;  further: of training after a head is off
    sharpness    standard deviation of queries and keys before training
    """

    seeds: int = 24
    together: int = 8
    heads: int = 4
    width: int = 16
    sharpness: float = 1.0
    steps: int = 300
    further: int = 100
    batch: int = 16
    strings: int = 3572
    tested: int = 200


@dataclass(frozen=True)
class TrainHeads(Unit):
    """Networks with seeds seed, seed + 1, …, trained and pruned at once."""

    heads: int
    width: int
    sharpness: float
    steps: int
    further: int
    batch: int
    strings: int
    members: int
    tested: int


@dataclass(frozen=True)
class HeadOff:
    """One head of one network.

    accuracy    of the network at lookups, with all heads
    fixed       accuracy that is lost without the head;  adapted: lost after training further
    stack       weight on the innermost open bracket;  stack_rank: 1 for the head with most of it
    """

    seed: int
    head: int
    accuracy: float
    fixed: float
    adapted: float
    stack: float
    stack_rank: int


@dataclass(frozen=True)
class Survivor:
    """The last head of one network that is pruned.

    accuracies      after each head that went, trained further;  alone: the last of them
    stack           of the survivor before anything was pruned;  others: mean of the other heads
    stack_after     of the survivor at the end
    moved           squared distance of its patterns before and after, for each sentence
    """

    seed: int
    head: int
    accuracies: tuple[float, ...]
    stack: float
    others: float
    stack_after: float
    moved: float


Row = HeadOff | Survivor
Item = TypeVar("Item")


def units(settings: HeadImportance) -> Sequence[TrainHeads]:
    """One for each group of networks."""
    return [
        TrainHeads.of(
            settings,
            members=min(settings.together, settings.seeds - first),
            seed=FIRST_SEED + first,
        )
        for first in range(0, settings.seeds, settings.together)
    ]


def run(unit: TrainHeads, bench: Bench) -> Iterable[Row]:
    """Train, switch heads off, train further, prune."""
    language = Language(TYPES, MAX_DEPTH, "prefixes")
    tokens = language.law().sample(unit.tested, TorchRng(10_000)).to(bench.device)
    where = Lookups(*(part.to(bench.device) for part in lookups(tokens.cpu(), TYPES)))
    seeds = list(range(unit.seed, unit.seed + unit.members))
    networks = [
        TrainedHeads.new(
            language,
            unit.heads,
            unit.width,
            seed=seed,
            sharpness=unit.sharpness,
            device=bench.device,
        )
        for seed in seeds
    ]
    training = {"strings": unit.strings, "device": bench.device}
    train(networks, heads_recipe(unit.steps, unit.batch), seeds, **training)
    heads = range(unit.heads)

    def accuracy(network: TrainedHeads) -> float:
        return lookup_accuracy(network.predictions(tokens), where)

    def adapted(kept: Sequence[TrainedHeads], off: Sequence[Sequence[int]]) -> list[TrainedHeads]:
        """Copies without these heads, trained further with the streams of their networks."""
        copies = [without(network, gone) for network, gone in zip(kept, off, strict=True)]
        streams = [20_000 + seed for seed in seeds for _ in range(len(kept) // len(seeds))]
        train(copies, heads_recipe(unit.further, unit.batch), streams, **training)
        return copies

    own = [network.patterns(tokens) for network in networks]
    stacks = [[lookup_weight(pattern[:, h], where) for h in heads] for pattern in own]
    before = [accuracy(network) for network in networks]
    fixed = [[accuracy(without(network, [h])) for h in heads] for network in networks]
    options = [[h] for h in heads] + [[]]  # the last keeps all heads
    further = adapted(
        [network for network in networks for _ in options],
        [gone for _ in networks for gone in options],
    )
    after = [[accuracy(each) for each in part] for part in parts(further, len(options))]
    for i, seed in enumerate(seeds):
        order = sorted(heads, key=lambda h, i=i: -stacks[i][h])
        for h in heads:
            yield HeadOff(
                seed=seed,
                head=h,
                accuracy=before[i],
                fixed=before[i] - fixed[i][h],
                adapted=after[i][-1] - after[i][h],
                stack=stacks[i][h],
                stack_rank=1 + order.index(h),
            )

    # Pruning continues from the first round, which has all copies without one head.
    chosen = [max(heads, key=lambda h, i=i: after[i][h]) for i in range(len(seeds))]
    gone = [[head] for head in chosen]
    networks = [parts(further, len(options))[i][head] for i, head in enumerate(chosen)]
    accuracies = [[after[i][head]] for i, head in enumerate(chosen)]
    for _ in range(unit.heads - 2):
        left = [[h for h in heads if h not in each] for each in gone]
        copies = adapted(
            [network for network, some in zip(networks, left, strict=True) for _ in some],
            [[*each, h] for each, some in zip(gone, left, strict=True) for h in some],
        )
        for i, part in enumerate(parts(copies, len(left[0]))):
            found = [accuracy(copy) for copy in part]
            best = found.index(max(found))
            gone[i].append(left[i][best])
            networks[i], accuracies[i] = part[best], [*accuracies[i], found[best]]
    for i, seed in enumerate(seeds):
        (last,) = set(heads) - set(gone[i])
        now = networks[i].patterns(tokens)[:, last]
        yield Survivor(
            seed=seed,
            head=last,
            accuracies=tuple(accuracies[i]),
            stack=stacks[i][last],
            others=sum(stacks[i][h] for h in heads if h != last) / max(1, unit.heads - 1),
            stack_after=lookup_weight(now, where),
            moved=float((now - own[i][:, last]).double().square().sum((-1, -2)).mean()),
        )


def parts(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Worked value: six items in parts of three are two lists."""
    return [items[at : at + size] for at in range(0, len(items), size)]


def without(network: TrainedHeads, heads: Iterable[int]) -> TrainedHeads:
    """A copy with these heads switched off."""
    copy = network.copy()
    for head in heads:
        copy.switch_off(head)
    return copy


# ------------------------------------------------------------------ the judges

ACCURATE = 0.98  # networks that have not learned the brackets are left out
ENOUGH = 10
MATTERS = 0.05  # accuracy that is lost without a head that matters
STRONG = 0.5  # a rank correlation that is strong


def learned(rows: Rows[Row]) -> dict[int, list[HeadOff]]:
    """The heads of every network that learned the brackets, by its seed."""
    found: dict[int, list[HeadOff]] = {}
    for row in rows.of(HeadOff):
        if row.accuracy >= ACCURATE:
            found.setdefault(row.seed, []).append(row)
    return found


def judge_adapting(rows: Rows[Row]) -> Verdict:
    """A head that is needed while the others are fixed is hardly needed once they adapt."""
    networks = learned(rows)
    most = [max(heads, key=lambda row: row.fixed) for heads in networks.values()]
    needs = [at_least("networks that learned the brackets", len(networks), ENOUGH)]
    if len(most) < 2:
        return decide(needs=needs)
    name = "share of lookups lost without the head that matters most"
    return decide(
        above(f"{name}, the others fixed", mean([row.fixed for row in most]), MATTERS),
        below(f"{name}, the others adapted", mean([row.adapted for row in most]), MATTERS),
        needs=needs,
    )


def judge_stack(rows: Rows[Row]) -> Verdict:
    """No strong connection with the others fixed; survivors of pruning look more like a stack."""
    networks = learned(rows)
    survivors = [row for row in rows.of(Survivor) if row.seed in networks]
    needs = [
        at_least("networks that learned the brackets", len(networks), ENOUGH),
        at_least("networks that were pruned to one head", len(survivors), ENOUGH),
    ]
    if len(networks) < 2 or len(survivors) < 2:
        return decide(needs=needs)
    by = (
        "rank correlation, over heads, of the weight on the innermost open bracket and the lookups "
        "lost without the head"
    )
    correlated = {
        name: [
            rank_correlation([row.stack for row in heads], [getattr(row, name) for row in heads])
            for heads in networks.values()
        ]
        for name in ("fixed", "adapted")
    }
    ahead = mean([row.stack - row.others for row in survivors])
    checks: list[Check] = [
        below(f"{by}, the others fixed", spread(correlated["fixed"]), STRONG),
        shown(f"{by}, the others adapted", spread(correlated["adapted"])),
        above(
            "weight on the innermost open bracket: last head minus mean of the others", ahead, 0.0
        ),
        shown(
            "share of lookups that are right with the last head alone",
            mean([r.accuracies[-1] for r in survivors]),
        ),
        shown(
            "weight of the last head on the innermost open bracket, after pruning",
            mean([row.stack_after for row in survivors]),
        ),
        shown(
            "distance of the last head's patterns before and after pruning, ‖A - A'‖²",
            mean([row.moved for row in survivors]),
        ),
    ]
    return decide(*checks, needs=needs)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's, and 0 where one side is constant.

    Worked value: 1, 2, 3 and 1, 3, 2 have 1 - 6 · 2 / (3 · 8) = 1/2.
    """
    if len(set(first)) < 2 or len(set(second)) < 2:
        return 0.0
    ranks = stats.rankdata(first), stats.rankdata(second)
    return float(np.corrcoef(*ranks)[0, 1])


def spread(values: Sequence[float]) -> Estimate:
    """The mean of correlations, with an interval inside [-1, 1]."""
    found = mean(values)
    return replace(found, low=max(-1.0, found.low), high=min(1.0, found.high))


# ------------------------------------------------------------------ figures


def importance_figure(rows: Rows[Row]) -> Figure:
    """Stack-likeness against both kinds of importance; accuracy while heads are pruned."""
    networks = learned(rows)
    heads = [row for each in networks.values() for row in each]
    stack = [row.stack for row in heads]
    scattered = Panel(
        [
            Series("others fixed", "ours", stack, [row.fixed for row in heads], line=False),
            Series("others adapted", "control", stack, [row.adapted for row in heads], line=False),
        ],
        "weight on the innermost open bracket",
        "accuracy lost without the head",
        "Importance of a head and its stack-likeness",
    )
    survivors = [row for row in rows.of(Survivor) if row.seed in networks]
    stages = range(min((len(row.accuracies) for row in survivors), default=0))
    found = [mean([row.accuracies[stage] for row in survivors]) for stage in stages]
    pruned = Panel(
        [
            Series(
                "mean over networks",
                "ours",
                [stage + 1 for stage in stages],
                [each.value for each in found],
                [max(0.0, each.low) for each in found],
                [min(1.0, each.high) for each in found],
            )
        ],
        "heads that were pruned",
        "accuracy",
        "Pruning, where the others adapt each time",
    )
    return Figure(
        "head_importance",
        "Which head matters, with the others fixed and after they adapted",
        [scattered, pruned],
        "Every mark on the left is a head of a trained network. Accuracy is that at lookups: after "
        "a closing bracket that leaves another one open.",
    )


# ------------------------------------------------------------------ rows that decide

_HEAD = HeadOff(0, 0, accuracy=1.0, fixed=0.2, adapted=0.0, stack=0.1, stack_rank=1)
_LAST = Survivor(0, 0, (1.0, 1.0, 0.99), stack=0.15, others=0.1, stack_after=0.2, moved=0.5)


def _network(
    seed: int,
    *,
    fixed: float = 0.3,
    adapted: float = 0.0,
    stacks: tuple[float, ...] = (0.1, 0.05, 0.2, 0.15),
    last: float = 0.15,
) -> list[Row]:
    """Heads that matter 1, 2/3, 1/3 and 0 times `fixed`, and a survivor."""
    noise = 0.0001 * seed
    heads: list[Row] = [
        replace(
            _HEAD,
            seed=seed,
            head=h,
            fixed=fixed * (1 - h / 3) + noise,
            adapted=adapted + noise,
            stack=stack,
        )
        for h, stack in enumerate(stacks)
    ]
    return [*heads, replace(_LAST, seed=seed, stack=last + noise)]


def _many(**changed: float | tuple[float, ...]) -> list[Row]:
    return [row for seed in range(12) for row in _network(seed, **changed)]  # pyright: ignore[reportArgumentType]


HELD = _many()

STUDY = Study(
    name="head_importance",
    question="Which head matters: with the others fixed, or after they adapt?",
    settings={
        Scale.SMOKE: HeadImportance(
            seeds=1,
            together=1,
            heads=3,
            width=15,
            steps=2,
            further=1,
            batch=4,
            strings=20,
            tested=8,
        ),
        Scale.LAPTOP: HeadImportance(),
        Scale.PAPER: HeadImportance(
            seeds=40, together=40, width=48, steps=1440, further=400, batch=100, tested=1000
        ),
    },
    units=units,
    run=run,
    rows=(HeadOff, Survivor),
    claims=[
        Claim(
            "li.heads-adapt",
            judge_adapting,
            [_many(fixed=0.01), _many(adapted=0.2)],
            HELD,
        ),
        Claim(
            "li.heads-stack",
            judge_stack,
            [_many(stacks=(0.2, 0.15, 0.1, 0.05)), _many(last=0.05)],
            HELD,
        ),
    ],
    figures=[importance_figure],
)
