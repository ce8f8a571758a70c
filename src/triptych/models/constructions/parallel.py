"""Networks whose weights are set by a proof, in float64.

`ParallelTransformer` is the network of [li, 4.3.9]: it predicts every position at once.
`compiled_law` and `compiled_map` write the weights that make it a given step of a chain.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.display import counted
from triptych.core.randomness import RngLike, as_rng
from triptych.core.table import all_sequences
from triptych.core.validation import check_distributions, check_integers


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

    def __repr__(self) -> str:
        hidden = counted(len(self.inner_bias), "hidden unit")
        return f"Block(width {len(self.outer_bias)}, {hidden})"

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

    def __repr__(self) -> str:
        (symbols, width), length = self.tokens.shape, len(self.positions)
        inputs = f"{counted(symbols, 'symbol')}, length {length}"
        return f"ParallelTransformer({inputs}, {counted(len(self.blocks), 'block')}, width {width})"

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

    def sample(self, x: Int[Tensor, "batch length"], rng: RngLike) -> Int[Tensor, "batch length"]:
        """Every position drawn on its own [li, (4.61)]."""
        return as_rng(rng, x.device).categorical(self.log_probs(x))


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
