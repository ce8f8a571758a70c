"""Which Markov chains parallel decoding can make, and which not [li, 4.1.4.1, 4.3.9].

A parallel decoder draws every position on its own given the current sequence, so each row of its
transition matrix is a product law over positions (Proposition 4.1.3). Conversely any product law
is made by some transformer: two blocks are enough, and they are written down here. The first pairs
tokens with positions by ReLU (a sum of embeddings alone would be a bag of words under attention),
the second gathers the pairs by uniform attention and has one ReLU unit for every sequence and
position, which reads a row of a table. With argmax the table is any function f, and applying the
same network t times is f applied t times: neither depth nor width depends on t.

Softmax has no zeros: a law with a zero is met up to exp(floor), see `compiled_law`.

A product chain composed with itself is in general not a product, and a mixture of product chains
is not either. So the k-Gibbs sampler that draws its block at random is no product already at k = 1
(worked value at `distance_from_product`); it is one given the block.

Notation
--------
V   vocab_size       N   length          states   V^N, in lexicographic order
P   transition       [states, states]    g   site laws   [states, N, V], g[x, i, v] = P(y_i = v | x)
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.divergences import kl_divergence, total_variation
from triptych.core.table import Table, all_sequences
from triptych.core.validation import check_count, check_distributions, check_shape

# ------------------------------------------------------------------ product laws


def _check_chain(matrix: Float[Tensor, "states states"], vocab_size: int, length: int) -> None:
    check_count("vocab_size", vocab_size, at_least=1)
    check_count("length", length, at_least=1)
    states = vocab_size**length
    because = f"a chain over {vocab_size}^{length} sequences"
    check_shape("matrix", matrix, (states, states), because)
    check_distributions("matrix", matrix)


def site_laws(
    matrix: Float[Tensor, "states states"], vocab_size: int, length: int
) -> Float[Tensor, "states length vocab"]:
    """g[x, i, v] = P(y_i = v | x): the marginals of each row."""
    _check_chain(matrix, vocab_size, length)
    grid = matrix.reshape(-1, *[vocab_size] * length)
    sites = [
        grid.sum([axis for axis in range(1, length + 1) if axis != i + 1]) if length > 1 else grid
        for i in range(length)
    ]
    return torch.stack(sites, dim=1)


def product_chain(laws: Float[Tensor, "states length vocab"]) -> Float[Tensor, "states states"]:
    """P(y | x) = Π_i g[x, i, y_i]: what a parallel decoder with these site laws does [li, (4.64)].

    Worked value: two bits that are 1 with probability ½ and ¼ from every state go to 00, 01, 10, 11
    with 3/8, 1/8, 3/8, 1/8.
    """
    states, length, vocab = laws.shape
    if states != vocab**length:
        raise ValueError(f"laws are given for {states} states; there are {vocab}^{length}")
    check_distributions("laws", laws)
    return site_products(laws)


def site_products(laws: Float[Tensor, "states length vocab"]) -> Float[Tensor, "states targets"]:
    """Π_i g[x, i, y_i] for every y; rows need not sum to 1, as those of a float32 network do not.

    Worked value: one row ((½, ½), (¾, ¼)): 3/8, 1/8, 3/8, 1/8.
    """
    matrix = laws.new_ones(len(laws), 1)
    for i in range(laws.shape[1]):
        matrix = (matrix[:, :, None] * laws[:, i, None, :]).reshape(len(laws), -1)
    return matrix


def closest_product(
    matrix: Float[Tensor, "states states"], vocab_size: int, length: int
) -> Float[Tensor, "states states"]:
    """The product of each row's marginals: of all products Q it has the least KL(P(x) ‖ Q(x))."""
    return product_chain(site_laws(matrix, vocab_size, length))


def distance_from_product(
    matrix: Float[Tensor, "states states"], vocab_size: int, length: int
) -> Float[Tensor, " states"]:
    """Total variation between each row and the product of its own marginals.

    Worked value: 1-Gibbs on two spins flips a random one with probability q each, so a row is
    (1 - q, q/2, q/2, 0), and the product of its marginals has q²/4 where the row has 0: q²/2, which
    is 1/8 for independent fair spins.
    """
    product = closest_product(matrix, vocab_size, length)
    return total_variation(matrix.log(), product.log())


def total_correlation(
    matrix: Float[Tensor, "states states"], vocab_size: int, length: int
) -> Float[Tensor, " states"]:
    """KL(row ‖ product of its marginals) in nats: what the closest product chain loses.

    Worked value: a row that is 00 or 11 with ½ each has log 2.
    """
    product = closest_product(matrix, vocab_size, length)
    return kl_divergence(matrix.log(), product.log()).clamp(min=0.0)


class ProductCheck(NamedTuple):
    """holds         every row is a product law up to the tolerance
    worst            the sequence from which the step is furthest from one
    distance         its total variation from the product of its marginals
    correlation      its total correlation, nats
    """

    holds: bool
    worst: tuple[int, ...]
    distance: float
    correlation: float


def is_product(
    matrix: Float[Tensor, "states states"], vocab_size: int, length: int, tolerance: float = 1e-9
) -> ProductCheck:
    """Whether a parallel decoder could make this chain, with the state that speaks most against."""
    apart = distance_from_product(matrix, vocab_size, length)
    state = int(apart.argmax())
    lost = total_correlation(matrix, vocab_size, length)
    worst = tuple(all_sequences(vocab_size, length)[state].tolist())
    distance = float(apart[state])
    return ProductCheck(distance <= tolerance, worst, distance, float(lost[state]))


def independent_parallel_laws(table: Table) -> Float[Tensor, "states length vocab"]:
    """g[x, i, ·] = p(x_i = · | the others of x) [li, Def. 4.1.11]; `product_chain` of it steps."""
    states = all_sequences(table.vocab_size, table.length, table.device)
    at = torch.eye(table.length, dtype=torch.bool, device=table.device)
    laws = [table.masked_log_probs(states, one.expand_as(states))[:, i] for i, one in enumerate(at)]
    return torch.stack(laws, dim=1).exp()
