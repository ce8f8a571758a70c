"""Beam search: what the definition keeps, and the likeliest text when the beam is wide enough.

A text is a tuple of tokens that ends with `END` or has `LENGTH` of them. Its score is log p(x).
With k beams a prefix survives if its parent does, was not over, and fewer than k of the prefixes
of surviving parents at this length score higher; texts that are over stay among them.

    survivors(t) = the k best of { (x, v) : x in survivors(t-1) not over } ∪ { x over }

The result is the best of the survivors when all are over. Nothing is drawn, so the law is one
outcome. Here every text of at most `LENGTH` tokens is scored, for a wide beam by itself.

Worked value: of the table below one beam, which is greedy decoding, finds 0 1 0 with 0.192, two
find 0 0 END with 0.196, and a wide beam 0 END with 0.2, the likeliest.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.laws.contract import Contract

Text = tuple[int, ...]
VOCAB, LENGTH, END = 3, 3, 2
_PROBS: dict[Text, list[float]] = {
    (): [0.8, 0.05, 0.15],
    (0,): [0.35, 0.4, 0.25],
    (1,): [0.2, 0.35, 0.45],
    (0, 0): [0.15, 0.15, 0.7],
    (0, 1): [0.6, 0.15, 0.25],
    (1, 0): [0.05, 0.1, 0.85],
    (1, 1): [0.4, 0.3, 0.3],
}


def next_log_probs(prefix: Text) -> Float[Tensor, " vocab"]:
    """log p(x_t | prefix) of a prefix that is not over."""
    return torch.tensor(_PROBS[tuple(prefix)], dtype=torch.float64).log()


def is_over(text: Text, end: int, length: int) -> bool:
    """Whether nothing may follow."""
    return len(text) == length or text[-1:] == (end,)


def _texts() -> Iterator[Text]:
    """All texts, and nothing else."""
    for t in range(LENGTH + 1):
        for prefix in itertools.product(range(VOCAB - 1), repeat=t):
            if t == LENGTH:
                yield prefix
            else:
                yield (*prefix, END)


def log_prob(text: Text) -> float:
    """log p(text), a sum over its tokens."""
    return math.fsum(float(next_log_probs(text[:k])[x]) for k, x in enumerate(text))


def scores(beams: int) -> dict[Text, float]:
    """log p of the texts that survive with this number of beams; -inf of the others."""
    alive: dict[Text, bool] = {(): True}
    for t in range(1, LENGTH + 1):
        begun = [x for x in _prefixes(t) if alive.get(x[:-1] if len(x) == t else x)]
        alive = {
            x: sum(log_prob(y) > log_prob(x) for y in begun) < beams for x in begun
        }  # the definition, word for word: quadratic
    return {x: log_prob(x) if alive.get(x) else -math.inf for x in _texts()}


def _prefixes(t: int) -> list[Text]:
    """Prefixes of t tokens, and shorter texts that are over."""
    found = [x for x in _texts() if len(x) < t and is_over(x, END, LENGTH)]
    open_ones = itertools.product(range(VOCAB - 1), repeat=t - 1)
    return found + [(*x, v) for x in open_ones for v in range(VOCAB)]


def _right(next_log_probs: Any, beams: int, length: int, end: int) -> Text:
    kept: list[tuple[float, Text]] = [(0.0, ())]
    while not all(is_over(text, end, length) for _, text in kept):
        begun = [pair for pair in kept if is_over(pair[1], end, length)]
        for score, text in kept:
            if not is_over(text, end, length):
                steps = enumerate(next_log_probs(text).tolist())
                begun += [(score + step, (*text, token)) for token, step in steps]
        kept = sorted(begun, reverse=True)[:beams]
    return max(kept)[1]


def _stops_early(next_log_probs: Any, beams: int, length: int, end: int) -> Text:
    """Takes the first text that ends, and does not ask whether another can still be likelier."""
    kept: list[tuple[float, Text]] = [(0.0, ())]
    while True:
        begun = [
            (score + step, (*text, token))
            for score, text in kept
            for token, step in enumerate(next_log_probs(text).tolist())
        ]
        kept = sorted(begun, reverse=True)[:beams]
        over = [pair for pair in kept if is_over(pair[1], end, length)]
        if over:
            return max(over)[1]


def _greedy(next_log_probs: Any, beams: int, length: int, end: int) -> Text:
    """Has one beam, however many are asked for."""
    return _right(next_log_probs, 1, length, end)


def _with(beams: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda sampler: (
        lambda: tuple(int(token) for token in sampler(next_log_probs, beams, LENGTH, END))
    )


_CALL = (
    "sampler(next_log_probs, beams, length, end) returns a tuple of tokens, the end token with "
    "them; next_log_probs(prefix) has the shape (vocab,); a text ends with `end` or at `length`"
)
NARROW, WIDE = 2, VOCAB**LENGTH

CONTRACTS = [
    Contract(
        name="beam",
        promise="the best text that survives with two beams",
        call=_CALL,
        program=_with(NARROW),
        target=scores(NARROW),
        right=_right,
        wrong=_stops_early,
        kind="best",
    ),
    Contract(
        name="beam_wide",
        promise="the likeliest text, with as many beams as there are texts",
        call=_CALL,
        program=_with(WIDE),
        target={text: log_prob(text) for text in _texts()},
        right=_right,
        wrong=_greedy,
        kind="best",
    ),
]
