"""The kernels as the static tier compiles them: production dtypes and shapes, the configurations we choose.

`entries(op=...)` returns plain mappings, each a kernel with its argument types, constants and options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import triton.language as tl

from . import adamw, cross_entropy, embedding_bag, fp8_gemm, paged_decode, rmsnorm, rope, softmax, swiglu
from .common import Config, require
from .flash_attention import backward_kernel as attention_backward
from .flash_attention import kernel as attention

Entry = dict[str, Any]
_HIDDEN = 4096
_VOCABULARY = 128256
_DIM = 128
_BF16 = "*bf16:16"
_F32 = "*fp32:16"
_COUNT = "i32:16"
_INDEX = "*i64:16"


def entries(op: str | None = None) -> list[Entry]:
    """Entries of one operation, or of all. Raises KernelInputError for an operation that is not here."""
    require(op is None or op in _OPERATIONS, f"op is {op!r}, expected one of {', '.join(_OPERATIONS)}")
    return [entry for name, make in _OPERATIONS.items() if op in (None, name) for entry in make()]


def _entry(
    kernel: Any, types: Sequence[str], constants: dict[str, Any], chosen: Config, *, name: str = ""
) -> Entry:
    """types: of the arguments that are no constants, in order."""
    known = {**constants, **dict(chosen.blocks)}
    arguments = [argument for argument in kernel.arg_names if argument not in known]
    require(
        len(arguments) == len(types), f"{kernel.__name__} takes {len(arguments)} arguments, not {len(types)}"
    )
    return {
        "kernel": kernel,
        "signature": dict(zip(arguments, types, strict=True)),
        "constants": known,
        "options": {"num_warps": chosen.num_warps, "num_stages": chosen.num_stages},
        "name": name or kernel.__name__,
    }


def _rmsnorm() -> list[Entry]:
    kernel, chosen = rmsnorm.kernel, rmsnorm.kernel.choose(_HIDDEN)
    forward = [_BF16] * 5 + [_F32] + [_COUNT] * 4 + ["fp32"]
    backward = [_BF16] * 4 + [_F32, _BF16, _F32] + [_COUNT] * 5
    block = {"BLOCK": _HIDDEN}
    eight = Config((), 8, 1)
    return [
        _entry(kernel.rmsnorm_forward, forward, {**block, "HAS_RESIDUAL": False}, chosen),
        _entry(
            kernel.rmsnorm_forward,
            forward,
            {**block, "HAS_RESIDUAL": True},
            chosen,
            name="add_rmsnorm_forward",
        ),
        _entry(kernel.rmsnorm_backward, backward, {**block, "HAS_DTOTAL": False}, eight),
    ]


def _softmax() -> list[Entry]:
    kernel = softmax.kernel
    wide = kernel.choose_wide(_VOCABULARY)
    types = [_BF16, _BF16, _COUNT, _COUNT]
    return [
        _entry(kernel.softmax_forward, types, {"BLOCK": _HIDDEN}, kernel.choose(_HIDDEN)),
        _entry(kernel.wide_softmax_forward, types, {"STAGES": wide.num_stages}, wide),
    ]


def _cross_entropy() -> list[Entry]:
    kernel = cross_entropy.kernel
    chosen = kernel.choose()
    return [
        _entry(
            kernel.cross_entropy_forward,
            [_BF16, _INDEX, _F32, _F32, _COUNT, _COUNT, "i32"],
            {"STAGES": chosen.num_stages},
            chosen,
        ),
        _entry(
            kernel.cross_entropy_backward,
            [_BF16, _INDEX, _F32, _F32, _BF16, _COUNT, "i32", _COUNT, "i32"],
            {},
            kernel.choose_backward(),
        ),
    ]


def _swiglu() -> list[Entry]:
    kernel, chosen = swiglu.kernel, swiglu.kernel.choose()
    return [
        _entry(kernel.swiglu_forward, [_BF16] * 3 + [_COUNT] * 3, {}, chosen),
        _entry(kernel.swiglu_backward, [_BF16] * 5 + [_COUNT] * 4, {}, chosen),
    ]


def _rope() -> list[Entry]:
    heads = {"Q_HEADS": 32, "K_HEADS": 8, "Q_BLOCK": 32, "K_BLOCK": 8, "HALF": _DIM // 2, "INVERSE": False}
    types = [_BF16] * 4 + [_F32, _F32, _INDEX] + [_COUNT] * 6
    return [_entry(rope.kernel.rope_rotate, types, heads, rope.kernel.choose())]


def _flash_attention() -> list[Entry]:
    shared = {"GROUP": 4, "CAUSAL": True, "VARLEN": False, "DIM": _DIM, "PRECISION": "ieee"}

    def tile(chosen: Config, axis: str) -> str:
        return f"tensordesc<bf16[1,1,{chosen[axis]},{_DIM}]>"

    def inputs(chosen: Config) -> list[str]:
        return [tile(chosen, "BLOCK_M"), tile(chosen, "BLOCK_N"), tile(chosen, "BLOCK_N")]

    forward = attention.choose(_DIM, wide=False)
    keys = attention_backward.choose_keys(_DIM, wide=False)
    queries = attention_backward.choose_queries(_DIM, wide=False)
    tail = [_F32, _F32, _COUNT, _COUNT, "fp32"]
    return [
        _entry(
            attention.attention_forward,
            [*inputs(forward), _BF16, _F32, *tail, *[_COUNT] * 5],
            shared,
            forward,
        ),
        _entry(
            attention_backward.attention_backward_keys,
            [*inputs(keys), tile(keys, "BLOCK_M"), _F32, _F32, _BF16, _BF16, *tail, "fp32", *[_COUNT] * 5],
            shared,
            keys,
        ),
        _entry(
            attention_backward.attention_backward_queries,
            [*inputs(queries), tile(queries, "BLOCK_M"), _F32, _F32, _BF16, *tail, "fp32", *[_COUNT] * 5],
            shared,
            queries,
        ),
    ]


def _paged_decode() -> list[Entry]:
    kernel, chosen = paged_decode.kernel, paged_decode.kernel.choose()
    constants = {
        "GROUP": 4, "GROUP_BLOCK": 16, "DIM": _DIM, "PRECISION": "ieee", "SPLITS": 8,
        "STAGES": chosen.num_stages,
    }  # fmt: skip
    types = [_BF16] * 3 + ["*i32:16", "*i32:16", _F32, _F32, _BF16, "fp32"] + [_COUNT] * 7
    return [_entry(kernel.paged_decode_split, types, constants, chosen)]


def _embedding_bag() -> list[Entry]:
    constants = {"MEAN": False, "WEIGHTED": False, "BLOCK": _DIM}
    types = [_F32, _INDEX, _INDEX, _F32, _F32, _COUNT, _COUNT, "i32", "i32"]
    return [
        _entry(
            embedding_bag.kernel.embedding_bag_forward, types, constants, embedding_bag.kernel.choose(_DIM, 4)
        )
    ]


def _adamw() -> list[Entry]:
    constants = {"PARAM": tl.float32, "STATE": tl.float32, "CHUNK_SIZE": adamw.kernel.CHUNK}
    types = [_INDEX, _INDEX, "*i32:16", "*i32:16"] + ["fp32"] * 7
    return [_entry(adamw.kernel.adamw_update, types, constants, adamw.kernel.choose())]


def _fp8_gemm() -> list[Entry]:
    chosen = fp8_gemm.kernel.choose(8192, 8192, 132, fast_accumulation=True)
    m, n, k = chosen["BLOCK_M"], chosen["BLOCK_N"], chosen["BLOCK_K"]
    types = [
        f"tensordesc<fp8e4nv[{m},{k}]>", f"tensordesc<fp8e4nv[{n},{k}]>", _F32, _F32,
        f"tensordesc<bf16[{m},{n}]>", _COUNT, _COUNT, _COUNT,
    ]  # fmt: skip
    constants = {"SCALE_A_ROWS": False, "SCALE_B_ROWS": False, "FAST_ACCUMULATION": True, "GROUP_M": 8}
    return [_entry(fp8_gemm.kernel.fp8_gemm, types, constants, chosen)]


_OPERATIONS: dict[str, Callable[[], list[Entry]]] = {
    "rmsnorm": _rmsnorm,
    "softmax": _softmax,
    "cross_entropy": _cross_entropy,
    "swiglu": _swiglu,
    "rope": _rope,
    "flash_attention": _flash_attention,
    "paged_decode": _paged_decode,
    "embedding_bag": _embedding_bag,
    "adamw": _adamw,
    "fp8_gemm": _fp8_gemm,
}
