"""SwiGLU in plain torch (Shazeer 2020, https://arxiv.org/abs/2002.05202)."""

from __future__ import annotations

import torch


def swiglu_reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, computed in float32 or wider."""
    wide = torch.promote_types(gate.dtype, torch.float32)
    return (torch.nn.functional.silu(gate.to(wide)) * up.to(wide)).to(gate.dtype)
