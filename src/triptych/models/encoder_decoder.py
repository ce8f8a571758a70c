"""A transformer that reads a source sentence and writes a target, from left to right or at once.

The encoder reads the source. A causal decoder predicts the next target token from those before it
(the autoregressive model). A decoder that is not causal reads a hypothesis of the whole target and
predicts every position again, in one pass (parallel decoding by iterative refinement [li, 4.2.2]).
Both are the same code. A layer of the decoder is

    y = x + a(LN x)    y += p(LN y)    y += c(LN y, h)    x' = y + f(LN y)

with self-attention a, positional attention p, cross-attention c to the source states h, and
feed-forward f. Positional attention has positions as queries and keys and states as values:
it mixes by place alone [Gu et al., 2018]. It can be left out.

One embedding serves source, target and output; its vectors enter √width times as large. A length
predictor reads the mean source state.

Notation
--------
h     source states   [batch, source, width]       n    target length   1 ... length
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple, cast, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from triptych.core.deprecation import renamed
from triptych.core.validation import (
    Count,
    UserError,
    as_device,
    as_flag,
    as_number,
    as_seed,
    as_size,
    set_fields,
)
from triptych.models.layers import FeedForward, Shape, check_choice
from triptych.models.short_attention import Kernels, attend
from triptych.models.transformer import draw_weights

__all__ = ["DecoderCache", "Encoded", "EncoderDecoder", "LastAttention", "PairShape"]


@dataclass(frozen=True)
class PairShape:
    """What an encoder-decoder is made of.

    vocab_size: of both languages together. length: most positions of a source or a target.
    layers: of the encoder, and as many of the decoder. causal: of the decoder.
    """

    vocab_size: int
    length: int
    _: KW_ONLY
    width: int = 512
    layers: int = 6
    heads: int = 8
    feedforward: int = 2048
    causal: bool = True
    positional_attention: bool = True
    dropout: float = 0.1

    def __post_init__(self) -> None:
        for name in ("vocab_size", "length", "width", "layers", "heads", "feedforward"):
            set_fields(self, **{name: as_size(name, getattr(self, name))})
        for name in ("causal", "positional_attention"):
            set_fields(self, **{name: as_flag(name, getattr(self, name))})
        set_fields(self, dropout=as_number("dropout", self.dropout, at_least=0, below=1))
        if self.width % self.heads:
            raise UserError(
                f"width {self.width} does not divide into {self.heads} heads of equal width",
                parameter="width",
            )

    @property
    def parameter_count(self) -> int:
        """67.1 million at the published shape: 32,128 symbols and 256 positions."""
        attention, feedforward = 4 * self.width**2, 2 * self.width * self.feedforward
        in_decoder = 3 if self.positional_attention else 2
        norms = 7 if self.positional_attention else 5
        layer = (1 + in_decoder) * attention + 2 * feedforward + norms * self.width
        tables = (
            self.vocab_size + 3 * self.length
        ) * self.width  # two of positions, one of lengths
        return tables + self.layers * layer + 2 * self.width


class Encoded(NamedTuple):
    """A batch of source sentences, read once and used in every pass of the decoder.

    states      of the encoder
    shown       True where a source token stands, False on padding
    keys, values    of the cross-attention, one per layer of the decoder
    """

    states: Float[Tensor, "batch source width"]
    shown: Bool[Tensor, "batch source"]
    keys: tuple[Float[Tensor, "batch heads source head_width"], ...]
    values: tuple[Float[Tensor, "batch heads source head_width"], ...]

    def rows(self, chosen: Int[Tensor, " rows"]) -> "Encoded":
        """Row i is a copy of row `chosen[i]`."""
        return Encoded(
            self.states[chosen],
            self.shown[chosen],
            tuple(key[chosen] for key in self.keys),
            tuple(value[chosen] for value in self.values),
        )


class LastAttention(NamedTuple):
    """logits    of one pass of the decoder
    own       self-attention of the last layer
    cross     its attention to the source
    """

    logits: Float[Tensor, "batch t vocab"]
    own: Float[Tensor, "batch heads t t"]
    cross: Float[Tensor, "batch heads t source"]


@dataclass
class DecoderCache:
    """Keys and values of the tokens that a causal decoder has read, per layer."""

    used: int = 0
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    placed: list[Tensor] = field(default_factory=list)  # values of the positional attention

    def keep_rows(self, chosen: Int[Tensor, " rows"]) -> None:
        """Row i becomes row `chosen[i]`, as when a beam continues from another prefix."""
        for stored in (self.keys, self.values, self.placed):
            stored[:] = [each[chosen] for each in stored]

    def extend(self, stored: list[Tensor], layer: int, new: Tensor) -> Tensor:
        """All entries of a layer so far, `new` at the end."""
        if layer == len(stored):
            stored.append(new)
        else:
            stored[layer] = torch.cat([stored[layer], new], dim=2)
        return stored[layer]


class _Heads(nn.Module):
    """Attention whose queries, keys and values may come from three places."""

    def __init__(self, shape: PairShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.kernels: Kernels = "torch"
        self.query, self.key, self.value, self.output = (
            nn.Linear(shape.width, shape.width, bias=False) for _ in range(4)
        )

    def split(self, linear: nn.Linear, x: Tensor) -> Tensor:
        return linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def mix(
        self,
        query: Float[Tensor, "#batch heads t head_width"],
        key: Float[Tensor, "#batch heads source head_width"],
        value: Float[Tensor, "batch heads source head_width"],
        allowed: Bool[Tensor, "#batch 1 #t source"] | None,
        *,
        causal: bool = False,
    ) -> Float[Tensor, "batch t width"]:
        """W^O Σ_j P_ij v_j over the allowed j, or over j ≤ i."""
        rows = value.shape[0]
        query, key = query.expand(rows, -1, -1, -1), key.expand(rows, -1, -1, -1)
        mixed = attend(query, key, value, allowed, causal=causal, kernels=self.kernels)
        return self.output(mixed.transpose(1, 2).flatten(-2))

    def pattern(self, query: Tensor, key: Tensor, allowed: Tensor | None) -> Tensor:
        """P, written out."""
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        return scores.softmax(-1)


class _Read(NamedTuple):
    """What all layers of the decoder read in a pass.

    positions   vectors of the positions that are written
    seen        vectors of all that may be attended to, for the positional attention
    allowed     which these are, for each row; None: all, or those before (`causal`)
    source      True where a source token stands
    """

    positions: Float[Tensor, "t width"]
    seen: Float[Tensor, "past width"]
    allowed: Bool[Tensor, "#batch 1 #t past"] | None
    source: Bool[Tensor, "batch 1 1 source"]
    causal: bool


class _EncoderLayer(nn.Module):
    def __init__(self, shape: PairShape) -> None:
        super().__init__()
        self.own, self.own_norm = _Heads(shape), _norm(shape)
        self.feedforward, self.feedforward_norm = _feedforward(shape), _norm(shape)
        self.drop = nn.Dropout(shape.dropout)

    def forward(
        self, x: Float[Tensor, "batch t width"], allowed: Bool[Tensor, "batch 1 1 t"]
    ) -> Float[Tensor, "batch t width"]:
        own, read = self.own, self.own_norm(x)
        query, key, value = (own.split(w, read) for w in (own.query, own.key, own.value))
        x = x + self.drop(own.mix(query, key, value, allowed))
        return x + self.drop(self.feedforward(self.feedforward_norm(x)))


class _DecoderLayer(nn.Module):
    def __init__(self, shape: PairShape) -> None:
        super().__init__()
        self.own, self.own_norm = _Heads(shape), _norm(shape)
        self.cross, self.cross_norm = _Heads(shape), _norm(shape)
        self.placed = _Heads(shape) if shape.positional_attention else None
        self.placed_norm = _norm(shape) if shape.positional_attention else None
        self.position_norm = _norm(shape) if shape.positional_attention else None
        self.feedforward, self.feedforward_norm = _feedforward(shape), _norm(shape)
        self.drop = nn.Dropout(shape.dropout)

    def forward(
        self,
        x: Float[Tensor, "batch t width"],
        read: _Read,
        source_key: Float[Tensor, "batch heads source head_width"],
        source_value: Float[Tensor, "batch heads source head_width"],
        cache: DecoderCache | None = None,
        number: int = 0,
        patterns: list[Tensor] | None = None,
    ) -> Float[Tensor, "batch t width"]:
        """Layer `number`; its two attention patterns are added to `patterns`, if given."""
        own, normed = self.own, self.own_norm(x)
        query, key, value = (own.split(w, normed) for w in (own.query, own.key, own.value))
        if cache is not None:
            key = cache.extend(cache.keys, number, key)
            value = cache.extend(cache.values, number, value)
        x = x + self.drop(own.mix(query, key, value, read.allowed, causal=read.causal))
        if patterns is not None:
            patterns.append(own.pattern(query, key, read.allowed))
        if self.placed is not None:
            assert self.placed_norm is not None
            assert self.position_norm is not None
            placed = self.placed
            value = placed.split(placed.value, self.placed_norm(x))
            if cache is not None:
                value = cache.extend(cache.placed, number, value)
            query = placed.split(placed.query, self.position_norm(read.positions)[None])
            key = placed.split(placed.key, self.position_norm(read.seen)[None])
            x = x + self.drop(placed.mix(query, key, value, read.allowed, causal=read.causal))
        cross = self.cross
        query = cross.split(cross.query, self.cross_norm(x))
        x = x + self.drop(cross.mix(query, source_key, source_value, read.source))
        if patterns is not None:
            patterns.append(cross.pattern(query, source_key, read.source))
        return x + self.drop(self.feedforward(self.feedforward_norm(x)))


class EncoderDecoder(nn.Module):
    """p(target | source) by a transformer.

    The same `seed` gives the same weights on every device: they are drawn in float32 from a
    generator of their own.
    """

    def __init__(
        self, shape: PairShape, *, seed: Count, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        if not isinstance(shape, PairShape):
            raise UserError(
                f"shape is a {type(shape).__name__}; it must be a PairShape", parameter="shape"
            )
        seed, device = as_seed(seed), as_device(device)
        self.shape = shape
        # Inputs have entries of size 1. Smaller ones are drowned by what the first layers add, and
        # a parallel decoder, which knows a position by its vector alone, learns many times slower.
        self.scale = math.sqrt(shape.width)
        with torch.device("meta"):  # torch's own initialisation would use the global seed
            self.embedding = nn.Embedding(shape.vocab_size, shape.width)
            self.source_position = nn.Embedding(shape.length, shape.width)
            self.target_position = nn.Embedding(shape.length, shape.width)
            self.encoder = nn.ModuleList(_EncoderLayer(shape) for _ in range(shape.layers))
            self.encoder_norm = _norm(shape)
            self.decoder = nn.ModuleList(_DecoderLayer(shape) for _ in range(shape.layers))
            self.decoder_norm = _norm(shape)
            self.length_head = nn.Linear(shape.width, shape.length, bias=False)
        self.drop = nn.Dropout(shape.dropout)
        self.to_empty(device="cpu")
        self._initialise(seed)
        self.to(device)

    def _initialise(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        smaller = math.sqrt(2 * self.shape.layers)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.endswith("norm.weight"):
                    parameter.fill_(1.0)
                    continue
                out, into = parameter.shape
                table = name.startswith(("embedding", "source_position", "target_position"))
                scale = into**-0.5 if table else math.sqrt(2 / (into + out))
                if name.endswith(("output.weight", "outer.weight")):  # these write to the residual
                    scale /= smaller
                draw_weights(parameter, scale, generator)

    def __repr__(self) -> str:
        shape, size = self.shape, self.shape.parameter_count
        writes = "causal" if shape.causal else "parallel"
        return (
            f"EncoderDecoder({shape.layers}+{shape.layers} layers, width {shape.width}, "
            f"{shape.vocab_size} symbols, {writes}, {size:,} parameters)"
        )

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    def compile_layers(self) -> None:
        """Compile what a layer computes, once for all sizes of a batch; for training on a GPU.

        The same function with other rounding and other draws of dropout.
        """
        for layer in (*self.encoder, *self.decoder):
            layer.compile(dynamic=True)

    def use_kernels(self, kernels: str) -> None:
        """Compute attention by "torch", or by programs for "short" sentences where they fit.

        The same function with other rounding; nothing changes on a CPU.
        """
        check_choice("kernels", kernels, get_args(Kernels))
        for part in self.modules():
            if isinstance(part, _Heads):
                part.kernels = cast(Kernels, kernels)

    # ------------------------------------------------------------------ reading the source

    def encode(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> Encoded:
        """Read the sources; what stands beyond a row's length is never read."""
        self._check_room(source.shape[1])
        shown = torch.arange(source.shape[1], device=source.device) < lengths[:, None]
        positions = self.source_position.weight[: source.shape[1]]
        x = self.drop(self.scale * (self.embedding(source) + positions))
        for layer in self.encoder:
            x = layer(x, shown[:, None, None])
        states = self.encoder_norm(x)
        crosses = [layer.cross for layer in self._layers()]
        return Encoded(
            states,
            shown,
            tuple(cross.split(cross.key, states) for cross in crosses),
            tuple(cross.split(cross.value, states) for cross in crosses),
        )

    def mean_state(self, encoded: Encoded) -> Float[Tensor, "batch width"]:
        """The mean of the encoder's states over the source tokens: what lengths are read off."""
        weights = encoded.shown[:, :, None].to(encoded.states.dtype)
        return (encoded.states * weights).sum(1) / weights.sum(1).clamp(min=1)

    def length_logits(self, encoded: Encoded) -> Float[Tensor, "batch lengths"]:
        """Scores of the target lengths 1, 2, ..., `length`."""
        return self.length_head(self.mean_state(encoded))

    @renamed(count="n")
    def likely_lengths(self, encoded: Encoded, n: int) -> Int[Tensor, "batch n"]:
        """The `n` most likely target lengths, the likeliest first."""
        return self.length_logits(encoded).topk(min(n, self.shape.length), dim=-1).indices + 1

    # ------------------------------------------------------------------ writing the target

    def decode(
        self,
        tokens: Int[Tensor, "batch t"],
        encoded: Encoded,
        lengths: Int[Tensor, " batch"] | None = None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch t vocab"]:
        """Logits at every position.

        A causal decoder reads the tokens from left to right and predicts the token after each; a
        `cache` has what it read before, and gets these. A parallel decoder reads a hypothesis and
        predicts its every token; `lengths` says where each row ends.
        """
        x, _ = self._run(tokens, encoded, lengths, cache, keep=False)
        return self.read_out(x)

    def inspect(
        self,
        tokens: Int[Tensor, "batch t"],
        encoded: Encoded,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> LastAttention:
        """One pass as in `decode`, with the attention of the last layer written out."""
        x, patterns = self._run(tokens, encoded, lengths, None, keep=True)
        return LastAttention(self.read_out(x), *patterns)

    def read_out(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows vocab"]:
        """Logits from the state after the last layer."""
        return F.linear(self.decoder_norm(x), self.embedding.weight)

    def _run(
        self,
        tokens: Tensor,
        encoded: Encoded,
        lengths: Tensor | None,
        cache: DecoderCache | None,
        *,
        keep: bool,
    ) -> tuple[Tensor, Sequence[Tensor]]:
        shape, t = self.shape, tokens.shape[1]
        start = 0 if cache is None else cache.used
        if cache is not None and not shape.causal:
            raise UserError(
                "a parallel decoder changes every position, so it has no cache", parameter="cache"
            )
        if lengths is None and not shape.causal:
            raise UserError("a parallel decoder needs the length of every target")
        self._check_room(start + t)
        at = torch.arange(start, start + t, device=tokens.device)
        positions = self.target_position(at)
        causal = shape.causal and start == 0 and not keep
        allowed: Tensor | None = None
        if not shape.causal:
            assert lengths is not None
            allowed = (at < lengths[:, None])[:, None, None]
        elif not causal and (t > 1 or keep):
            allowed = (torch.arange(start + t, device=at.device) <= at[:, None])[None, None]
        seen = positions if start == 0 else self.target_position.weight[: start + t]
        read = _Read(positions, seen, allowed, encoded.shown[:, None, None], causal)
        x = self.drop(self.scale * (self.embedding(tokens) + positions))
        patterns: list[Tensor] = []
        for number, layer in enumerate(self.decoder):
            kept = patterns if keep and number == shape.layers - 1 else None
            key, value = encoded.keys[number], encoded.values[number]
            x = layer(x, read, key, value, cache, number, kept)
        if cache is not None:
            cache.used += t
        return x, patterns

    def _layers(self) -> list[_DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, _DecoderLayer)]

    def _check_room(self, needed: int) -> None:
        if needed > self.shape.length:
            raise UserError(
                f"a sentence has {needed} tokens; this network reads and writes at most "
                f"{self.shape.length} (length of its PairShape)",
                parameter="needed",
            )


def _norm(shape: PairShape) -> nn.LayerNorm:
    return nn.LayerNorm(shape.width, bias=False)


def _feedforward(shape: PairShape) -> FeedForward:
    return FeedForward(
        Shape(
            shape.vocab_size,
            shape.length,
            width=shape.width,
            heads=shape.heads,
            feedforward=shape.feedforward,
            bias=False,
            activation="relu",
        )
    )
