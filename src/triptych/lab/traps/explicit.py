"""Pairs with explicit weights: every network that is not meant to fail predicts exactly.

A network has two heads. One is read; the other is a decoy, which the layer norm removes. The
attention scores B[key, query] of either head have a *look*, which says what it attends to:

    stack        brackets of the level of the innermost open one    start     the start token
    outermost    brackets of level 1                                one_type  brackets of one type
    random       random kinds of brackets                           even      everything, nearly

All scores are balanced: a closing bracket scores `ratio` below its partner, for every query. With
ratio 0, values that cancel under the own pattern cancel under uniform attention too, so that the
pattern is not needed. With another ratio they do not, and it is.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.lab.traps.pairs import Examiner, Member, Pair
from triptych.lab.traps.truth import LENGTH, Network, Q, apart
from triptych.models.constructions.balanced import Kinds, balanced
from triptych.models.constructions.heads import HeadsTransformer, with_decoy, without_types

Look = Literal["stack", "outermost", "random", "start", "one_type", "even"]
LOOKS: tuple[Look, ...] = get_args(Look)
LANGUAGES = ((2, 3), (2, 4), (3, 3))  # types and depth, in turn
STRENGTH = 6.0  # of a look
WEAK = 1.0  # where brackets must be forgotten within a hundred pairs
RATIO = 2.0
LEAK = 0.5
DECOY = 3.0  # how much a decoy writes


class Design(NamedTuple):
    """What a head attends to."""

    look: Look
    ratio: float
    strength: float = STRENGTH


def head_scores(
    types: int, max_depth: int, design: Design, generator: torch.Generator
) -> Float[Tensor, "kinds kinds"]:
    """Balanced scores B[key, query] with a look."""
    kinds = Kinds.of(types, max_depth)
    count = kinds.start + 1
    scores = 0.3 * torch.randn(count, count, generator=generator, dtype=torch.float64)
    chosen_type = int(torch.randint(types, (1,), generator=generator))
    noise = torch.randn(count, count, generator=generator, dtype=torch.float64)
    for query in range(count):
        token, level = divmod(query, max_depth)
        still_open = 0 if query == kinds.start else level + 1 - token % 2
        keys = torch.tensor([kinds.start])
        if design.look == "random":
            scores[:, query] += 0.5 * design.strength * noise[:, query]
            continue
        if design.look == "even":
            continue
        if design.look == "one_type":
            keys = kinds.opening[chosen_type]
        elif design.look != "start" and still_open:
            keys = kinds.opening[:, still_open - 1 if design.look == "stack" else 0]
        scores[keys, query] += design.strength
    scores[kinds.closing.flatten()] = scores[kinds.opening.flatten()] - design.ratio
    return scores


class Maker:
    """Makes networks of one language from a stream of random numbers."""

    def __init__(self, types: int, max_depth: int, generator: torch.Generator) -> None:
        self.types, self.max_depth, self.generator = types, max_depth, generator

    def scores(self, design: Design) -> Float[Tensor, "kinds kinds"]:
        return head_scores(self.types, self.max_depth, design, self.generator)

    def sizes(self) -> Float[Tensor, " kinds"]:
        """What a decoy writes for each kind."""
        count = 2 * self.types * self.max_depth + 1
        return DECOY * torch.randn(count, generator=self.generator, dtype=torch.float64)

    def network(
        self,
        scores: tuple[Float[Tensor, "kinds kinds"], Float[Tensor, "kinds kinds"]],
        sizes: Float[Tensor, " kinds"],
        *,
        read: int,
        leak: float = 0.0,
    ) -> HeadsTransformer:
        """Two heads with these scores, of which number `read` is read."""
        model = balanced(self.types, self.max_depth, LENGTH, q=Q, scores=scores[read], leak=leak)
        return with_decoy(model, scores[1 - read], sizes, first=read == 1)

    def look(self) -> Look:
        return LOOKS[int(torch.randint(len(LOOKS), (1,), generator=self.generator))]

    def sign(self) -> int:
        return 1 if int(torch.randint(2, (1,), generator=self.generator)) else -1


def explicit_pairs(count: int, seed: int) -> Iterator[Pair]:
    """`count` pairs of each kind, one after another."""
    generator = torch.Generator().manual_seed(seed)
    examiner = Examiner()
    for needed in (False, True):
        yield from far_pairs(count // 2 + (count % 2 if needed else 0), needed, generator, examiner)
    makers = {
        "pattern": pattern_pair,
        "head": head_pair,
        "balance": balance_pair,
        "function": function_pair,
    }
    for kind, make in makers.items():
        for number in range(count):
            maker = Maker(*LANGUAGES[number % len(LANGUAGES)], generator)
            first, second = make(maker, number, examiner)
            yield examiner.pair(kind, first, second)


def far_pairs(
    count: int, needed: bool, generator: torch.Generator, examiner: Examiner
) -> Iterator[Pair]:
    """Exact networks, paired so that their attention is as different as possible.

    Three times as many candidates are made as are kept. The two that are farthest apart become a
    pair, then the two farthest of the rest.
    """
    for number, (types, max_depth) in enumerate(LANGUAGES):
        wanted = len(range(number, count, len(LANGUAGES)))
        maker = Maker(types, max_depth, generator)
        pool: list[HeadsTransformer] = []
        told: list[str] = []
        for candidate in range(6 * wanted):
            ratio = RATIO * maker.sign() if needed else 0.0
            looks = LOOKS[candidate % len(LOOKS)], maker.look()
            scores = maker.scores(Design(looks[0], ratio)), maker.scores(Design(looks[1], ratio))
            read = candidate % 2
            pool.append(maker.network(scores, maker.sizes(), read=read))
            told.append(_about(looks, read))
        for i, j in farthest(pool, wanted, examiner):
            first, second = (examiner.member(pool[k], told[k]) for k in (i, j))
            yield examiner.pair("far", first, second)


def farthest(networks: Sequence[Network], count: int, examiner: Examiner) -> list[tuple[int, int]]:
    """Numbers of networks in pairs, the farthest first; each is in one pair at most."""
    if not networks:
        return []
    tokens = examiner.sentences(networks[0]).tokens[:20]
    patterns = [network.patterns(tokens) for network in networks]
    distances = sorted(
        (-apart(patterns[i], patterns[j]), i, j) for i in range(len(networks)) for j in range(i)
    )
    used: set[int] = set()
    found = []
    for _, i, j in distances:
        if len(found) < count and not {i, j} & used:
            used |= {i, j}
            found.append((j, i))
    return found


def pattern_pair(maker: Maker, number: int, examiner: Examiner) -> tuple[Member, Member]:
    """The same two heads: one network reads that which uniform attention could replace."""
    looks = maker.look(), maker.look()
    free = number % 2  # the head that could be uniform
    ratios = [RATIO * maker.sign(), RATIO * maker.sign()]
    ratios[free] = 0.0
    first, second = _readers(maker, looks, (ratios[0], ratios[1]), examiner)
    return (first, second) if free else (second, first)


def head_pair(maker: Maker, number: int, examiner: Examiner) -> tuple[Member, Member]:
    """The same two heads, both of them needed as they are by the network that reads them."""
    ratios = RATIO * maker.sign(), RATIO * maker.sign()
    return _readers(maker, (maker.look(), maker.look()), ratios, examiner)


def _readers(
    maker: Maker, looks: tuple[Look, Look], ratios: tuple[float, float], examiner: Examiner
) -> tuple[Member, Member]:
    """Two networks with the same two heads; the first reads head 0 and the second head 1."""
    scores = (
        maker.scores(Design(looks[0], ratios[0])),
        maker.scores(Design(looks[1], ratios[1])),
    )
    sizes = maker.sizes()
    first, second = (
        examiner.member(maker.network(scores, sizes, read=read), _about(looks, read))
        for read in (0, 1)
    )
    return first, second


def balance_pair(maker: Maker, number: int, examiner: Examiner) -> tuple[Member, Member]:
    """The same two heads; in the second network closing brackets leave a trace."""
    quiet: tuple[Look, ...] = ("stack", "outermost", "even")
    look, ratio = quiet[number % 3], 0.0 if number % 2 else RATIO * maker.sign()
    looks = look, maker.look()
    scores = maker.scores(Design(look, ratio, WEAK)), maker.scores(Design(looks[1], 0.0))
    sizes = maker.sizes()
    exact, leaky = (
        examiner.member(maker.network(scores, sizes, read=0, leak=leak), _about(looks, 0, told))
        for leak, told in ((0.0, ""), (LEAK, ", not balanced"))
    )
    return exact, leaky


def function_pair(maker: Maker, number: int, examiner: Examiner) -> tuple[Member, Member]:
    """The same two heads; the second network does not know which type may close."""
    looks = maker.look(), maker.look()
    ratio = RATIO * maker.sign()
    scores = maker.scores(Design(looks[0], ratio)), maker.scores(Design(looks[1], ratio))
    read = number % 2
    network = maker.network(scores, maker.sizes(), read=read)
    about = _about(looks, read)
    blind = examiner.member(without_types(network), f"{about}, types ignored")
    return examiner.member(network, about), blind


def _about(looks: tuple[Look, Look], read: int, more: str = "") -> str:
    """ "heads stack and start, head 1 is read"."""
    return f"heads {looks[0]} and {looks[1]}, head {read} is read{more}"
