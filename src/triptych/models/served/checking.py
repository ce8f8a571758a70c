"""What is asked of a server before the first prompt: is it the model of our tokenizer, does it draw
from its law, and which model is it.

A probe is a question after a fixed prefix. The likeliest tokens of its answer tell one model from
another whatever name they are served under.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from scipy.stats import binomtest

from triptych.core.validation import UserError

ROUND_TRIP = 'Résumé: {"a": [1, -2.5e3]}\n\tif x:  # naïve 東京'
"""A text with accents, numbers, signs, spaces and letters of several bytes."""
DRAWS = 96
"""Draws after the probe that are compared with the law."""
LEVEL = 1e-6
"""The probability with which a right server is refused."""
_SAME = 0.5  # nats: servers round, and models differ by more
_FIRST = 3


def check_tokens(ours: Sequence[int], theirs: Sequence[int], model: str) -> None:
    """Our tokens of `ROUND_TRIP` are the server's."""
    pairs = enumerate(zip_longest(ours, theirs))
    place = next((k for k, (our, their) in pairs if our != their), None)
    if place is not None:
        raise UserError(
            f"the tokenizer is not that of the served model {model!r}: of {ROUND_TRIP!r} it makes "
            f"{list(ours[place : place + 3])} at place {place}, where the server makes "
            f"{list(theirs[place : place + 3])}; pass the model's own tokenizer",
            parameter="tokenizer",
        )


def check_draws(drawn: Sequence[int], law: Mapping[int, float], where: str) -> None:
    """Draws after the probe come as often as their law says: exact binomial tests.

    law   log-probabilities of the likeliest tokens; all others count as one

    Worked value: where 8 tokens have half of the mass and 96 draws are all among them, a right
    server would do so with probability 2^-96. That is a server which keeps its likeliest 40.
    """
    chances = {token: math.exp(value) for token, value in law.items()}
    counts = [(sum(each == token for each in drawn), p) for token, p in chances.items()]
    rest = max(0.0, 1.0 - math.fsum(chances.values()))
    counts.append((sum(each not in chances for each in drawn), rest))
    for count, p in counts:
        expected = binomtest(count, len(drawn), min(1.0, p)).pvalue
        if expected < LEVEL / len(counts):
            raise UserError(
                f"the server {where} does not draw from the law that it states: {count} of "
                f"{len(drawn)} draws are where {len(drawn) * p:.1f} are expected. A sampler of its "
                "own changes the law; turn it off where the server is started",
                parameter="url",
            )


def same_model(one: Mapping[int, float], other: Mapping[int, float]) -> bool:
    """Two answers to the probe are of one model: the likeliest tokens of one have about the same
    log-probability in the other. Rounding may change the order of near ones."""
    likeliest = sorted(one, key=lambda token: -one[token])[:_FIRST]
    return all(token in other and abs(other[token] - one[token]) < _SAME for token in likeliest)
