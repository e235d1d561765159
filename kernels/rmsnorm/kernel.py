"""RMSNorm kernels. A row that fits in one program's registers takes one pass; a wider one takes two stages:
partial sums per chunk of columns, then the chunks normalised with the combined sum."""

from __future__ import annotations

import triton
import triton.language as tl

from ..common import Config, config, power_of_two

MAX_COLUMNS_ONE_PASS = 32768
WIDE_CHUNK = 8192

SPACE: tuple[Config, ...] = tuple(
    config(ROWS=rows, num_warps=warps, num_stages=1) for rows in (1, 2, 4) for warps in (2, 4, 8, 16)
)


def choose(columns: int) -> Config:
    """About 32 to 64 elements a thread keep enough 16-byte loads in flight (sweep in docs/measurements)."""
    block = power_of_two(columns)
    if block <= 1024:
        return config(ROWS=2, num_warps=2, num_stages=1)
    return config(ROWS=1, num_warps=min(16, max(4, block // 2048)), num_stages=1)


@triton.jit
def rmsnorm_forward(
    x_ptr,
    residual_ptr,
    weight_ptr,
    y_ptr,
    total_ptr,
    rstd_ptr,
    x_stride,
    residual_stride,
    rows,
    columns,
    eps,
    HAS_RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """ROWS rows a program; the row stays in registers between the sum of squares and the product."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0)
    if HAS_RESIDUAL:
        residual = tl.load(residual_ptr + row * residual_stride + column, mask=inside, other=0.0)
        x = (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)
        tl.store(total_ptr + row * columns + column, x, mask=inside)
    wide = x.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(wide * wide, axis=1, keep_dims=True) / columns + eps)
    tl.store(rstd_ptr + row, rstd, mask=row < rows)
    weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * columns + column, (wide * rstd * weight).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def rmsnorm_backward(
    dy_ptr,
    dtotal_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_ptr,
    dy_stride,
    dtotal_stride,
    x_stride,
    rows,
    columns,
    HAS_DTOTAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each program strides over rows and keeps its share of dweight in registers: [programs, columns], float32.

    dx = rstd * (w dy - x_hat * mean(w dy x_hat)), plus the gradient that reaches x + residual directly.
    """
    column = tl.arange(0, BLOCK)
    inside = column < columns
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    dweight = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(start, tl.int64)
        x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        normal = x * rstd
        weighted = dy * weight
        dx = rstd * (weighted - normal * (tl.sum(weighted * normal, axis=0) / columns))
        if HAS_DTOTAL:
            dx += tl.load(dtotal_ptr + row * dtotal_stride + column, mask=inside, other=0.0).to(tl.float32)
        dweight += dy * normal
        tl.store(dx_ptr + row * columns + column, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    tl.store(dweight_ptr + tl.program_id(0) * columns + column, dweight, mask=inside)


@triton.jit
def wide_square_sums(
    x_ptr,
    residual_ptr,
    total_ptr,
    partial_ptr,
    x_stride,
    residual_stride,
    columns,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Stage one: sum of squares of one chunk of one row into partial[row, chunk]."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0)
    if HAS_RESIDUAL:
        residual = tl.load(residual_ptr + row * residual_stride + column, mask=inside, other=0.0)
        x = (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)
        tl.store(total_ptr + row * columns + column, x, mask=inside)
    wide = x.to(tl.float32)
    tl.store(partial_ptr + row * tl.num_programs(1) + tl.program_id(1), tl.sum(wide * wide, axis=0))


@triton.jit
def wide_normalise(
    x_ptr,
    weight_ptr,
    partial_ptr,
    y_ptr,
    rstd_ptr,
    x_stride,
    columns,
    eps,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Stage two: every program combines its row's partial sums (few, and in the cache) and scales its chunk."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    chunk = tl.arange(0, CHUNKS)
    chunks = tl.num_programs(1)
    partial = tl.load(partial_ptr + row * chunks + chunk, mask=chunk < chunks, other=0.0)
    rstd = tl.rsqrt(tl.sum(partial, axis=0) / columns + eps)
    if tl.program_id(1) == 0:
        tl.store(rstd_ptr + row, rstd)
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * columns + column, (x * rstd * weight).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def wide_products(
    dy_ptr, x_ptr, weight_ptr, rstd_ptr, partial_ptr, dy_stride, x_stride, columns, BLOCK: tl.constexpr
):
    """Stage one of the backward pass: sum(w dy x_hat) of one chunk of one row into partial[row, chunk]."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    product = tl.sum(dy * weight * x, axis=0) * tl.load(rstd_ptr + row)
    tl.store(partial_ptr + row * tl.num_programs(1) + tl.program_id(1), product)


@triton.jit
def wide_backward(
    dy_ptr,
    dtotal_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    partial_ptr,
    dx_ptr,
    dweight_ptr,
    dy_stride,
    dtotal_stride,
    x_stride,
    rows,
    columns,
    HAS_DTOTAL: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Stage two: one chunk of columns over a stride of rows, dweight of the chunk kept in registers."""
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    chunk = tl.arange(0, CHUNKS)
    chunks = tl.num_programs(1)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    dweight = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(start, tl.int64)
        partial = tl.load(partial_ptr + row * chunks + chunk, mask=chunk < chunks, other=0.0)
        rstd = tl.load(rstd_ptr + row)
        normal = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32) * rstd
        dy = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
        dx = rstd * (dy * weight - normal * (tl.sum(partial, axis=0) / columns))
        if HAS_DTOTAL:
            dx += tl.load(dtotal_ptr + row * dtotal_stride + column, mask=inside, other=0.0).to(tl.float32)
        dweight += dy * normal
        tl.store(dx_ptr + row * columns + column, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    tl.store(dweight_ptr + tl.program_id(0).to(tl.int64) * columns + column, dweight, mask=inside)
