"""Speculative sampling: whatever the draft, what is written has the target's own law.

A draft model proposes tokens; the sampler accepts some of them and adds one. One token at a time,
token x of a draft q is accepted with min(1, p(x) / q(x)), else a token of max(0, p - q) is drawn.
Whole blocks may be verified at once [Sun et al. 2024], and several candidates may be tried in turn.

Worked value: p = (1/4, 3/4), q = (3/4, 1/4). A draft 0 is accepted with 1/3, a draft 1 with 1, so a
draft is accepted with 3/4 · 1/3 + 1/4 = 1/2, which is 1 - TV(p, q).
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.laws.contract import Contract

VOCAB, DRAFTED = 3, 2


def _laws(seed: int) -> dict[tuple[int, ...], Float[Tensor, " vocab"]]:
    """A law of the next token after every prefix of at most two tokens."""
    generator = torch.Generator().manual_seed(seed)
    prefixes = [p for n in range(DRAFTED + 1) for p in itertools.product(range(VOCAB), repeat=n)]
    return {
        prefix: torch.randn(VOCAB, generator=generator, dtype=torch.float64).softmax(-1)
        for prefix in prefixes
    }


TARGET, DRAFT = _laws(0), _laws(1)


def _program(sampler: Callable[..., Any]) -> Callable[[], tuple[int, ...]]:
    """Drafts from q, lets the sampler verify, and completes three tokens by the target itself."""

    def program() -> tuple[int, ...]:
        drafted: tuple[int, ...] = ()
        for _ in range(DRAFTED):
            drafted = (*drafted, int(torch.multinomial(DRAFT[drafted], 1)))
        prefixes = [drafted[:k] for k in range(DRAFTED + 1)]
        target = torch.stack([TARGET[prefix] for prefix in prefixes])
        draft = torch.stack([DRAFT[prefix] for prefix in prefixes[:-1]])
        written = tuple(int(x) for x in sampler(target, draft, torch.tensor(drafted)))
        while len(written) <= DRAFTED:
            written = (*written, int(torch.multinomial(TARGET[written], 1)))
        return written

    return program


def one_by_one(target: Tensor, draft: Tensor, drafted: Tensor) -> list[int]:
    """Accepted tokens and one more."""
    written: list[int] = []
    for k, token in enumerate(drafted.tolist()):
        if torch.rand((), dtype=torch.float64) < target[k, token] / draft[k, token]:
            written.append(token)
            continue
        rest = (target[k] - draft[k]).clamp(min=0)
        return [*written, int(torch.multinomial(rest / rest.sum(), 1))]
    return [*written, int(torch.multinomial(target[len(drafted)], 1))]


def by_blocks(target: Tensor, draft: Tensor, drafted: Tensor) -> list[int]:
    """Block verification: accepts at least as many tokens in the mean."""
    count, kept, accepted = len(drafted), 1.0, 0
    weights = [1.0]
    for k, token in enumerate(drafted.tolist()):
        kept = min(1.0, kept * float(target[k, token] / draft[k, token]))
        weights.append(kept)
        chance = kept
        if k + 1 < count:
            rest = float((kept * target[k + 1] - draft[k + 1]).clamp(min=0).sum())
            chance = rest / (rest + 1 - kept) if rest + 1 - kept > 0 else 1.0
        if torch.rand((), dtype=torch.float64) < chance:
            accepted = k + 1
    law = target[accepted]
    if accepted < count:
        law = (weights[accepted] * target[accepted] - draft[accepted]).clamp(min=0)
    return [*drafted.tolist()[:accepted], int(torch.multinomial(law / law.sum(), 1))]


def _forgets_the_residual(target: Tensor, draft: Tensor, drafted: Tensor) -> list[int]:
    """Draws from p again after a rejection."""
    written: list[int] = []
    for k, token in enumerate(drafted.tolist()):
        if torch.rand((), dtype=torch.float64) < target[k, token] / draft[k, token]:
            written.append(token)
            continue
        return [*written, int(torch.multinomial(target[k], 1))]
    return [*written, int(torch.multinomial(target[len(drafted)], 1))]


# ------------------------------------------------------------------ several candidates for a token

CANDIDATES = 2


def _tree_program(sampler: Callable[..., Any]) -> Callable[[], int]:
    p, q = TARGET[()], DRAFT[()]
    return lambda: int(sampler(p.clone(), q.clone(), torch.multinomial(q, CANDIDATES, True)))


def tried_in_turn(target: Tensor, draft: Tensor, candidates: Tensor) -> int:
    """Each candidate is tried against what is left of the target after those before it."""
    left = target
    for token in candidates.tolist():
        if torch.rand((), dtype=torch.float64) < left[token] / draft[token]:
            return token
        left = (left - draft).clamp(min=0)
        left = left / left.sum()
    return int(torch.multinomial(left, 1))


def _tried_against_the_same(target: Tensor, draft: Tensor, candidates: Tensor) -> int:
    for token in candidates.tolist():
        if torch.rand((), dtype=torch.float64) < target[token] / draft[token]:
            return token
    left = (target - draft).clamp(min=0)
    return int(torch.multinomial(left / left.sum(), 1))


def _product() -> dict[tuple[int, ...], float]:
    law: dict[tuple[int, ...], float] = {}
    for x in itertools.product(range(VOCAB), repeat=DRAFTED + 1):
        p = 1.0
        for k, token in enumerate(x):
            p *= float(TARGET[x[:k]][token])
        law[x] = p
    return law


CONTRACTS = [
    Contract(
        name="speculative",
        promise="accepted tokens and the one after them have the target's law, for any draft",
        call="sampler(target, draft, drafted) returns the accepted tokens and one more; target has "
        "the shape (n + 1, vocab), draft (n, vocab): probabilities; drafted are n tokens of draft",
        program=_program,
        target=_product(),
        right=one_by_one,
        wrong=_forgets_the_residual,
    ),
    Contract(
        name="speculative_tree",
        promise="whichever candidate is accepted, what is written has the target's law",
        call="sampler(target, draft, candidates) returns a token; target and draft are "
        "probabilities of the shape (vocab,), candidates are independent draws from draft",
        program=_tree_program,
        target=dict(enumerate(TARGET[()].tolist())),
        right=tried_in_turn,
        wrong=_tried_against_the_same,
    ),
]
