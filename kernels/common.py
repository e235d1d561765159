"""What every operation shares: input checks, the choice between kernel and reference, and tuning configurations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
import triton

INTERPRETED: Final[bool] = bool(triton.knobs.runtime.interpret)
"""Triton decides at decoration time whether a kernel is interpreted, so this is read once."""

if INTERPRETED:
    from .interpreter import mend_bfloat16_products

    mend_bfloat16_products()

FLOAT_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16)

# Without a GPU, interpreted kernels pretend to run on this many multiprocessors, so that loops over work
# assigned to one program take more than one turn.
_INTERPRETED_MULTIPROCESSORS = 4


class KernelInputError(ValueError):
    """Arguments no implementation of the operation could accept; the message names the argument."""


@dataclass(frozen=True)
class Config:
    """One point of a kernel's tuning space.

    blocks: (name of the constexpr argument, value) pairs; warps per program; software-pipelining stages.
    """

    blocks: tuple[tuple[str, int], ...]
    num_warps: int
    num_stages: int

    def __getitem__(self, name: str) -> int:
        return dict(self.blocks)[name]

    @property
    def keywords(self) -> dict[str, int]:
        """Keyword arguments of the launch."""
        return {**dict(self.blocks), "num_warps": self.num_warps, "num_stages": self.num_stages}

    def __str__(self) -> str:
        blocks = " ".join(f"{name}={value}" for name, value in self.blocks)
        return f"{blocks} warps={self.num_warps} stages={self.num_stages}".strip()


def config(*, num_warps: int = 4, num_stages: int = 2, **blocks: int) -> Config:
    return Config(blocks=tuple(blocks.items()), num_warps=num_warps, num_stages=num_stages)


def require(condition: object, message: str) -> None:
    """Raises KernelInputError with the message unless the condition holds."""
    if not condition:
        raise KernelInputError(message)


def require_same(name: str, tensor: torch.Tensor, like: torch.Tensor, like_name: str) -> None:
    """Raises KernelInputError unless both tensors have one shape, dtype and device."""
    for trait in ("shape", "dtype", "device"):
        found, wanted = getattr(tensor, trait), getattr(like, trait)
        require(
            found == wanted,
            f"{name} has {trait} {_plain(found)}, expected {_plain(wanted)} as {like_name}",
        )


def _plain(trait: Any) -> str:
    return str(tuple(trait)) if isinstance(trait, torch.Size) else str(trait)


def unsupported(tensors: Sequence[torch.Tensor], *, dtypes: Sequence[torch.dtype]) -> str | None:
    """Why no Triton kernel runs on these tensors (device or dtype), or None when one does.

    Raises KernelInputError when they are on different devices.
    """
    first = tensors[0]
    for tensor in tensors:
        require(
            tensor.device == first.device, f"tensors on different devices: {first.device} and {tensor.device}"
        )
        if tensor.dtype not in dtypes:
            return f"dtype {tensor.dtype}"
    if first.device.type == "cuda" or (INTERPRETED and first.device.type == "cpu"):
        return None
    return f"device {first.device.type}"


def on_device(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    """A kernel is launched on the current device; this makes it the tensor's."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(tensor.device)


@cache
def multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return _INTERPRETED_MULTIPROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def power_of_two(value: int) -> int:
    """The smallest power of two that is not below the value."""
    return 1 if value <= 1 else 1 << (value - 1).bit_length()


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as [rows, last dimension] with contiguous rows; copies only when its strides force it."""
    rows = tensor.reshape(-1, tensor.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()
