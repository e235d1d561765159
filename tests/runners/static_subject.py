"""A project's module with Triton kernels, as the static tier meets it."""

from typing import Any

import triton
import triton.language as tl


@triton.jit
def double(x_ptr, y_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(y_ptr + place, tl.load(x_ptr + place, mask=inside) * 2.0, mask=inside)


@triton.jit
def product(a_ptr, b_ptr, c_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(c_ptr + row, tl.dot(tl.load(a_ptr + row), tl.load(b_ptr + row)))


def kernels(block: int = 1024) -> list[dict[str, Any]]:
    aligned = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "count": "i32:16"}
    return [
        {"kernel": double, "signature": aligned, "constants": {"BLOCK": block}, "options": {"num_warps": 4}},
        {
            "kernel": f"{__name__}:product",
            "signature": {"a_ptr": "*bf16:16", "b_ptr": "*bf16:16", "c_ptr": "*fp32:16"},
            "constants": {"SIZE": 64},
        },
    ]


def missing_argument() -> dict[str, Any]:
    return {"kernel": double, "signature": {"x_ptr": "*fp32", "y_ptr": "*fp32"}, "constants": {"BLOCK": 16}}


def not_a_kernel() -> dict[str, Any]:
    return {"kernel": kernels, "signature": {}}


def broken() -> dict[str, Any]:
    """A block of 3 elements, which Triton refuses."""
    types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "count": "i32"}
    return {"kernel": double, "signature": types, "constants": {"BLOCK": 3}}
