"""Attention of short sentences, as fast as a GPU can read them.

The kernels that torch chooses are made for long texts: they cut keys into blocks of 64 or more,
and a sentence of 12 tokens leaves most of a block idle. Here one small program holds a whole
sentence of one head and writes what comes out. On the way back it computes the pattern again, so
that nothing but the inputs is kept.

    o_i = Σ_j P_ij v_j        P_i = softmax_j( q_i · k_j / √d )   over the allowed j

`attend` uses the programs of `short_attention_kernels` (Triton) on a GPU where they fit, and torch
everywhere else. Both compute the same function up to rounding.
"""

import importlib.util
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

LONGEST = 64  # tokens of a sentence that one program holds
WIDTHS = (16, 32, 64, 128)  # of a head
HAS_TRITON = importlib.util.find_spec("triton") is not None

Kernels = Literal["torch", "short"]


def attend(
    query: Float[Tensor, "batch heads t head_width"],
    key: Float[Tensor, "batch heads source head_width"],
    value: Float[Tensor, "batch heads source head_width"],
    allowed: Bool[Tensor, "#batch 1 #t source"] | None = None,
    *,
    causal: bool = False,
    kernels: Kernels = "torch",
) -> Float[Tensor, "batch heads t head_width"]:
    """Σ_j P_ij v_j over the allowed j, or over j ≤ i; at least one must be allowed.

    Worked value: one head of width 1, q = log 3 at both positions, k = (0, 1), v = (0, 2). The
    pattern is (¼, ¾), so that both positions get 3/2; with `causal` the first gets 0.
    """
    if kernels == "short" and fits(query, key, allowed):
        shown = None if allowed is None else allowed[:, 0, 0]
        return _operation(query, key, value, shown, causal)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=allowed, is_causal=causal)


def fits(query: Tensor, key: Tensor, allowed: Tensor | None) -> bool:
    """Whether the programs for short sentences can be used on these."""
    return (
        query.is_cuda
        and max(query.shape[2], key.shape[2]) <= LONGEST
        and query.shape[-1] in WIDTHS
        and (allowed is None or allowed.shape[2] == 1)
        and HAS_TRITON
    )


# ------------------------------------------------------------------ as an operation of torch
# An operation of its own is what torch.compile and a recorded step need: they see one call.


@torch.library.custom_op("triptych::short_attention", mutates_args=())
def _operation(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool
) -> Tensor:
    from triptych.models import short_attention_kernels

    return short_attention_kernels.forward(query, key, value, allowed, causal)


@_operation.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool) -> Tensor:
    return _beside(query)


@torch.library.custom_op("triptych::short_attention_back", mutates_args=())
def _back(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    from triptych.models import short_attention_kernels

    return short_attention_kernels.backward(gradient, query, key, value, allowed, causal)


@_back.register_fake
def _(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return _beside(query), _beside(key), _beside(value)


def _beside(x: Tensor) -> Tensor:
    """A tensor of this shape whose heads lie side by side, as the output matrix reads them."""
    batch, heads, t, width = x.shape
    return x.new_empty((batch, t, heads, width)).transpose(1, 2)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    query, key, value, allowed, ctx.causal = inputs
    ctx.save_for_backward(query, key, value, allowed)


def _go_back(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
    return *_back(gradient, *ctx.saved_tensors, ctx.causal), None, None


_operation.register_autograd(_go_back, setup_context=_keep)
