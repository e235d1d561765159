"""Decode attention over a paged key-value cache, the keys of a sequence split over programs; forward only."""

from __future__ import annotations

import torch

from ..common import (
    FLOAT_DTYPES,
    Config,
    multiprocessors,
    on_device,
    power_of_two,
    require,
    unsupported,
)
from . import kernel
from .reference import paged_decode_reference

__all__ = ["fallback_reason", "paged_decode", "paged_decode_reference"]

HEAD_DIMENSIONS = (16, 32, 64, 128, 256)
_INDEX_DTYPES = (torch.int32, torch.int64)
_LOG2_E = 1.4426950408889634
_MAX_GRID_AXIS = 65535
# The matrix instructions take 16 rows: a smaller group of query heads is padded.
_MIN_GROUP = 16


def paged_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    max_length: int,
    scale: float | None = None,
    splits: int | None = None,
    config: Config | None = None,
) -> torch.Tensor:
    """softmax(scale q k^T) v of one query per sequence: [batch, heads, dim] like q.

    q: [batch, heads, dim]. k_cache, v_cache: [pages, page size, kv_heads, dim], same strides, rows contiguous (any
    order of the other axes). block_table: [batch, pages of the longest sequence], int32 or int64. lengths: [batch];
    a length of 0 gives zeros. max_length: the longest of them, or a bound, used only to share out the work; splits and
    config (a point of kernel.SPACE) override our choice. scale defaults to dim ** -0.5. Pages must be inside the cache
    (not checked on a GPU). Falls back to the reference where fallback_reason says so. Raises KernelInputError for
    shapes or dtypes that disagree.
    """
    _check(q, k_cache, v_cache, block_table, lengths)
    require(max_length >= 0, f"max_length is {max_length}, expected 0 or more")
    require(splits is None or splits >= 1, f"splits is {splits}, expected 1 or more")
    if fallback_reason(q, k_cache, v_cache):
        return paged_decode_reference(q, k_cache, v_cache, block_table, lengths, scale=scale)
    batch, heads, dim = q.shape
    kv_heads = k_cache.shape[2]
    chosen = config or kernel.choose()
    splits = splits or kernel.choose_splits(batch * kv_heads, max_length, multiprocessors(q.device))
    q = q if q.stride(2) == 1 else q.contiguous()
    block_table = block_table if block_table.stride(1) == 1 else block_table.contiguous()
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    shares = (batch, heads, splits) if splits > 1 else (1, 1, 1)
    partial = torch.empty((*shares, dim), dtype=torch.float32, device=q.device)
    lse = torch.empty(shares, dtype=torch.float32, device=q.device)
    scale = dim**-0.5 if scale is None else scale
    with on_device(q):
        kernel.paged_decode_split[(kv_heads, batch, splits)](
            q, k_cache, v_cache, block_table, lengths.contiguous(), partial, lse, out, scale * _LOG2_E,
            q.stride(0), q.stride(1), *k_cache.stride()[:3], block_table.stride(0), k_cache.shape[1],
            GROUP=heads // kv_heads, GROUP_BLOCK=max(_MIN_GROUP, power_of_two(heads // kv_heads)), DIM=dim,
            PRECISION="ieee", SPLITS=splits, STAGES=chosen.num_stages, **chosen.keywords,
        )  # fmt: skip
        if splits > 1:
            kernel.paged_decode_join[(batch * heads,)](
                partial, lse, out, SPLITS=splits, SPLITS_BLOCK=power_of_two(splits), DIM=dim, num_warps=4
            )
    return out


def fallback_reason(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor) -> str | None:
    """Why the reference is used for these inputs, or None."""
    if q.shape[-1] not in HEAD_DIMENSIONS:
        return f"head dimension {q.shape[-1]}"
    if q.numel() == 0 or k_cache.numel() == 0:
        return "no elements"
    if q.shape[0] > _MAX_GRID_AXIS:
        return f"more than {_MAX_GRID_AXIS} sequences"
    if k_cache.stride() != v_cache.stride() or k_cache.stride(3) != 1:
        return "caches of different strides, or rows that are not contiguous"
    return unsupported((q, k_cache, v_cache), dtypes=FLOAT_DTYPES)


def _check(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
) -> None:
    require(q.ndim == 3, f"q has shape {tuple(q.shape)}, expected [batch, heads, dim]")
    batch, heads, dim = q.shape
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        require(
            cache.ndim == 4 and cache.shape == k_cache.shape and cache.shape[3] == dim,
            f"{name} has shape {tuple(cache.shape)}, expected [pages, page size, kv_heads, {dim}] for q",
        )
        require(cache.dtype == q.dtype, f"{name} has dtype {cache.dtype}, expected {q.dtype} as q")
    kv_heads = k_cache.shape[2]
    require(
        kv_heads > 0 and heads % kv_heads == 0,
        f"q has {heads} heads, expected a multiple of the {kv_heads} of k_cache",
    )
    require(
        block_table.ndim == 2 and block_table.shape[0] == batch and block_table.dtype in _INDEX_DTYPES,
        f"block_table has shape {tuple(block_table.shape)} and dtype {block_table.dtype}, "
        f"expected [{batch}, pages], int32 or int64",
    )
    require(
        lengths.shape == (batch,) and lengths.dtype in _INDEX_DTYPES,
        f"lengths has shape {tuple(lengths.shape)} and dtype {lengths.dtype}, expected ({batch},), int32 or int64",
    )
