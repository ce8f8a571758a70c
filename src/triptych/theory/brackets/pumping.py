"""Pumping: matching pairs, inserted again and again, drown the open brackets [li, 2.2.2.1].

The prefix p_β visits every depth, has β pairs of type i and level d' inserted, opens a stack, and
ends with a pair (j, d) whose closing bracket is the query. Its attention output is v + β S up to a
factor, so that an unbalanced layer with C = 0 tends to S/‖S‖, whatever the stack is.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.validation import Count, Number, UserError, as_number, as_size
from triptych.models.constructions.brackets import BracketTransformer, kinds
from triptych.models.constructions.normalised import layer_norm
from triptych.theory.brackets.balance import Attention, pair_effects


class Pump(NamedTuple):
    """What is inserted, and before what: a pair (i, d'), and the query (j, d); types from 0."""

    pair_type: int
    pair_level: int
    query_type: int
    query_level: int


def pumped(
    pump: Pump, stack: Int[Tensor, " open"], pairs: Count, max_depth: Count
) -> Int[Tensor, "1 t"]:
    """The tokens of p_β.

    Worked value: k = 2, D = 3, one "()" of level 2 before the stack "(" and the query "]" of level
    2 makes "[()[[]]]([]".
    """
    pairs, max_depth = as_size("pairs", pairs, at_least=0), as_size("max_depth", max_depth)
    if len(stack) != pump.query_level - 1:
        raise UserError(
            f"a query of level {pump.query_level} stands on {pump.query_level - 1} open brackets; "
            f"the stack has {len(stack)}",
            parameter="stack",
        )
    rise = pump.pair_level - 1
    tokens = [0] * rise + [2 * pump.pair_type, 2 * pump.pair_type + 1] * pairs
    tokens += [0] * (max_depth - rise) + [1] * max_depth
    tokens += [2 * int(bracket) for bracket in stack]
    tokens += [2 * pump.query_type, 2 * pump.query_type + 1]
    return torch.tensor([tokens])


def kind_counts(
    pump: Pump, stack: Int[Tensor, " open"], pairs: Number, model: BracketTransformer
) -> Float[Tensor, " kinds"]:
    """How often every kind is in p_β; `pairs` may be as large as you like."""
    tokens = pumped(pump, stack, 0, model.max_depth)
    every = kinds(tokens, model.types, model.max_depth)[0]
    counts = torch.bincount(every, minlength=len(model.vectors)).double()
    place = 2 * pump.pair_type * model.max_depth + pump.pair_level - 1
    counts[[place, place + model.max_depth]] += as_number("pairs", pairs)
    return counts


def query_kind(pump: Pump, max_depth: int) -> int:
    return (2 * pump.query_type + 1) * max_depth + pump.query_level - 1


def direction_from_counts(
    model: BracketTransformer,
    counts: Float[Tensor, "*rows kinds"],
    query: Int[Tensor, "*rows"] | int,
) -> Float[Tensor, "*rows width"]:
    """LN of the attention output at the last position, from how often every kind was seen.

    The network has no positions, so that counts are all it sees of a prefix.
    """
    attention = Attention.of(model)
    scores = attention.scores[:, query]
    scores = scores.T if scores.ndim > 1 else scores
    weights = (scores + counts.log()).softmax(-1)
    return layer_norm(weights @ attention.values, model.layers[-1].constant)


def output_from_counts(
    model: BracketTransformer,
    counts: Float[Tensor, "*rows kinds"],
    query: Int[Tensor, "*rows"] | int,
) -> Float[Tensor, "*rows vocab"]:
    """What the network says after any prefix with these counts whose last kind is `query`."""
    direction = direction_from_counts(model, counts, query)
    return model.layers[-1].mlp(direction + model.vectors[query])


class Limit(NamedTuple):
    """Where pumping leads: S/‖S‖ of the layer norm, what the network says there, and ‖S‖."""

    direction: Float[Tensor, " width"]
    output: Float[Tensor, " vocab"]
    size: float


def limit(model: BracketTransformer, pump: Pump) -> Limit | None:
    """The limit of β -> ∞ by (2.49); None where S = 0, so that pairs leave no trace."""
    if model.layers[-1].constant:
        raise UserError("the limit of (2.49) is for a layer norm with C = 0")
    attention = Attention.of(model)
    effect = _effect(attention, pump)
    size = float(effect.norm())
    if size <= 1e-12 * float(attention.u(query_kind(pump, model.max_depth)).norm()):
        return None
    direction = effect / size
    last = model.vectors[query_kind(pump, model.max_depth)]
    return Limit(direction, model.layers[-1].mlp(direction + last), size)


def what_does_not_grow(
    model: BracketTransformer, pump: Pump, stack: Int[Tensor, " open"]
) -> Float[Tensor, " width"]:
    """v of (2.49): Σ u over the tokens of p_0."""
    attention = Attention.of(model)
    counts = kind_counts(pump, stack, 0.0, model)
    return counts @ attention.u(query_kind(pump, model.max_depth))


def rate_constant(model: BracketTransformer, pump: Pump, stack: Int[Tensor, " open"]) -> float:
    """lim β ‖LN(p_β) - S/‖S‖‖ = ‖v_⊥‖ / ‖S‖, v_⊥ the part of v that is orthogonal to S."""
    found = limit(model, pump)
    if found is None:
        raise UserError("this pair leaves no trace: there is nothing to approach")
    v = what_does_not_grow(model, pump, stack)
    rest = v - (v @ found.direction) * found.direction
    return float(rest.norm()) / found.size


class Confusion(NamedTuple):
    """Two pumped prefixes that end in different open brackets.

    apart      ‖T(p_β) - T(p'_β)‖ of the network         truth    √2 (1 - q), of the laws
    error      what the larger of the two errors is at least
    """

    apart: float
    truth: float

    @property
    def error(self) -> float:
        return max(0.0, (self.truth - self.apart) / 2)


def confusion(
    model: BracketTransformer,
    pump: Pump,
    stack: Int[Tensor, " open"],
    other: Int[Tensor, " open"],
    pairs: Number,
    *,
    q: float,
) -> Confusion:
    """How well the network tells two stacks apart after β pairs."""
    if not len(stack) or not len(other) or int(stack[-1]) == int(other[-1]):
        raise UserError("the two stacks must end in different brackets")
    query = query_kind(pump, model.max_depth)
    first, second = (
        output_from_counts(model, kind_counts(pump, each, pairs, model), query)
        for each in (stack, other)
    )
    return Confusion(float((first - second).norm()), 2**0.5 * (1 - q))


def _effect(attention: Attention, pump: Pump) -> Float[Tensor, " width"]:
    at = (pump.pair_type, pump.pair_level - 1, pump.query_type, pump.query_level - 1)
    return pair_effects(attention)[at]
