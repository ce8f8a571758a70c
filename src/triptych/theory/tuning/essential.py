"""Essential hidden states: which sets can be the H* of [wei, Assumption 3.5].

A set B of states is followed, one step later, by the states H* = ∪_{h ∈ B} {h' : A(h, h') > 0}.
A prompt that puts the chain in B confines it to H* at the next step, so a linear head can read off
the law on H* when the emission rows of H* are independent, however many other states there are.
Two exact searches: the smallest B that serves a task, and the largest H* that any B gives. And
random models and tasks that satisfy the assumption by construction.

Independence has a margin, the smallest singular value of the emission rows of H*. It can only
shrink when H* grows, so a set that fails is a set whose supersets all fail: both searches prune
by it and lose nothing.

Notation
--------
B    chosen      [states], Bool          A   transition   [states, states], A[i, j] = P(j | i)
H*   essential   [states], Bool          W   emission     [states, vocab]
Inside, a set of states is an integer whose h-th bit says whether h is in it.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from triptych.core.deprecation import renamed
from triptych.core.table import all_sequences
from triptych.core.validation import check_shape
from triptych.structures.hidden_markov.hmm import HMM
from triptych.theory.tuning.heads import RANK_TOLERANCE, in_support, state_before

NODE_LIMIT = 200_000


def essential_states(hmm: HMM, chosen: Bool[Tensor, " states"]) -> Bool[Tensor, " states"]:
    """H*: the states that some state of B reaches in one step."""
    return (hmm.transition[chosen] > 0).any(0)


def margin(hmm: HMM, essential: Bool[Tensor, " states"]) -> float:
    """The smallest singular value of the emission rows of H*; inf when H* is empty."""
    return _Independence(hmm).margin(_as_bits(essential))


def smallest_choice(
    hmm: HMM, task: Float[Tensor, " states"], *, node_limit: int = NODE_LIMIT
) -> Bool[Tensor, " states"] | None:
    """A smallest B whose H* covers the task's support and is independent; None if there is none.

    Among the smallest, one of largest margin. Some state of B precedes any given state of the
    support, so branching over the predecessors of one that is not covered yet finds every B.

    Worked value: A = [[½, ½, 0], [0, 0, 1], [1, 0, 0]], W = [[1, 0], [0, 1], [½, ½]]. The task
    (1, -1, 0) needs H* ⊇ {0, 1}: B = {0} gives exactly that. The task (1, 0, 1) needs {0, 2}:
    B = {1, 2} gives it, while every B with 0 and 1 in it reaches all three states.
    """
    check_shape("task", task, (hmm.states,), f"an HMM with {hmm.states} states")
    wanted, independence = _as_bits(task != 0), _Independence(hmm)
    options = _distinct_steps(hmm)
    budget = _Budget(node_limit, "smallest set B")
    best: tuple[float, int] | None = None

    def search(chosen: int, reached: int, left: int) -> None:
        """Every B ⊇ chosen with at most `left` states more, branching at the scarcest hole."""
        nonlocal best
        budget.spend()
        missing = wanted & ~reached
        if not missing:
            candidate = (independence.margin(reached), chosen)
            if best is None or candidate[0] > best[0]:
                best = candidate
            return
        if left == 0 or left * widest < missing.bit_count():
            return
        branches = [
            [
                (state, reached | step)
                for state, step in options
                if step >> hole & 1 and independence.holds(reached | step)
            ]
            for hole in _bits(missing)
        ]
        for state, more in min(branches, key=len):
            if (chosen | 1 << state) not in seen:
                seen.add(chosen | 1 << state)
                search(chosen | 1 << state, more, left - 1)

    widest = max((step & wanted).bit_count() for _, step in options)
    for size in range(wanted.bit_count() + 1):
        seen: set[int] = set()
        search(0, 0, size)
        if best is not None:
            return _as_mask(best[1], hmm)
    return None


def maximal_essential_set(hmm: HMM, *, node_limit: int = NODE_LIMIT) -> Bool[Tensor, " states"]:
    """The largest independent H* that some B gives; empty when every state reaches too many.

    Depth first over unions of one-step sets, each taken or left for good; a branch ends when the
    rank of all that it could still reach is no larger than the best H* so far.
    """
    independence = _Independence(hmm)
    budget = _Budget(node_limit, "largest essential set")
    best = 0

    def extend(reached: int, steps: list[int]) -> None:
        nonlocal best
        budget.spend()
        if reached.bit_count() > best.bit_count():
            best = reached
        steps = [s for s in steps if s & ~reached and independence.holds(reached | s)]
        reachable = [reached]  # reachable[-1 - k]: what the steps from k on can add
        for step in reversed(steps):
            reachable.append(reachable[-1] | step)
        for k, step in enumerate(steps):
            if independence.rank(reachable[-1 - k]) <= best.bit_count():
                return
            extend(reached | step, steps[k + 1 :])

    extend(0, sorted((step for _, step in _distinct_steps(hmm)), key=int.bit_count, reverse=True))
    return _as_mask(best, hmm)


@renamed(vocab="vocab_size")
def random_with_zeros(
    states: int, vocab_size: int, *, seed: int, successors: int = 2, emitted: int = 2
) -> HMM:
    """An ergodic HMM with few successors and few tokens per state, so that strings rule out states.

    Prompts then meet strings that they make impossible, the case the proof of Theorem 3.6 treats
    apart. `HMM.random_sparse` with `emitted` random tokens per state, weights flat Dirichlet.
    """
    hmm = HMM.random_sparse(states, vocab_size, 1, seed=seed, successors=successors)
    draw = np.random.default_rng([seed, 1])
    emission = np.zeros((states, vocab_size))
    for row in emission:
        row[draw.permutation(vocab_size)[:emitted]] = draw.dirichlet(np.ones(emitted))
    return replace(hmm, emission=torch.tensor(emission))


def random_task(
    hmm: HMM, *, seed: int, node_limit: int = NODE_LIMIT
) -> Float[Tensor, " states"] | None:
    """A task on random states of the largest essential set; None when that has fewer than two.

    Weights are normal, shifted on the support so that over the strings of length 2 both labels are
    about as common: the shift c makes μᵀp - c Σ_supp p change sign at the median string.
    """
    members = maximal_essential_set(hmm, node_limit=node_limit).nonzero()[:, 0]
    if len(members) < 2:
        return None
    draw = np.random.default_rng([seed, 2])
    size = int(draw.integers(2, len(members) + 1))
    support = members[torch.tensor(draw.permutation(len(members))[:size], device=hmm.device)]
    task = torch.zeros_like(hmm.initial)
    task[support] = torch.tensor(draw.standard_normal(size), device=hmm.device)
    tokens = all_sequences(hmm.vocab_size, 2, hmm.device)
    posterior = state_before(hmm, tokens[in_support(hmm, tokens)])
    mass = posterior[:, support].sum(1)
    ratio = (posterior @ task)[mass > 0] / mass[mass > 0]
    task[support] -= ratio.median() + 1e-3  # a hair more: no string exactly on the border
    return task


class _Independence:
    """Singular values of the emission rows of sets of states, each computed once."""

    def __init__(self, hmm: HMM) -> None:
        self._rows = hmm.emission.cpu()
        self._known: dict[int, Tensor] = {}

    def margin(self, states: int) -> float:
        count = states.bit_count()
        if count > self._rows.shape[1]:
            return 0.0
        return float(self._singular_values(states)[-1]) if count else math.inf

    def holds(self, states: int) -> bool:
        return self.margin(states) > RANK_TOLERANCE

    def rank(self, states: int) -> int:
        return int((self._singular_values(states) > RANK_TOLERANCE).sum())

    def _singular_values(self, states: int) -> Tensor:
        if states not in self._known:
            rows = self._rows[list(_bits(states))]
            self._known[states] = torch.linalg.svdvals(rows)
        return self._known[states]


class _Budget:
    """Counts the nodes of a search and stops it at the limit."""

    def __init__(self, limit: int, sought: str) -> None:
        self._left, self._limit, self._sought = limit, limit, sought

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise ValueError(
                f"the search for the {self._sought} visited {self._limit} nodes without an end; "
                "give a larger node_limit, or a model with fewer states or sparser transitions"
            )


def _distinct_steps(hmm: HMM) -> list[tuple[int, int]]:
    """(state, its one-step set), for the first state of every different one-step set."""
    first: dict[int, int] = {}
    for state, row in enumerate((hmm.transition > 0).cpu()):
        first.setdefault(_as_bits(row), state)
    return [(state, step) for step, state in first.items()]


def _as_bits(states: Bool[Tensor, " states"]) -> int:
    return sum(1 << int(h) for h in states.nonzero()[:, 0])


def _bits(states: int) -> Iterator[int]:
    while states:
        yield (states & -states).bit_length() - 1
        states &= states - 1


def _as_mask(states: int, hmm: HMM) -> Bool[Tensor, " states"]:
    mask = torch.zeros(hmm.states, dtype=torch.bool, device=hmm.device)
    mask[list(_bits(states))] = True
    return mask
