"""Inputs of the micro benchmarks."""

import torch
from torch import Tensor


def rows(*, seed: int, device: str, rows: int, cols: int) -> tuple[Tensor]:
    generator = torch.Generator(device=device).manual_seed(seed)
    return (torch.randn(rows, cols, generator=generator, device=device),)


def points(*, seed: int, device: str, count: int, dims: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device=device).manual_seed(seed)
    a = torch.randn(count, dims, generator=generator, device=device)
    b = torch.randn(count, dims, generator=generator, device=device)
    return a, b
