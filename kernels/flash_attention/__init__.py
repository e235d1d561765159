"""FlashAttention: forward and backward, causal or not, grouped key heads, equal or packed sequences."""

from __future__ import annotations

from typing import Any

import torch

from ..common import FLOAT_DTYPES, require, unsupported
from .launch import Attended, Batch, Tuning, attend, attend_backward, describable
from .reference import attention_reference, varlen_attention_reference

__all__ = [
    "Tuning",
    "attention_reference",
    "fallback_reason",
    "flash_attention",
    "flash_attention_varlen",
    "varlen_attention_reference",
]

HEAD_DIMENSIONS = (16, 32, 64, 128, 256)
_MAX_GRID_AXIS = 65535
_TUNING = Tuning()


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    tuning: Tuning = _TUNING,
) -> torch.Tensor:
    """softmax(scale q k^T) v for q [batch, heads, queries, dim], k and v [batch, kv_heads, keys, dim].

    heads is a multiple of kv_heads. causal: query i sees keys up to i + keys - queries (the last query sees all); a
    query that sees none gives zeros. scale defaults to dim ** -0.5. Any strides with contiguous rows are read as they
    are. Differentiable; the backward pass repeats bit for bit. Falls back to the reference where fallback_reason says
    so. Raises KernelInputError for shapes or dtypes that disagree.
    """
    _check(q, k, v, layout="[batch, heads, tokens, dim]", heads_axis=1)
    require(k.shape[0] == q.shape[0], f"k has a batch of {k.shape[0]}, expected {q.shape[0]} as q")
    if fallback_reason(q, k, v):
        return attention_reference(q, k, v, causal=causal, scale=scale)
    batch = Batch(q.shape[2], k.shape[2], q.shape[0], None, None, causal, _scale(scale, q))
    result: torch.Tensor = _Attention.apply(q, k, v, batch, tuning)
    return result


def flash_attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_starts: torch.Tensor,
    k_starts: torch.Tensor,
    *,
    max_queries: int,
    max_keys: int,
    causal: bool = False,
    scale: float | None = None,
    tuning: Tuning = _TUNING,
) -> torch.Tensor:
    """Attention of each sequence of a packed batch with itself: q [tokens, heads, dim], k, v [tokens, kv_heads, dim].

    q_starts, k_starts: [sequences + 1], int32 or int64, ascending from 0 to the number of tokens. max_queries and
    max_keys: lengths of the longest sequences (a shorter bound leaves rows unwritten). As flash_attention otherwise.
    """
    _check(q, k, v, layout="[tokens, heads, dim]", heads_axis=1)
    for name, starts in (("q_starts", q_starts), ("k_starts", k_starts)):
        require(
            starts.ndim == 1 and starts.shape == q_starts.shape and starts.numel() >= 1
            and starts.dtype in (torch.int32, torch.int64),
            f"{name} has shape {tuple(starts.shape)} and dtype {starts.dtype}, "
            "expected [sequences + 1] as q_starts, int32 or int64",
        )  # fmt: skip
    if q_starts.numel() == 1 or fallback_reason(q, k, v):
        return varlen_attention_reference(q, k, v, q_starts, k_starts, causal=causal, scale=scale)
    batch = Batch(
        max_queries, max_keys, q_starts.numel() - 1, q_starts.contiguous(), k_starts.contiguous(), causal,
        _scale(scale, q),
    )  # fmt: skip
    packed = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (q, k, v))
    result: torch.Tensor = _Attention.apply(*packed, batch, tuning)
    return result.squeeze(0).transpose(0, 1)


def fallback_reason(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> str | None:
    """Why the reference is used for these inputs, or None."""
    if q.shape[-1] not in HEAD_DIMENSIONS:
        return f"head dimension {q.shape[-1]}"
    if q.numel() == 0 or k.numel() == 0:
        return "no elements"
    if max(q.shape[0] if q.ndim == 4 else 0, q.shape[1]) > _MAX_GRID_AXIS:
        return f"more than {_MAX_GRID_AXIS} heads or sequences"
    return unsupported((q, k, v), dtypes=FLOAT_DTYPES)


def _scale(scale: float | None, q: torch.Tensor) -> float:
    return float(q.shape[-1] ** -0.5) if scale is None else scale


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, layout: str, heads_axis: int) -> None:
    rank = layout.count(",") + 1
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        require(tensor.ndim == rank, f"{name} has shape {tuple(tensor.shape)}, expected {layout}")
        require(tensor.dtype == q.dtype, f"{name} has dtype {tensor.dtype}, expected {q.dtype} as q")
    require(v.shape == k.shape, f"v has shape {tuple(v.shape)}, expected {tuple(k.shape)} as k")
    require(k.shape[-1] == q.shape[-1], f"k has head dimension {k.shape[-1]}, expected {q.shape[-1]} as q")
    heads, kv_heads = q.shape[heads_axis], k.shape[heads_axis]
    require(
        kv_heads > 0 and heads % kv_heads == 0,
        f"q has {heads} heads, expected a multiple of the {kv_heads} of k",
    )


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: Batch, tuning: Tuning
    ) -> torch.Tensor:
        q, k, v = describable(q), describable(k), describable(v)
        done = attend(q, k, v, batch, tuning)
        ctx.save_for_backward(q, k, v, done.out, done.lse)
        ctx.batch, ctx.tuning = batch, tuning
        return done.out

    @staticmethod
    def backward(ctx: Any, dout: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None, None]:
        q, k, v, out, lse = ctx.saved_tensors
        gradients = attend_backward(q, k, v, Attended(out, lse), describable(dout), ctx.batch, ctx.tuning)
        return gradients.q, gradients.k, gradients.v, None, None
