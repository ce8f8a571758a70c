"""Minimum Bayes risk: of some candidates the one with the highest mean utility against samples.

    best = argmax over c of (1/n) Σ_i u(c, y_i),   y_1 ... y_n the samples, as often as they came

Nothing is drawn, so the law is one outcome. Every candidate is scored here, in fractions. Here the
likeliest text, the best against samples that count once, and the best with the arguments of u the
other way round are three other candidates.

Worked value: of 01 against 01, 01 and 02, with u the share of the candidate's tokens that the
sample has: (1 + 1 + 1/2) / 3 = 5/6.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from triptych.laws.contract import Contract

Text = tuple[int, ...]
COUNTS: dict[Text, int] = {(2,): 1, (0, 1, 0): 3, (2, 0, 0): 1, (1, 2): 2}
CANDIDATES = tuple(COUNTS)
SAMPLES = tuple(text for text, n in COUNTS.items() for _ in range(n))


def share(candidate: Text, sample: Text) -> Fraction:
    """The share of the candidate's tokens that the sample has, one for one; not symmetric."""
    left = list(sample)
    met = 0
    for token in candidate:
        if token in left:
            left.remove(token)
            met += 1
    return Fraction(met, len(candidate))


def mean_utilities(
    candidates: Sequence[Text],
    samples: Sequence[Text],
    utility: Callable[[Text, Text], Fraction],
) -> dict[Text, float]:
    """(1/n) Σ_i u(c, y_i) of every candidate."""
    return {
        c: float(sum((utility(c, y) for y in samples), Fraction(0)) / len(samples))
        for c in candidates
    }


def _right(candidates: Sequence[Text], samples: Sequence[Text], utility: Any) -> Text:
    return max(candidates, key=lambda c: sum(utility(c, y) for y in samples))


def _once_each(candidates: Sequence[Text], samples: Sequence[Text], utility: Any) -> Text:
    """Counts equal samples once, and so forgets how likely they are."""
    return max(candidates, key=lambda c: sum(utility(c, y) for y in set(samples)))


CONTRACTS = [
    Contract(
        name="mbr",
        promise="the candidate with the highest mean utility against the samples",
        call="sampler(candidates, samples, utility) returns one of the candidates, which are "
        "tuples of tokens; utility(candidate, sample) is a number",
        program=lambda sampler: lambda: tuple(sampler(CANDIDATES, SAMPLES, share)),
        target=mean_utilities(CANDIDATES, SAMPLES, share),
        right=_right,
        wrong=_once_each,
        kind="best",
    )
]
