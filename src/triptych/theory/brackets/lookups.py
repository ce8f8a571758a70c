"""Where a network must look back: after a closing bracket that leaves another one open.

After an opening bracket the last token says what may close. Where nothing is open, nothing may
close. A lookup is a position in between: the right closing bracket is that of the innermost open
bracket, which stands somewhere earlier. Accuracy at lookups is what attention is good for.

Positions count from the start token, which is position 0, as in a pattern.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.validation import Count, Tokens, UserError, as_size, as_tokens
from triptych.theory.brackets.patterns import partners

TIE = 1e-6  # closing brackets whose probabilities are closer than this are equally likely


class Lookups(NamedTuple):
    """One entry for each lookup of some sentences.

    sentence    its number                      place     position of the closing bracket
    partner     position of the innermost open bracket            type     of that bracket
    """

    sentence: Int[Tensor, " lookups"]
    place: Int[Tensor, " lookups"]
    partner: Int[Tensor, " lookups"]
    type: Int[Tensor, " lookups"]


def lookups(tokens: Tokens, types: Count) -> Lookups:
    """All lookups of the sentences.

    Worked value: "[()" has one: sentence 0, place 3, partner 1, type 0.
    """
    types = as_size("types", types)
    rows = as_tokens(tokens, 2 * types)
    found = [
        (sentence, place + 1, partner + 1, int(rows[sentence, partner]) // 2)
        for sentence, places in enumerate(partners(rows, types))
        for place, partner in enumerate(places)
        if partner is not None and int(rows[sentence, place]) % 2 == 1
    ]
    if not found:
        raise UserError("no closing bracket of the sentences leaves a bracket open")
    return Lookups(*torch.tensor(found).T)


def lookup_accuracy(predictions: Float[Tensor, "batch n vocab"], where: Lookups) -> float:
    """The share of lookups at which the right closing bracket is the only likeliest one.

    predictions[b, i]: of the token after position i. Those of closing brackets are compared.
    Worked value: after "[()" the probabilities (0.2, 0.5, 0.2, 0.1) of "[", "]", "(", ")" are
    right, and (0.2, 0.3, 0.2, 0.3) are not.
    """
    closing = predictions[where.sentence, where.place][:, 1::2]
    right = closing.gather(1, where.type[:, None])[:, 0]
    others = closing.scatter(1, where.type[:, None], -torch.inf).amax(1)
    return float((right > others + TIE).double().mean())


def lookup_weight(patterns: Float[Tensor, "batch n n"], where: Lookups) -> float:
    """The mean weight on the innermost open bracket: stack-likeness over many sentences.

    Worked value: 1/4 for uniform attention after "[()".
    """
    return float(patterns[where.sentence, where.place, where.partner].double().mean())


def uniform_pattern(positions: Count) -> Float[Tensor, "n n"]:
    """Equal weights on all positions up to one's own."""
    positions = as_size("positions", positions)
    weights = torch.ones(positions, positions, dtype=torch.float64).tril()
    return weights / weights.sum(-1, keepdim=True)
