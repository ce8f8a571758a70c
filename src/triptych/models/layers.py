"""The pieces of the transformer: its `Shape`, attention, feed-forward, norms, one layer.

    a(X)_i = W^O [ Σ_j P^h_ij W^V_h x_j ]_h      P^h_i = softmax_j( s (W^Q_h x_i) · (W^K_h x_j) )

over the j that the mask allows, heads concatenated, s = 1/√d or 1. A layer is

    pre          y = x + a(LN(x)),      x' = y + f(LN(y))        GPT-2
    post         y = LN(x + a(x)),      x' = LN(y + f(y))        the first transformer
    projection   y = x + LN_C(a(x)),    x' = y + f(y)            [li, (2.42)]
    feedforward  y = x + a(x),          x' = y + f(LN(y))        GPT-2 with one norm a layer
    kept         y = x + a(x),          x' = z + f(z), z = y + LN(y)    [li, Table 2.6]
    none         y = x + a(x),          x' = y + f(y)

with f(x) = W^outer act(W^inner x); without `residual` the summand x (and y) is left out, without
feed-forward x' = y. LN_C is the centred projection to the unit sphere, `ProjectionNorm`.

Notation
--------
x   hidden state   [batch, t, width]        P   pattern         [batch, heads, t, t]
d   head width     width / heads            W   a weight        [out, in], y = W x + b
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from triptych.core.validation import Count, UserError, as_flag, as_number, as_size, set_fields

Positions = Literal["learned", "linear", "rotary", "none"]
Embedding = Literal["learned", "one_hot", "given"]
Norm = Literal["pre", "post", "projection", "feedforward", "kept", "none"]
Activation = Literal["gelu", "relu"]


_FLAGS = (
    *("causal", "tied", "residual", "bias", "scale_attention", "output_projection"),
    *("input_norm", "output_layer"),
)


@dataclass(frozen=True)
class Shape:
    """What a transformer is made of.

    vocab_size: inputs and outputs, special tokens included. length: most positions.
    feedforward: inner width; None is 4 width, 0 is no feed-forward.
    embedding: "one_hot" is the frozen identity, padded with zeros up to `width`; with "given" the
    caller always passes `vectors`. tied: the output matrix is the input embedding.
    norm_constant: ε of a LayerNorm, C of a projection. bias: of every linear map and LayerNorm.
    final_norm: before the output matrix; None means exactly when `norm` is "pre".
    output_projection: W^O after the heads; without it the heads are concatenated as they are.
    input_norm: of the inputs with their positions. output_layer: a linear map, the activation and a
    norm, before the output matrix. BERT has both (`Shape.bert`).
    """

    vocab_size: int
    length: int
    _: KW_ONLY
    width: int = 64
    layers: int = 2
    heads: int = 2
    feedforward: int | None = None
    causal: bool = True
    positions: Positions = "learned"
    embedding: Embedding = "learned"
    tied: bool = False
    residual: bool = True
    norm: Norm = "pre"
    norm_constant: float = 1e-5
    final_norm: bool | None = None
    bias: bool = True
    activation: Activation = "gelu"
    scale_attention: bool = True
    output_projection: bool = True
    input_norm: bool = False
    output_layer: bool = False

    def __post_init__(self) -> None:
        for name in ("vocab_size", "length", "width", "layers", "heads"):
            set_fields(self, **{name: as_size(name, getattr(self, name))})
        if self.feedforward is not None:
            set_fields(self, feedforward=as_size("feedforward", self.feedforward, at_least=0))
        for name in _FLAGS:
            set_fields(self, **{name: as_flag(name, getattr(self, name))})
        if self.final_norm is not None:
            set_fields(self, final_norm=as_flag("final_norm", self.final_norm))
        set_fields(self, norm_constant=as_number("norm_constant", self.norm_constant, at_least=0))
        check_choice("positions", self.positions, get_args(Positions))
        check_choice("embedding", self.embedding, get_args(Embedding))
        check_choice("norm", self.norm, get_args(Norm))
        check_choice("activation", self.activation, get_args(Activation))
        if self.width % self.heads:
            raise UserError(
                f"width {self.width} does not divide into {self.heads} heads of equal width",
                parameter="width",
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise UserError(
                f"rotary positions turn pairs of coordinates; a head has width {self.head_width}, "
                "which must be even (width / heads)"
            )
        if self.embedding == "one_hot" and self.width < self.vocab_size:
            raise UserError(
                f"width {self.width} is too small for one-hot embeddings of {self.vocab_size} "
                "tokens: width must be at least vocab_size",
                parameter="width",
            )
        if self.embedding == "given" and self.tied:
            raise UserError(
                "tied=True needs an embedding matrix; with embedding='given' there is none"
            )

    @classmethod
    def bert(
        cls, vocab_size: Count, length: Count, *, width: Count, layers: Count, heads: Count
    ) -> "Shape":
        """BERT for masked tokens, without its two kinds of segments.

        Worked value: 6 layers, width 768, 12 heads, 11 tokens and 512 positions have 43,522,571
        parameters, as `transformers.BertForMaskedLM` has besides 2 x 768 for segments.
        """
        return cls(
            as_size("vocab_size", vocab_size),
            as_size("length", length),
            width=as_size("width", width),
            layers=as_size("layers", layers),
            heads=as_size("heads", heads),
            causal=False,
            tied=True,
            norm="post",
            norm_constant=1e-12,
            input_norm=True,
            output_layer=True,
        )

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def feedforward_width(self) -> int:
        return 4 * self.width if self.feedforward is None else self.feedforward

    @property
    def has_final_norm(self) -> bool:
        return self.norm == "pre" if self.final_norm is None else self.final_norm


class Attended(NamedTuple):
    """output    a(X)
    mixed     Σ_j P_ij v_j of every head, before W^O
    pattern   P where it was written out, None on the fast path
    """

    output: Float[Tensor, "batch t width"]
    mixed: Float[Tensor, "batch heads t head_width"]
    pattern: Float[Tensor, "batch heads t t"] | None


class Rotation(NamedTuple):
    """Cosine and sine of the angles i 10000^(-2k/d), one row per position i."""

    cos: Float[Tensor, "*rows t half"]
    sin: Float[Tensor, "*rows t half"]


def rotate(
    x: Float[Tensor, "batch heads t head_width"], rotation: Rotation
) -> Float[Tensor, "batch heads t head_width"]:
    """x with coordinates k and k + d/2 turned by the angle of its position.

    Products rotate(q) · rotate(k) depend on the two positions only through their difference.
    """
    cos, sin = (part.unsqueeze(-3) for part in rotation)
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=-1)


def _part(rotation: Rotation, positions: slice) -> Rotation:
    return Rotation(rotation.cos[..., positions, :], rotation.sin[..., positions, :])


def at_rows(
    x: Float[Tensor, "batch t width"], at: Int[Tensor, "batch places"]
) -> Float[Tensor, "batch places width"]:
    """x[b, at[b, i]]; the gradient of `index_select` is faster than that of indexing."""
    rows = x.shape[1] * torch.arange(len(x), device=x.device)[:, None]
    return x.flatten(0, 1).index_select(0, (rows + at).flatten()).unflatten(0, at.shape)


def mapped(
    linears: Sequence[nn.Linear], x: Float[Tensor, "*rows width"], *, at_once: bool | None = None
) -> tuple[Float[Tensor, "*rows out"], ...]:
    """Every linear map of x, all of one width; `at_once`: by one product, the same to rounding.

    None: at once where a GPU trains. The gradient of one matrix of width x width fills a third of a
    large GPU, that of three fills it. A CPU gains nothing, and a decoder would only copy matrices.
    """
    if at_once is None:
        at_once = x.is_cuda and torch.is_grad_enabled()
    if not at_once:
        return tuple(linear(x) for linear in linears)
    weight = torch.cat(tuple(linear.weight for linear in linears))
    biases = tuple(linear.bias for linear in linears if linear.bias is not None)
    return F.linear(x, weight, torch.cat(biases) if biases else None).chunk(len(linears), -1)


class ProjectionNorm(nn.Module):
    """LN_C(x) = Px / max(|Px|, C), Px = x minus its mean: no gain, no bias [li, (2.43)].

    With C = 0, a vector without any spread goes to 0.
    """

    def __init__(self, constant: float) -> None:
        super().__init__()
        self.constant = constant

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        centred = x - x.mean(-1, keepdim=True)
        floor = max(self.constant, torch.finfo(x.dtype).tiny)
        return centred / torch.linalg.vector_norm(centred, dim=-1, keepdim=True).clamp(min=floor)


class Attention(nn.Module):
    """Multi-head attention with the matrices W^Q, W^K, W^V, W^O apart.

    Worked value: width 1, no W^O, x = (0, 1), W^Q = log 3, W^K = 1, W^V = 2. The second position
    scores 0 and log 3, so its pattern is (¼, ¾) and its output ¼·0 + ¾·2 = 3/2.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.causal = shape.causal
        self.scale = shape.head_width**-0.5 if shape.scale_attention else 1.0
        self.query = nn.Linear(shape.width, shape.width, bias=shape.bias)
        self.key = nn.Linear(shape.width, shape.width, bias=shape.bias)
        self.value = nn.Linear(shape.width, shape.width, bias=shape.bias)
        self.output = (
            nn.Linear(shape.width, shape.width, bias=shape.bias)
            if shape.output_projection
            else None
        )

    def forward(
        self,
        x: Float[Tensor, "batch t width"],
        *,
        rotation: Rotation | None = None,
        allowed: Bool[Tensor, "#batch 1 t t"] | None = None,
        pattern: Float[Tensor, "batch heads t t"] | None = None,
        explicit: bool = False,
    ) -> Attended:
        """a(X) under the mask `allowed` (None: what `causal` says) or with a given pattern.

        `explicit` writes the learned pattern out, and needs `allowed`.
        """
        query, key, value = self.split(x, rotation)
        if pattern is None and not explicit:
            mixed = F.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=allowed,
                is_causal=self.causal and allowed is None,
                scale=self.scale,
            )
            return Attended(self.join(mixed), mixed, None)
        if pattern is None:
            assert allowed is not None
            pattern = self.learned_pattern(query, key, allowed)
        mixed = pattern @ value
        return Attended(self.join(mixed), mixed, pattern)

    def at_one(
        self,
        x: Float[Tensor, "batch t width"],
        at: int,
        *,
        rotation: Rotation | None = None,
        allowed: Bool[Tensor, "#batch 1 t t"] | None = None,
    ) -> Float[Tensor, "batch 1 width"]:
        """a(X) at one position: one query, all keys and values it may see."""
        end = at + 1 if self.causal else x.shape[1]
        query = self._by_head(self.query(x[:, at : at + 1]))
        key, value = map(self._by_head, mapped((self.key, self.value), x[:, :end]))
        if rotation is not None:
            query = rotate(query, _part(rotation, slice(at, at + 1)))
            key = rotate(key, _part(rotation, slice(0, end)))
        seen = None if allowed is None else allowed[:, :, at : at + 1, :end]
        return self.join(
            F.scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=self.scale)
        )

    def where(
        self,
        x: Float[Tensor, "batch t width"],
        chosen: Bool[Tensor, "batch t"],
        *,
        rotation: Rotation | None = None,
    ) -> Float[Tensor, "1 chosen width"]:
        """a(X) at the chosen positions, in reading order: their queries, all keys and values."""
        most = max(1, int(chosen.sum(1).max()))  # queries of a row; the last ones may be idle
        at = chosen.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
        mixed = self._mixed_at(x, at, rotation)
        used = chosen.gather(1, at).flatten().nonzero()[:, 0]
        answers = mixed.transpose(1, 2).flatten(-2).flatten(0, 1).index_select(0, used)
        return (answers if self.output is None else self.output(answers))[None]

    def at_places(
        self,
        x: Float[Tensor, "batch t width"],
        at: Int[Tensor, "batch places"],
        *,
        rotation: Rotation | None = None,
    ) -> Float[Tensor, "batch places width"]:
        """a(X) at some positions of every row, the same number of each."""
        return self.join(self._mixed_at(x, at, rotation))

    def _mixed_at(
        self, x: Tensor, at: Int[Tensor, "batch places"], rotation: Rotation | None
    ) -> Float[Tensor, "batch heads places head_width"]:
        """Σ_j P_ij v_j for the queries i that are asked for, over all keys that each may see."""
        query = self._by_head(self.query(at_rows(x, at)))
        key, value = map(self._by_head, mapped((self.key, self.value), x))
        if rotation is not None:
            query, key = rotate(query, Rotation(*(p[at] for p in rotation))), rotate(key, rotation)
        past = torch.arange(x.shape[1], device=x.device) <= at[..., None]
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=past[:, None] if self.causal else None,
            scale=self.scale,
        )

    def split(
        self, x: Float[Tensor, "batch t width"], rotation: Rotation | None
    ) -> tuple[
        Float[Tensor, "batch heads t head_width"],
        Float[Tensor, "batch heads t head_width"],
        Float[Tensor, "batch heads t head_width"],
    ]:
        """Queries, keys and values of every head, turned by their positions."""
        query, key, value = map(self._by_head, mapped((self.query, self.key, self.value), x))
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        return query, key, value

    def _by_head(self, x: Tensor) -> Float[Tensor, "batch heads t head_width"]:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def learned_pattern(
        self,
        query: Float[Tensor, "batch heads t head_width"],
        key: Float[Tensor, "batch heads t head_width"],
        allowed: Bool[Tensor, "#batch 1 t t"],
    ) -> Float[Tensor, "batch heads t t"]:
        """softmax_j(s q_i · k_j) over the allowed j; 0 everywhere when none is allowed."""
        scores = self.scale * query @ key.transpose(-1, -2)
        # A finite floor and not -inf, so that a row without allowed entries has no nan gradient.
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        return scores.softmax(-1).masked_fill(~allowed, 0.0)

    def join(
        self, mixed: Float[Tensor, "batch heads t head_width"]
    ) -> Float[Tensor, "batch t width"]:
        """W^O of the concatenated heads."""
        concatenated = mixed.transpose(1, 2).flatten(-2)
        return concatenated if self.output is None else self.output(concatenated)

    def by_head(
        self, mixed: Float[Tensor, "batch heads t head_width"]
    ) -> Float[Tensor, "batch heads t width"]:
        """What each head adds to the output: W^O applied to one head, zeros for the others."""
        width = mixed.shape[1] * mixed.shape[-1]
        if self.output is None:
            matrix = torch.eye(width, dtype=mixed.dtype, device=mixed.device)
        else:
            matrix = self.output.weight
        columns = matrix.unflatten(1, (self.heads, -1))  # width, heads, head_width
        return torch.einsum("bhtd,whd->bhtw", mixed, columns)


_ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu}


class FeedForward(nn.Module):
    """f(x) = W^outer act(W^inner x)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.inner = nn.Linear(shape.width, shape.feedforward_width, bias=shape.bias)
        self.outer = nn.Linear(shape.feedforward_width, shape.width, bias=shape.bias)
        self.activation = _ACTIVATIONS[shape.activation]

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        return self.outer(self.activation(self.inner(x)))


class OutputLayer(nn.Module):
    """norm(act(W x)), before the output matrix."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.linear = nn.Linear(shape.width, shape.width, bias=shape.bias)
        self.activation = _ACTIVATIONS[shape.activation]
        self.norm = make_norm(shape)

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        return self.norm(self.activation(self.linear(x)))


class Block(nn.Module):
    """One layer in two steps around its attention, so that a cache can stand in between."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm, self.residual = shape.norm, shape.residual
        self.attention = Attention(shape)
        around = shape.norm in ("pre", "post", "projection")
        self.attention_norm = make_norm(shape) if around else None
        self.feedforward = FeedForward(shape) if shape.feedforward_width else None
        inner = ("pre", "post", "feedforward", "kept")
        normed = self.feedforward is not None and shape.norm in inner
        self.feedforward_norm = make_norm(shape) if normed else None

    def before(self, x: Float[Tensor, "batch t width"]) -> Float[Tensor, "batch t width"]:
        """What the attention reads."""
        return self._normed(x, self.attention_norm, "pre")

    def after(
        self, x: Float[Tensor, "batch t width"], attended: Float[Tensor, "batch t width"]
    ) -> Float[Tensor, "batch t width"]:
        """The layer's output from its input and a(before(x))."""
        x = self._added(x, attended, self.attention_norm)
        if self.feedforward is not None:
            if self.norm == "kept" and self.feedforward_norm is not None:
                x = x + self.feedforward_norm(x)
            place = "feedforward" if self.norm == "feedforward" else "pre"
            inner = self.feedforward(self._normed(x, self.feedforward_norm, place))
            x = self._added(x, inner, self.feedforward_norm)
        return x

    def at_one(
        self,
        x: Float[Tensor, "batch t width"],
        at: int,
        *,
        rotation: Rotation | None = None,
        allowed: Bool[Tensor, "#batch 1 t t"] | None = None,
    ) -> Float[Tensor, "batch 1 width"]:
        """The layer's output at one position, for a fraction of the cost of all."""
        attended = self.attention.at_one(self.before(x), at, rotation=rotation, allowed=allowed)
        return self.after(x[:, at : at + 1], attended)

    def where(
        self,
        x: Float[Tensor, "batch t width"],
        chosen: Bool[Tensor, "batch t"],
        *,
        rotation: Rotation | None = None,
    ) -> Float[Tensor, "1 chosen width"]:
        """The layer's output at the chosen positions, in reading order, as one row."""
        attended = self.attention.where(self.before(x), chosen, rotation=rotation)
        places = chosen.flatten().nonzero()[:, 0]
        return self.after(x.flatten(0, 1).index_select(0, places)[None], attended)

    def at_places(
        self,
        x: Float[Tensor, "batch t width"],
        at: Int[Tensor, "batch places"],
        *,
        rotation: Rotation | None = None,
    ) -> Float[Tensor, "batch places width"]:
        """The layer's output at some positions of every row, the same number of each."""
        attended = self.attention.at_places(self.before(x), at, rotation=rotation)
        return self.after(at_rows(x, at), attended)

    def _added(self, x: Tensor, update: Tensor, norm: nn.Module | None) -> Tensor:
        update = self._normed(update, norm, "projection")
        return self._normed(x + update if self.residual else update, norm, "post")

    def _normed(self, x: Tensor, norm: nn.Module | None, place: Norm) -> Tensor:
        return norm(x) if norm is not None and self.norm == place else x


def make_norm(shape: Shape) -> nn.Module:
    if shape.norm == "projection":
        return ProjectionNorm(shape.norm_constant)
    return nn.LayerNorm(shape.width, eps=shape.norm_constant, bias=shape.bias)


def nearest(name: str, choices: Iterable[str]) -> str:
    return difflib.get_close_matches(name, list(choices), n=1, cutoff=0.0)[0]


def check_choice(field: str, value: object, choices: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise UserError(
            f"{field}={value!r} is not known; did you mean {nearest(str(value), choices)!r}? "
            f"(choices: {', '.join(choices)})",
            parameter="choices",
        )
