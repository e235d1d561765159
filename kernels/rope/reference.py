"""Rotary position embedding in plain torch (Su et al. 2021, https://arxiv.org/abs/2104.09864)."""

from __future__ import annotations

import torch


def rope_reference(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Rotate x [tokens, heads, dim] by the angles of its positions, first half against second half of a head.

    cos, sin: [positions, dim / 2]. positions: [tokens], integer. Computed in float32 or wider.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    cosine, sine = (table[positions].unsqueeze(1).to(wide) for table in (cos, sin))
    first, second = x.to(wide).chunk(2, dim=-1)
    rotated = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    return rotated.to(x.dtype)
