"""One layer with several heads whose outputs are added, as an extension of [li, (2.42)].

    f(X) = g(LN_C(Σ_h W_V^h X σ(mask + (W_K^h X)ᵀ W_Q^h X)) + X)

The layer norm subtracts the mean over coordinates. A head whose values are multiples of (1, …, 1)
is therefore invisible: it may attend to anything and write large vectors, and no prediction
changes. `with_decoy` puts such a head next to the one that is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.display import counted
from triptych.core.validation import Tokens, UserError, as_tokens, check_shape
from triptych.models.constructions.balanced import factors
from triptych.models.constructions.brackets import BracketTransformer, kinds
from triptych.models.constructions.normalised import Layer, Mlp, layer_norm


class Head(NamedTuple):
    """W_K, W_Q and W_V of one head."""

    key: Float[Tensor, "attention width"]
    query: Float[Tensor, "attention width"]
    value: Float[Tensor, "width width"]


@dataclass(frozen=True, eq=False)
class HeadsTransformer:
    """A minimal first layer and one layer of several heads; outputs are probabilities.

    vectors
        One row a kind, as in `BracketTransformer`.
    constant
        C of the layer norm.
    """

    types: int
    max_depth: int
    vectors: Float[Tensor, "kinds width"]
    heads: tuple[Head, ...]
    mlp: Mlp
    constant: float = 0.0

    def __post_init__(self) -> None:
        wanted = 2 * self.types * self.max_depth + 1
        if len(self.vectors) != wanted:
            raise UserError(
                f"vectors have {len(self.vectors)} rows; there are {wanted} kinds",
                parameter="vectors",
            )
        if not self.heads:
            raise UserError("heads is empty; at least one is needed", parameter="heads")

    def __repr__(self) -> str:
        size = f"{counted(self.types, 'bracket type')}, depth at most {self.max_depth}"
        return f"HeadsTransformer({size}, {counted(len(self.heads), 'head')}, {self.mlp!r})"

    @property
    def head_count(self) -> int:
        return len(self.heads)

    def inputs(self, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch t+1 width"]:
        """The vectors of the start token and of every token."""
        return self.vectors[kinds(tokens, self.types, self.max_depth)]

    def patterns(self, tokens: Tokens) -> Float[Tensor, "batch heads n n"]:
        """The attention weights of every head; the start token is position 0."""
        x = self.inputs(as_tokens(tokens, 2 * self.types))
        each = [Layer(*head, self.mlp).pattern(x) for head in self.heads]
        return torch.stack(each, 1)

    def predictions(
        self, tokens: Tokens, patterns: Float[Tensor, "batch heads n n"] | None = None
    ) -> Float[Tensor, "batch n vocab"]:
        """Probabilities of the next bracket after the start token and after every token.

        patterns: used as they stand instead of the network's own. A head with weights 0 is off.
        """
        tokens = as_tokens(tokens, 2 * self.types)
        x = self.inputs(tokens)
        n = x.shape[1]
        if patterns is None:
            patterns = self.patterns(tokens)
        because = f"{len(x)} sentences of {n - 1} tokens and {counted(len(self.heads), 'head')}"
        check_shape("patterns", patterns, (len(x), len(self.heads), n, n), because)
        mixed = torch.zeros_like(x)
        for number, head in enumerate(self.heads):
            mixed = mixed + patterns[:, number].to(x) @ (x @ head.value.T)
        return self.mlp(layer_norm(mixed, self.constant) + x)

    # ------------------------------------------------------------------ weights in a file

    def weights(self) -> dict[str, Tensor]:
        """Every tensor by name, to save; `from_weights` reads them."""
        named = {"sizes": torch.tensor([self.types, self.max_depth]), "vectors": self.vectors}
        named["constant"] = torch.tensor(self.constant, dtype=torch.float64)
        for number, head in enumerate(self.heads):
            named |= {f"heads.{number}.{name}": part for name, part in head._asdict().items()}
        for number, (weight, bias) in enumerate(
            zip(self.mlp.weights, self.mlp.biases, strict=True)
        ):
            named |= {f"mlp.{number}.weight": weight, f"mlp.{number}.bias": bias}
        return {name: part.contiguous() for name, part in named.items()}

    @classmethod
    def from_weights(cls, named: Mapping[str, Tensor]) -> "HeadsTransformer":
        """The inverse of `weights`."""
        missing = {"sizes", "vectors", "constant", "heads.0.key", "mlp.0.weight"} - set(named)
        if missing:
            raise UserError(f"the weights have no {', '.join(sorted(missing))}")
        heads = []
        while f"heads.{len(heads)}.key" in named:
            at = f"heads.{len(heads)}."
            heads.append(Head(named[at + "key"], named[at + "query"], named[at + "value"]))
        layers = sum(name.startswith("mlp.") for name in named) // 2
        mlp = Mlp(
            tuple(named[f"mlp.{number}.weight"] for number in range(layers)),
            tuple(named[f"mlp.{number}.bias"] for number in range(layers)),
        )
        types, max_depth = (int(size) for size in named["sizes"])
        constant = float(named["constant"])
        return cls(types, max_depth, named["vectors"], tuple(heads), mlp, constant)


def with_decoy(
    model: BracketTransformer,
    scores: Float[Tensor, "kinds kinds"],
    sizes: Float[Tensor, " kinds"],
    *,
    first: bool,
) -> HeadsTransformer:
    """The model's head, and a head next to it that changes nothing; `first`: the decoy is head 0.

    scores
        B[key, query] of the decoy, which decide what it attends to.
    sizes
        The decoy writes the vector (s, …, s) for a key of the kind with size s.
    """
    if not (model.minimal and len(model.layers) == 1):
        raise UserError(
            "the model must have a minimal first layer and one layer after it", parameter="model"
        )
    (layer,) = model.layers
    inverse = torch.linalg.pinv(model.vectors)  # width × kinds
    key, query = factors(inverse @ scores @ inverse.T)
    ones = torch.ones(model.vectors.shape[1], 1).to(model.vectors)
    decoy = Head(key, query, ones @ (inverse @ sizes)[None])
    read = Head(layer.key, layer.query, layer.value)
    heads = (decoy, read) if first else (read, decoy)
    return HeadsTransformer(
        model.types, model.max_depth, model.vectors, heads, layer.mlp, layer.constant
    )


def without_types(model: HeadsTransformer) -> HeadsTransformer:
    """The same attention, and a network that does not know which type may close.

    The last layer gives each closing bracket the mean of what it gave to all of them. The depth is
    still known, so that the outputs are probabilities [li, Proposition 2.2.1, with a function that
    is not constant].
    """
    weight, bias = model.mlp.weights[-1].clone(), model.mlp.biases[-1].clone()
    weight[1::2], bias[1::2] = weight[1::2].mean(0), bias[1::2].mean()
    mlp = Mlp((*model.mlp.weights[:-1], weight), (*model.mlp.biases[:-1], bias))
    return replace(model, mlp=mlp)
