"""Scaled FP8 matrix product in plain torch."""

from __future__ import annotations

import torch


def fp8_gemm_reference(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:
    """(a * scale_a) @ (b * scale_b).T with a [m, k], b [n, k]; scales are [] or [m] and [] or [n], float32 or wider."""
    wide = torch.promote_types(scale_a.dtype, torch.float32)
    product = a.to(wide) @ b.to(wide).T
    return (product * scale_a.to(wide).reshape(-1, 1) * scale_b.to(wide).reshape(1, -1)).to(out_dtype)
