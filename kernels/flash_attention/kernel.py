"""FlashAttention forward kernel (Dao 2023, https://arxiv.org/abs/2307.08691): online softmax over blocks of keys.

Tensors come as descriptors over [batch, heads, tokens, dim]; a packed batch is one batch entry whose sequences start
at q_starts and k_starts. Scores are kept in base 2: scale carries log2(e).
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..common import Config, config

SPACE: tuple[Config, ...] = tuple(
    config(BLOCK_M=m, BLOCK_N=n, num_warps=warps, num_stages=stages)
    for m, n, warps in ((128, 64, 8), (128, 128, 8), (128, 64, 4), (64, 64, 4), (64, 128, 4))
    for stages in (2, 3)
)


def choose(dim: int, *, wide: bool) -> Config:
    """wide: float32 operands, which need twice the shared memory and no matrix instructions."""
    if wide:
        return config(BLOCK_M=32, BLOCK_N=32, num_warps=4, num_stages=1)
    if dim == 256:
        return config(BLOCK_M=128, BLOCK_N=64, num_warps=8, num_stages=2)
    return config(BLOCK_M=128, BLOCK_N=64, num_warps=4, num_stages=2)


@triton.jit
def sequence_bounds(starts_ptr, sequence, length, VARLEN: tl.constexpr):
    """(first token, number of tokens) of a sequence: from its starts, or a whole batch entry."""
    if VARLEN:
        first = tl.load(starts_ptr + sequence).to(tl.int32)
        count = tl.load(starts_ptr + sequence + 1).to(tl.int32) - first
    else:
        first = 0
        count = length
    return first, count


@triton.jit
def _accumulate(
    total, weight_sum, biggest, q, k_desc, v_desc, batch, head, k_first, row, first, last, keys, shift, scale,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, BLOCK_N: tl.constexpr, DIM: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Fold the key blocks from first to last into the running output, sum and maximum of each query row."""
    for start in tl.range(first, last, BLOCK_N):
        k = k_desc.load([batch, head, k_first + start, 0]).reshape(BLOCK_N, DIM)
        scores = tl.dot(q, k.T, input_precision=PRECISION)
        if MASKED:
            column = start + tl.arange(0, BLOCK_N)
            visible = column[None, :] < keys
            if CAUSAL:
                visible = visible & (column[None, :] <= row[:, None] + shift)
            scores = tl.where(visible, scores, float("-inf"))
        bigger = tl.maximum(biggest, tl.max(scores, axis=1) * scale)
        safe = bigger
        if MASKED:
            # A row that has seen no key yet must not subtract -inf from itself.
            safe = tl.where(bigger == float("-inf"), 0.0, bigger)
        weights = tl.exp2(scores * scale - safe[:, None])
        correction = tl.exp2(biggest - safe)
        weight_sum = weight_sum * correction + tl.sum(weights, axis=1)
        total = total * correction[:, None]
        v = v_desc.load([batch, head, k_first + start, 0]).reshape(BLOCK_N, DIM)
        total = tl.dot(weights.to(v.dtype), v, total, input_precision=PRECISION)
        biggest = bigger
    return total, weight_sum, biggest


@triton.jit
def attention_forward(
    q_desc,
    k_desc,
    v_desc,
    out_ptr,
    lse_ptr,
    q_starts_ptr,
    k_starts_ptr,
    queries,
    keys,
    scale,
    out_batch_stride,
    out_head_stride,
    out_token_stride,
    lse_batch_stride,
    lse_head_stride,
    GROUP: tl.constexpr,
    CAUSAL: tl.constexpr,
    VARLEN: tl.constexpr,
    DIM: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One block of queries of one head. lse: base-2 log-sum-exp per query, +inf where no key is visible.

    GROUP query heads share a key head. The longest rows of a causal mask start first.
    """
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    q_first, queries = sequence_bounds(q_starts_ptr, sequence, queries, VARLEN)
    k_first, keys = sequence_bounds(k_starts_ptr, sequence, keys, VARLEN)
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.num_programs(0) - 1 - block
    begin = block * BLOCK_M
    if begin >= queries:
        return
    batch = 0 if VARLEN else sequence
    row = begin + tl.arange(0, BLOCK_M)
    q = q_desc.load([batch, head, q_first + begin, 0]).reshape(BLOCK_M, DIM)
    biggest = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    weight_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    total = tl.zeros([BLOCK_M, DIM], dtype=tl.float32)
    shift = keys - queries
    last = keys
    unmasked = (keys // BLOCK_N) * BLOCK_N
    if CAUSAL:
        last = max(min(keys, begin + BLOCK_M + shift), 0)
        unmasked = (max(min(keys, begin + shift + 1), 0) // BLOCK_N) * BLOCK_N
    total, weight_sum, biggest = _accumulate(
        total, weight_sum, biggest, q, k_desc, v_desc, batch, head // GROUP, k_first, row, 0, unmasked,
        keys, shift, scale, CAUSAL, False, BLOCK_N, DIM, PRECISION,
    )  # fmt: skip
    total, weight_sum, biggest = _accumulate(
        total, weight_sum, biggest, q, k_desc, v_desc, batch, head // GROUP, k_first, row, unmasked, last,
        keys, shift, scale, CAUSAL, True, BLOCK_N, DIM, PRECISION,
    )  # fmt: skip
    empty = weight_sum == 0.0
    total = total / tl.where(empty, 1.0, weight_sum)[:, None]
    lse = tl.where(empty, float("inf"), biggest + tl.log2(weight_sum))
    inside = row < queries
    token = (q_first + row).to(tl.int64)
    tl.store(
        lse_ptr + tl.cast(batch, tl.int64) * lse_batch_stride + head * lse_head_stride + token,
        lse,
        mask=inside,
    )
    out_row = out_ptr + tl.cast(batch, tl.int64) * out_batch_stride + head.to(tl.int64) * out_head_stride
    place = out_row + token[:, None] * out_token_stride + tl.arange(0, DIM)[None, :]
    tl.store(place, total.to(out_ptr.dtype.element_ty), mask=inside[:, None])
