"""Attention of one new token per sequence over a paged cache (Kwon et al. 2023, https://arxiv.org/abs/2309.06180),
in plain torch."""

from __future__ import annotations

import torch


def paged_decode_reference(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float | None = None,
) -> torch.Tensor:
    """softmax(scale q k^T) v per sequence: q [batch, heads, dim], caches [pages, page, kv_heads, dim].

    block_table: [batch, pages of the longest sequence]. lengths: [batch]; a sequence of length 0 gives zeros.
    Computed in float32 or wider.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    page = k_cache.shape[1]
    group = q.shape[1] // k_cache.shape[2]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out = torch.zeros(q.shape, dtype=wide, device=q.device)
    for index, length in enumerate(lengths.tolist()):
        if length == 0:
            continue
        pages = block_table[index, : -(-length // page)].to(torch.int64)
        keys, values = (
            cache[pages].flatten(0, 1)[:length].to(wide).repeat_interleave(group, dim=1)
            for cache in (k_cache, v_cache)
        )
        scores = torch.einsum("hd,khd->hk", q[index].to(wide), keys) * scale
        out[index] = torch.einsum("hk,khd->hd", torch.softmax(scores, dim=-1), values)
    return out.to(q.dtype)
