"""How much attention patterns vary, and how much they look like a stack [li, 2.2.3.2].

A pattern has a row for every position: its weights on the positions up to it.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.validation import Count, Tokens, UserError, as_size, as_tokens


def variation(first: Float[Tensor, "n n"], second: Float[Tensor, "n n"]) -> Float[Tensor, ""]:
    """‖A_1 - A_2‖²_F. Worked value: rows (1, 0), (1, 0) and (1, 0), (0, 1) differ by 2."""
    return (first - second).square().sum()


def mean_variation(patterns: Float[Tensor, "models n n"]) -> float:
    """The mean variation of all pairs of models: 2 M/(M-1) Σ (mean of A² - (mean of A)²)."""
    models = len(patterns)
    if models < 2:
        raise UserError(f"{models} pattern has no pairs; at least 2 are needed")
    spread = (patterns.square().mean(0) - patterns.mean(0).square()).sum()
    return float(2 * models / (models - 1) * spread)


def random_variation(positions: Count, *, causal: bool = True) -> float:
    """The expected variation of two patterns whose rows are uniform on the simplex.

    A row of n weights adds 2 (n - 1)/(n (n + 1)); causal rows have 1 … N weights, others all N.
    Worked values: 2 positions, causal: 0 + 1/3. Causal: 3.00 for N = 16, 3.30 for N = 19; the
    thesis has 2.85 for a word of 16 brackets and 3.33 for words of 19. All N weights: 1.76, 1.80.
    """
    positions = as_size("positions", positions)
    widths = range(1, positions + 1) if causal else [positions] * positions
    return sum(2 * (n - 1) / (n * (n + 1)) for n in widths)


def partners(tokens: Tokens, types: Count) -> Sequence[Sequence[int | None]]:
    """Where the innermost open bracket stands after every token, or None; tokens from 0.

    Worked value: "[()" has 0, 1, 0; "[]" has 0, None.
    """
    types = as_size("types", types)
    rows = as_tokens(tokens, 2 * types).tolist()
    found: list[list[int | None]] = []
    for row in rows:
        stack: list[int] = []
        places: list[int | None] = []
        for place, token in enumerate(row):
            if token % 2 == 0:
                stack.append(place)
            elif stack:
                stack.pop()
            else:
                raise UserError(f"the bracket at position {place} closes nothing")
            places.append(stack[-1] if stack else None)
        found.append(places)
    return found


def stack_pattern(tokens: Int[Tensor, " t"], types: Count) -> Float[Tensor, "n n"]:
    """The stack-like pattern of a word after its start token: all weight on the innermost open
    bracket, and on the start token where none is open."""
    (places,) = partners(tokens[None], types)
    n = len(places) + 1
    pattern = torch.zeros(n, n, dtype=torch.float64)
    pattern[0, 0] = 1.0
    for place, partner in enumerate(places):
        pattern[place + 1, 0 if partner is None else partner + 1] = 1.0
    return pattern


def stack_likeness(pattern: Float[Tensor, "n n"], tokens: Int[Tensor, " t"], types: Count) -> float:
    """The mean weight on the innermost open bracket, over the closing brackets that leave one open.

    The start token is position 0 of the pattern. 1 for the stack-like pattern. At these positions a
    row of n weights that is uniform, or uniform on the simplex, has 1/n on average.
    Worked value: "[()" with uniform attention is 1/4.
    """
    (places,) = partners(tokens[None], types)
    if pattern.shape[0] != len(places) + 1:
        raise UserError(
            f"the pattern has {pattern.shape[0]} positions; the word has {len(places)} tokens and "
            "a start token before them",
            parameter="pattern",
        )
    weights = [
        float(pattern[place + 1, partner + 1])
        for place, partner in enumerate(places)
        if partner is not None and int(tokens[place]) % 2 == 1
    ]
    if not weights:
        raise UserError("no closing bracket of the word leaves a bracket open")
    return sum(weights) / len(weights)
