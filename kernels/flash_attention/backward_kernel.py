"""FlashAttention backward kernels: one walks queries for a block of keys (dk, dv), one walks keys for a block of
queries (dq). Each output has one writer, so the result repeats bit for bit; the price is that scores are computed
twice. Same layout and conventions as the forward kernel."""

from __future__ import annotations

import triton
import triton.language as tl

from ..common import Config, config
from .kernel import sequence_bounds

KEYS_SPACE: tuple[Config, ...] = tuple(
    config(BLOCK_M=m, BLOCK_N=n, num_warps=warps, num_stages=stages)
    for m, n, warps in ((64, 128, 8), (128, 128, 8), (32, 128, 4), (64, 64, 4), (128, 64, 8))
    for stages in (2, 3)
)
QUERIES_SPACE: tuple[Config, ...] = tuple(
    config(BLOCK_M=m, BLOCK_N=n, num_warps=warps, num_stages=stages)
    for m, n, warps in ((128, 64, 8), (128, 128, 8), (128, 32, 4), (64, 64, 4), (64, 128, 4))
    for stages in (2, 3)
)


def choose_keys(dim: int, *, wide: bool) -> Config:
    if wide:
        return config(BLOCK_M=32, BLOCK_N=32, num_warps=4, num_stages=1)
    if dim == 256:
        return config(BLOCK_M=32, BLOCK_N=64, num_warps=8, num_stages=1)
    return config(BLOCK_M=64, BLOCK_N=64, num_warps=4, num_stages=2)


def choose_queries(dim: int, *, wide: bool) -> Config:
    if wide:
        return config(BLOCK_M=32, BLOCK_N=32, num_warps=4, num_stages=1)
    if dim == 256:
        return config(BLOCK_M=64, BLOCK_N=32, num_warps=8, num_stages=1)
    return config(BLOCK_M=128, BLOCK_N=64, num_warps=8, num_stages=3)


