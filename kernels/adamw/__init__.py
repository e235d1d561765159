"""Fused AdamW: one launch updates any number of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton.language as tl

from ..common import FLOAT_DTYPES, Config, ceil_div, on_device, require, unsupported
from . import kernel
from .reference import adamw_reference

__all__ = ["AdamWPlan", "adamw_reference", "adamw_step", "fallback_reason", "plan_adamw"]

_TRITON_DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
_ALIGNMENT_BYTES = 16


@dataclass(frozen=True)
class _Tables:
    """On the device: addresses [tensors, 4], sizes [tensors], and for each chunk its tensor and place in it."""

    addresses: torch.Tensor
    sizes: torch.Tensor
    chunk_tensor: torch.Tensor
    chunk_index: torch.Tensor


@dataclass(frozen=True)
class AdamWPlan:
    """The tensors of one optimizer and where they lie; good for as many steps as they stay there.

    tables is None where the reference steps instead.
    """

    params: tuple[torch.Tensor, ...]
    grads: tuple[torch.Tensor, ...]
    exp_avgs: tuple[torch.Tensor, ...]
    exp_avg_sqs: tuple[torch.Tensor, ...]
    tables: _Tables | None

    def step(
        self,
        *,
        step: int,
        lr: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        config: Config | None = None,
    ) -> None:
        """Update params, exp_avgs and exp_avg_sqs in place; step counts from 1. Raises KernelInputError below 1.

        config: a point of kernel.SPACE instead of our choice.
        """
        require(step >= 1, f"step is {step}, expected 1 or more")
        if self.tables is None:
            adamw_reference(
                self.params, self.grads, self.exp_avgs, self.exp_avg_sqs,
                step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay,
            )  # fmt: skip
            return
        tables, chosen = self.tables, config or kernel.choose()
        with on_device(self.params[0]):
            kernel.adamw_update[(tables.chunk_tensor.numel(),)](
                tables.addresses, tables.sizes, tables.chunk_tensor, tables.chunk_index,
                lr, beta1, beta2, eps, weight_decay, 1 - beta1**step, math.sqrt(1 - beta2**step),
                PARAM=_TRITON_DTYPES[self.params[0].dtype], STATE=_TRITON_DTYPES[self.exp_avgs[0].dtype],
                CHUNK_SIZE=kernel.CHUNK, **chosen.keywords,
            )  # fmt: skip


def plan_adamw(
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    exp_avgs: Sequence[torch.Tensor],
    exp_avg_sqs: Sequence[torch.Tensor],
) -> AdamWPlan:
    """Check the tensors and put the table of their addresses on the device.

    Gradients have their parameter's dtype; both moments share one dtype. Falls back to the reference where
    fallback_reason says so. Raises KernelInputError for lists or shapes that disagree.
    """
    _check(params, grads, exp_avgs, exp_avg_sqs)
    lists = (tuple(params), tuple(grads), tuple(exp_avgs), tuple(exp_avg_sqs))
    return AdamWPlan(*lists, tables=None if fallback_reason(*lists) else _tables(*lists))


def adamw_step(
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    exp_avgs: Sequence[torch.Tensor],
    exp_avg_sqs: Sequence[torch.Tensor],
    *,
    step: int,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
) -> None:
    """One AdamW step in place. Plans anew each time: a training loop keeps a plan (plan_adamw) instead."""
    plan_adamw(params, grads, exp_avgs, exp_avg_sqs).step(
        step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay
    )


def fallback_reason(
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    exp_avgs: Sequence[torch.Tensor],
    exp_avg_sqs: Sequence[torch.Tensor],
) -> str | None:
    """Why the reference steps these tensors, or None."""
    if len({tensor.dtype for tensor in params}) != 1 or len({tensor.dtype for tensor in exp_avgs}) != 1:
        return "parameters or moments of several dtypes"
    tensors = (*params, *grads, *exp_avgs, *exp_avg_sqs)
    if any(not tensor.is_contiguous() for tensor in tensors):
        return "a tensor that is not contiguous"
    if any(tensor.data_ptr() % _ALIGNMENT_BYTES for tensor in tensors):
        return f"an address that is no multiple of {_ALIGNMENT_BYTES} bytes"
    if all(tensor.numel() == 0 for tensor in params):
        return "no elements"
    return unsupported(tensors, dtypes=FLOAT_DTYPES)


def _check(
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    exp_avgs: Sequence[torch.Tensor],
    exp_avg_sqs: Sequence[torch.Tensor],
) -> None:
    require(len(params) > 0, "params is empty")
    for name, tensors in (("grads", grads), ("exp_avgs", exp_avgs), ("exp_avg_sqs", exp_avg_sqs)):
        require(
            len(tensors) == len(params),
            f"{name} has {len(tensors)} tensors, expected {len(params)} as params",
        )
        for index, (tensor, param) in enumerate(zip(tensors, params, strict=True)):
            require(
                tensor.shape == param.shape,
                f"{name}[{index}] has shape {tuple(tensor.shape)}, expected {tuple(param.shape)} as params[{index}]",
            )
    for index, (param, grad) in enumerate(zip(params, grads, strict=True)):
        require(
            grad.dtype == param.dtype,
            f"grads[{index}] has dtype {grad.dtype}, expected {param.dtype} as params[{index}]",
        )
    for index, (first, second) in enumerate(zip(exp_avgs, exp_avg_sqs, strict=True)):
        require(
            first.dtype == second.dtype,
            f"exp_avg_sqs[{index}] has dtype {second.dtype}, expected {first.dtype} as exp_avgs[{index}]",
        )


def _tables(
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    exp_avgs: Sequence[torch.Tensor],
    exp_avg_sqs: Sequence[torch.Tensor],
) -> _Tables:
    device = params[0].device
    addresses = [
        [tensor.data_ptr() for tensor in row]
        for row in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True)
    ]
    sizes = torch.tensor([param.numel() for param in params], dtype=torch.int64)
    chunks = torch.tensor([ceil_div(param.numel(), kernel.CHUNK) for param in params], dtype=torch.int64)
    owner = torch.repeat_interleave(torch.arange(len(params), dtype=torch.int64), chunks)
    first = torch.repeat_interleave(chunks.cumsum(0) - chunks, chunks)
    index = torch.arange(owner.numel(), dtype=torch.int64) - first
    return _Tables(
        torch.tensor(addresses, dtype=torch.int64).to(device),
        sizes.to(device),
        owner.to(torch.int32).to(device),
        index.to(torch.int32).to(device),
    )
