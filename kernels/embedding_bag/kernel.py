"""Embedding bag kernel: one program gathers one bag (and one block of columns), ITEMS rows in flight at a time."""

from __future__ import annotations

import triton
import triton.language as tl

from ..common import Config, config

MAX_BLOCK = 1024

SPACE: tuple[Config, ...] = tuple(
    config(ITEMS=items, num_warps=warps, num_stages=stages)
    for items in (8, 16, 32)
    for warps in (1, 2, 4)
    for stages in (1, 2)
)


def choose(dim: int, element_bytes: int) -> Config:
    """Enough warps that each lane gathers 16 bytes of a row, and no more: idle lanes cost half the bandwidth."""
    if dim * element_bytes <= 256:
        return config(ITEMS=8, num_warps=1, num_stages=2)
    return config(ITEMS=16 if dim <= 256 else 8, num_warps=2 if dim <= 128 else 4, num_stages=1)


@triton.jit
def embedding_bag_forward(
    weight_ptr,
    indices_ptr,
    offsets_ptr,
    sample_weights_ptr,
    out_ptr,
    weight_stride,
    dim,
    bags,
    items,
    MEAN: tl.constexpr,
    WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr,
    ITEMS: tl.constexpr,
):
    bag = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < dim
    first = tl.load(offsets_ptr + bag)
    last = tl.load(offsets_ptr + bag + 1, mask=bag + 1 < bags, other=items)
    # Kept [ITEMS, BLOCK] until the end: a sum across lanes at every step would put a barrier between the gathers.
    total = tl.zeros([ITEMS, BLOCK], dtype=tl.float32)
    for start in range(first, last, ITEMS):
        item = start + tl.arange(0, ITEMS)
        known = item < last
        entry = tl.load(indices_ptr + item, mask=known, other=0).to(tl.int64)
        rows = tl.load(
            weight_ptr + entry[:, None] * weight_stride + column[None, :],
            mask=known[:, None] & inside[None, :],
            other=0.0,
        ).to(tl.float32)
        if WEIGHTED:
            rows *= tl.load(sample_weights_ptr + item, mask=known, other=0.0).to(tl.float32)[:, None]
        total += rows
    result = tl.sum(total, axis=0)
    if MEAN:
        result /= tl.maximum(last - first, 1).to(tl.float32)
    tl.store(out_ptr + bag * dim + column, result.to(out_ptr.dtype.element_ty), mask=inside)
