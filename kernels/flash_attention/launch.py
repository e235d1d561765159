"""Launches of the attention kernels over tensors viewed as [batch, heads, tokens, dim]."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from ..common import Config, ceil_div, on_device
from . import backward_kernel, kernel

LOG2_E = 1.4426950408889634
_DELTA_BLOCK = 64


@dataclass(frozen=True)
class Tuning:
    """Configurations of the three kernels; None leaves the choice to us."""

    forward: Config | None = None
    keys: Config | None = None
    queries: Config | None = None


@dataclass(frozen=True)
class Batch:
    """How the tokens divide into sequences: equal ones (starts are None) or packed ones, and the mask over them."""

    queries: int
    keys: int
    sequences: int
    q_starts: torch.Tensor | None
    k_starts: torch.Tensor | None
    causal: bool
    scale: float


@dataclass(frozen=True)
class Attended:
    """out like q; lse [batch, heads, tokens], base 2, float32."""

    out: torch.Tensor
    lse: torch.Tensor


@dataclass(frozen=True)
class Gradients:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def describable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied only where the copy engine could not read it: rows contiguous, 16-byte strides and base."""
    size = tensor.element_size()
    aligned = all(stride * size % 16 == 0 for stride in tensor.stride()[:-1]) and tensor.data_ptr() % 16 == 0
    return tensor if aligned and tensor.stride(-1) == 1 else tensor.contiguous()


def _describe(tensor: torch.Tensor, block: int) -> TensorDescriptor:
    return TensorDescriptor(
        tensor, list(tensor.shape), list(tensor.stride()), [1, 1, block, tensor.shape[-1]]
    )


def _constants(q: torch.Tensor, k: torch.Tensor, batch: Batch) -> dict[str, object]:
    return {
        "GROUP": q.shape[1] // k.shape[1],
        "CAUSAL": batch.causal,
        "VARLEN": batch.q_starts is not None,
        "DIM": q.shape[-1],
        "PRECISION": "ieee",
    }


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: Batch, tuning: Tuning) -> Attended:
    """Forward pass. q [batch, heads, tokens, dim]; k, v [batch, kv_heads, tokens, dim]; all describable."""
    chosen = tuning.forward or kernel.choose(q.shape[-1], wide=q.dtype == torch.float32)
    out = torch.empty_like(q)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    starts = (
        lse if batch.q_starts is None else batch.q_starts,
        lse if batch.k_starts is None else batch.k_starts,
    )
    with on_device(q):
        kernel.attention_forward[(ceil_div(batch.queries, chosen["BLOCK_M"]), q.shape[1], batch.sequences)](
            _describe(q, chosen["BLOCK_M"]), _describe(k, chosen["BLOCK_N"]), _describe(v, chosen["BLOCK_N"]),
            out, lse, *starts, batch.queries, batch.keys, batch.scale * LOG2_E,
            *out.stride()[:3], *lse.stride()[:2], **_constants(q, k, batch), **chosen.keywords,
        )  # fmt: skip
    return Attended(out, lse)


def attend_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    done: Attended,
    dout: torch.Tensor,
    batch: Batch,
    tuning: Tuning,
) -> Gradients:
    """Backward pass; dout like q and describable."""
    wide = q.dtype == torch.float32
    delta = torch.empty_like(done.lse)
    dq = torch.empty_like(q)
    dk = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    dv = torch.empty_like(dk)
    starts = (
        delta if batch.q_starts is None else batch.q_starts,
        delta if batch.k_starts is None else batch.k_starts,
    )
    constants = _constants(q, k, batch)
    scales = (batch.scale * LOG2_E, batch.scale)
    with on_device(q):
        backward_kernel.attention_delta[(ceil_div(q.shape[2], _DELTA_BLOCK), q.shape[1], q.shape[0])](
            done.out, dout, delta, *done.out.stride()[:3], *dout.stride()[:3], *delta.stride()[:2], q.shape[2],
            DIM=q.shape[-1], BLOCK=_DELTA_BLOCK, num_warps=4,
        )  # fmt: skip
        chosen = tuning.keys or backward_kernel.choose_keys(q.shape[-1], wide=wide)
        grid = (ceil_div(batch.keys, chosen["BLOCK_N"]), k.shape[1], batch.sequences)
        backward_kernel.attention_backward_keys[grid](
            _describe(q, chosen["BLOCK_M"]), _describe(k, chosen["BLOCK_N"]), _describe(v, chosen["BLOCK_N"]),
            _describe(dout, chosen["BLOCK_M"]), done.lse, delta, dk, dv, *starts, batch.queries, batch.keys,
            *scales, *delta.stride()[:2], *dk.stride()[:3], **constants, **chosen.keywords,
        )  # fmt: skip
        chosen = tuning.queries or backward_kernel.choose_queries(q.shape[-1], wide=wide)
        grid = (ceil_div(batch.queries, chosen["BLOCK_M"]), q.shape[1], batch.sequences)
        backward_kernel.attention_backward_queries[grid](
            _describe(q, chosen["BLOCK_M"]), _describe(k, chosen["BLOCK_N"]), _describe(v, chosen["BLOCK_N"]),
            _describe(dout, chosen["BLOCK_M"]), done.lse, delta, dq, *starts, batch.queries, batch.keys,
            *scales, *delta.stride()[:2], *dq.stride()[:3], **constants, **chosen.keywords,
        )  # fmt: skip
    return Gradients(dq, dk, dv)