@triton.jit
def attention_delta(
    out_ptr,
    dout_ptr,
    delta_ptr,
    out_batch_stride,
    out_head_stride,
    out_token_stride,
    dout_batch_stride,
    dout_head_stride,
    dout_token_stride,
    delta_batch_stride,
    delta_head_stride,
    tokens,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """delta = sum(out * dout) per query, float32."""
    token = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    lane = tl.arange(0, DIM)[None, :]
    inside = token < tokens
    out_place = (
        out_ptr + batch * out_batch_stride + head * out_head_stride + token[:, None] * out_token_stride
    )
    dout_place = (
        dout_ptr + batch * dout_batch_stride + head * dout_head_stride + token[:, None] * dout_token_stride
    )
    out = tl.load(out_place + lane, mask=inside[:, None], other=0.0).to(tl.float32)
    dout = tl.load(dout_place + lane, mask=inside[:, None], other=0.0).to(tl.float32)
    place = delta_ptr + batch * delta_batch_stride + head * delta_head_stride + token
    tl.store(place, tl.sum(out * dout, axis=1), mask=inside)


@triton.jit
def _walk_queries(
    dk, dv, k, v, q_desc, dout_desc, lse_row, delta_row, batch, head, q_first, column, first, last, queries,
    shift, scale, CAUSAL_MASK: tl.constexpr, BLOCK_M: tl.constexpr, DIM: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the share of the query blocks from first to last; scores are transposed, keys down, queries across."""
    for start in tl.range(first, last, BLOCK_M):
        row = start + tl.arange(0, BLOCK_M)
        inside = row < queries
        q = q_desc.load([batch, head, q_first + start, 0]).reshape(BLOCK_M, DIM)
        # An lse of +inf makes the weights of rows outside the sequence, or that see no key, exactly zero.
        lse = tl.load(lse_row + row, mask=inside, other=float("inf"))
        weights = tl.exp2(tl.dot(k, q.T, input_precision=PRECISION) * scale - lse[None, :])
        if CAUSAL_MASK:
            weights = tl.where(column[:, None] <= row[None, :] + shift, weights, 0.0)
        dout = dout_desc.load([batch, head, q_first + start, 0]).reshape(BLOCK_M, DIM)
        dv = tl.dot(weights.to(dout.dtype), dout, dv, input_precision=PRECISION)
        delta = tl.load(delta_row + row, mask=inside, other=0.0)
        dweights = tl.dot(v, dout.T, input_precision=PRECISION)
        dscores = weights * (dweights - delta[None, :])
        dk = tl.dot(dscores.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit
def attention_backward_keys(
    q_desc,
    k_desc,
    v_desc,
    dout_desc,
    lse_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
    q_starts_ptr,
    k_starts_ptr,
    queries,
    keys,
    scale,
    dscale,
    lse_batch_stride,
    lse_head_stride,
    dk_batch_stride,
    dk_head_stride,
    dk_token_stride,
    GROUP: tl.constexpr,
    CAUSAL: tl.constexpr,
    VARLEN: tl.constexpr,
    DIM: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """dk and dv (same strides) of one block of keys, summed in float32 over the GROUP query heads that share them."""
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    q_first, queries = sequence_bounds(q_starts_ptr, sequence, queries, VARLEN)
    k_first, keys = sequence_bounds(k_starts_ptr, sequence, keys, VARLEN)
    begin = tl.program_id(0) * BLOCK_N
    if begin >= keys:
        return
    batch = 0 if VARLEN else sequence
    column = begin + tl.arange(0, BLOCK_N)
    k = k_desc.load([batch, head, k_first + begin, 0]).reshape(BLOCK_N, DIM)
    v = v_desc.load([batch, head, k_first + begin, 0]).reshape(BLOCK_N, DIM)
    dk = tl.zeros([BLOCK_N, DIM], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N, DIM], dtype=tl.float32)
    shift = keys - queries
    first = 0
    unmasked = 0
    if CAUSAL:
        first = (max(begin - shift, 0) // BLOCK_M) * BLOCK_M
        unmasked = tl.cdiv(max(begin + BLOCK_N - 1 - shift, 0), BLOCK_M) * BLOCK_M
        unmasked = min(unmasked, tl.cdiv(queries, BLOCK_M) * BLOCK_M)
    for member in range(GROUP):
        q_head = head * GROUP + member
        place = tl.cast(batch, tl.int64) * lse_batch_stride + q_head * lse_head_stride + q_first
        if CAUSAL:
            dk, dv = _walk_queries(
                dk, dv, k, v, q_desc, dout_desc, lse_ptr + place, delta_ptr + place, batch, q_head, q_first,
                column, first, unmasked, queries, shift, scale, True, BLOCK_M, DIM, PRECISION,
            )  # fmt: skip
        dk, dv = _walk_queries(
            dk, dv, k, v, q_desc, dout_desc, lse_ptr + place, delta_ptr + place, batch, q_head, q_first,
            column, unmasked, queries, queries, shift, scale, False, BLOCK_M, DIM, PRECISION,
        )  # fmt: skip
    token = (k_first + column).to(tl.int64)[:, None]
    place = (
        tl.cast(batch, tl.int64) * dk_batch_stride
        + head.to(tl.int64) * dk_head_stride
        + token * dk_token_stride
    )
    place += tl.arange(0, DIM)[None, :]
    inside = (column < keys)[:, None]
    tl.store(dk_ptr + place, (dk * dscale).to(dk_ptr.dtype.element_ty), mask=inside)
    tl.store(dv_ptr + place, dv.to(dv_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _walk_keys(
    dq, q, dout, lse, delta, k_desc, v_desc, batch, head, k_first, row, first, last, keys, shift, scale,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, BLOCK_N: tl.constexpr, DIM: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the share of the key blocks from first to last to dq."""
    for start in tl.range(first, last, BLOCK_N):
        k = k_desc.load([batch, head, k_first + start, 0]).reshape(BLOCK_N, DIM)
        weights = tl.exp2(tl.dot(q, k.T, input_precision=PRECISION) * scale - lse[:, None])
        if MASKED:
            column = start + tl.arange(0, BLOCK_N)
            visible = column[None, :] < keys
            if CAUSAL:
                visible = visible & (column[None, :] <= row[:, None] + shift)
            weights = tl.where(visible, weights, 0.0)
        v = v_desc.load([batch, head, k_first + start, 0]).reshape(BLOCK_N, DIM)
        dweights = tl.dot(dout, v.T, input_precision=PRECISION)
        dscores = weights * (dweights - delta[:, None])
        dq = tl.dot(dscores.to(k.dtype), k, dq, input_precision=PRECISION)
    return dq


@triton.jit
def attention_backward_queries(
    q_desc,
    k_desc,
    v_desc,
    dout_desc,
    lse_ptr,
    delta_ptr,
    dq_ptr,
    q_starts_ptr,
    k_starts_ptr,
    queries,
    keys,
    scale,
    dscale,
    lse_batch_stride,
    lse_head_stride,
    dq_batch_stride,
    dq_head_stride,
    dq_token_stride,
    GROUP: tl.constexpr,
    CAUSAL: tl.constexpr,
    VARLEN: tl.constexpr,
    DIM: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """dq of one block of queries."""
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
    inside = row < queries
    q = q_desc.load([batch, head, q_first + begin, 0]).reshape(BLOCK_M, DIM)
    dout = dout_desc.load([batch, head, q_first + begin, 0]).reshape(BLOCK_M, DIM)
    place = tl.cast(batch, tl.int64) * lse_batch_stride + head * lse_head_stride + q_first
    lse = tl.load(lse_ptr + place + row, mask=inside, other=float("inf"))
    delta = tl.load(delta_ptr + place + row, mask=inside, other=0.0)
    dq = tl.zeros([BLOCK_M, DIM], dtype=tl.float32)
    shift = keys - queries
    last = keys
    unmasked = (keys // BLOCK_N) * BLOCK_N
    if CAUSAL:
        last = max(min(keys, begin + BLOCK_M + shift), 0)
        unmasked = (max(min(keys, begin + shift + 1), 0) // BLOCK_N) * BLOCK_N
    dq = _walk_keys(
        dq, q, dout, lse, delta, k_desc, v_desc, batch, head // GROUP, k_first, row, 0, unmasked, keys, shift,
        scale, CAUSAL, False, BLOCK_N, DIM, PRECISION,
    )  # fmt: skip
    dq = _walk_keys(
        dq, q, dout, lse, delta, k_desc, v_desc, batch, head // GROUP, k_first, row, unmasked, last, keys,
        shift, scale, CAUSAL, True, BLOCK_N, DIM, PRECISION,
    )  # fmt: skip
    token = (q_first + row).to(tl.int64)[:, None]
    dq_row = dq_ptr + tl.cast(batch, tl.int64) * dq_batch_stride + head.to(tl.int64) * dq_head_stride
    place = dq_row + token * dq_token_stride + tl.arange(0, DIM)[None, :]
    tl.store(place, (dq * dscale).to(dq_ptr.dtype.element_ty), mask=inside[:, None])
