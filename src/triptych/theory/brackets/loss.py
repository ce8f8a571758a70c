"""The exact squared loss of a model with a minimal first layer [li, (2.39)-(2.41)].

Such a model sees of a prefix how often every kind occurs, and the last one. Prefixes that agree in
these are merged, with their open brackets, so that the loss at length 17 or 33 is a sum over
thousands of states, not over all prefixes.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.validation import Count, Number, UserError, as_probability, as_size
from triptych.models.constructions.balanced import Kinds
from triptych.models.constructions.brackets import BracketTransformer
from triptych.theory.brackets.pumping import output_from_counts

MAX_STATES = 2_000_000

Pairs = tuple[int, ...]  # closed pairs of every (type, level)
Stack = tuple[int, ...]


class PrefixStates(NamedTuple):
    """All prefixes of fewer than N tokens, merged.

    counts[s]    how often every kind occurs       last[s]   kind of the last token
    law[s]       of the next token                 weight[s] Σ over its lengths of P(state) / N
    """

    counts: Float[Tensor, "states kinds"]
    last: Int[Tensor, " states"]
    law: Float[Tensor, "states vocab"]
    weight: Float[Tensor, " states"]


def prefix_states(types: Count, max_depth: Count, length: Count, *, q: Number) -> PrefixStates:
    """The states of all prefixes with their probabilities under (2.39).

    Worked value: N = 1 has one state, the empty prefix, with weight 1.
    """
    types, max_depth = as_size("types", types), as_size("max_depth", max_depth)
    length, q = as_size("length", length), as_probability("q", q, strictly=True)
    kinds = Kinds.of(types, max_depth)
    opening, closing = kinds.opening.tolist(), kinds.closing.tolist()
    now: dict[tuple[Pairs, Stack, int], float] = {
        ((0,) * (types * max_depth), (), kinds.start): 1.0
    }
    total: dict[tuple[Pairs, Stack, int], float] = {}
    for _ in range(length):
        after: dict[tuple[Pairs, Stack, int], float] = {}
        for (pairs, stack, last), mass in now.items():
            state = (pairs, stack, last)
            total[state] = total.get(state, 0.0) + mass / length
            depth = len(stack)
            opens = 1.0 if depth == 0 else 0.0 if depth == max_depth else q
            if opens:
                for kind in range(types):
                    then = (pairs, (*stack, kind), opening[kind][depth])
                    after[then] = after.get(then, 0.0) + mass * opens / types
            if opens < 1:
                top = stack[-1]
                place = top * max_depth + depth - 1
                closed = (*pairs[:place], pairs[place] + 1, *pairs[place + 1 :])
                then = (closed, stack[:-1], closing[top][depth - 1])
                after[then] = after.get(then, 0.0) + mass * (1 - opens)
        now = after
        if len(total) + len(now) > MAX_STATES:
            raise UserError(
                f"more than {MAX_STATES} states at length {length}: ask a shorter one",
                parameter="length",
            )
    return _as_tensors(total, types, max_depth, q, kinds)


def _as_tensors(
    total: dict[tuple[Pairs, Stack, int], float],
    types: int,
    max_depth: int,
    q: float,
    kinds: Kinds,
) -> PrefixStates:
    states = list(total)
    pairs = torch.tensor([state[0] for state in states], dtype=torch.float64)
    counts = torch.zeros(len(states), kinds.start + 1, dtype=torch.float64)
    counts[:, kinds.opening.flatten()] = pairs
    counts[:, kinds.closing.flatten()] = pairs
    counts[:, kinds.start] = 1.0
    law = torch.zeros(len(states), 2 * types, dtype=torch.float64)
    for row, (_, stack, _) in enumerate(states):
        for level, kind in enumerate(stack):
            counts[row, kinds.opening[kind, level]] += 1
        opens = 1.0 if not stack else 0.0 if len(stack) == max_depth else q
        law[row, 0::2] = opens / types
        if stack:
            law[row, 2 * stack[-1] + 1] = 1 - opens
    last = torch.tensor([state[2] for state in states])
    return PrefixStates(counts, last, law, torch.tensor(list(total.values()), dtype=torch.float64))


class Loss(NamedTuple):
    """The loss (2.40) is `least` + `excess`.

    least     of the truth: the variance of the next token       excess   of the model over it
    worst     the largest ‖T(p) - law(p)‖ over all prefixes
    """

    least: float
    excess: float
    worst: float


def squared_errors(model: BracketTransformer, states: PrefixStates) -> Float[Tensor, " states"]:
    """‖T(p) - law(p)‖² of every state; differentiable in the weights."""
    said = output_from_counts(model, states.counts, states.last)
    return (said - states.law).square().sum(-1)


def exact_loss(model: BracketTransformer, states: PrefixStates) -> Loss:
    """The loss of a model with a minimal first layer and one layer after it.

    Worked value: k = 1, D = 1 has "[" and "]" in turn for certain, so that the least loss is 0; for
    k = 2, D = 1 every other token is a coin, and at N = 2 the least loss is ½ · ½ = ¼.
    """
    errors = squared_errors(model, states)
    variance = 1 - states.law.square().sum(-1)
    return Loss(
        float(states.weight @ variance),
        float(states.weight @ errors),
        float(errors.max().sqrt()),
    )
