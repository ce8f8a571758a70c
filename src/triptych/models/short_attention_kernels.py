"""The programs of `short_attention`, in Triton: imported on a GPU alone.

One program for one sentence and one head. A sentence fits into one block, so there is no loop over
keys, and every gradient is written by one program.
"""

# Triton reads these functions as its own language.
# pyright: reportMissingImports=false, reportIndexIssue=false

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _rows(start, stride, at, width: tl.constexpr, inside):
    """The vectors of a head at some positions, 0 where there is none."""
    columns = tl.arange(0, width)
    where = start + at[:, None] * stride + columns[None, :]
    return tl.load(where, mask=inside[:, None], other=0.0)


@triton.jit
def _pattern(
    query, key, allowed, i, j, t, s, scale, has_allowed: tl.constexpr, causal: tl.constexpr
):
    scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
    seen = (j < s)[None, :] & (i >= 0)[:, None]
    if has_allowed:
        shown = tl.load(allowed + j, mask=j < s, other=0)
        seen = seen & (shown != 0)[None, :]
    if causal:
        seen = seen & (j[None, :] <= i[:, None])
    scores = tl.where(seen, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def _forward(
    query, key, value, allowed, out,
    query_batch, query_head, query_row,
    key_batch, key_head, key_row,
    value_batch, value_head, value_row,
    allowed_batch, out_batch, out_head, out_row,
    heads, t, s, scale,
    has_allowed: tl.constexpr, causal: tl.constexpr,
    width: tl.constexpr, block_t: tl.constexpr, block_s: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    row = row.to(tl.int64)
    i, j = tl.arange(0, block_t), tl.arange(0, block_s)
    q = _rows(query + row * query_batch + head * query_head, query_row, i, width, i < t)
    k = _rows(key + row * key_batch + head * key_head, key_row, j, width, j < s)
    v = _rows(value + row * value_batch + head * value_head, value_row, j, width, j < s)
    shown = allowed + row * allowed_batch
    pattern = _pattern(q, k, shown, i, j, t, s, scale, has_allowed, causal)
    mixed = tl.dot(pattern.to(v.dtype), v, input_precision="ieee")
    columns = tl.arange(0, width)
    where = out + row * out_batch + head * out_head + i[:, None] * out_row + columns[None, :]
    tl.store(where, mixed.to(out.dtype.element_ty), mask=(i < t)[:, None])


@triton.jit
def _backward(
    gradient, query, key, value, allowed, to_query, to_key, to_value,
    gradient_batch, gradient_head, gradient_row,
    query_batch, query_head, query_row,
    key_batch, key_head, key_row,
    value_batch, value_head, value_row,
    allowed_batch,
    to_query_batch, to_query_head, to_query_row,
    to_key_batch, to_key_head, to_key_row,
    heads, t, s, scale,
    has_allowed: tl.constexpr, causal: tl.constexpr,
    width: tl.constexpr, block_t: tl.constexpr, block_s: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    row = row.to(tl.int64)
    i, j = tl.arange(0, block_t), tl.arange(0, block_s)
    q = _rows(query + row * query_batch + head * query_head, query_row, i, width, i < t)
    k = _rows(key + row * key_batch + head * key_head, key_row, j, width, j < s)
    v = _rows(value + row * value_batch + head * value_head, value_row, j, width, j < s)
    g = _rows(gradient + row * gradient_batch + head * gradient_head, gradient_row, i, width, i < t)
    shown = allowed + row * allowed_batch
    pattern = _pattern(q, k, shown, i, j, t, s, scale, has_allowed, causal)
    of_value = tl.dot(tl.trans(pattern).to(g.dtype), g, input_precision="ieee")
    of_pattern = tl.dot(g, tl.trans(v), input_precision="ieee")
    of_scores = pattern * (of_pattern - tl.sum(of_pattern * pattern, 1)[:, None]) * scale
    of_query = tl.dot(of_scores.to(k.dtype), k, input_precision="ieee")
    of_key = tl.dot(tl.trans(of_scores).to(q.dtype), q, input_precision="ieee")
    columns = tl.arange(0, width)
    at = row * to_query_batch + head * to_query_head + i[:, None] * to_query_row + columns[None, :]
    tl.store(to_query + at, of_query.to(to_query.dtype.element_ty), mask=(i < t)[:, None])
    at = row * to_key_batch + head * to_key_head + j[:, None] * to_key_row + columns[None, :]
    tl.store(to_key + at, of_key.to(to_key.dtype.element_ty), mask=(j < s)[:, None])
    tl.store(to_value + at, of_value.to(to_value.dtype.element_ty), mask=(j < s)[:, None])


def forward(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, causal: bool
) -> Tensor:
    """What every query attends to; shapes as in `short_attention.attend`, `allowed` by row."""
    query, key, value = (_with_rows(each) for each in (query, key, value))
    out = _beside(query)
    batch, heads, t, _ = query.shape
    shown = query if allowed is None else _shown(allowed, batch)
    _forward[(batch * heads,)](
        query, key, value, shown, out,
        *query.stride()[:3], *key.stride()[:3], *value.stride()[:3],
        0 if allowed is None else shown.stride(0), *out.stride()[:3],
        heads, t, key.shape[2], query.shape[-1] ** -0.5,
        **_sizes(query, key, allowed, causal),
    )  # fmt: skip
    return out


def backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values, from that of what `forward` gives."""
    gradient, query, key, value = (_with_rows(each) for each in (gradient, query, key, value))
    to_query, to_key, to_value = _beside(query), _beside(key), _beside(value)
    batch, heads, t, _ = query.shape
    shown = query if allowed is None else _shown(allowed, batch)
    _backward[(batch * heads,)](
        gradient, query, key, value, shown, to_query, to_key, to_value,
        *gradient.stride()[:3], *query.stride()[:3], *key.stride()[:3], *value.stride()[:3],
        0 if allowed is None else shown.stride(0),
        *to_query.stride()[:3], *to_key.stride()[:3],
        heads, t, key.shape[2], query.shape[-1] ** -0.5,
        **_sizes(query, key, allowed, causal),
    )  # fmt: skip
    return to_query, to_key, to_value


def _sizes(query: Tensor, key: Tensor, allowed: Tensor | None, causal: bool) -> dict[str, Any]:
    block_t, block_s = (max(16, triton.next_power_of_2(x.shape[2])) for x in (query, key))
    return {
        "has_allowed": allowed is not None,
        "causal": causal,
        "width": query.shape[-1],
        "block_t": block_t,
        "block_s": block_s,
        "num_warps": 1 if max(block_t, block_s) <= 16 else 2 if max(block_t, block_s) <= 32 else 4,
    }


def _with_rows(x: Tensor) -> Tensor:
    """Vectors whose entries lie side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _shown(allowed: Tensor, batch: int) -> Tensor:
    shown = allowed.expand(batch, -1).view(torch.uint8)
    return shown if shown.stride(-1) == 1 else shown.contiguous()


def _beside(x: Tensor) -> Tensor:
    batch, heads, t, width = x.shape
    return x.new_empty((batch, t, heads, width)).transpose(1, 2)
