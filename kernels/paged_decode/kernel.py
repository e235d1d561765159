"""Paged decode kernels (split-KV, https://crfm.stanford.edu/2023/10/12/flashdecoding.html): programs share out each
sequence's keys so that a small batch still fills the GPU; a second kernel joins their partial results."""

from __future__ import annotations

import triton
import triton.language as tl

from ..common import Config, config

SPACE: tuple[Config, ...] = tuple(
    config(BLOCK_N=n, num_warps=warps, num_stages=stages)
    for n, warps in ((32, 4), (64, 4), (128, 4), (64, 8), (128, 8))
    for stages in (2, 3, 4)
)

# Splits are sized for this many programs per multiprocessor: several waves even out sequences of unequal length.
PROGRAMS_PER_CORE = 4
MIN_KEYS_PER_SPLIT = 256


def choose() -> Config:
    return config(BLOCK_N=128, num_warps=4, num_stages=2)


def choose_splits(rows: int, max_length: int, cores: int) -> int:
    """How many programs share a sequence, given rows = batch * kv_heads and the longest length."""
    wanted = -(-cores * PROGRAMS_PER_CORE // rows)
    return max(1, min(wanted, -(-max_length // MIN_KEYS_PER_SPLIT), 128))


@triton.jit
def paged_decode_split(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    lengths_ptr,
    partial_ptr,
    lse_ptr,
    out_ptr,
    scale,
    q_batch_stride,
    q_head_stride,
    page_stride,
    slot_stride,
    kv_head_stride,
    table_stride,
    page_size,
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    DIM: tl.constexpr,
    PRECISION: tl.constexpr,
    SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One share of one sequence's keys for the GROUP query heads of one key head.

    partial: [batch, heads, SPLITS, DIM] and lse (base 2): [batch, heads, SPLITS], float32; with one split the result
    goes straight to out [batch, heads, DIM].
    """
    kv_head = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)
    heads = tl.num_programs(0) * GROUP
    length = tl.load(lengths_ptr + batch).to(tl.int32)
    share = tl.cdiv(tl.cdiv(length, SPLITS), BLOCK_N) * BLOCK_N
    first = split * share
    last = min(first + share, length)
    member = tl.arange(0, GROUP_BLOCK)
    lane = tl.arange(0, DIM)
    head = kv_head * GROUP + member
    real = member < GROUP
    q = tl.load(
        q_ptr + batch * q_batch_stride + head[:, None] * q_head_stride + lane[None, :],
        mask=real[:, None],
        other=0.0,
    )
    biggest = tl.full([GROUP_BLOCK], float("-inf"), dtype=tl.float32)
    weight_sum = tl.zeros([GROUP_BLOCK], dtype=tl.float32)
    total = tl.zeros([GROUP_BLOCK, DIM], dtype=tl.float32)
    for start in tl.range(first, last, BLOCK_N, num_stages=STAGES):
        key = start + tl.arange(0, BLOCK_N)
        inside = key < last
        page = tl.load(table_ptr + batch * table_stride + key // page_size, mask=inside, other=0).to(tl.int64)
        place = page * page_stride + (key % page_size) * slot_stride + kv_head * kv_head_stride
        k = tl.load(k_ptr + place[:, None] + lane[None, :], mask=inside[:, None], other=0.0)
        v = tl.load(v_ptr + place[:, None] + lane[None, :], mask=inside[:, None], other=0.0)
        scores = tl.dot(q, k.T, input_precision=PRECISION) * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        bigger = tl.maximum(biggest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - bigger[:, None])
        correction = tl.exp2(biggest - bigger)
        weight_sum = weight_sum * correction + tl.sum(weights, axis=1)
        total = tl.dot(weights.to(v.dtype), v, total * correction[:, None], input_precision=PRECISION)
        biggest = bigger
    row = batch * heads + head
    empty = weight_sum == 0.0
    total = total / tl.where(empty, 1.0, weight_sum)[:, None]
    if SPLITS == 1:
        place = out_ptr + row[:, None] * DIM + lane[None, :]
        tl.store(place, total.to(out_ptr.dtype.element_ty), mask=real[:, None])
    else:
        lse = tl.where(empty, float("-inf"), biggest + tl.log2(tl.where(empty, 1.0, weight_sum)))
        tl.store(lse_ptr + row * SPLITS + split, lse, mask=real)
        tl.store(
            partial_ptr + (row * SPLITS + split)[:, None] * DIM + lane[None, :], total, mask=real[:, None]
        )


@triton.jit
def paged_decode_join(
    partial_ptr, lse_ptr, out_ptr, SPLITS: tl.constexpr, SPLITS_BLOCK: tl.constexpr, DIM: tl.constexpr
):
    """Weigh the shares of one query head by their sums: out[row] = sum(2^(lse - max) partial) / sum(2^(lse - max))."""
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLITS_BLOCK)
    lane = tl.arange(0, DIM)
    lse = tl.load(lse_ptr + row * SPLITS + split, mask=split < SPLITS, other=float("-inf"))
    biggest = tl.max(lse, axis=0)
    weights = tl.exp2(lse - tl.where(biggest == float("-inf"), 0.0, biggest))
    place = partial_ptr + (row * SPLITS + split)[:, None] * DIM + lane[None, :]
    partial = tl.load(place, mask=(split < SPLITS)[:, None], other=0.0)
    weight_sum = tl.sum(weights, axis=0)
    result = tl.sum(partial * weights[:, None], axis=0) / tl.where(weight_sum == 0.0, 1.0, weight_sum)
    tl.store(out_ptr + row * DIM + lane, result.to(out_ptr.dtype.element_ty))
