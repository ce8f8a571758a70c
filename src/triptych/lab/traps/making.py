"""Make a whole trap from a seed."""

from collections.abc import Callable

from triptych.core.validation import Count, as_count, as_seed
from triptych.lab.traps.explicit import explicit_pairs
from triptych.lab.traps.pairs import KINDS, Trap
from triptych.lab.traps.trained import STEPS, trained_pairs

PAIRS, TRAINED = 20, 12  # of each kind


def make_trap(
    *,
    pairs: Count = PAIRS,
    trained: Count = TRAINED,
    seed: Count = 0,
    steps: Count = STEPS,
    tell: Callable[[str], None] = lambda told: None,
) -> Trap:
    """`pairs` of each explicit kind, and at most `trained` of each trained kind.

    The same seed gives the same trap on the same machine.
    """
    pairs = as_count("pairs", pairs, at_least=1, at_most=1000)
    trained = as_count("trained", trained, at_least=0, at_most=200)
    steps, seed = as_count("steps", steps, at_least=1), as_seed(seed, at_most=2**31)
    tell(f"{pairs} pairs of each of 5 kinds with explicit weights")
    found = list(explicit_pairs(pairs, seed))
    if trained:
        tell(f"training two heads on brackets, {trained} pairs of each of 2 kinds")
        found += trained_pairs(trained, seed, steps=steps)
    return Trap(seed, found)


def summary(trap: Trap) -> list[str]:
    """How many pairs there are of every kind, and how far their attention is apart."""
    text = []
    for kind, meaning in KINDS.items():
        distances = [pair.apart for pair in trap.pairs if pair.kind == kind]
        if distances:
            middle = sum(distances) / len(distances)
            text.append(f"{meaning:<40}{len(distances):>4} pairs, patterns {middle:.1f} apart")
    return text
