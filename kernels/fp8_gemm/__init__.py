"""Matrix product of FP8 (e4m3) operands with a scale per tensor or per row; forward only."""

from __future__ import annotations

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from ..common import Config, ceil_div, multiprocessors, on_device, require, unsupported
from . import kernel
from .reference import fp8_gemm_reference

__all__ = ["fallback_reason", "fp8_gemm", "fp8_gemm_reference"]

_OUT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_GROUP_M = 8
# The copy engine wants rows that start at multiples of 16 bytes.
_ALIGNMENT_BYTES = 16


def fp8_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    fast_accumulation: bool = True,
    config: Config | None = None,
) -> torch.Tensor:
    """(a * scale_a) @ (b * scale_b).T: [m, n] from a [m, k] and b [n, k], both float8_e4m3fn.

    scale_a, scale_b: float32, one element or one per row of a or b. fast_accumulation keeps the sum in the matrix
    unit (about 14 bits of mantissa on Hopper). config: a point of kernel.SPACE instead of our choice.
    Falls back to the reference where fallback_reason says so. Raises KernelInputError for shapes or dtypes that
    disagree.
    """
    _check(a, b, scale_a, scale_b, out_dtype)
    if fallback_reason(a, b, out_dtype=out_dtype):
        return fp8_gemm_reference(a, b, scale_a, scale_b, out_dtype=out_dtype)
    m, k = a.shape
    n = b.shape[0]
    cores = multiprocessors(a.device)
    chosen = config or kernel.choose(m, n, cores, fast_accumulation=fast_accumulation)
    out = torch.empty((m, n), dtype=out_dtype, device=a.device)
    tiles = ceil_div(m, chosen["BLOCK_M"]) * ceil_div(n, chosen["BLOCK_N"])
    with on_device(a):
        kernel.fp8_gemm[(min(tiles, cores) if chosen["PERSISTENT"] else tiles,)](
            TensorDescriptor.from_tensor(a, [chosen["BLOCK_M"], chosen["BLOCK_K"]]),
            TensorDescriptor.from_tensor(b, [chosen["BLOCK_N"], chosen["BLOCK_K"]]),
            scale_a.contiguous(), scale_b.contiguous(),
            TensorDescriptor.from_tensor(out, [chosen["BLOCK_M"], chosen["BLOCK_N"]]),
            m, n, k,
            SCALE_A_ROWS=scale_a.numel() > 1, SCALE_B_ROWS=scale_b.numel() > 1,
            FAST_ACCUMULATION=fast_accumulation, GROUP_M=_GROUP_M, **chosen.keywords,
        )  # fmt: skip
    return out


def fallback_reason(
    a: torch.Tensor, b: torch.Tensor, *, out_dtype: torch.dtype = torch.bfloat16
) -> str | None:
    """Why the reference is used for these inputs, or None."""
    if a.numel() == 0 or b.numel() == 0:
        return "no elements"
    if a.is_cuda and torch.cuda.get_device_capability(a.device) < (8, 9):
        return "a GPU without FP8 (compute capability below 8.9)"
    if a.shape[1] % _ALIGNMENT_BYTES or (b.shape[0] * out_dtype.itemsize) % _ALIGNMENT_BYTES:
        return f"rows of a, b or the result that are no multiple of {_ALIGNMENT_BYTES} bytes"
    for tensor in (a, b):
        if (
            tensor.stride(1) != 1
            or tensor.stride(0) % _ALIGNMENT_BYTES
            or tensor.data_ptr() % _ALIGNMENT_BYTES
        ):
            return "operands that are not row-major and aligned"
    return unsupported((a, b), dtypes=(torch.float8_e4m3fn,))


def _check(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> None:
    require(a.ndim == 2, f"a has shape {tuple(a.shape)}, expected [m, k]")
    require(
        b.ndim == 2 and b.shape[1] == a.shape[1],
        f"b has shape {tuple(b.shape)}, expected [n, {a.shape[1]}] for a",
    )
    for name, tensor in (("a", a), ("b", b)):
        require(
            tensor.dtype == torch.float8_e4m3fn,
            f"{name} has dtype {tensor.dtype}, expected torch.float8_e4m3fn",
        )
    require(out_dtype in _OUT_DTYPES, f"out_dtype is {out_dtype}, expected a 16- or 32-bit float")
    for name, scale, rows in (("scale_a", scale_a, a.shape[0]), ("scale_b", scale_b, b.shape[0])):
        require(
            scale.dtype == torch.float32 and scale.numel() in (1, rows),
            f"{name} has {scale.numel()} elements of {scale.dtype}, expected 1 or {rows} of torch.float32",
        )
