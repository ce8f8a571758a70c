"""One small transformer for everything: causal or not, every piece replaceable, frozen or seen.

Its layers are in `layers`. Positions, i = 0..length-1: "learned" adds a vector for each i; "linear"
adds (i / length) u for one learned direction u (`position_direction`; set it to a unit vector to
give the position a coordinate of its own) [li, 2.2.3]; "rotary" turns queries and keys by the
angles i 10000^(-2k/d); "none" leaves positions out.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from triptych.core.display import counted
from triptych.core.protocols import Density
from triptych.core.validation import (
    Count,
    Number,
    UserError,
    as_device,
    as_number,
    as_seed,
    as_size,
    check_can,
    check_shape,
)
from triptych.models.layers import (
    Block,
    OutputLayer,
    Rotation,
    Shape,
    check_choice,
    make_norm,
    nearest,
)

__all__ = ["AttentionChoice", "Inspected", "Shape", "Transformer", "draw_weights"]

AttentionChoice = Literal["learned", "uniform"] | Sequence[Tensor]
Init = Literal["gpt2", "bert"]


def draw_weights(parameter: nn.Parameter, scale: float, generator: torch.Generator) -> None:
    """Start weights from N(0, scale²), in place."""
    parameter.normal_(0, scale, generator=generator)


class Inspected(NamedTuple):
    """logits     what `forward` returns
    hidden[l]     state after l layers, l = 0..layers; hidden[0] is the input with its positions
    patterns[l]   P of layer l, rows summing to 1 (to 0 where the mask allows nothing)
    heads[l]      each head's part of the attention output: a(X) = Σ_h heads[l][:, h] + bias of W^O
    """

    logits: Float[Tensor, "batch t vocab"]
    hidden: tuple[Float[Tensor, "batch t width"], ...]
    patterns: tuple[Float[Tensor, "batch heads t t"], ...]
    heads: tuple[Float[Tensor, "batch heads t width"], ...]


class Transformer(nn.Module):
    """logits[b, i] of a stack of layers, for tokens or for any vectors in their place.

    The same `seed` gives the same weights on every device and in every dtype: they are drawn in
    float32 from a generator of their own, N(0, init_scale²), biases 0, gains 1. With residuals,
    the matrices that write to them are smaller by √(2 layers), as in GPT-2; init="bert" leaves
    that out.

    Runs under torch.func.vmap over stacked weights, inside `sdpa_kernel(SDPBackend.MATH)`: the
    fused attention kernels have no batching rule on the CPU.
    """

    rotary_cos: Tensor
    rotary_sin: Tensor

    def __init__(
        self,
        shape: Shape,
        *,
        seed: Count,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        init_scale: Number = 0.02,
        init: Init = "gpt2",
    ) -> None:
        super().__init__()
        if not isinstance(shape, Shape):
            raise UserError(
                f"shape is a {type(shape).__name__}; it must be a Shape", parameter="shape"
            )
        seed, device = as_seed(seed), as_device(device)
        init_scale = as_number("init_scale", init_scale, at_least=0)
        check_choice("init", init, get_args(Init))
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise UserError(
                f"dtype is {dtype!r}; it must be a float type such as torch.float32",
                parameter="dtype",
            )
        self.shape = shape
        with torch.device("meta"):  # torch's own initialisation would use the global seed
            self.embedding = (
                None if shape.embedding == "given" else nn.Embedding(shape.vocab_size, shape.width)
            )
            learned, linear = shape.positions == "learned", shape.positions == "linear"
            self.position = nn.Embedding(shape.length, shape.width) if learned else None
            self.position_direction = nn.Parameter(torch.empty(shape.width)) if linear else None
            self.input_norm = make_norm(shape) if shape.input_norm else None
            self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
            self.final_norm = make_norm(shape) if shape.has_final_norm else None
            self.output_layer = OutputLayer(shape) if shape.output_layer else None
            self.output = nn.Linear(shape.width, shape.vocab_size, bias=shape.bias)
        self.to_empty(device="cpu")
        self._initialise(seed, init_scale, init)
        if shape.tied and self.embedding is not None:
            self.output.weight = self.embedding.weight
        if shape.positions == "rotary":
            half = torch.arange(shape.head_width // 2, dtype=torch.float64)
            speeds = 10_000.0 ** (-2 * half / shape.head_width)
            angles = torch.arange(shape.length, dtype=torch.float64)[:, None] * speeds
            self.register_buffer("rotary_cos", angles.cos(), persistent=False)
            self.register_buffer("rotary_sin", angles.sin(), persistent=False)
        self.to(device=device, dtype=dtype)

    @classmethod
    def for_(
        cls,
        truth: Density,
        *,
        seed: Count,
        causal: bool = True,
        device: torch.device | str = "cpu",
        **shape: Any,
    ) -> "Transformer":
        """A network whose shape fits a truth: an id more than its tokens, for start or mask.

        A causal one has a position more, so that it can be asked what follows a whole sequence.
        `shape` has any other field of `Shape`, such as width=32.

        Worked value: for 5 tokens and length 12 it is Shape(vocab_size=6, length=13).
        """
        check_can("truth", truth, "vocab_size", "length")
        vocab_size, length = (
            as_size("vocab_size", truth.vocab_size),
            as_size("length", truth.length),
        )
        for name in ("vocab_size", "length"):
            if name in shape:
                raise UserError(
                    f"{name} is that of the truth here; for another, make a Shape", parameter=name
                )
        known = {field.name for field in dataclasses.fields(Shape)}
        for name in shape:
            if name not in known:
                raise UserError(
                    f"{name} is no field of a Shape; did you mean {nearest(name, known)}?",
                    parameter=name,
                )
        fitting = Shape(vocab_size + 1, length + causal, causal=causal, **shape)
        return cls(fitting, seed=seed, device=device)

    def _initialise(self, seed: int, scale: float, init: Init) -> None:
        generator = torch.Generator().manual_seed(seed)
        small = self.shape.residual and init == "gpt2"
        smaller = math.sqrt(2 * self.shape.layers) if small else 1.0
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.endswith(".bias"):
                    parameter.zero_()
                elif name.endswith("norm.weight"):
                    parameter.fill_(1.0)
                else:
                    writes = name.endswith(("attention.output.weight", "feedforward.outer.weight"))
                    draw_weights(parameter, scale / smaller if writes else scale, generator)
            if self.embedding is not None and self.shape.embedding == "one_hot":
                nn.init.eye_(self.embedding.weight).requires_grad_(False)

    def __repr__(self) -> str:
        shape, size = self.shape, sum(p.numel() for p in self.parameters())
        sizes = f"{counted(shape.layers, 'layer')}, {counted(shape.heads, 'head')}"
        reads = "causal" if shape.causal else "not causal"
        inputs = f"{counted(shape.vocab_size, 'symbol')}, length {shape.length}"
        return f"Transformer({sizes}, width {shape.width}, {inputs}, {reads}, {size:,} parameters)"

    @property
    def device(self) -> torch.device:
        return self.output.weight.device

    # ------------------------------------------------------------------ what it computes

    def embed(self, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch t width"]:
        """The embedding of each token, without its position."""
        if self.embedding is None:
            raise UserError(
                "this network has embedding='given': pass vectors and not tokens",
                parameter="tokens",
            )
        return self.embedding(tokens)

    def forward(
        self,
        tokens: Int[Tensor, "batch t"] | None = None,
        *,
        vectors: Float[Tensor, "batch t width"] | None = None,
        attention: AttentionChoice = "learned",
        padding: Bool[Tensor, "batch t"] | None = None,
        at: int | None = None,
    ) -> Float[Tensor, "batch positions vocab"]:
        """Logits at every position, or only `at` one.

        Give tokens, or vectors instead of their embeddings. `attention`: "uniform" spreads every
        pattern evenly over what the mask allows; a tensor [batch, heads, t, t] per layer is used
        as it stands, mask or not. `padding` is True where a position is attended to by nobody.
        With `at`, the last layer computes that position alone.
        """
        return self._run(tokens, vectors, attention, padding, keep=False, at=at).logits

    def logits_where(
        self, tokens: Int[Tensor, "batch t"], chosen: Bool[Tensor, "batch t"]
    ) -> Float[Tensor, "chosen vocab"]:
        """Logits at the chosen positions, in reading order; the last layer computes no others."""
        x, last, rotation = self._before_the_last(tokens)
        check_shape("chosen", chosen, tuple(x.shape[:2]), "these tokens")
        return self.read_out(last.where(x, chosen, rotation=rotation)[0])

    def logits_at(
        self, tokens: Int[Tensor, "batch t"], at: Int[Tensor, "batch places"]
    ) -> Float[Tensor, "batch places vocab"]:
        """Logits at some positions of every row; the last layer computes no others."""
        x, last, rotation = self._before_the_last(tokens)
        return self.read_out(last.at_places(x, at, rotation=rotation))

    def _before_the_last(
        self, tokens: Int[Tensor, "batch t"]
    ) -> tuple[Float[Tensor, "batch t width"], Block, Rotation | None]:
        """What the last layer reads, that layer, and the turns of its queries and keys."""
        x = self._inputs(tokens, None)
        positions = torch.arange(x.shape[1], device=x.device)
        x, rotation = self.place(x, positions), self.rotation(positions)
        *before, last = self.blocks
        for block in before:
            assert isinstance(block, Block)
            x = block.after(x, block.attention(block.before(x), rotation=rotation).output)
        assert isinstance(last, Block)
        return x, last, rotation

    def inspect(
        self,
        tokens: Int[Tensor, "batch t"] | None = None,
        *,
        vectors: Float[Tensor, "batch t width"] | None = None,
        attention: AttentionChoice = "learned",
        padding: Bool[Tensor, "batch t"] | None = None,
    ) -> Inspected:
        """Logits, hidden states, patterns and per-head outputs for the inputs of `forward`."""
        return self._run(tokens, vectors, attention, padding, keep=True)

    def _run(
        self,
        tokens: Tensor | None,
        vectors: Tensor | None,
        attention: AttentionChoice,
        padding: Tensor | None,
        keep: bool,
        at: int | None = None,
    ) -> Inspected:
        x = self._inputs(tokens, vectors)
        if at is not None and not 0 <= at < x.shape[1]:
            raise UserError(
                f"at is {at}; the input has positions 0 to {x.shape[1] - 1}", parameter="at"
            )
        positions = torch.arange(x.shape[1], device=x.device)
        x, rotation = self.place(x, positions), self.rotation(positions)
        explicit = keep or not isinstance(attention, str) or attention != "learned"
        allowed = self._allowed(x, padding) if explicit or padding is not None else None
        given = self._given_patterns(x, attention, allowed)
        hidden, patterns, heads = [x], [], []
        for layer, (block, pattern) in enumerate(zip(self.blocks, given, strict=True)):
            assert isinstance(block, Block)
            if at is not None and layer == len(self.blocks) - 1 and not explicit:
                x = block.at_one(x, at, rotation=rotation, allowed=allowed)
                return Inspected(self.read_out(x), (), (), ())
            attended = block.attention(
                block.before(x),
                rotation=rotation,
                allowed=allowed,
                pattern=pattern,
                explicit=explicit,
            )
            x = block.after(x, attended.output)
            if keep:
                hidden.append(x)
                patterns.append(attended.pattern)
                heads.append(block.attention.by_head(attended.mixed))
        x = x if at is None else x[:, at : at + 1]
        return Inspected(self.read_out(x), tuple(hidden), tuple(patterns), tuple(heads))

    def _inputs(self, tokens: Tensor | None, vectors: Tensor | None) -> Tensor:
        if (tokens is None) == (vectors is None):
            raise UserError("pass either tokens or vectors: exactly one of them")
        if vectors is None:
            assert tokens is not None
            vectors = self.embed(tokens)
        if vectors.shape[1] > self.shape.length:
            raise UserError(
                f"the input has {vectors.shape[1]} positions; this network reads at most "
                f"{self.shape.length} (length of its Shape)",
                parameter="vectors",
            )
        if vectors.shape[-1] != self.shape.width:
            raise UserError(
                f"vectors have {vectors.shape[-1]} entries; this network has width "
                f"{self.shape.width}",
                parameter="vectors",
            )
        return vectors

    def _allowed(self, x: Tensor, padding: Tensor | None) -> Bool[Tensor, "#batch 1 t t"]:
        batch, t = x.shape[:2]
        allowed = torch.ones(1, 1, t, t, dtype=torch.bool, device=x.device)
        if self.shape.causal:
            allowed = allowed.tril()
        if padding is None:
            return allowed
        check_shape("padding", padding, (batch, t), f"an input of {batch} rows, {t} positions")
        return allowed & ~padding[:, None, None, :]

    def _given_patterns(
        self, x: Tensor, attention: AttentionChoice, allowed: Tensor | None
    ) -> Sequence[Tensor | None]:
        batch, t = x.shape[:2]
        layers, heads = self.shape.layers, self.shape.heads
        if isinstance(attention, str):
            check_choice("attention", attention, ("learned", "uniform"))
            if attention == "learned":
                return [None] * layers
            assert allowed is not None
            weights = allowed.to(x.dtype)
            uniform = weights / weights.sum(-1, keepdim=True).clamp(min=1)
            return [uniform.expand(batch, heads, t, t)] * layers
        if len(attention) != layers:
            raise UserError(
                f"{len(attention)} attention patterns are given; this network has {layers} layers "
                "and needs one for each",
                parameter="attention",
            )
        for layer, pattern in enumerate(attention):
            because = f"an input of {batch} rows, {t} positions and {heads} heads"
            check_shape(f"attention[{layer}]", pattern, (batch, heads, t, t), because)
        return attention

    # ------------------------------------------------------------------ the steps, for a cache

    def place(
        self, vectors: Float[Tensor, "batch t width"], positions: Int[Tensor, "*rows t"]
    ) -> Float[Tensor, "batch t width"]:
        """What enters the first layer: `vectors`, what their positions add, and the norm of both.

        Rotary positions add nothing here.
        """
        if self.position is not None:
            vectors = vectors + self.position(positions)
        elif self.position_direction is not None:
            share = positions.to(vectors.dtype) / self.shape.length
            vectors = vectors + share[..., None] * self.position_direction
        return vectors if self.input_norm is None else self.input_norm(vectors)

    def rotation(self, positions: Int[Tensor, "*rows t"]) -> Rotation | None:
        """The turns of queries and keys at these positions; None without rotary positions."""
        if self.shape.positions != "rotary":
            return None
        return Rotation(self.rotary_cos[positions], self.rotary_sin[positions])

    def read_out(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows vocab"]:
        """Logits from the state after the last layer."""
        if self.final_norm is not None:
            x = self.final_norm(x)
        if self.output_layer is not None:
            x = self.output_layer(x)
        return self.output(x)

    # ------------------------------------------------------------------ taking it apart

    def parameter_names(self) -> list[str]:
        """Every name that `freeze` and `set_matrix` know; a tied matrix is listed once."""
        return [name for name, _ in self.named_parameters()]

    def freeze(self, *names: str) -> None:
        """Training leaves these parameters as they are."""
        for parameter in [self._named(name) for name in names]:
            parameter.requires_grad_(False)

    def set_matrix(self, name: str, value: Float[Tensor, "..."], *, freeze: bool = True) -> None:
        """Put `value` instead of a parameter, and by default freeze it."""
        parameter = self._named(name)
        check_shape(name, value, tuple(parameter.shape), "this network")
        with torch.no_grad():
            parameter.copy_(value)
        if freeze:
            parameter.requires_grad_(False)

    def _named(self, name: str) -> nn.Parameter:
        parameters = dict(self.named_parameters(remove_duplicate=False))
        if name not in parameters:
            near = nearest(name, parameters)
            raise UserError(f"this network has no parameter {name!r}; did you mean {near!r}?")
        return parameters[name]
