"""Transformers that write brackets of k types, depth at most D [li, 2.2].

Tokens: type j opens with 2j and closes with 2j + 1, as in `structures.brackets.dyck`; the start
token 2k stands before every prefix. A bracket and its partner share a level 1..D: the depth after
an opening bracket, before a closing one. A kind is a pair (token, level), or the start token, and
a minimal first layer maps kinds to vectors [li, Assumption 2.2.1]:

    kind of token t at level d     t D + d - 1, in 0..2kD-1          kind of the start token     2kD

Notation
--------
k   types      D   max_depth      m   width      e   vectors, kinds × m
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.display import counted
from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    Count,
    Prefix,
    Tokens,
    UserError,
    as_prefix,
    as_size,
    as_tokens,
    check_room,
    raise_if_impossible,
)
from triptych.models.constructions.normalised import Layer, Mlp

Encoding = Literal["joint", "separate", "angle"]
ClosingDepth = Literal["partner", "after"]


def levels(tokens: Int[Tensor, "batch t"]) -> Int[Tensor, "batch t"]:
    """The level of every bracket. Worked value: "[()]" has levels 1, 2, 2, 1."""
    opens = tokens % 2 == 0
    after = torch.where(opens, 1, -1).cumsum(1)
    return torch.where(opens, after, after + 1)


def kinds(tokens: Int[Tensor, "batch t"], types: int, max_depth: int) -> Int[Tensor, "batch t+1"]:
    """The kind of every token, after that of the start token.

    Worked value: "[()]" with k = 2, D = 3 has kinds 12, 0, 7, 10, 3.
    A level outside 1..D, which no prefix of the language has, counts as the nearest one.
    """
    kind = tokens * max_depth + levels(tokens).clamp(1, max_depth) - 1
    return torch.nn.functional.pad(kind, (1, 0), value=2 * types * max_depth)


def first_layer(
    types: Count,
    max_depth: Count,
    encoding: Encoding = "joint",
    *,
    closing: ClosingDepth = "partner",
) -> Float[Tensor, "kinds width"]:
    """The vectors e of the minimal first layers [li, (2.55)-(2.57)], one row a kind.

    joint      (2.55)  o_{(t-1)D+d}
    separate   (2.56)  o_t ⊕ o_d
    angle      (2.57)  o_t ⊕ (cos θ_d, sin θ_d), θ_d = arctan(d / (D + 2 - d))

    closing: d of a closing bracket is the depth of its partner, or the depth after it, which is one
    less. The thesis defines the latter; but then (2.55) gives a closing bracket at depth 0 the
    vector of the opening bracket of its type at depth D. The authors' code has the former.
    One more coordinate at the end is the start token's. o_0, which has no coordinate, is 0.
    """
    types, max_depth = as_size("types", types), as_size("max_depth", max_depth)
    check_room("the vectors of the first layer", 2 * types * max_depth, 2 * types * max_depth)
    for name, given, known in (
        ("encoding", encoding, ("joint", "separate", "angle")),
        ("closing", closing, ("partner", "after")),
    ):
        if given not in known:
            raise UserError(f"{name} is {given!r}; it must be one of {', '.join(known)}")
    token = torch.arange(2 * types).repeat_interleave(max_depth)
    depth = torch.arange(1, max_depth + 1).repeat(2 * types)
    if closing == "after":
        depth = depth - token % 2
    one_hot = torch.nn.functional.one_hot
    if encoding == "joint":
        vectors = one_hot(token * max_depth + depth - 1, 2 * types * max_depth).double()
    elif encoding == "separate":
        place = one_hot(depth, max_depth + 1)[:, 1:]
        vectors = torch.cat([one_hot(token, 2 * types), place], 1).double()
    else:
        angle = torch.atan(depth.double() / (max_depth + 2 - depth.double()))
        parts = [one_hot(token, 2 * types).double(), angle.cos()[:, None], angle.sin()[:, None]]
        vectors = torch.cat(parts, 1)
    padded = torch.nn.functional.pad(vectors, (0, 1, 0, 1))
    padded[-1, -1] = 1.0
    return padded


@dataclass(frozen=True, eq=False)
class BracketTransformer:
    """A transformer without positions whose outputs are probabilities of the next bracket.

    It is trained with a squared loss in [li, 2.2], so that its output is the law itself, not
    logits. It reads kinds (a minimal first layer) or tokens.

    vectors
        One row a kind, or one row a token with the start token last.
    layers
        Those after the vectors.
    length
        Of the strings for `log_prob` and `sample`; the weights do not depend on it.
    """

    types: int
    max_depth: int
    length: int
    vectors: Float[Tensor, "rows width"]
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        for name in ("types", "max_depth", "length"):
            as_size(name, getattr(self, name))
        if len(self.vectors) not in (self._kinds, 2 * self.types + 1):
            raise UserError(
                f"vectors have {len(self.vectors)} rows; there are {self._kinds} kinds and "
                f"{2 * self.types + 1} tokens",
                parameter="vectors",
            )
        if not self.layers:
            raise UserError("layers is empty; at least one is needed", parameter="layers")

    def __repr__(self) -> str:
        size = f"{counted(self.types, 'bracket type')}, depth at most {self.max_depth}"
        return f"BracketTransformer({size}, {', '.join(repr(layer) for layer in self.layers)})"

    @property
    def _kinds(self) -> int:
        return 2 * self.types * self.max_depth + 1

    @property
    def minimal(self) -> bool:
        """Whether it reads kinds."""
        return len(self.vectors) == self._kinds

    @property
    def vocab_size(self) -> int:
        return 2 * self.types

    def inputs(self, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch t+1 width"]:
        """The vectors of the start token and of every token."""
        if self.minimal:
            return self.vectors[kinds(tokens, self.types, self.max_depth)]
        return self.vectors[torch.nn.functional.pad(tokens, (1, 0), value=2 * self.types)]

    def outputs(
        self, tokens: Int[Tensor, "batch t"], first: int = 0
    ) -> Float[Tensor, "batch positions vocab"]:
        """What the network says after the start token and after every token, from `first` on."""
        return self.layers[-1](self._last_inputs(tokens), first)

    def pattern(self, tokens: Tokens) -> Float[Tensor, "batch n n"]:
        """The attention pattern of the last layer; the start token is position 0."""
        tokens = as_tokens(tokens, self.vocab_size)
        return self.layers[-1].pattern(self._last_inputs(tokens))

    def _last_inputs(self, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch t+1 width"]:
        x = self.inputs(tokens)
        for layer in self.layers[:-1]:
            x = layer(x)
        return x

    # ------------------------------------------------------------------ as a language model

    def next_token_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        """The output at the end of a prefix, of any length and not checked to be possible."""
        prefix = as_tokens(prefix, self.vocab_size, name="prefix")
        return self.outputs(prefix, prefix.shape[1])[:, 0]

    def next_token_log_probs(self, prefix: Prefix) -> Float[Tensor, "batch vocab"]:
        prefix = as_prefix(prefix, self.vocab_size, self.length)
        outputs = self.outputs(prefix)
        raise_if_impossible(_log_prob(outputs, prefix), "the prefix")
        return _log(outputs[:, -1])

    def log_prob(self, tokens: Tokens) -> Float[Tensor, " batch"]:
        """Σ_i log p(x_i | x_<i); -inf from the first token that the network rules out."""
        tokens = as_tokens(tokens, self.vocab_size, length=self.length)
        return _log_prob(self.outputs(tokens), tokens)

    def sample(self, n: Count, rng: RngLike) -> Int[Tensor, "n length"]:
        n = as_size("n", n, at_least=0)
        rng = as_rng(rng, self.vectors.device)
        tokens = torch.empty((n, 0), dtype=torch.long, device=self.vectors.device)
        for _ in range(self.length):
            drawn = rng.categorical(_log(self.next_token_probs(tokens)))
            tokens = torch.cat([tokens, drawn[:, None]], 1)
        return tokens

    # ------------------------------------------------------------------ weights in a file

    def weights(self) -> dict[str, Tensor]:
        """Every tensor by name, to save; `from_weights` reads them."""
        named = {
            "sizes": torch.tensor([self.types, self.max_depth, self.length]),
            "vectors": self.vectors,
        }
        for i, layer in enumerate(self.layers):
            parts = {"key": layer.key, "query": layer.query, "value": layer.value}
            parts["constant"] = torch.tensor(layer.constant, dtype=torch.float64)
            for j, (weight, bias) in enumerate(
                zip(layer.mlp.weights, layer.mlp.biases, strict=True)
            ):
                parts |= {f"mlp.{j}.weight": weight, f"mlp.{j}.bias": bias}
            named |= {f"layers.{i}.{name}": part.contiguous() for name, part in parts.items()}
        return named

    @classmethod
    def from_weights(cls, named: Mapping[str, Tensor]) -> "BracketTransformer":
        """The inverse of `weights`."""
        missing = {"sizes", "vectors", "layers.0.key"} - set(named)
        if missing:
            raise UserError(f"the weights have no {', '.join(sorted(missing))}")
        layers = []
        while f"layers.{len(layers)}.key" in named:
            at = f"layers.{len(layers)}."
            depth = sum(name.startswith(f"{at}mlp.") for name in named) // 2
            mlp = Mlp(
                tuple(named[f"{at}mlp.{j}.weight"] for j in range(depth)),
                tuple(named[f"{at}mlp.{j}.bias"] for j in range(depth)),
            )
            key, query, value = (named[at + name] for name in ("key", "query", "value"))
            layers.append(Layer(key, query, value, mlp, float(named[at + "constant"])))
        types, max_depth, length = (int(size) for size in named["sizes"])
        return cls(types, max_depth, length, named["vectors"], tuple(layers))


def _log(outputs: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
    return outputs.clamp(min=0).log()


def _log_prob(
    outputs: Float[Tensor, "batch positions vocab"], tokens: Int[Tensor, "batch t"]
) -> Float[Tensor, " batch"]:
    steps = _log(outputs[:, : tokens.shape[1]]).gather(-1, tokens[..., None])[..., 0]
    return steps.sum(-1)
