"""RMSNorm: forward, backward, with a fused residual add, one pass up to 32768 columns and two stages beyond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..common import (
    FLOAT_DTYPES,
    Config,
    as_rows,
    ceil_div,
    multiprocessors,
    on_device,
    power_of_two,
    require,
    require_same,
    unsupported,
)
from . import kernel
from .reference import add_rmsnorm_reference, rmsnorm_reference

__all__ = ["add_rmsnorm", "add_rmsnorm_reference", "fallback_reason", "rmsnorm", "rmsnorm_reference"]


def rmsnorm(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, *, config: Config | None = None
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in float32 inside; differentiable.

    x: [..., columns]. weight: [columns], any float dtype. config: a point of kernel.SPACE instead of our choice.
    Falls back to the reference where fallback_reason says so. Raises KernelInputError for shapes that disagree.
    """
    _check(x, weight)
    if fallback_reason(x, weight):
        return rmsnorm_reference(x, weight, eps)
    y, _ = _RMSNorm.apply(x, None, weight, eps, config)
    result: torch.Tensor = y
    return result


def add_rmsnorm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    *,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(RMSNorm(x + residual), x + residual) in one pass; both outputs are differentiable. As rmsnorm otherwise."""
    _check(x, weight)
    require_same("residual", residual, x, "x")
    if fallback_reason(x, weight):
        return add_rmsnorm_reference(x, residual, weight, eps)
    y, total = _RMSNorm.apply(x, residual, weight, eps, config)
    return y, total


def fallback_reason(x: torch.Tensor, weight: torch.Tensor) -> str | None:
    """Why the reference is used for these inputs, or None."""
    if x.numel() == 0:
        return "no elements"
    return unsupported((x, weight), dtypes=FLOAT_DTYPES)


def _check(x: torch.Tensor, weight: torch.Tensor) -> None:
    require(x.ndim >= 1 and x.shape[-1] > 0, f"x has shape {tuple(x.shape)}, expected [..., columns]")
    require(
        weight.shape == x.shape[-1:],
        f"weight has shape {tuple(weight.shape)}, expected ({x.shape[-1]},) for x",
    )


@dataclass(frozen=True)
class _Forward:
    y: torch.Tensor
    total: torch.Tensor
    rstd: torch.Tensor


def _forward(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float, config: Config | None
) -> _Forward:
    rows, columns = x.shape
    y = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    total = x if residual is None else torch.empty_like(y)
    rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
    other = x if residual is None else residual
    fused = residual is not None
    with on_device(x):
        if columns <= kernel.MAX_COLUMNS_ONE_PASS:
            chosen = config or kernel.choose(columns)
            kernel.rmsnorm_forward[(ceil_div(rows, chosen["ROWS"]),)](
                x, other, weight, y, total, rstd, x.stride(0), other.stride(0), rows, columns, eps,
                HAS_RESIDUAL=fused, BLOCK=power_of_two(columns), **chosen.keywords,
            )  # fmt: skip
        else:
            chunks = ceil_div(columns, kernel.WIDE_CHUNK)
            partial = torch.empty((rows, chunks), dtype=torch.float32, device=x.device)
            kernel.wide_square_sums[(rows, chunks)](
                x, other, total, partial, x.stride(0), other.stride(0), columns,
                HAS_RESIDUAL=fused, BLOCK=kernel.WIDE_CHUNK, num_warps=8,
            )  # fmt: skip
            kernel.wide_normalise[(rows, chunks)](
                total, weight, partial, y, rstd, total.stride(0), columns, eps,
                CHUNKS=power_of_two(chunks), BLOCK=kernel.WIDE_CHUNK, num_warps=8,
            )  # fmt: skip
    return _Forward(y, total, rstd)


@dataclass(frozen=True)
class _Gradients:
    x: torch.Tensor
    weight: torch.Tensor


def _backward(
    dy: torch.Tensor,
    dtotal: torch.Tensor | None,
    total: torch.Tensor,
    weight: torch.Tensor,
    rstd: torch.Tensor,
) -> _Gradients:
    rows, columns = total.shape
    dx = torch.empty((rows, columns), dtype=total.dtype, device=total.device)
    other = dy if dtotal is None else dtotal
    strides = (dy.stride(0), other.stride(0), total.stride(0))
    fused = dtotal is not None
    cores = multiprocessors(total.device)
    with on_device(total):
        if columns <= kernel.MAX_COLUMNS_ONE_PASS:
            block = power_of_two(columns)
            programs = min(rows, cores * max(1, 8192 // block))
            partial = torch.empty((programs, columns), dtype=torch.float32, device=total.device)
            kernel.rmsnorm_backward[(programs,)](
                dy, other, total, weight, rstd, dx, partial, *strides, rows, columns,
                HAS_DTOTAL=fused, BLOCK=block, num_warps=min(16, max(4, block // 512)), num_stages=1,
            )  # fmt: skip
        else:
            chunks = ceil_div(columns, kernel.WIDE_CHUNK)
            programs = min(rows, cores)
            products = torch.empty((rows, chunks), dtype=torch.float32, device=total.device)
            partial = torch.empty((programs, columns), dtype=torch.float32, device=total.device)
            kernel.wide_products[(rows, chunks)](
                dy, total, weight, rstd, products, dy.stride(0), total.stride(0), columns,
                BLOCK=kernel.WIDE_CHUNK, num_warps=8,
            )  # fmt: skip
            kernel.wide_backward[(programs, chunks)](
                dy, other, total, weight, rstd, products, dx, partial, *strides, rows, columns,
                HAS_DTOTAL=fused, CHUNKS=power_of_two(chunks), BLOCK=kernel.WIDE_CHUNK, num_warps=16, num_stages=1,
            )  # fmt: skip
    return _Gradients(dx, partial.sum(dim=0).to(weight.dtype))


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        weight: torch.Tensor,
        eps: float,
        config: Config | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        flat_residual = None if residual is None else as_rows(residual)
        done = _forward(as_rows(x), flat_residual, weight.contiguous(), eps, config)
        ctx.save_for_backward(done.total, weight, done.rstd)
        ctx.fused = residual is not None
        return done.y.view(x.shape), done.total.view(x.shape) if ctx.fused else None

    @staticmethod
    def backward(
        ctx: Any, dy: torch.Tensor, dtotal: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, None, None]:
        total, weight, rstd = ctx.saved_tensors
        flat_dtotal = as_rows(dtotal) if ctx.fused and dtotal is not None else None
        gradients = _backward(as_rows(dy), flat_dtotal, total, weight.contiguous(), rstd)
        dx = gradients.x.view(dy.shape)
        return dx, dx if ctx.fused else None, gradients.weight, None, None
