"""Softmax over the last dimension: forward and backward."""

from __future__ import annotations

from typing import Any

import torch

from ..common import FLOAT_DTYPES, Config, as_rows, on_device, power_of_two, require, unsupported
from . import kernel
from .reference import softmax_reference

__all__ = ["fallback_reason", "softmax", "softmax_reference"]


def softmax(x: torch.Tensor, *, config: Config | None = None) -> torch.Tensor:
    """Softmax of x [..., columns] over its last dimension, in float32 inside; differentiable.

    config: a point of kernel.SPACE (kernel.WIDE_SPACE past MAX_COLUMNS_ONE_PASS columns) instead of our choice.
    Falls back to the reference where fallback_reason says so. Raises KernelInputError for a scalar.
    """
    require(x.ndim >= 1, "x is a scalar, expected [..., columns]")
    if fallback_reason(x):
        return softmax_reference(x)
    result: torch.Tensor = _Softmax.apply(x, config)
    return result


def fallback_reason(x: torch.Tensor) -> str | None:
    """Why the reference is used for this input, or None."""
    if x.numel() == 0:
        return "no elements"
    return unsupported((x,), dtypes=FLOAT_DTYPES)


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, config: Config | None) -> torch.Tensor:
        flat = as_rows(x)
        rows, columns = flat.shape
        y = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
        with on_device(x):
            if columns <= kernel.MAX_COLUMNS_ONE_PASS:
                chosen = config or kernel.choose(columns)
                kernel.softmax_forward[(rows,)](
                    flat, y, flat.stride(0), columns, BLOCK=power_of_two(columns), **chosen.keywords
                )
            else:
                chosen = config or kernel.choose_wide(columns)
                kernel.wide_softmax_forward[(rows,)](
                    flat, y, flat.stride(0), columns, STAGES=chosen.num_stages, **chosen.keywords
                )
        y = y.view(x.shape)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        (y,) = ctx.saved_tensors
        flat = as_rows(dy)
        rows, columns = flat.shape
        dx = torch.empty((rows, columns), dtype=y.dtype, device=y.device)
        block = min(power_of_two(columns), 8192)
        with on_device(y):
            kernel.softmax_backward[(rows,)](
                flat, y, dx, flat.stride(0), columns,
                BLOCK=block, ONE_PASS=columns <= block, num_warps=min(16, max(2, block // 512)),
            )  # fmt: skip
        return dx.view(dy.shape), None
