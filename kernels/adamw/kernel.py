"""AdamW kernel over many tensors in one launch: a table of addresses, and a table of chunks of CHUNK elements."""

from __future__ import annotations

import triton
import triton.language as tl

from ..common import Config, config

CHUNK = 8192

SPACE: tuple[Config, ...] = tuple(
    config(BLOCK=block, num_warps=warps, num_stages=1)
    for block in (1024, 2048, 4096, 8192)
    for warps in (4, 8)
)


def choose() -> Config:
    return config(BLOCK=1024, num_warps=8, num_stages=1)


@triton.jit
def _update(
    param_ptr, grad_ptr, exp_avg_ptr, exp_avg_sq_ptr, offset, inside,
    lr, beta1, beta2, eps, weight_decay, correction1, correction2_root,
):  # fmt: skip
    grad = tl.load(grad_ptr + offset, mask=inside).to(tl.float32)
    exp_avg = tl.load(exp_avg_ptr + offset, mask=inside).to(tl.float32)
    exp_avg_sq = tl.load(exp_avg_sq_ptr + offset, mask=inside).to(tl.float32)
    param = tl.load(param_ptr + offset, mask=inside).to(tl.float32)
    exp_avg = exp_avg * beta1 + grad * (1.0 - beta1)
    exp_avg_sq = exp_avg_sq * beta2 + grad * grad * (1.0 - beta2)
    denominator = tl.sqrt(exp_avg_sq) / correction2_root + eps
    param = param * (1.0 - lr * weight_decay) - (lr / correction1) * exp_avg / denominator
    tl.store(param_ptr + offset, param.to(param_ptr.dtype.element_ty), mask=inside)
    tl.store(exp_avg_ptr + offset, exp_avg.to(exp_avg_ptr.dtype.element_ty), mask=inside)
    tl.store(exp_avg_sq_ptr + offset, exp_avg_sq.to(exp_avg_sq_ptr.dtype.element_ty), mask=inside)


@triton.jit
def adamw_update(
    addresses_ptr,
    sizes_ptr,
    chunk_tensor_ptr,
    chunk_index_ptr,
    lr,
    beta1,
    beta2,
    eps,
    weight_decay,
    correction1,
    correction2_root,
    PARAM: tl.constexpr,
    STATE: tl.constexpr,
    CHUNK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """addresses: [tensors, 4] of param, grad, exp_avg, exp_avg_sq, each a multiple of 16 bytes.

    correction1 = 1 - beta1^step, correction2_root = sqrt(1 - beta2^step).
    """
    chunk = tl.program_id(0)
    tensor = tl.load(chunk_tensor_ptr + chunk)
    entry = addresses_ptr + tensor * 4
    param_ptr = tl.multiple_of(tl.load(entry).to(tl.pointer_type(PARAM)), 16)
    grad_ptr = tl.multiple_of(tl.load(entry + 1).to(tl.pointer_type(PARAM)), 16)
    exp_avg_ptr = tl.multiple_of(tl.load(entry + 2).to(tl.pointer_type(STATE)), 16)
    exp_avg_sq_ptr = tl.multiple_of(tl.load(entry + 3).to(tl.pointer_type(STATE)), 16)
    size = tl.load(sizes_ptr + tensor)
    begin = tl.load(chunk_index_ptr + chunk).to(tl.int64) * CHUNK_SIZE
    if begin + CHUNK_SIZE <= size:
        # Without a mask the compiler keeps 16-byte accesses, which a bound of unknown alignment would split.
        for start in tl.static_range(0, CHUNK_SIZE, BLOCK):
            offset = begin + start + tl.arange(0, BLOCK)
            _update(
                param_ptr, grad_ptr, exp_avg_ptr, exp_avg_sq_ptr, offset, None,
                lr, beta1, beta2, eps, weight_decay, correction1, correction2_root,
            )  # fmt: skip
    else:
        for start in range(0, CHUNK_SIZE, BLOCK):
            offset = begin + start + tl.arange(0, BLOCK)
            _update(
                param_ptr, grad_ptr, exp_avg_ptr, exp_avg_sq_ptr, offset, offset < size,
                lr, beta1, beta2, eps, weight_decay, correction1, correction2_root,
            )  # fmt: skip
