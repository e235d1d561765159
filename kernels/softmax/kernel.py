"""Softmax kernels. Up to MAX_COLUMNS_ONE_PASS a row stays in registers. A wider row is read twice: the running
maximum and sum first (Milakov & Gimelshein 2018, https://arxiv.org/abs/1805.02867), then the quotients, backwards,
so that the second reading starts with what the first left in the cache."""

from __future__ import annotations

import triton
import triton.language as tl

from ..common import Config, config, power_of_two

MAX_COLUMNS_ONE_PASS = 32768

SPACE: tuple[Config, ...] = tuple(config(num_warps=warps, num_stages=1) for warps in (2, 4, 8, 16, 32))
WIDE_SPACE: tuple[Config, ...] = tuple(
    config(BLOCK=block, num_warps=warps, num_stages=stages)
    for block, warps in ((8192, 16), (8192, 32), (16384, 16), (16384, 32), (32768, 32))
    for stages in (1, 3)
)


def choose(columns: int) -> Config:
    """Warps for a row kept in registers: about 16 to 64 elements a thread (sweep in docs/measurements)."""
    return config(num_warps=min(32, max(2, power_of_two(columns) // 1024)), num_stages=1)


def choose_wide(columns: int) -> Config:
    """The fastest measured at 128k to 152k columns; 16384 by 32 warps was 7 to 16 % slower (docs/measurements)."""
    return config(BLOCK=8192, num_warps=16, num_stages=3)


@triton.jit
def softmax_forward(x_ptr, y_ptr, x_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
    powers = tl.exp(x - tl.max(x, axis=0))
    y = powers / tl.sum(powers, axis=0)
    tl.store(y_ptr + row * columns + column, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def wide_softmax_forward(x_ptr, y_ptr, x_stride, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * columns
    lane = tl.arange(0, BLOCK)
    biggest = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, columns, BLOCK, num_stages=STAGES):
        column = start + lane
        x = tl.load(x_row + column, mask=column < columns, other=float("-inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        bigger = tl.maximum(biggest, tl.max(x, axis=0))
        # A chunk of -inf alone keeps the exponents defined; a row of them ends as NaN like the definition.
        safe = tl.where(bigger == float("-inf"), 0.0, bigger)
        total = total * tl.exp(biggest - safe) + tl.exp(x - safe)
        biggest = bigger
    scale = 1.0 / tl.sum(total, axis=0)
    last = (tl.cdiv(columns, BLOCK) - 1) * BLOCK
    for back in tl.range(0, columns, BLOCK, num_stages=STAGES):
        column = last - back + lane
        x = tl.load(x_row + column, mask=column < columns, other=float("-inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - biggest) * scale
        tl.store(y_row + column, y.to(y_ptr.dtype.element_ty), mask=column < columns, cache_modifier=".cs")


@triton.jit
def softmax_backward(dy_ptr, y_ptr, dx_ptr, dy_stride, columns, BLOCK: tl.constexpr, ONE_PASS: tl.constexpr):
    """dx = y * (dy - sum(dy * y)); the row is read once where it fits in one block, else twice."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * dy_stride
    y_row = y_ptr + row * columns
    lane = tl.arange(0, BLOCK)
    if ONE_PASS:
        dy = tl.load(dy_row + lane, mask=lane < columns, other=0.0).to(tl.float32)
        y = tl.load(y_row + lane, mask=lane < columns, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(dy * y, axis=0))
        tl.store(dx_ptr + row * columns + lane, dx.to(dx_ptr.dtype.element_ty), mask=lane < columns)
    else:
        products = tl.zeros([BLOCK], dtype=tl.float32)
        for start in range(0, columns, BLOCK):
            column = start + lane
            dy = tl.load(dy_row + column, mask=column < columns, other=0.0).to(tl.float32)
            products += dy * tl.load(y_row + column, mask=column < columns, other=0.0).to(tl.float32)
        total = tl.sum(products, axis=0)
        for start in range(0, columns, BLOCK):
            column = start + lane
            dy = tl.load(dy_row + column, mask=column < columns, other=0.0).to(tl.float32)
            y = tl.load(y_row + column, mask=column < columns, other=0.0).to(tl.float32)
            dx = (y * (dy - total)).to(dx_ptr.dtype.element_ty)
            tl.store(dx_ptr + row * columns + column, dx, mask=column < columns)
