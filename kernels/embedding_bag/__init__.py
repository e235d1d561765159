"""Embedding bag: sum or mean of gathered rows, forward in Triton, backward through the scatter of torch."""

from __future__ import annotations

from typing import Any

import torch

from ..common import FLOAT_DTYPES, Config, ceil_div, on_device, power_of_two, require, unsupported
from . import kernel
from .reference import embedding_bag_reference

__all__ = ["embedding_bag", "embedding_bag_reference", "fallback_reason"]

_INDEX_DTYPES = (torch.int32, torch.int64)


def embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    *,
    mode: str = "sum",
    per_sample_weights: torch.Tensor | None = None,
    config: Config | None = None,
) -> torch.Tensor:
    """Rows of weight [entries, dim] gathered at indices [items] and summed or averaged per bag: [bags, dim].

    offsets: [bags], where each bag starts, ascending; an empty bag gives zeros. indices and offsets are int32 or
    int64 and must be inside (not checked on a GPU). per_sample_weights: [items] floats, with mode "sum" only.
    Accumulates in float32; differentiable in weight (dense gradient) and not in per_sample_weights.
    config: a point of kernel.SPACE instead of our choice. Falls back to the reference where fallback_reason says so.
    Raises KernelInputError for shapes or dtypes that disagree.
    """
    _check(weight, indices, offsets, mode, per_sample_weights)
    if fallback_reason(weight, indices, offsets, per_sample_weights):
        return embedding_bag_reference(
            weight, indices, offsets, mode=mode, per_sample_weights=per_sample_weights
        )
    result: torch.Tensor = _EmbeddingBag.apply(
        weight, indices.contiguous(), offsets.contiguous(), per_sample_weights, mode, config
    )
    return result


def fallback_reason(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    per_sample_weights: torch.Tensor | None = None,
) -> str | None:
    """Why the reference is used for these inputs, or None."""
    if offsets.numel() == 0 or indices.numel() == 0:
        return "no elements"
    if per_sample_weights is not None and per_sample_weights.requires_grad:
        return "gradient of per_sample_weights"
    floats = (weight,) if per_sample_weights is None else (weight, per_sample_weights)
    return unsupported(floats, dtypes=FLOAT_DTYPES) or unsupported(
        (weight, indices, offsets), dtypes=(weight.dtype, *_INDEX_DTYPES)
    )


def _check(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    mode: str,
    per_sample_weights: torch.Tensor | None,
) -> None:
    require(weight.ndim == 2, f"weight has shape {tuple(weight.shape)}, expected [entries, dim]")
    require(mode in ("sum", "mean"), f"mode is {mode!r}, expected sum or mean")
    for name, tensor in (("indices", indices), ("offsets", offsets)):
        require(
            tensor.ndim == 1 and tensor.dtype in _INDEX_DTYPES,
            f"{name} has shape {tuple(tensor.shape)} and dtype {tensor.dtype}, expected one dimension, int32 or int64",
        )
    if per_sample_weights is not None:
        require(mode == "sum", f"per_sample_weights need mode 'sum', not {mode!r}")
        require(
            per_sample_weights.shape == indices.shape,
            f"per_sample_weights has shape {tuple(per_sample_weights.shape)}, "
            f"expected {tuple(indices.shape)} as indices",
        )


class _EmbeddingBag(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        weight: torch.Tensor,
        indices: torch.Tensor,
        offsets: torch.Tensor,
        per_sample_weights: torch.Tensor | None,
        mode: str,
        config: Config | None,
    ) -> torch.Tensor:
        weight = weight if weight.stride(1) == 1 else weight.contiguous()
        bags, dim = offsets.numel(), weight.shape[1]
        chosen = config or kernel.choose(dim, weight.element_size())
        block = min(power_of_two(dim), kernel.MAX_BLOCK)
        out = torch.empty((bags, dim), dtype=weight.dtype, device=weight.device)
        weights = None if per_sample_weights is None else per_sample_weights.contiguous()
        with on_device(weight):
            kernel.embedding_bag_forward[(bags, ceil_div(dim, block))](
                weight, indices, offsets, weight if weights is None else weights, out,
                weight.stride(0), dim, bags, indices.numel(),
                MEAN=mode == "mean", WEIGHTED=weights is not None, BLOCK=block, **chosen.keywords,
            )  # fmt: skip
        ctx.save_for_backward(indices, offsets, weights)
        ctx.mode, ctx.shape, ctx.dtype = mode, weight.shape, weight.dtype
        return out

    @staticmethod
    def backward(ctx: Any, dout: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None, None]:
        indices, offsets, weights = ctx.saved_tensors
        ends = torch.cat((offsets[1:], offsets.new_tensor([indices.numel()])))
        counts = (ends - offsets).to(torch.int64)
        bag = torch.repeat_interleave(torch.arange(offsets.numel(), device=dout.device), counts)
        wide = dout.to(torch.float32)
        if ctx.mode == "mean":
            wide = wide / counts.clamp(min=1).unsqueeze(1)
        rows = wide[bag]
        if weights is not None:
            rows = rows * weights.to(torch.float32).unsqueeze(1)
        dweight = torch.zeros(ctx.shape, dtype=torch.float32, device=dout.device)
        dweight.index_add_(0, indices.to(torch.int64), rows)
        return dweight.to(ctx.dtype), None, None, None, None, None
