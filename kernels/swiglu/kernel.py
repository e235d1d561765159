"""SwiGLU kernels: elementwise over [rows, columns] tensors whose rows may be strided (halves of one product)."""

from __future__ import annotations

import triton
import triton.language as tl

from ..common import Config, config

SPACE: tuple[Config, ...] = tuple(
    config(BLOCK=block, num_warps=warps, num_stages=1)
    for block in (1024, 2048, 4096, 8192)
    for warps in (4, 8)
)


def choose() -> Config:
    return config(BLOCK=2048, num_warps=8, num_stages=1)


@triton.jit
def swiglu_forward(gate_ptr, up_ptr, y_ptr, gate_stride, up_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    gate = tl.load(gate_ptr + row * gate_stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + column, mask=inside, other=0.0).to(tl.float32)
    y = gate * tl.sigmoid(gate) * up
    tl.store(y_ptr + row * columns + column, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def swiglu_backward(
    dy_ptr,
    gate_ptr,
    up_ptr,
    dgate_ptr,
    dup_ptr,
    dy_stride,
    gate_stride,
    up_stride,
    columns,
    BLOCK: tl.constexpr,
):
    """silu is computed again rather than stored: dgate = dy up (s + silu (1 - s)), dup = dy silu, s = sigmoid."""
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    dy = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + row * gate_stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + column, mask=inside, other=0.0).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    silu = gate * sigmoid
    dgate = dy * up * (sigmoid + silu * (1.0 - sigmoid))
    tl.store(dgate_ptr + row * columns + column, dgate.to(dgate_ptr.dtype.element_ty), mask=inside)
    tl.store(dup_ptr + row * columns + column, (dy * silu).to(dup_ptr.dtype.element_ty), mask=inside)
