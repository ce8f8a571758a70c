"""One transformer layer with its layer norm between attention and residual [li, (2.42), (2.43)].

    f(X) = g(LN_C(W_V X σ(mask + (W_K X)ᵀ W_Q X)) + X)

The thesis has positions as columns; here they are rows.

Notation
--------
W_K, W_Q   key, query   attention × width      W_V   value   width × width
g          mlp          width -> outputs       C     constant of the layer norm
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.display import counted

_BLOCK = 2**23  # scores that are in memory at once


def layer_norm(
    x: Float[Tensor, "*rows width"], constant: float = 0.0
) -> Float[Tensor, "*rows width"]:
    """LN_C(x) = Px / max(‖Px‖, C), where P subtracts the mean [li, (2.43)]; LN_0(0) = 0.

    Worked value: (3, 0, 0) has Px = (2, -1, -1) with norm √6, so LN_0 gives (2, -1, -1)/√6.
    """
    centred = x - x.mean(-1, keepdim=True)
    size = centred.norm(dim=-1, keepdim=True).clamp(min=constant)
    return torch.where(size > 0, centred / size.where(size > 0, 1.0), 0.0)


@dataclass(frozen=True, eq=False)
class Mlp:
    """x -> W_n ReLU(… ReLU(W_1 x + b_1) …) + b_n."""

    weights: tuple[Float[Tensor, "_ _"], ...]
    biases: tuple[Float[Tensor, " _"], ...]

    def __repr__(self) -> str:
        return f"Mlp({counted(len(self.weights), 'layer')}, width {self.width})"

    @property
    def width(self) -> int:
        """Units of the widest hidden layer."""
        return max((len(bias) for bias in self.biases[:-1]), default=0)

    @property
    def lipschitz(self) -> float:
        """An upper bound of the Lipschitz constant: the product of the spectral norms."""
        bound = torch.stack([torch.linalg.matrix_norm(w, 2) for w in self.weights]).prod()
        return float(bound)

    def __call__(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows outputs"]:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = (x @ weight.T + bias).relu()
        return x @ self.weights[-1].T + self.biases[-1]


@dataclass(frozen=True, eq=False)
class Layer:
    """g(LN_C(causal attention) + X), one head [li, (2.42)]."""

    key: Float[Tensor, "attention width"]
    query: Float[Tensor, "attention width"]
    value: Float[Tensor, "width width"]
    mlp: Mlp
    constant: float = 0.0

    def __repr__(self) -> str:
        return f"Layer(width {len(self.value)}, {self.mlp!r}, C = {self.constant:g})"

    def pattern(
        self, x: Float[Tensor, "batch n width"], first: int = 0, last: int | None = None
    ) -> Float[Tensor, "batch queries n"]:
        """The attention weights of the positions first..last-1; a row is a law on positions."""
        last = x.shape[1] if last is None else last
        scores = (x[:, first:last] @ self.query.T) @ (x @ self.key.T).mT
        place = torch.arange(x.shape[1], device=x.device)
        later = place[None, :] > place[first:last, None]
        return scores.masked_fill(later, -torch.inf).softmax(-1)

    def mixed(
        self, x: Float[Tensor, "batch n width"], first: int = 0
    ) -> Float[Tensor, "batch queries width"]:
        """LN_C(attention output) + X, which the MLP reads, from position `first` on."""
        batch, n, _ = x.shape
        rows = max(1, _BLOCK // max(1, batch * n))
        values = x @ self.value.T
        blocks = []
        for at in range(first, n, rows):
            end = min(n, at + rows)  # later keys have weight 0
            weights = self.pattern(x[:, :end], at, end)
            blocks.append(layer_norm(weights @ values[:, :end], self.constant) + x[:, at:end])
        return torch.cat(blocks, 1)

    def __call__(
        self, x: Float[Tensor, "batch n width"], first: int = 0
    ) -> Float[Tensor, "batch queries outputs"]:
        """The outputs of the positions from `first` on."""
        return self.mlp(self.mixed(x, first))
