"""Pairs of trained networks, with two heads on a minimal first layer.

trained_far     networks of several seeds, paired so that their attention is as different as
                possible
trained_head    queries and keys are those of a trained network, and stay. The rest is trained
                again, two times: once with head 0 switched off, once with head 1. With a minimal
                first layer the patterns depend on queries and keys alone, so both have the same.

Networks that are not accurate enough are left out.
"""

from collections.abc import Iterator, Sequence

from triptych.lab.traps.explicit import farthest
from triptych.lab.traps.pairs import Examiner, Member, Pair
from triptych.studies.brackets.shared.heads import TrainedHeads, heads_recipe, train
from triptych.studies.brackets.shared.networks import Language

LANGUAGE = Language(2, 3, "prefixes")
HEADS, WIDTH = 2, 16
SHARPNESS = 1.5  # of queries and keys at the start: attention is quite different for each seed
PLAIN = 0.02  # the usual start, where attention is nearly uniform
STEPS = 400
STRINGS = 3572
ACCURATE = 0.98


def trained_pairs(count: int, seed: int, *, steps: int = STEPS) -> Iterator[Pair]:
    """At most `count` pairs of each kind."""
    if count:
        yield from far_pairs(count, seed, steps, Examiner())
        yield from head_pairs(count, seed, steps, Examiner())


def far_pairs(count: int, seed: int, steps: int, examiner: Examiner) -> Iterator[Pair]:
    """The farthest pairs of three times as many networks."""
    networks = _trained(range(seed + 1000, seed + 1000 + 3 * count), SHARPNESS, steps)
    members = accurate([examiner.member(network, "trained") for network in networks])
    for i, j in farthest([member.network for member in members], count, examiner):
        yield examiner.pair("trained_far", members[i], members[j])


def head_pairs(count: int, seed: int, steps: int, examiner: Examiner) -> Iterator[Pair]:
    """The patterns of trained networks, and all else trained again with one head off."""
    first = seed + 2000
    bases = _trained(range(first, first + 2 * count), PLAIN, steps)
    copies = []
    for number, base in enumerate(bases):
        for head in range(HEADS):
            start = TrainedHeads.new(LANGUAGE, HEADS, WIDTH, seed=seed + 3000 + number)
            copy = start.with_patterns_of(base)
            copy.switch_off(head)
            copy.freeze_patterns()
            copies.append(copy)
    train(copies, heads_recipe(steps), range(seed, seed + len(copies)), strings=STRINGS)
    found = 0
    for number in range(len(bases)):
        both = [
            examiner.member(copies[HEADS * number + off], f"trained with head {1 - off} alone")
            for off in range(HEADS)
        ]
        if found < count and len(accurate(both)) == HEADS:
            found += 1
            yield examiner.pair("trained_head", both[0], both[1])


def _trained(seeds: Sequence[int], sharpness: float, steps: int) -> list[TrainedHeads]:
    networks = [
        TrainedHeads.new(LANGUAGE, HEADS, WIDTH, seed=seed, sharpness=sharpness) for seed in seeds
    ]
    train(networks, heads_recipe(steps), seeds, strings=STRINGS)
    return networks


def accurate(members: Sequence[Member]) -> list[Member]:
    return [member for member in members if member.measured.accuracy >= ACCURATE]
