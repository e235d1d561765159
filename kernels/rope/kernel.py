"""Rotary embedding kernel: one program rotates the query and key heads of TOKENS tokens."""

from __future__ import annotations

import triton
import triton.language as tl

from ..common import Config, config

SPACE: tuple[Config, ...] = tuple(
    config(TOKENS=tokens, num_warps=warps, num_stages=1) for tokens in (1, 2, 4) for warps in (2, 4, 8)
)


def choose() -> Config:
    return config(TOKENS=1, num_warps=4, num_stages=1)


@triton.jit
def _rotate(
    x_ptr, y_ptr, token, token_stride, head_stride, tokens, cosine, sine,
    HEADS: tl.constexpr, HEADS_BLOCK: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Heads of one tensor: x at its own strides, y contiguous [tokens, HEADS, 2 * HALF]."""
    head = tl.arange(0, HEADS_BLOCK)[None, :, None]
    lane = tl.arange(0, HALF)[None, None, :]
    row = token[:, None, None]
    inside = (row < tokens) & (head < HEADS) & (lane < HALF)
    source = x_ptr + row * token_stride + head * head_stride + lane
    first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + HALF, mask=inside, other=0.0).to(tl.float32)
    target = y_ptr + (row * HEADS + head) * (2 * HALF) + lane
    element = y_ptr.dtype.element_ty
    tl.store(target, (first * cosine - second * sine).to(element), mask=inside)
    tl.store(target + HALF, (second * cosine + first * sine).to(element), mask=inside)


@triton.jit
def rope_rotate(
    q_ptr,
    k_ptr,
    q_out_ptr,
    k_out_ptr,
    cos_ptr,
    sin_ptr,
    positions_ptr,
    q_token_stride,
    q_head_stride,
    k_token_stride,
    k_head_stride,
    table_stride,
    tokens,
    INVERSE: tl.constexpr,
    Q_HEADS: tl.constexpr,
    K_HEADS: tl.constexpr,
    Q_BLOCK: tl.constexpr,
    K_BLOCK: tl.constexpr,
    HALF: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """INVERSE turns the other way round, which is the backward pass: a rotation's transpose is its inverse."""
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    position = tl.load(positions_ptr + token, mask=token < tokens, other=0).to(tl.int64)
    entry = position[:, None] * table_stride + tl.arange(0, HALF)[None, :]
    known = (token < tokens)[:, None]
    cosine = tl.load(cos_ptr + entry, mask=known, other=1.0).to(tl.float32)[:, None, :]
    sine = tl.load(sin_ptr + entry, mask=known, other=0.0).to(tl.float32)[:, None, :]
    if INVERSE:
        sine = -sine
    _rotate(
        q_ptr, q_out_ptr, token, q_token_stride, q_head_stride, tokens, cosine, sine, Q_HEADS, Q_BLOCK, HALF
    )
    _rotate(
        k_ptr, k_out_ptr, token, k_token_stride, k_head_stride, tokens, cosine, sine, K_HEADS, K_BLOCK, HALF
    )
