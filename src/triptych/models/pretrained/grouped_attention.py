"""Attention where several heads share keys and values, without a copy of these for every head.

transformers repeats the keys and values of a shared head once for each of its queries when it gets
a mask, and reads all copies at every step. Here the queries of a shared head stand side by side as
if they were positions, and the keys and values are read once:

    queries   [batch, shared x g, t, width]  ->  [batch, shared, g x t, width]

The numbers are the same up to rounding. It pays where few new tokens meet a long cache.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.nn.functional as F
from torch import Tensor

NAME = "triptych_grouped"
_FEW = 8  # new tokens a row, at most; with more, copies of the mask outweigh those of the keys
_THEIRS = ("softcap", "position_bias", "cache", "s_aux")  # options that change the answer


@contextmanager
def grouped(model: Any) -> Iterator[None]:
    """Inside, a model that shares keys and values between heads reads them once.

    Other models, and those that were loaded with eager attention, stay as they are.
    """
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_attention_heads", 1)
    shared = getattr(config, "num_key_value_heads", None) or heads
    if getattr(config, "_attn_implementation", None) != "sdpa" or shared == heads:
        yield
        return
    _register()
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = "sdpa"


def _register() -> None:
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def grouped_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """What transformers calls instead of its own; what it has no rule for goes to its own."""
    batch, heads, t, width = query.shape
    shared = key.shape[1]
    theirs = any(options.get(name) is not None for name in _THEIRS)
    if attention_mask is None or t > _FEW or heads == shared or theirs:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            **options,
        )
    group = heads // shared
    mask = attention_mask[..., : key.shape[2]]
    mask = mask.expand(-1, -1, group, -1) if t == 1 else mask.repeat(1, 1, group, 1)
    answer = F.scaled_dot_product_attention(
        query.reshape(batch, shared, group * t, width),
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout,
        scale=scaling,
    )
    answer = answer.reshape(batch, heads, t, value.shape[-1])
    return answer.transpose(1, 2).contiguous(), None
