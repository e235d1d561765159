"""AdamW in plain torch (Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101, algorithm 2)."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def adamw_reference(
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
    """One step in place, computed in float32 or wider; step counts from 1."""
    for param, grad, exp_avg, exp_avg_sq in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True):
        wide = torch.promote_types(param.dtype, torch.float32)
        g = grad.to(wide)
        m = exp_avg.to(wide) * beta1 + g * (1 - beta1)
        v = exp_avg_sq.to(wide) * beta2 + g * g * (1 - beta2)
        decayed = param.to(wide) * (1 - lr * weight_decay)
        denominator = (v / (1 - beta2**step)).sqrt() + eps
        param.copy_(decayed - (lr / (1 - beta1**step)) * m / denominator)
        exp_avg.copy_(m)
        exp_avg_sq.copy_(v)
