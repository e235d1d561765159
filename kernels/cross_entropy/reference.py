"""Cross-entropy in plain torch."""

from __future__ import annotations

import torch


def cross_entropy_reference(
    logits: torch.Tensor, targets: torch.Tensor, *, ignore_index: int = -100, reduction: str = "mean"
) -> torch.Tensor:
    """-log softmax(logits)[target] per row, in float32 or wider; reduction is mean (of rows not ignored), sum, none."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.nn.functional.cross_entropy(
        wide, targets.to(torch.int64), ignore_index=ignore_index, reduction=reduction
    )


def linear_cross_entropy_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """Cross-entropy of the logits x @ weight.T, which are rounded to x's dtype in between."""
    return cross_entropy_reference(x @ weight.T, targets, ignore_index=ignore_index, reduction=reduction)
