"""SwiGLU: silu(gate) * up, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..common import FLOAT_DTYPES, Config, as_rows, ceil_div, on_device, require, require_same, unsupported
from . import kernel
from .reference import swiglu_reference

__all__ = ["fallback_reason", "swiglu", "swiglu_reference"]

# Rows ride on the grid's second axis, which CUDA limits.
_MAX_STRIDED_ROWS = 65535


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, config: Config | None = None) -> torch.Tensor:
    """silu(gate) * up for tensors of one shape, in float32 inside; differentiable.

    The two may be halves of one matrix product: `swiglu(*product.chunk(2, dim=-1))` copies nothing.
    config: a point of kernel.SPACE instead of our choice. Falls back to the reference where fallback_reason says
    so. Raises KernelInputError when shape, dtype or device differ.
    """
    require(gate.ndim >= 1, "gate is a scalar, expected [..., columns]")
    require_same("up", up, gate, "gate")
    if fallback_reason(gate, up):
        return swiglu_reference(gate, up)
    result: torch.Tensor = _SwiGLU.apply(gate, up, config)
    return result


def fallback_reason(gate: torch.Tensor, up: torch.Tensor) -> str | None:
    """Why the reference is used for these inputs, or None."""
    if gate.numel() == 0:
        return "no elements"
    return unsupported((gate, up), dtypes=FLOAT_DTYPES)


@dataclass(frozen=True)
class _Grid:
    """Tensors viewed as [rows, columns]: one long row where all are contiguous, so that no block is partial."""

    tensors: tuple[torch.Tensor, ...]
    rows: int
    columns: int

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(tensor.stride(0) for tensor in self.tensors)


def _grid(*tensors: torch.Tensor) -> _Grid:
    rows = tensors[0].numel() // tensors[0].shape[-1]
    if rows > _MAX_STRIDED_ROWS:
        tensors = tuple(tensor.contiguous() for tensor in tensors)
    if all(tensor.is_contiguous() for tensor in tensors):
        flat = tuple(tensor.view(1, -1) for tensor in tensors)
    else:
        flat = tuple(as_rows(tensor) for tensor in tensors)
    return _Grid(flat, flat[0].shape[0], flat[0].shape[1])


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor, config: Config | None) -> torch.Tensor:
        ctx.save_for_backward(gate, up)
        chosen = ctx.config = config or kernel.choose()
        y = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
        grid = _grid(gate, up)
        with on_device(gate):
            kernel.swiglu_forward[(ceil_div(grid.columns, chosen["BLOCK"]), grid.rows)](
                *grid.tensors, y, *grid.strides, grid.columns, **chosen.keywords
            )
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        gate, up = ctx.saved_tensors
        chosen = ctx.config
        dgate = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
        dup = torch.empty_like(dgate)
        grid = _grid(dy, gate, up)
        with on_device(gate):
            kernel.swiglu_backward[(ceil_div(grid.columns, chosen["BLOCK"]), grid.rows)](
                *grid.tensors, dgate, dup, *grid.strides, grid.columns, **chosen.keywords
            )
        return dgate, dup, None
