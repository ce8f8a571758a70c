"""How far an attention layer is from balance [li, (2.47)-(2.54)].

A pair of matching brackets should leave no trace: what it adds to the attention output, S, should
be 0 for every query that is a closing bracket with brackets still open.

The thesis writes the query once as τ_{2j,d} and once as τ_{2j,d-1}, and the arguments of u in both
orders. Here the key comes first, and the query (j, d) is the closing bracket of type j and level d,
which leaves d - 1 brackets open; it takes d = 2 … D for one to be open.

Notation
--------
u[key, query]   exp(B[key, query]) P W_V e(key)                                      (2.48)
S[i, d', j, d]  u(opening (i, d')) + u(closing (i, d')) for the query (j, d)           (2.51)
Q(j, d, t)      what the prefix "t then ( then )" adds, t the open brackets          (2.52)
P[j, d]         the least norm of Q over t that end otherwise than the best t        (2.53)
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.table import all_sequences
from triptych.core.validation import Count, Number, UserError, as_number, as_probability, as_size
from triptych.models.constructions.balanced import Kinds, log_ratios
from triptych.models.constructions.brackets import BracketTransformer
from triptych.theory.conditions import Condition, Conditions

MAX_STACKS = 2**16


class Attention(NamedTuple):
    """A second layer of attention on a minimal first layer, as its theory sees it.

    scores[key, query]   e(key)ᵀ W_Kᵀ W_Q e(query), with whatever factor the network has
    values[key]          P W_V e(key): the mean over coordinates is taken off
    """

    types: int
    max_depth: int
    scores: Float[Tensor, "kinds kinds"]
    values: Float[Tensor, "kinds width"]

    @classmethod
    def of(cls, model: BracketTransformer) -> "Attention":
        """The attention of a network whose first layer is minimal."""
        if not (model.minimal and len(model.layers) == 1):
            raise UserError(
                "the model must have a minimal first layer and one layer after it",
                parameter="model",
            )
        layer, e = model.layers[0], model.vectors
        values = e @ layer.value.T
        return cls(
            model.types,
            model.max_depth,
            (e @ layer.key.T) @ (e @ layer.query.T).T,
            values - values.mean(-1, keepdim=True),
        )

    @property
    def kinds(self) -> Kinds:
        return Kinds.of(self.types, self.max_depth)

    def u(self, query: int) -> Float[Tensor, "kinds width"]:
        """u(·, query) of every key [li, (2.48)]."""
        return self.scores[:, query].exp()[:, None] * self.values


def balance_errors(attention: Attention) -> Float[Tensor, " pairs"]:
    """The largest |left side of (2.47)| of every pair (i, d'), over all pairs of queries."""
    ratios = log_ratios(attention.scores, attention.types, attention.max_depth)
    if not ratios.shape[1]:
        return torch.zeros(len(ratios)).to(ratios)
    return ratios.amax(1) - ratios.amin(1)


def pair_effects(attention: Attention) -> Float[Tensor, "types levels types levels width"]:
    """S[i, d' - 1, j, d - 1], for every query (j, d), those of level 1 among them.

    Worked value: with uniform attention and W_V = 1 in one dimension, an opening and a closing
    bracket of values 3 and -1 have S = 2.
    """
    kinds = attention.kinds
    rows = []
    for query in kinds.closing.flatten().tolist():
        u = attention.u(query)
        rows.append(u[kinds.opening] + u[kinds.closing])
    both = torch.stack(rows, 2)  # types levels queries width
    return both.unflatten(2, tuple(kinds.closing.shape))


def prefix_effect(
    attention: Attention, type_: int, level: int, stack: Int[Tensor, "stacks open"]
) -> Float[Tensor, "stacks width"]:
    """Q(j, d, t): start, the open brackets t, and the pair (j, d), for the query (j, d)."""
    kinds = attention.kinds
    u = attention.u(int(kinds.closing[type_, level - 1]))
    opened = u[kinds.opening[stack, torch.arange(stack.shape[1])]].sum(1)
    own = u[kinds.opening[type_, level - 1]] + u[kinds.closing[type_, level - 1]]
    return u[kinds.start] + opened + own


class Rivals(NamedTuple):
    """Two stacks that end in different brackets, and P = ‖Q(j, d, t')‖ [li, (2.53)].

    best     t:  of least ‖Q‖
    other    t': of least ‖Q‖ among those that end in another bracket
    """

    best: Int[Tensor, " open"]
    other: Int[Tensor, " open"]
    norm: float


def rivals(attention: Attention, type_: int, level: int) -> Rivals:
    """t, t' and P[j, d]; it takes two types and an open bracket."""
    if attention.types < 2 or level < 2:
        raise UserError(
            f"P needs two types of brackets and a level of 2 or more, so that stacks can differ in "
            f"their last bracket; given {attention.types} and {level}",
            parameter="level",
        )
    if attention.types ** (level - 1) > MAX_STACKS:
        raise UserError(f"{attention.types}^{level - 1} stacks; at most {MAX_STACKS} are compared")
    stacks = all_sequences(attention.types, level - 1)
    norms = prefix_effect(attention, type_, level, stacks).norm(dim=1)
    best = stacks[norms.argmin()]
    apart = stacks[:, -1] != best[-1]
    other = torch.where(apart, norms, torch.inf).argmin()
    return Rivals(best, stacks[other], float(norms[other]))


def prefix_norms(attention: Attention) -> Float[Tensor, "types levels"]:
    """P[j, d - 2] for d = 2 … D."""
    rows = [
        [rivals(attention, j, d).norm for d in range(2, attention.max_depth + 1)]
        for j in range(attention.types)
    ]
    return torch.tensor(rows, dtype=torch.float64)


def violations(attention: Attention) -> Float[Tensor, "types levels types inner"]:
    """‖S[i, d', j, d]‖ / P[j, d], the last index for d = 2 … D."""
    sizes = pair_effects(attention)[..., 1:, :].norm(dim=-1)
    return sizes / prefix_norms(attention)


def balance_violation(attention: Attention) -> float:
    """The mean of ‖S‖ / P over i, d', j and d = 2 … D [li, 2.2.3.3]."""
    return float(violations(attention).mean())


def measured_constants(
    attention: Attention, length: Count
) -> Float[Tensor, "types levels types inner"]:
    """‖S‖ N / P: Theorem 2.2.2 says that one constant bounds it for near-optimal models."""
    return violations(attention) * as_size("length", length)


# ------------------------------------------------------------------ Theorem 2.2.2, written out


def most_pairs(length: int, max_depth: int, level: int) -> int:
    """How many pairs fit into N tokens next to a visit to all depths and those of Q(j, d, t).

    Worked value: N = 17, D = d = 2 needs 4 tokens for the visit and 3 for the rest: 5 pairs.
    """
    return (length - 2 * max_depth - (level + 1)) // 2


def separation(lipschitz: float, error: float, q: float) -> float:
    """δ: how far apart layer norms must put two prefixes that end in different open brackets.

    Their laws are √2 (1 - q) apart; each is missed by at most `error`; the MLP is γ-Lipschitz.
    """
    return (math.sqrt(2) * (1 - q) - 2 * error) / lipschitz


def largest_constant(
    lipschitz: Number, error: Number, q: Number, *, length: Count, max_depth: int, level: int
) -> float:
    """An upper bound of ‖S‖ N / P: 2 (4/δ + 1) N / n, n = `most_pairs`; ∞ where δ ≤ 0.

    error: of the model on the prefixes of `pumping.pumped` with 0 and with n pairs, before both
    stacks of `rivals`. With either number of pairs, what stands before the open brackets adds a
    vector of norm at most R P, R = 4/δ + 1 by Lemma 2.2.1; the difference of the two is n S. The
    printed constant is 16 D R, with an R that depends on P; this one does not.
    """
    lipschitz, error = as_number("lipschitz", lipschitz), as_number("error", error)
    q, length = as_probability("q", q, strictly=True), as_size("length", length)
    delta, pairs = separation(lipschitz, error, q), most_pairs(length, max_depth, level)
    if delta <= 0 or pairs < 1:
        return math.inf
    return 2 * (4 / delta + 1) * length / pairs


def log10_loss_bound(types: Count, q: Number, length: Count, epsilon: Number = 1.0) -> float:
    """log10 of (q (1 - q) / k²)^N ε, the loss that Theorem 2.2.2 asks for.

    Worked value: k = 2, q = ½, N = 17 is 16^-17, about 10^-20.5.
    """
    types, length = as_size("types", types), as_size("length", length)
    q, epsilon = as_probability("q", q, strictly=True), as_number("epsilon", epsilon)
    return length * math.log10(q * (1 - q) / types**2) + math.log10(epsilon)


def conditions(
    model: BracketTransformer, *, q: Number, length: Count, loss: Number, epsilon: Number = 1.0
) -> Conditions:
    """What Theorem 2.2.2 assumes of a model with this loss at this length, and by what margin.

    loss: over that of the truth. The squared loss against tokens that are drawn, which the theorem
    names, never falls below the variance of the next token.
    """
    length, loss = as_size("length", length), as_number("loss", loss)
    layer = model.layers[-1]
    bound = log10_loss_bound(model.types, q, length, epsilon)
    missed = math.log10(loss) - bound if loss > 0 else -math.inf
    lipschitz = layer.mlp.lipschitz
    return Conditions(
        "Theorem 2.2.2 [li]",
        [
            Condition("minimal first layer", model.minimal, float(model.minimal), "1 if it is"),
            Condition("C = 0", layer.constant == 0, layer.constant, "C of the layer norm"),
            Condition("Lipschitz projection", lipschitz < math.inf, lipschitz, "bound of γ"),
            Condition(
                "N > 8 D",
                length > 8 * model.max_depth,
                length - 8 * model.max_depth,
                "N - 8 D",
            ),
            Condition("loss", missed <= 0, missed, "log10 of the loss over its bound"),
        ],
    )
