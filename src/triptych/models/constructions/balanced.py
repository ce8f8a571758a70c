"""Weights that predict brackets optimally at every length [li, Theorem 2.2.1, Corollary 2.2.1].

`balanced` is the construction of [li, 2.2.5.1]: whatever the attention scores are, as long as they
are balanced, value vectors exist for which matching brackets cancel, and an MLP of six layers reads
the innermost open bracket off what is left. `uniform` has attention weights that are all equal, in
both layers, and reads tokens alone [li, 2.2.5.3].

Differences from the printed proof, which has slips:
- b_{i,d} ᵀ e(last token) is not 0, so that the MLP subtracts it before it looks for open brackets;
- the start token has a value of its own, orthogonal to all others, not 0: else the layer norm would
  be given 0 at depth 0, and would make a unit vector of rounding errors;
- steps are clipped twice, 1 - ReLU(1 - ReLU(·)), so that they are 0 or 1 without rounding error.

Notation
--------
B[key, query]   scores of kinds       a_{i,d}   log-ratio of the weights of an opening and a closing
b_{i,d}         orthonormal           v         v · e = 1, 2, … for kinds 0, 1, …
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.validation import Count, Number, UserError, as_number, as_probability, as_size
from triptych.models.constructions.brackets import BracketTransformer, first_layer
from triptych.models.constructions.normalised import Layer, Mlp

_BALANCED = 1e-9  # largest violation of the balance condition that is rounding


class Kinds(NamedTuple):
    """Where the kinds are: opening[i, d] and closing[i, d] of type i at level d + 1, and start."""

    opening: Int[Tensor, "types levels"]
    closing: Int[Tensor, "types levels"]
    start: int

    @classmethod
    def of(cls, types: int, max_depth: int) -> "Kinds":
        every = torch.arange(2 * types * max_depth).reshape(types, 2, max_depth)
        return cls(every[:, 0], every[:, 1], 2 * types * max_depth)

    @property
    def inner_closing(self) -> Int[Tensor, " queries"]:
        """Closing brackets that leave one open: the queries of the balance condition."""
        return self.closing[:, 1:].flatten()


def balanced_scores(
    free: Float[Tensor, "kinds kinds"], types: Count, max_depth: Count
) -> Float[Tensor, "kinds kinds"]:
    """Scores B[key, query] that satisfy (2.47), from any: only scores of closing keys change.

    For a query that is a closing bracket at depth 1 or more, B[closing (i, d)] becomes
    B[opening (i, d)] minus what it was below it for the first such query.
    """
    types, max_depth = as_size("types", types), as_size("max_depth", max_depth)
    kinds = Kinds.of(types, max_depth)
    _check_square("free", free, kinds.start + 1)
    scores, queries = free.clone(), kinds.inner_closing
    if len(queries):
        opening, closing = kinds.opening.flatten(), kinds.closing.flatten()
        ratio = free[opening, queries[0]] - free[closing, queries[0]]
        scores[closing[:, None], queries] = free[opening][:, queries] - ratio[:, None]
    return scores


def log_ratios(
    scores: Float[Tensor, "kinds kinds"], types: int, max_depth: int
) -> Float[Tensor, "pairs queries"]:
    """B[opening (i, d), q] - B[closing (i, d), q]: balance says that a row is constant."""
    kinds = Kinds.of(types, max_depth)
    opening, closing = kinds.opening.flatten(), kinds.closing.flatten()
    return (scores[opening] - scores[closing])[:, kinds.inner_closing]


def balanced(
    types: Count,
    max_depth: Count,
    length: Count,
    *,
    q: Number,
    vectors: Float[Tensor, "kinds width"] | None = None,
    scores: Float[Tensor, "kinds kinds"] | None = None,
    leak: Number = 0.0,
    constant: Number = 0.0,
) -> BracketTransformer:
    """The optimal second layer of Theorem 2.2.1 on top of a minimal first layer.

    vectors
        Of the kinds; all of them must be independent. One-hot, (2.55), by default.
    scores
        B[key, query], balanced; 0 by default, which is uniform attention. With one type of brackets
        any scores will do, because no open bracket has to be looked up.
    leak
        Adds a common direction of this length to the value of every closing bracket. Then it is
        not balanced, and optimal for prefixes of up to `length` tokens only.
    constant
        C of the layer norm. Only with 0 is it optimal at every length.
    """
    types, max_depth = as_size("types", types), as_size("max_depth", max_depth)
    length, q = as_size("length", length), as_probability("q", q, strictly=True)
    leak, constant = as_number("leak", leak), as_number("constant", constant)
    kinds = Kinds.of(types, max_depth)
    e = _one_hot(types, max_depth, leak) if vectors is None else vectors
    b = torch.zeros(kinds.start + 1, kinds.start + 1).to(e) if scores is None else scores
    _check_square("scores", b, kinds.start + 1)
    if len(e) != kinds.start + 1 or torch.linalg.matrix_rank(e) < len(e):
        raise UserError(
            f"vectors: {kinds.start + 1} independent ones are needed, one a kind; given {len(e)} "
            f"of rank {int(torch.linalg.matrix_rank(e))}",
            parameter="vectors",
        )
    ratios = log_ratios(b, types, max_depth)
    off = float((ratios - ratios[:, :1]).abs().max()) if ratios.numel() else 0.0
    if types > 1 and off > _BALANCED * (1 + float(b.abs().max())):
        raise UserError(
            "scores are not balanced; `balanced_scores` makes them so", parameter="scores"
        )
    ratio = ratios[:, 0] if ratios.numel() else torch.zeros(types * max_depth).to(e)
    return BracketTransformer(
        types, max_depth, length, e, (_second_layer(e, b, ratio, kinds, q, leak, length, constant),)
    )


def _one_hot(types: int, max_depth: int, leak: float) -> Float[Tensor, "kinds width"]:
    """(2.55), with coordinates that are 0 where there are too few for all orthonormal vectors."""
    e = first_layer(types, max_depth)
    needed = types * max_depth + 3 + (leak != 0)
    return torch.nn.functional.pad(e, (0, max(0, needed - len(e))))


def _second_layer(
    e: Float[Tensor, "kinds width"],
    scores: Float[Tensor, "kinds kinds"],
    ratio: Float[Tensor, " pairs"],
    kinds: Kinds,
    q: float,
    leak: float,
    length: int,
    constant: float,
) -> Layer:
    pairs = kinds.opening.numel()
    inverse = torch.linalg.pinv(e)  # width × kinds, e @ inverse = identity
    v = inverse @ torch.arange(1, len(e) + 1).to(e)
    b = _orthonormal(v, pairs + 1 + (leak != 0))
    outputs = torch.zeros_like(e)
    outputs[kinds.start] = b[pairs]
    outputs[kinds.opening.flatten()] = b[:pairs]
    outputs[kinds.closing.flatten()] = -ratio.exp()[:, None] * b[:pairs]
    if leak:
        outputs[kinds.closing.flatten()] += leak * b[-1]
    key, query = factors(inverse @ scores @ inverse.T)
    smallest = _smallest_share(scores, kinds, abs(leak) * (length // 2))
    mlp = _reader(e, v, b[:pairs], kinds, q, smallest)
    return Layer(key, query, outputs.T @ inverse.T, mlp, constant)


def _orthonormal(v: Float[Tensor, " width"], count: int) -> Float[Tensor, "count width"]:
    """`count` orthonormal vectors orthogonal to v and to (1, …, 1) [li, Lemma 2.2.16]."""
    both = torch.stack([v / v.norm(), torch.ones_like(v) / len(v) ** 0.5])
    _, sizes, basis = torch.linalg.svd(both)
    rest = basis[int((sizes > 1e-9).sum()) :]
    if len(rest) < count:
        raise UserError(f"vectors have width {len(v)}; at least {count + 2} are needed")
    return rest[:count]


def factors(
    bilinear: Float[Tensor, "width width"],
) -> tuple[Float[Tensor, "attention width"], Float[Tensor, "attention width"]]:
    """W_K, W_Q with W_Kᵀ W_Q = `bilinear`."""
    left, sizes, right = torch.linalg.svd(bilinear)
    rank = max(1, int((sizes > 1e-13 * (1e-300 + float(sizes[0]))).sum()))
    root = sizes[:rank, None].sqrt()
    return root * left.T[:rank], root * right[:rank]


def _smallest_share(scores: Float[Tensor, "kinds kinds"], kinds: Kinds, noise: float) -> float:
    """M: the least share of an open bracket in the norm of the attention output [li, 2.2.5.1].

    noise: what closing brackets of weight 1 leak at most, all together.
    """
    least = 1.0
    for query in kinds.inner_closing.tolist():
        level = query % kinds.opening.shape[1]  # brackets that are open
        weights = scores[kinds.opening[:, :level], query].exp().square()
        leaked = noise * float(scores[kinds.closing, query].max().exp())
        rest = weights.amax(0).sum() - weights.amax(0) + leaked**2
        rest = rest + scores[kinds.start, query].exp().square()
        least = min(least, float((weights / (weights + rest)).min().sqrt()))
    return least


def _reader(
    e: Float[Tensor, "kinds width"],
    v: Float[Tensor, " width"],
    b: Float[Tensor, "pairs width"],
    kinds: Kinds,
    q: float,
    smallest: float,
) -> Mlp:
    """Six layers that map LN(attention) + e(last token) to the law of the next token.

    1   ramps in v · z, which is 1 + the kind of the last token;  b · z, shifted to be positive
    2   before[r] = 1 if the kind is less than r, exactly;  the same
    3   a ramp in the share of bracket (i, d), open only for the queries (j, d + 1)
    4   absent[i, d] = 1 if it is not the innermost open bracket, exactly
    5   innermost[i], and whether the depth is 0, D, or between
    6   probabilities
    """
    count, (types, depth) = len(e), kinds.opening.shape
    shift = 1.0 + float(e.norm(dim=1).max())
    inner = types * (depth - 1)
    flags = _flags(kinds).to(e)  # from before[1..count-1]: openings by type, full, empty

    first = torch.cat([(2 * v).expand(count - 1, -1), b])
    first_bias = torch.cat([torch.arange(1, count).to(e) * -2 - 0.5, torch.full((len(b),), shift)])
    second = torch.block_diag(-torch.eye(count - 1), torch.eye(len(b))).to(e)
    second_bias = torch.cat([torch.ones(count - 1), torch.zeros(len(b))]).to(e)

    slope = 3.0 / smallest
    closed = 2 * slope * shift + 2.0
    third = torch.zeros(types * inner + types + 2, count - 1 + len(b)).to(e)
    third_bias = torch.zeros(len(third)).to(e)
    fourth = torch.zeros(inner + types + 2, len(third)).to(e)
    for i in range(types):
        for d in range(depth - 1):
            place = i * (depth - 1) + d
            for j in range(types):
                row, kind = (place * types + j), int(kinds.closing[j, d + 1])
                is_kind = _indicator(kind, count).to(e)
                third[row, : count - 1] = closed * is_kind.weight
                third_bias[row] = closed * (is_kind.bias - 1) + 1.0
                if types > 1:  # else the innermost open bracket is known
                    third[row, count - 1 + i * depth + d] = slope
                    third_bias[row] -= slope * (shift + float(b[i * depth + d] @ e[kind])) + 2.0
                fourth[place, row] = -1.0
    third[types * inner :, : count - 1] = flags.weight
    third_bias[types * inner :] = flags.bias
    fourth[inner:, types * inner :] = torch.eye(types + 2).to(e)
    fourth_bias = torch.cat([torch.ones(inner), torch.zeros(types + 2)]).to(e)

    # of layer 4: absent, openings by type, full, empty
    innermost = torch.zeros(types, inner + types + 2).to(e)
    for i in range(types):
        innermost[i, i * (depth - 1) : (i + 1) * (depth - 1)] = -1.0
        innermost[i, inner + i] = 1.0
    full, empty = torch.zeros(2, inner + types + 2).to(e)
    full[-2], empty[-1] = 1.0, 1.0
    fifth = torch.cat([innermost, innermost + full, torch.stack([-full - empty, empty])])
    present = torch.full((types,), float(depth - 1))
    fifth_bias = torch.cat([present, present - 1, torch.tensor([1.0, 0.0])]).to(e)
    sixth = torch.zeros(2 * types, 2 * types + 2).to(e)
    sixth[0::2, -2], sixth[0::2, -1] = q / types, 1 / types
    for i in range(types):
        sixth[2 * i + 1, i], sixth[2 * i + 1, types + i] = 1 - q, q
    return Mlp(
        (first, second, third, fourth, fifth, sixth),
        (first_bias.to(e), second_bias, third_bias, fourth_bias, fifth_bias, sixth[:, 0] * 0),
    )


class _Affine(NamedTuple):
    """x -> weight x + bias, of before[r] = 1[kind < r] for r = 1 … count - 1."""

    weight: Float[Tensor, "*rows inputs"]
    bias: Float[Tensor, "*rows"]

    def to(self, like: Tensor) -> "_Affine":
        return _Affine(self.weight.to(like), self.bias.to(like))


def _indicator(kind: int, count: int) -> _Affine:
    """1[kind of the last token = kind] = before[kind + 1] - before[kind]."""
    weight, bias = torch.zeros(count - 1), torch.tensor(0.0)
    if kind + 1 < count:
        weight[kind] = 1.0
    else:
        bias = torch.tensor(1.0)  # every kind is less than `count`
    if kind > 0:
        weight[kind - 1] = -1.0
    return _Affine(weight, bias)


def _flags(kinds: Kinds) -> _Affine:
    """Opening of each type, depth is D, depth is 0."""
    count = kinds.start + 1
    groups = [row.tolist() for row in kinds.opening]
    groups += [kinds.opening[:, -1].tolist(), [*kinds.closing[:, 0].tolist(), kinds.start]]
    sums = [[_indicator(kind, count) for kind in group] for group in groups]
    weight = torch.stack([torch.stack([part.weight for part in group]).sum(0) for group in sums])
    bias = torch.stack([torch.stack([part.bias for part in group]).sum() for group in sums])
    return _Affine(weight, bias)


# ------------------------------------------------------------------ uniform attention


def uniform(types: Count, max_depth: Count, length: Count, *, q: Number) -> BracketTransformer:
    """Two layers with uniform attention that write Dyck of any length [li, Corollary 2.2.1].

    The first reads tokens. Its attention output is (depth, -depth, 1, -1) / (n + 1), whose
    direction is the depth; its MLP of two layers maps token and depth to the one-hot kind, (2.55).
    The second is `balanced` with scores 0.
    """
    types, max_depth = as_size("types", types), as_size("max_depth", max_depth)
    second = balanced(types, max_depth, length, q=q)
    tokens, width = 2 * types + 1, 2 * types + 5
    vectors = torch.eye(tokens, width, dtype=torch.float64)
    value = torch.zeros(width, width, dtype=torch.float64)
    sign = torch.tensor([1.0, -1.0]).double()
    value[tokens, : 2 * types] = sign.repeat(types)
    value[tokens + 1, : 2 * types] = -sign.repeat(types)
    value[tokens + 2, 2 * types], value[tokens + 3, 2 * types] = 1.0, -1.0
    silent = torch.zeros(1, width, dtype=torch.float64)
    mlp = _kind_reader(types, max_depth, width, second.vectors)
    first = Layer(silent, silent, value, mlp)
    return BracketTransformer(types, max_depth, second.length, vectors, (first, *second.layers))


def _kind_reader(
    types: int, max_depth: int, width: int, vectors: Float[Tensor, "kinds outputs"]
) -> Mlp:
    """Two layers: o_token and the cosine of the depth in, the vector of the kind out.

    1[token t, depth ≥ d] is the difference of two ramps that are open only for token t.
    """
    depths = torch.arange(max_depth + 1, dtype=torch.float64)
    cosine = depths / (2 * (depths**2 + 1)).sqrt()  # what the layer norm leaves of the depth
    count, tokens = 2 * types * max_depth + 1, 2 * types + 1
    rows: list[Tensor] = []
    biases: list[float] = []
    columns: list[Tensor] = []
    for token in range(2 * types):
        gate = torch.zeros(width, dtype=torch.float64)
        gate[token] = 1.0
        for level in range(1, max_depth + 1):
            here = torch.zeros(count, dtype=torch.float64)
            here[token * max_depth + level - 1] = 1.0
            if level > 1:
                here[token * max_depth + level - 2] = -1.0
            else:  # every bracket has level 1 at least
                rows, biases, columns = [*rows, gate], [*biases, 0.0], [*columns, here]
                continue
            after = level - token % 2
            below, above = float(cosine[after - 1]), float(cosine[after])
            slope, middle = 2 / (above - below), (below + above) / 2
            closed = 2 * slope + 1
            for knot, sign in ((middle - 0.5 / slope, 1.0), (middle + 0.5 / slope, -1.0)):
                ramp = closed * gate
                ramp[tokens] = slope
                rows, columns = [*rows, ramp], [*columns, sign * here]
                biases = [*biases, -slope * knot - closed]
    start, kind = torch.zeros(width, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    start[2 * types], kind[-1] = 1.0, 1.0
    rows, biases, columns = [*rows, start], [*biases, 0.0], [*columns, kind]
    return Mlp(
        (torch.stack(rows), vectors.T @ torch.stack(columns, 1)),
        (torch.tensor(biases, dtype=torch.float64), 0 * vectors[0]),
    )


def _check_square(name: str, scores: Float[Tensor, "_ _"], size: int) -> None:
    if scores.shape != (size, size):
        raise UserError(
            f"{name} has shape {tuple(scores.shape)}; it must be {(size, size)}, kinds",
            parameter=name,
        )
