"""One operation at one shape, as the kernel benchmark measures it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernels.common import Config

Arguments = tuple[Any, ...]
BF16 = torch.bfloat16


@dataclass(frozen=True)
class Case:
    """One operation at one shape.

    inputs: fresh arguments for a seed, on the GPU. ours: the call, with a configuration to try or None for our own
    choice. peer: what torch offers for the same work. expected: the right result. tolerance: relative error allowed.
    """

    op: str
    model: str
    shape: str
    bytes: float
    flops: float
    inputs: Callable[[int], Arguments]
    ours: Callable[[Arguments, Config | None], Any]
    peer: Callable[[Arguments], Any] | None
    peer_name: str
    expected: Callable[[Arguments], Any]
    tolerance: float = 1e-2
    space: tuple[Config, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.op} {self.model} {self.shape}"


def random_tensor(seed: int, *shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(shape, device="cuda", dtype=torch.float32, generator=generator).to(dtype)


def random_indices(seed: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randint(0, high, shape, device="cuda", dtype=dtype, generator=generator)


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
