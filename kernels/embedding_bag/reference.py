"""Embedding bag in plain torch."""

from __future__ import annotations

import torch


def embedding_bag_reference(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    *,
    mode: str = "sum",
    per_sample_weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sum or mean of the rows of weight [entries, dim] per bag, accumulated in float32 or wider.

    indices: [items]. offsets: [bags], where each bag starts. per_sample_weights: [items], for the sum only.
    An empty bag gives zeros.
    """
    wide = torch.promote_types(weight.dtype, torch.float32)
    ends = torch.cat((offsets[1:], offsets.new_tensor([indices.numel()])))
    counts = (ends - offsets).to(torch.int64)
    bag = torch.repeat_interleave(torch.arange(offsets.numel(), device=weight.device), counts)
    rows = weight[indices.to(torch.int64)].to(wide)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(wide).unsqueeze(1)
    out = torch.zeros((offsets.numel(), weight.shape[1]), dtype=wide, device=weight.device)
    out = out.index_add(0, bag, rows)
    if mode == "mean":
        out = out / counts.clamp(min=1).unsqueeze(1).to(wide)
    return out.to(weight.dtype)
