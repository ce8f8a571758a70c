"""Pruning a random transformer until it computes a given one [li, Theorem 2.2.3, 2.2.5.5-2.2.5.6].

A weight of the target is a sum of products of random weights, over a subset that is found by
meeting in the middle; all other weights are set to 0. Nothing is trained.

    target layer       f(X) = W_2 ReLU(W_1 (LN_C(W_V X σ((W_K X)ᵀ W_Q X)) + X))
    two random layers  the first prunes its attention to 0 and its MLP of four layers to
                       X -> (X, V⁻¹ P W_V X);  the second keeps one large entry a row of its value
                       matrix (V, diagonal), and prunes keys, queries and its MLP to the target's
    the other layers   their attention is pruned to 0, their MLP to the identity

Positions are rows. Attention is not causal here, as in the theorem, and MLPs have no biases.

Notation
--------
m   width of the target      w   hidden units of its MLP     block   random units for one input
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.validation import UserError
from triptych.models.constructions.normalised import layer_norm

Draw = Callable[..., Tensor]
_HALF = 12  # units in each half of a subset sum: 2^12 sums


@dataclass(frozen=True, eq=False)
class PlainLayer:
    """g(LN_C(W_V X σ((W_K X)ᵀ W_Q X)) + X), g of ReLU layers without biases."""

    key: Float[Tensor, "attention width"]
    query: Float[Tensor, "attention width"]
    value: Float[Tensor, "width width"]
    mlp: tuple[Float[Tensor, "_ _"], ...]

    def __call__(
        self, x: Float[Tensor, "*batch n width"], constant: float
    ) -> Float[Tensor, "*batch n width"]:
        weights = ((x @ self.query.T) @ (x @ self.key.T).mT).softmax(-1)
        x = layer_norm(weights @ (x @ self.value.T), constant) + x
        for weight in self.mlp[:-1]:
            x = (x @ weight.T).relu()
        return x @ self.mlp[-1].T

    def matrices(self) -> dict[str, Tensor]:
        named = {"key": self.key, "query": self.query, "value": self.value}
        return named | {f"mlp {i + 1}": weight for i, weight in enumerate(self.mlp)}


@dataclass(frozen=True, eq=False)
class PlainTransformer:
    """Layers on vectors; the head is the identity [li, 2.2.2.3]."""

    layers: tuple[PlainLayer, ...]
    constant: float

    @property
    def width(self) -> int:
        return len(self.layers[0].value)

    def __call__(self, x: Float[Tensor, "*batch n m"]) -> Float[Tensor, "*batch n m"]:
        """Vectors of m coordinates in and out; where the layers are wider, 0 is added."""
        m = x.shape[-1]
        x = torch.nn.functional.pad(x, (0, self.width - m))
        for layer in self.layers:
            x = layer(x, self.constant)
        return x[..., :m]


def random_target(
    width: int, hidden: int, layers: int, draw: Draw, *, constant: float = 0.5
) -> PlainTransformer:
    """A small transformer whose matrices have spectral norm 1; `draw(*shape)` gives its entries."""

    def unit(*shape: int) -> Tensor:
        matrix = draw(*shape)
        return matrix / torch.linalg.matrix_norm(matrix, 2)

    made = []
    for _ in range(layers):
        key, query, value = (unit(width, width) for _ in range(3))
        made.append(PlainLayer(key, query, value, (unit(hidden, width), unit(width, hidden))))
    return PlainTransformer(tuple(made), constant)


def random_large(
    target: PlainTransformer, block: int, draw: Draw, *, spare: int = 8
) -> PlainTransformer:
    """4 L random layers, with `block` units for every input that is approximated.

    draw(*shape) gives entries that are uniform on (-1, 1). Width m (1 + spare), of which the value
    matrices need `spare` columns a row; attention m · block; hidden units max(4m, w) · block.
    """
    m, w = target.width, len(target.layers[0].mlp[0])
    width, attention, hidden = m * (1 + spare), m * block, max(4 * m, w) * block
    made = [
        PlainLayer(
            draw(attention, width),
            draw(attention, width),
            draw(width, width),
            (draw(hidden, width), draw(hidden, hidden), draw(hidden, hidden), draw(width, hidden)),
        )
        for _ in range(4 * len(target.layers))
    ]
    return PlainTransformer(tuple(made), target.constant)


# ------------------------------------------------------------------ subset sums


def best_subset(values: Float[Tensor, " values"], target: float) -> Bool[Tensor, " values"]:
    """The subset whose sum is nearest to the target; of more than 24 values, the 24 largest.

    Worked value: of 1, 2 and 4, the target 5.2 takes 1 and 4.
    """
    used = values.abs().argsort(descending=True)[: 2 * _HALF]
    half = (len(used) + 1) // 2
    left, right = values[used[:half]], values[used[half:]]
    left_sums, right_sums = _subset_sums(left), _subset_sums(right)
    order = right_sums.argsort()
    ranked = right_sums[order]
    wanted = target - left_sums
    after = torch.searchsorted(ranked, wanted).clamp(max=len(ranked) - 1)
    before = (after - 1).clamp(min=0)
    nearer = (ranked[before] - wanted).abs() < (ranked[after] - wanted).abs()
    match = torch.where(nearer, before, after)
    best = int((ranked[match] - wanted).abs().argmin())
    chosen = torch.zeros(len(values), dtype=torch.bool)
    chosen[used] = torch.cat([_bits(best, len(left)), _bits(int(order[match[best]]), len(right))])
    return chosen


def _subset_sums(values: Float[Tensor, " values"]) -> Float[Tensor, " subsets"]:
    sums = torch.zeros(1).to(values)
    for value in values:
        sums = torch.cat([sums, sums + value])
    return sums


def _bits(number: int, count: int) -> Bool[Tensor, " count"]:
    return torch.tensor([bool(number >> bit & 1) for bit in range(count)], dtype=torch.bool)


# ------------------------------------------------------------------ matrices


def pruned_product(
    left: Float[Tensor, "outputs hidden"],
    right: Float[Tensor, "hidden inputs"],
    target: Float[Tensor, "rows columns"],
    *,
    relu: bool,
) -> tuple[Float[Tensor, "outputs hidden"], Float[Tensor, "hidden inputs"]]:
    """Prunings L, R of two random matrices with L σ(R x) ≈ target x [li, Lemma 2.2.2].

    The target acts on the first inputs and makes the first outputs. A block of hidden units is left
    for every input; with ReLU, those of positive weight serve x > 0 and the others x < 0.
    """
    rows, columns = target.shape
    block = right.shape[0] // columns
    if block < 2 or rows > left.shape[0] or columns > right.shape[1]:
        raise UserError(
            f"a {rows} × {columns} matrix does not fit into {tuple(left.shape)} and "
            f"{tuple(right.shape)} with two units an input"
        )
    new_left, new_right = torch.zeros_like(left), torch.zeros_like(right)
    for column in range(columns):
        units = torch.arange(column * block, (column + 1) * block)
        entries = right[units, column]
        new_right[units, column] = entries
        groups = [units[entries > 0], units[entries <= 0]] if relu else [units]
        for row in range(rows):
            wanted = float(target[row, column])
            for group in groups if wanted else []:
                products = left[row, group] * right[group, column]
                chosen = group[best_subset(products, wanted)]
                new_left[row, chosen] = left[row, chosen]
    return new_left, new_right


def pruned_mlp(
    mlp: Sequence[Float[Tensor, "_ _"]],
    first: Float[Tensor, "units inputs"],
    second: Float[Tensor, "outputs units"],
) -> tuple[Float[Tensor, "_ _"], ...]:
    """Four random layers pruned to second ReLU(first x) [li, Lemma 2.2.6]."""
    two, one = pruned_product(mlp[1], mlp[0], first, relu=True)
    four, three = pruned_product(mlp[3], mlp[2], second, relu=True)
    return one, two, three, four


def pruned_linear(
    mlp: Sequence[Float[Tensor, "_ _"]], matrix: Float[Tensor, "outputs inputs"]
) -> tuple[Float[Tensor, "_ _"], ...]:
    """Four random layers pruned to a linear map: (I, -I) ReLU((M, -M) x) [li, Lemma 2.2.20]."""
    identity = torch.eye(len(matrix)).to(matrix)
    return pruned_mlp(mlp, torch.cat([matrix, -matrix]), torch.cat([identity, -identity], dim=1))


# ------------------------------------------------------------------ layers


def identity_layer(layer: PlainLayer, width: int) -> PlainLayer:
    """A random layer pruned to the identity of the first `width` coordinates."""
    mlp = pruned_linear(layer.mlp, torch.eye(width).to(layer.value))
    return replace(_without_attention(layer), mlp=mlp)


def _without_attention(layer: PlainLayer) -> PlainLayer:
    return replace(layer, key=0 * layer.key, query=0 * layer.query, value=0 * layer.value)


def pruned_pair(
    first: PlainLayer, second: PlainLayer, target: PlainLayer
) -> tuple[PlainLayer, PlainLayer]:
    """Two random layers pruned to one given layer [li, Lemmas 2.2.3 and 2.2.14]."""
    m = len(target.value)
    columns = _large_entries(second.value, m)
    rows = torch.arange(m)
    value = torch.zeros_like(second.value)
    value[rows, columns] = second.value[rows, columns]
    centring = torch.eye(m).to(value) - 1 / m
    wanted = centring @ target.value / value[rows, columns][:, None]
    # the linear map X -> (X, V⁻¹ P W_V X), its second part at the columns that V reads
    mlp = _placed_linear(first.mlp, torch.cat([torch.eye(m).to(value), wanted]), columns, m)
    right, left = pruned_product(
        second.key.T, second.query, target.key.T @ target.query, relu=False
    )
    return replace(_without_attention(first), mlp=mlp), PlainLayer(
        right.T, left, value, pruned_mlp(second.mlp, *target.mlp)
    )


def _large_entries(value: Float[Tensor, "width width"], m: int) -> Int[Tensor, " m"]:
    """For each of the first m rows a column of its own, beyond m, whose entry is large."""
    sizes = value[:m].abs()
    sizes[:, :m] = 0.0
    taken: list[int] = []
    for row in range(m):
        column = int(sizes[row].argmax())
        if float(sizes[row, column]) < 0.5:
            raise UserError(f"no entry of row {row} of the value matrix is ½ or more: add width")
        sizes[:, column] = 0.0
        taken.append(column)
    return torch.tensor(taken)


def _placed_linear(
    mlp: Sequence[Float[Tensor, "_ _"]],
    matrix: Float[Tensor, "outputs inputs"],
    columns: Int[Tensor, " m"],
    m: int,
) -> tuple[Float[Tensor, "_ _"], ...]:
    """`pruned_linear`, with outputs m, m + 1, … at the given coordinates."""
    places = torch.cat([torch.arange(m), columns])
    moved = (*mlp[:3], mlp[3][places])
    one, two, three, four = pruned_linear(moved, matrix)
    last = torch.zeros_like(mlp[3])
    last[places] = four
    return one, two, three, last


# ------------------------------------------------------------------ transformers


def pruned_transformer(
    large: PlainTransformer, target: PlainTransformer, *, identity_at: int | None = None
) -> PlainTransformer:
    """A pruning of `large` that computes `target` approximately [li, Theorem 2.2.3].

    identity_at: a layer, counted from 0, that must become the identity [li, Corollary 2.2.3].
    """
    count, wanted = len(large.layers), list(target.layers)
    if count < 4 * len(wanted):
        raise UserError(f"{4 * len(wanted)} layers are needed; the random transformer has {count}")
    layers: list[PlainLayer] = []
    while len(layers) < count:
        here = len(layers)
        pair = here + 1 < count and identity_at not in (here, here + 1)
        if wanted and pair:
            layers += pruned_pair(large.layers[here], large.layers[here + 1], wanted.pop(0))
        else:
            layers.append(identity_layer(large.layers[here], target.width))
    if wanted:
        raise UserError("too few pairs of layers next to the identity")
    return replace(large, layers=tuple(layers))


def is_pruning(pruned: PlainTransformer, large: PlainTransformer) -> bool:
    """Every weight is that of `large` or 0 [li, Definition 2.2.4]."""
    return all(
        bool(((new == old) | (new == 0)).all())
        for small, big in zip(pruned.layers, large.layers, strict=True)
        for new, old in zip(small.matrices().values(), big.matrices().values(), strict=True)
    )


def norm_1_2(x: Float[Tensor, "*batch n m"]) -> Float[Tensor, "*batch"]:
    """‖X‖_{1,2}: the largest norm of a position [li, Definition 2.2.6].

    The thesis says "max row norm" and writes the columns, which are its positions.
    """
    return x.norm(dim=-1).amax(-1)


def relative_errors(
    pruned: PlainTransformer, target: PlainTransformer, inputs: Float[Tensor, "batch n m"]
) -> Float[Tensor, " batch"]:
    """‖f(X) - g(X)‖ / ‖X‖ in the 1,2-norm [li, Definition 2.2.5]."""
    return norm_1_2(pruned(inputs) - target(inputs)) / norm_1_2(inputs)


def worst_input(
    pruned: PlainTransformer,
    target: PlainTransformer,
    inputs: Float[Tensor, "batch n m"],
    *,
    steps: int = 30,
) -> float:
    """The largest relative error found by ascent from the given inputs, within ‖X‖ ≤ 1."""
    x = inputs / norm_1_2(inputs)[:, None, None]
    best = relative_errors(pruned, target, x)
    size = torch.full_like(best, 0.3)
    for _ in range(steps):
        x.requires_grad_(True)
        (slope,) = torch.autograd.grad(relative_errors(pruned, target, x).sum(), x)
        with torch.no_grad():
            step = size[:, None, None] * slope / (norm_1_2(slope)[:, None, None] + 1e-300)
            tried = x + step
            tried = tried / norm_1_2(tried).clamp(min=1.0)[:, None, None]
            found = relative_errors(pruned, target, tried)
            better = found > best
            x = torch.where(better[:, None, None], tried, x).detach()
            best = torch.where(better, found, best)
            size = torch.where(better, 1.2 * size, 0.5 * size)
    return float(best.max())
