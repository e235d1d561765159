"""Rotary position embedding of queries and keys in one launch: forward and backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..common import FLOAT_DTYPES, Config, ceil_div, on_device, power_of_two, require, unsupported
from . import kernel
from .reference import rope_reference

__all__ = ["Rotated", "fallback_reason", "rope", "rope_reference"]


@dataclass(frozen=True)
class Rotated:
    """Queries and keys after rotation, contiguous."""

    q: torch.Tensor
    k: torch.Tensor


def rope(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    *,
    config: Config | None = None,
) -> Rotated:
    """Rotate q [tokens, heads, dim] and k [tokens, kv_heads, dim], first half of a head against its second half.

    cos, sin: [table, dim / 2], float. positions: [tokens], int32 or int64, rows of the tables; the caller keeps
    them inside. config: a point of kernel.SPACE instead of our choice. Differentiable in q and k. Falls back to the
    reference where fallback_reason says so. Raises KernelInputError for shapes or dtypes that disagree.
    """
    _check(q, k, cos, sin, positions)
    if fallback_reason(q, k, cos, sin):
        return Rotated(rope_reference(q, cos, sin, positions), rope_reference(k, cos, sin, positions))
    rotated_q, rotated_k = _Rope.apply(
        q, k, cos.contiguous(), sin.contiguous(), positions.contiguous(), config
    )
    return Rotated(rotated_q, rotated_k)


def fallback_reason(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> str | None:
    """Why the reference is used for these inputs, or None."""
    half = q.shape[-1] // 2
    if half != power_of_two(half):
        return f"half a head of {half}, no power of two"
    if q.shape[0] == 0:
        return "no tokens"
    return unsupported((q, k, cos, sin), dtypes=FLOAT_DTYPES)


def _check(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor
) -> None:
    require(q.ndim == 3, f"q has shape {tuple(q.shape)}, expected [tokens, heads, dim]")
    tokens, _, dim = q.shape
    require(
        k.ndim == 3 and k.shape[0] == tokens and k.shape[2] == dim,
        f"k has shape {tuple(k.shape)}, expected [{tokens}, kv_heads, {dim}] for q",
    )
    require(k.dtype == q.dtype, f"k has dtype {k.dtype}, expected {q.dtype} as q")
    require(dim % 2 == 0 and dim > 0, f"q has head dimension {dim}, expected an even one")
    for name, table in (("cos", cos), ("sin", sin)):
        require(
            table.ndim == 2 and table.shape == cos.shape and table.shape[1] == dim // 2,
            f"{name} has shape {tuple(table.shape)}, expected [table, {dim // 2}] for q",
        )
    require(
        positions.shape == (tokens,) and positions.dtype in (torch.int32, torch.int64),
        f"positions has shape {tuple(positions.shape)} and dtype {positions.dtype}, "
        f"expected ({tokens},) int32 or int64",
    )


def _launch(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    *,
    config: Config | None,
    inverse: bool,
) -> Rotated:
    chosen = config or kernel.choose()
    q, k = (tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in (q, k))
    tokens, heads, dim = q.shape
    out = Rotated(
        torch.empty(q.shape, dtype=q.dtype, device=q.device),
        torch.empty(k.shape, dtype=k.dtype, device=k.device),
    )
    with on_device(q):
        kernel.rope_rotate[(ceil_div(tokens, chosen["TOKENS"]),)](
            q, k, out.q, out.k, cos, sin, positions,
            q.stride(0), q.stride(1), k.stride(0), k.stride(1), cos.stride(0), tokens,
            INVERSE=inverse, Q_HEADS=heads, K_HEADS=k.shape[1],
            Q_BLOCK=power_of_two(heads), K_BLOCK=power_of_two(k.shape[1]), HALF=dim // 2, **chosen.keywords,
        )  # fmt: skip
    return out


class _Rope(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        positions: torch.Tensor,
        config: Config | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(cos, sin, positions)
        ctx.config = config
        out = _launch(q, k, cos, sin, positions, config=config, inverse=False)
        return out.q, out.k

    @staticmethod
    def backward(
        ctx: Any, dq: torch.Tensor, dk: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, None, None, None, None]:
        out = _launch(dq, dk, *ctx.saved_tensors, config=ctx.config, inverse=True)
        return out.q, out.k, None, None, None, None
