"""Attention in plain torch, with all scores in memory."""

from __future__ import annotations

import torch


def attention_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """softmax(scale q k^T) v for q [batch, heads, queries, dim], k and v [batch, kv_heads, keys, dim].

    causal: query i sees keys up to i + keys - queries (the last query sees all); a query that sees none gives zeros.
    Computed in float32 or wider; scale defaults to dim ** -0.5.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    group = q.shape[1] // k.shape[1]
    keys, values = (tensor.to(wide).repeat_interleave(group, dim=1) for tensor in (k, v))
    scores = (q.to(wide) @ keys.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        queries, length = scores.shape[-2:]
        visible = torch.ones(queries, length, dtype=torch.bool, device=q.device).tril(length - queries)
        scores = scores.masked_fill(~visible, float("-inf"))
        weights = torch.softmax(scores, dim=-1).masked_fill(~visible.any(dim=-1, keepdim=True), 0.0)
    else:
        weights = torch.softmax(scores, dim=-1)
    return (weights @ values).to(q.dtype)


def varlen_attention_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_starts: torch.Tensor,
    k_starts: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Attention of each packed sequence with itself: q [tokens, heads, dim], k and v [tokens, kv_heads, dim].

    q_starts, k_starts: [sequences + 1], where each sequence begins, and the total.
    """
    q_bounds, k_bounds = q_starts.tolist(), k_starts.tolist()
    parts = []
    for index in range(len(q_bounds) - 1):
        rows = slice(q_bounds[index], q_bounds[index + 1])
        columns = slice(k_bounds[index], k_bounds[index + 1])
        packed = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (q[rows], k[columns], v[columns]))
        parts.append(attention_reference(*packed, causal=causal, scale=scale).squeeze(0).transpose(0, 1))
    return torch.cat(parts) if parts else torch.empty_like(q)
