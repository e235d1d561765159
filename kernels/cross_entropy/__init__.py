"""Cross-entropy over a vocabulary, forward and backward, and fused with the product that makes the logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..common import FLOAT_DTYPES, Config, ceil_div, on_device, require, unsupported
from . import kernel
from .reference import cross_entropy_reference, linear_cross_entropy_reference

__all__ = [
    "cross_entropy",
    "cross_entropy_reference",
    "fallback_reason",
    "linear_cross_entropy",
    "linear_cross_entropy_reference",
]

_REDUCTIONS = ("mean", "sum", "none")
# Rows ride on the second axis of the backward grid, which CUDA limits.
_MAX_ROWS = 65535
# Logits alive at a time in linear_cross_entropy: enough rows to fill the matrix units, a fraction of the whole.
_CHUNK_BYTES = 512 * 2**20


def cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    config: Config | None = None,
) -> torch.Tensor:
    """Cross-entropy of logits [rows, vocabulary] at targets [rows] (int32 or int64), float32; differentiable.

    reduction: mean over the rows not ignored (NaN when all are, as in torch), sum, or none ([rows], 0 where ignored).
    A target outside the vocabulary is the caller's error and is not checked on a GPU. config: a point of
    kernel.SPACE instead of our choice. Falls back to the reference where fallback_reason says so.
    Raises KernelInputError for shapes or dtypes that disagree or an unknown reduction.
    """
    _check(logits, targets, reduction)
    if fallback_reason(logits):
        return cross_entropy_reference(logits, targets, ignore_index=ignore_index, reduction=reduction)
    losses: torch.Tensor = _CrossEntropy.apply(logits, targets.contiguous(), ignore_index, config)
    if reduction == "none":
        return losses
    total = losses.sum()
    return total if reduction == "sum" else total / (targets != ignore_index).sum()


def linear_cross_entropy(
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """Cross-entropy of x [rows, hidden] @ weight [vocabulary, hidden].T without ever holding all logits.

    Where gradients are wanted they are computed chunk by chunk in the forward pass, as the logits are there anyway;
    the weight's gradient is summed in float32. reduction: mean or sum. As cross_entropy otherwise.
    """
    require(x.ndim == 2, f"x has shape {tuple(x.shape)}, expected [rows, hidden]")
    require(
        weight.ndim == 2 and weight.shape[1] == x.shape[1],
        f"weight has shape {tuple(weight.shape)}, expected [vocabulary, {x.shape[1]}] for x",
    )
    require(weight.dtype == x.dtype, f"weight has dtype {weight.dtype}, expected {x.dtype} as x")
    require(reduction in ("mean", "sum"), f"reduction is {reduction!r}, expected mean or sum")
    _check_targets(targets, x.shape[0])
    if fallback_reason(x) or fallback_reason(weight):
        return linear_cross_entropy_reference(
            x, weight, targets, ignore_index=ignore_index, reduction=reduction
        )
    loss: torch.Tensor = _LinearCrossEntropy.apply(
        x, weight, targets.contiguous(), ignore_index, reduction == "mean"
    )
    return loss


def fallback_reason(logits: torch.Tensor) -> str | None:
    """Why the reference is used for these logits, or None."""
    if logits.numel() == 0:
        return "no elements"
    if logits.shape[0] > _MAX_ROWS:
        return f"more than {_MAX_ROWS} rows"
    return unsupported((logits,), dtypes=FLOAT_DTYPES)


def _check(logits: torch.Tensor, targets: torch.Tensor, reduction: str) -> None:
    require(logits.ndim == 2, f"logits has shape {tuple(logits.shape)}, expected [rows, vocabulary]")
    require(reduction in _REDUCTIONS, f"reduction is {reduction!r}, expected one of {', '.join(_REDUCTIONS)}")
    _check_targets(targets, logits.shape[0])


def _check_targets(targets: torch.Tensor, rows: int) -> None:
    require(
        targets.shape == (rows,) and targets.dtype in (torch.int32, torch.int64),
        f"targets has shape {tuple(targets.shape)} and dtype {targets.dtype}, expected ({rows},) int32 or int64",
    )


@dataclass(frozen=True)
class _Rows:
    """Per row, float32: loss and log-sum-exp of the logits."""

    loss: torch.Tensor
    lse: torch.Tensor


def _forward(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int, config: Config | None = None
) -> _Rows:
    rows, columns = logits.shape
    chosen = config or kernel.choose()
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    lse = torch.empty_like(loss)
    with on_device(logits):
        kernel.cross_entropy_forward[(rows,)](
            logits, targets, loss, lse, logits.stride(0), columns, ignore_index,
            STAGES=chosen.num_stages, **chosen.keywords,
        )  # fmt: skip
    return _Rows(loss, lse)


def _backward(
    logits: torch.Tensor,
    targets: torch.Tensor,
    lse: torch.Tensor,
    dloss: torch.Tensor,
    dlogits: torch.Tensor,
    ignore_index: int,
    config: Config | None = None,
) -> None:
    """Fills dlogits (contiguous; the logits themselves are fine). dloss: [rows], any stride, float32."""
    rows, columns = logits.shape
    chosen = config or kernel.choose_backward()
    with on_device(logits):
        kernel.cross_entropy_backward[(ceil_div(columns, chosen["BLOCK"]), rows)](
            logits, targets, lse, dloss, dlogits, logits.stride(0), dloss.stride(0), columns, ignore_index,
            **chosen.keywords,
        )  # fmt: skip


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, targets: torch.Tensor, ignore_index: int, config: Config | None
    ) -> torch.Tensor:
        logits = logits if logits.stride(1) == 1 else logits.contiguous()
        rows = _forward(logits, targets, ignore_index, config)
        ctx.save_for_backward(logits, targets, rows.lse)
        ctx.ignore_index = ignore_index
        return rows.loss

    @staticmethod
    def backward(ctx: Any, dloss: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        logits, targets, lse = ctx.saved_tensors
        dlogits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
        _backward(logits, targets, lse, dloss, dlogits, ctx.ignore_index)
        return dlogits, None, None, None


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, ignore_index: int, mean: bool
    ) -> torch.Tensor:
        rows, vocabulary = x.shape[0], weight.shape[0]
        step = max(1, min(rows, _CHUNK_BYTES // (vocabulary * x.element_size())))
        share = torch.ones((), dtype=torch.float32, device=x.device)
        if mean:
            share = share / (targets != ignore_index).sum()
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device) if ctx.needs_input_grad[0] else None
        dweight = (
            torch.zeros(weight.shape, dtype=torch.float32, device=x.device)
            if ctx.needs_input_grad[1]
            else None
        )
        loss = torch.zeros((), dtype=torch.float32, device=x.device)
        for start in range(0, rows, step):
            chunk, wanted = x[start : start + step], targets[start : start + step]
            logits = chunk @ weight.T
            done = _forward(logits, wanted, ignore_index)
            loss += done.loss.sum() * share
            if dx is None and dweight is None:
                continue
            _backward(logits, wanted, done.lse, share.expand(len(chunk)), logits, ignore_index)
            if dx is not None:
                torch.mm(logits, weight, out=dx[start : start + step])
            if dweight is not None:
                dweight += logits.T @ chunk
        ctx.dx, ctx.dweight, ctx.dtype = dx, dweight, weight.dtype
        return loss

    @staticmethod
    def backward(
        ctx: Any, dloss: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None, None]:
        dx = None if ctx.dx is None else ctx.dx * dloss.to(ctx.dx.dtype)
        dweight = None if ctx.dweight is None else (ctx.dweight * dloss).to(ctx.dtype)
        return dx, dweight, None, None, None
