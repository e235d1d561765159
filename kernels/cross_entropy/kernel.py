"""Cross-entropy kernels. Forward reads the logits once: each lane keeps a running maximum and sum of its own columns
(Milakov & Gimelshein 2018, https://arxiv.org/abs/1805.02867), joined after the last chunk, so that the loop has no
barrier and one exponential an element. Backward computes softmax again from the stored log-sum-exp."""

from __future__ import annotations

import triton
import triton.language as tl

from ..common import Config, config

SPACE: tuple[Config, ...] = tuple(
    config(LANES=warps * 32 * unroll, VECTOR=8, num_warps=warps, num_stages=stages)
    for warps in (4, 8, 16)
    for unroll in (1, 2)
    for stages in (1, 3, 4)
)
BACKWARD_SPACE: tuple[Config, ...] = tuple(
    config(BLOCK=block, num_warps=warps, num_stages=1) for block in (2048, 4096, 8192) for warps in (4, 8)
)


def choose() -> Config:
    return config(LANES=256, VECTOR=8, num_warps=4, num_stages=1)


def choose_backward() -> Config:
    return config(BLOCK=2048, num_warps=4, num_stages=1)


@triton.jit
def cross_entropy_forward(
    logits_ptr,
    targets_ptr,
    loss_ptr,
    lse_ptr,
    stride,
    columns,
    ignore_index,
    LANES: tl.constexpr,
    VECTOR: tl.constexpr,
    STAGES: tl.constexpr,
):
    """loss and log-sum-exp of one row; a row whose target is ignored has loss 0 and is not read."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + row).to(tl.int64)
    if target == ignore_index:
        tl.store(loss_ptr + row, 0.0)
        tl.store(lse_ptr + row, 0.0)
        return
    base = logits_ptr + row * stride
    lane = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    biggest = tl.full([LANES], float("-inf"), dtype=tl.float32)
    total = tl.zeros([LANES], dtype=tl.float32)
    for start in tl.range(0, columns, LANES * VECTOR, num_stages=STAGES):
        column = start + lane
        x = tl.load(base + column, mask=column < columns, other=float("-inf")).to(tl.float32)
        bigger = tl.maximum(biggest, tl.max(x, axis=1))
        # A lane that has met only -inf (or no column at all) must not subtract -inf from itself.
        safe = tl.where(bigger == float("-inf"), 0.0, bigger)
        total = total * tl.exp(biggest - safe) + tl.sum(tl.exp(x - safe[:, None]), axis=1)
        biggest = bigger
    row_biggest = tl.max(biggest, axis=0)
    lse = row_biggest + tl.log(tl.sum(total * tl.exp(biggest - row_biggest), axis=0))
    tl.store(lse_ptr + row, lse)
    tl.store(loss_ptr + row, lse - tl.load(base + target).to(tl.float32))


@triton.jit
def cross_entropy_backward(
    logits_ptr,
    targets_ptr,
    lse_ptr,
    dloss_ptr,
    dlogits_ptr,
    stride,
    dloss_stride,
    columns,
    ignore_index,
    BLOCK: tl.constexpr,
):
    """dlogits = dloss * (softmax - one at the target); dlogits may be the logits themselves."""
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    target = tl.load(targets_ptr + row).to(tl.int64)
    element = dlogits_ptr.dtype.element_ty
    if target == ignore_index:
        tl.store(dlogits_ptr + row * columns + column, tl.zeros([BLOCK], dtype=element), mask=inside)
        return
    x = tl.load(logits_ptr + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    dloss = tl.load(dloss_ptr + row * dloss_stride)
    dlogits = tl.exp(x - tl.load(lse_ptr + row)) - tl.where(column == target, 1.0, 0.0)
    tl.store(dlogits_ptr + row * columns + column, (dlogits * dloss).to(element), mask=inside)
