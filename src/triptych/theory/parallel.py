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

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.divergences import kl_divergence, total_variation
from triptych.core.protocols import Rng
from triptych.core.table import Table, all_sequences
from triptych.core.validation import check_count, check_distributions, check_integers, check_shape

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


# ------------------------------------------------------------------ a transformer by hand


@dataclass(frozen=True, eq=False)
class Block:
    """Attn(X) + W₂ ReLU(W₁ Attn(X) + b₁) + b₂, Attn(X) = X + W_O W_V X σ((W_K X)ᵀ W_Q X), one head
    [li, (4.56), (4.57)]; the positions are columns there and rows here."""

    query: Float[Tensor, "head width"]
    key: Float[Tensor, "head width"]
    value: Float[Tensor, "head width"]
    output: Float[Tensor, "width head"]
    inner: Float[Tensor, "hidden width"]
    inner_bias: Float[Tensor, " hidden"]
    outer: Float[Tensor, "width hidden"]
    outer_bias: Float[Tensor, " width"]

    def __call__(self, x: Float[Tensor, "batch n width"]) -> Float[Tensor, "batch n width"]:
        scores = (x @ self.query.T) @ (x @ self.key.T).mT
        mixed = x + scores.softmax(-1) @ (x @ self.value.T) @ self.output.T
        hidden = (mixed @ self.inner.T + self.inner_bias).relu()
        return mixed + hidden @ self.outer.T + self.outer_bias


@dataclass(frozen=True, eq=False)
class ParallelTransformer:
    """σ(W^pred (t_L ∘ … ∘ t_1)(E + P) + b^pred) at every position [li, (4.55)-(4.60)]."""

    tokens: Float[Tensor, "vocab width"]
    positions: Float[Tensor, "length width"]
    blocks: tuple[Block, ...]
    head: Float[Tensor, "vocab width"]
    head_bias: Float[Tensor, " vocab"]

    def log_probs(self, x: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """log of the predicted distribution of every position."""
        state = self.tokens[x] + self.positions
        for block in self.blocks:
            state = block(state)
        return (state @ self.head.T + self.head_bias).log_softmax(-1)

    def argmax(self, x: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"]:
        """The likeliest token of every position, the first of several [li, (4.62)]."""
        log_probs = self.log_probs(x)
        tied = log_probs == log_probs.amax(-1, keepdim=True)
        return tied.long().argmax(-1)

    def sample(self, x: Int[Tensor, "batch length"], rng: Rng) -> Int[Tensor, "batch length"]:
        """Every position drawn on its own [li, (4.61)]."""
        return rng.categorical(self.log_probs(x))


def compiled_law(
    laws: Float[Tensor, "states length vocab"], *, floor: float = -60.0
) -> ParallelTransformer:
    """The transformer whose step has these site laws: Proposition 4.1.3, the positive part.

    Its logits are the logarithms of the laws. A probability 0 has none, and softmax cannot say 0:
    it gets the logit `floor`, so a law with zeros is met up to V exp(floor) at each position.
    Two blocks, width 2 NV + 2V + N, one unit for every (sequence, position) in the second.
    """
    states, length, vocab = laws.shape
    if states != vocab**length:
        raise ValueError(f"laws are given for {states} states; there are {vocab}^{length}")
    check_distributions("laws", laws)
    if not (math.isfinite(floor) and floor < 0):
        raise ValueError(f"floor is {floor}; it must be a finite negative logit")
    pairs = length * vocab
    width = vocab + length + 2 * pairs + vocab
    token, place = slice(0, vocab), slice(vocab, vocab + length)
    pair = slice(vocab + length, vocab + length + pairs)  # 1[token v stands at place i]
    seen = slice(pair.stop, pair.stop + pairs)  # the same, of the whole sequence
    logit = slice(seen.stop, width)

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.float64, device=laws.device)

    def eye(size: int) -> Tensor:
        return torch.eye(size, dtype=torch.float64, device=laws.device)

    tokens, positions, head = zeros(vocab, width), zeros(length, width), zeros(vocab, width)
    tokens[:, token], positions[:, place], head[:, logit] = eye(vocab), eye(length), eye(vocab)
    # ReLU(1[v is here] + 1[this is place i] - 1) is 1 exactly at the pair (i, v).
    inner, outer = zeros(pairs, width), zeros(width, pairs)
    inner[:, token], inner[:, place] = (
        eye(vocab).repeat(length, 1),
        eye(length).repeat_interleave(vocab, 0),
    )
    outer[pair] = eye(pairs)
    silent = (zeros(1, width), zeros(1, width), zeros(1, width), zeros(width, 1))
    first = Block(*silent, inner, zeros(pairs) - 1, outer, zeros(width))
    # Scores 0 attend uniformly: the mean of the pairs over places, times N, lists the sequence.
    value, output = zeros(pairs, width), zeros(width, pairs)
    value[:, pair], output[seen] = eye(pairs), eye(pairs) * length
    # ReLU(Σ_i 1[s_i stands at i] + 1[this is place j] - N) is 1 exactly at place j of s.
    one_hot = eye(vocab)[all_sequences(vocab, length, laws.device)].reshape(states, pairs)
    inner, outer = zeros(states * length, width), zeros(width, states * length)
    inner[:, seen] = one_hot.repeat_interleave(length, 0)
    inner[:, place] = eye(length).repeat(states, 1)
    outer[logit] = laws.log().clamp(min=floor).reshape(states * length, vocab).T
    silent = (zeros(pairs, width), zeros(pairs, width))
    bias = zeros(states * length) - length
    second = Block(*silent, value, output, inner, bias, outer, zeros(width))
    return ParallelTransformer(tokens, positions, (first, second), head, zeros(vocab))


def compiled_map(images: Int[Tensor, "states length"], vocab_size: int) -> ParallelTransformer:
    """The transformer whose argmax is f, given as f(x) for every x in lexicographic order.

    Proposition 4.1.2. Worked value: images [[1], [0]] is the map that swaps two tokens.
    """
    check_integers("images", images, dimensions=2)
    if not ((images >= 0) & (images < vocab_size)).all():
        raise ValueError(f"images must hold tokens in 0..{vocab_size - 1}")
    one_hot = torch.eye(vocab_size, dtype=torch.float64, device=images.device)[images]
    return compiled_law(one_hot)
