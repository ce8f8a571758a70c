"""What is known of continuous draws, exactly: an interval for each, or a partial order among them.

Every continuous draw is a monotone function of a `Source`, a uniform U on (0, 1) of which only this
is known: that it lies in (low, high), and, in an order, which draws come before it.

Orders are kept as races. With V = U or 1 - U, the time T = -log(V) / rate is exponential. What is
known of several of them is a forest: a parent comes before all below it. For such a forest the
next comparison has a closed form, because an exponential forgets what it has survived:

    P(a before b) = R(a) / (R(a) + R(b))       for siblings a and b,

where R is the sum of the rates of all that stands below, and the loser then stands below the
winner. So an argmax of perturbed scores is one choice with the probabilities of a categorical, and
a whole order is that of Plackett and Luce. With equal rates it is the order of uniform draws.

Notation
--------
U       source          uniform on (low, high)
T       time of a race  exponential with `rate`
R       total           of a source and all below it
"""

import itertools
import math
from collections.abc import Sequence

from triptych.laws.search import Search, refuse

_SAME = 1e-9


class Source:
    """One continuous draw: what is known of its U, and its place in a race."""

    __slots__ = (
        "below",
        "flipped",
        "grid",
        "high",
        "low",
        "parent",
        "rate",
        "search",
        "total",
        "what",
    )

    def __init__(self, search: Search, what: str, grid: float = 0.0) -> None:
        self.search, self.what, self.grid = search, what, grid
        self.low, self.high = 0.0, 1.0
        self.parent: Source | None = None
        self.below: list[Source] = []
        self.rate = self.total = 1.0
        self.flipped = False

    @property
    def free(self) -> bool:
        """Whether it has no place in an order yet."""
        return self.parent is None and not self.below


# ------------------------------------------------------------------ intervals


def piece(source: Source, cuts: Sequence[float]) -> int:
    """How many of the increasing `cuts` lie below U: chosen by the lengths of what is left."""
    inner = [cut for cut in cuts if source.low < cut < source.high]
    if inner:
        if source.free:
            _choose_piece(source, inner)
        else:
            for cut in inner:
                if source.low < cut < source.high:
                    _divide(source, cut)
    return sum(1 for cut in cuts if cut <= source.low)


def _choose_piece(source: Source, cuts: Sequence[float]) -> None:
    ends = [source.low, *cuts, source.high]
    width = source.high - source.low
    probs = [(b - a) / width for a, b in itertools.pairwise(ends)]
    chosen = source.search.choose(probs, source.what)
    source.low, source.high = ends[chosen], ends[chosen + 1]


def _divide(source: Source, cut: float) -> None:
    """Say on which side of a cut each draw of an order of equal ones lies.

    How many lie below is binomial, whatever their order.
    """
    while source.parent is not None:
        source = source.parent
    chain = _in_line(source)
    if any(abs(member.rate - 1) > _SAME for member in chain):
        raise refuse(
            f"a continuous draw ({source.what}) is compared with a number after it was compared "
            "with other draws under weights; the law of that is not a finite choice here"
        )
    count, share = len(chain), (cut - source.low) / (source.high - source.low)
    probs = [math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(count + 1)]
    under = source.search.choose(probs, source.what)
    upward = chain if source.flipped else chain[::-1]  # U grows with the time if V = 1 - U
    low, high = source.low, source.high
    for k, member in enumerate(upward):
        member.low, member.high = (low, cut) if k < under else (cut, high)
    for part in (upward[:under], upward[under:]):
        _chain_up(part if source.flipped else part[::-1])


def _in_line(root: Source) -> list[Source]:
    """The whole order of all that stands below a root, chosen where it is not known."""
    line: list[Source] = []
    while True:
        line.append(root)
        if not root.below:
            return line
        root = _winner(list(root.below))


def _chain_up(line: Sequence[Source]) -> None:
    after: Source | None = None
    for member in reversed(line):
        member.below = [after] if after else []
        member.total = member.rate + (after.total if after else 0.0)
        member.parent = None
        if after:
            after.parent = member
        after = member


# ------------------------------------------------------------------ orders


def enter(sources: Sequence[Source], rates: Sequence[float], flipped: bool) -> bool:
    """Put draws into one race; False if the race there already is runs in the other direction."""
    even = all(abs(rate - 1) <= _SAME for rate in rates)
    for source, rate in zip(sources, rates, strict=True):
        if not source.free and abs(source.rate - rate) > _SAME * source.rate:
            raise refuse(
                f"a continuous draw ({source.what}) is compared again with other weights than "
                "before; that order is not known exactly here"
            )
    _make_intervals_equal(sources, even)
    linked = {source.flipped for source in sources if not source.free}
    if len(linked) == 2 or (linked and flipped not in linked and not even):
        raise refuse(
            "continuous draws are compared that are in two orders of opposite directions; the law "
            "of that is not a finite choice here"
        )
    flipped_there = linked.pop() if linked else flipped
    for source, rate in zip(sources, rates, strict=True):
        if source.free:
            source.rate = source.total = rate
            source.flipped = flipped_there
    return flipped_there == flipped


def _make_intervals_equal(sources: Sequence[Source], even: bool) -> None:
    """Draws with equal rates may be anywhere; those under weights must be untouched."""
    if not even and any((source.low, source.high) != (0.0, 1.0) for source in sources):
        raise refuse(
            "a continuous draw is compared with other draws under weights after it was compared "
            "with a number; the law of that is not a finite choice here"
        )
    while len({(source.low, source.high) for source in sources}) > 1:
        ends = sorted({end for source in sources for end in (source.low, source.high)})
        before = [(source.low, source.high) for source in sources]
        for source in sources:
            piece(source, ends)
        if before == [(source.low, source.high) for source in sources]:
            return


def same_interval(a: Source, b: Source) -> bool:
    return (a.low, a.high) == (b.low, b.high)


def first(sources: Sequence[Source]) -> Source:
    """The one of different sources that comes first; all have entered one race."""
    members = set(map(id, sources))
    while True:
        paths = [_path(source) for source in sources]
        depth = 0
        while all(len(path) > depth for path in paths):
            if len({id(path[depth]) for path in paths}) > 1:
                break
            if id(paths[0][depth]) in members:
                return paths[0][depth]
            depth += 1
        rivals = list({id(path[depth]): path[depth] for path in paths}.values())
        winner = _winner(rivals)
        if id(winner) in members:
            return winner


def _path(source: Source) -> list[Source]:
    """From the root down to the source."""
    path = [source]
    while path[-1].parent is not None:
        path.append(path[-1].parent)
    return path[::-1]


def _winner(rivals: list[Source]) -> Source:
    """Which of several siblings comes first; the others then stand below it."""
    if len(rivals) == 1:
        return rivals[0]
    total = sum(rival.total for rival in rivals)
    probs = [rival.total / total for rival in rivals]
    chosen = rivals[0].search.choose(probs, f"{rivals[0].what}, the first of {len(rivals)}")
    winner = rivals[chosen]
    for rival in rivals:
        if rival is not winner:
            if rival.parent is not None:
                rival.parent.below.remove(rival)
            rival.parent = winner
            winner.below.append(rival)
            winner.total += rival.total
    return winner
