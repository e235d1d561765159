"""Attention, decode and FP8 products at the shapes of public models."""

from __future__ import annotations

from typing import Any

import torch

from kernels import flash_attention as attention
from kernels import fp8_gemm, paged_decode
from kernels.common import Config
from kernels.flash_attention import backward_kernel
from kernels.flash_attention import kernel as forward_kernel
from kernels.flash_attention.launch import Attended, Batch, Tuning, attend, attend_backward

from .kernel_case import BF16, Arguments, Case, random_tensor

ATTENTION = (
    ("Llama-3.2-1B", 8, 2048, 32, 8, 64),
    ("Mistral-7B", 16, 1024, 32, 8, 128),
    ("Qwen2.5-7B", 8, 2048, 28, 4, 128),
    ("Llama-3.1-8B", 4, 4096, 32, 8, 128),
    ("Llama-2-7B", 4, 4096, 32, 32, 128),
    ("Llama-3.1-70B", 1, 8192, 64, 8, 128),
    ("Qwen2.5-32B", 1, 16384, 40, 8, 128),
    ("Llama-3.1-8B 32k", 1, 32768, 32, 8, 128),
)


def _flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)


def _attention_inputs(seed: int, batch: int, length: int, heads: int, kv: int, dim: int) -> Arguments:
    return (
        random_tensor(seed, batch, heads, length, dim), random_tensor(seed + 1, batch, kv, length, dim),
        random_tensor(seed + 2, batch, kv, length, dim),
    )  # fmt: skip


def attention_cases() -> list[Case]:
    return [
        Case(
            op="flash_attention", model=model, shape=f"{batch}x{length} {heads}/{kv}x{dim} causal",
            bytes=2.0 * batch * length * dim * (2 * heads + 2 * kv), flops=2.0 * batch * heads * length**2 * dim,
            inputs=lambda seed, s=(batch, length, heads, kv, dim): _attention_inputs(seed, *s),
            ours=lambda a, c: attention.flash_attention(*a, causal=True, tuning=Tuning(forward=c)),
            peer=lambda a: _flash(*a)[0], peer_name="torch flash",
            expected=lambda a: _flash(*a)[0], space=forward_kernel.SPACE,
        )
        for model, batch, length, heads, kv, dim in ATTENTION
    ]  # fmt: skip


def attention_backward_cases(part: str = "") -> list[Case]:
    """part: "keys" or "queries" tries the configurations of that kernel alone."""

    def inputs(seed: int, batch: int, length: int, heads: int, kv: int, dim: int) -> Arguments:
        q, k, v = _attention_inputs(seed, batch, length, heads, kv, dim)
        shared = Batch(length, length, batch, None, None, True, dim**-0.5)
        return (
            q,
            k,
            v,
            random_tensor(seed + 3, *q.shape),
            shared,
            attend(q, k, v, shared, Tuning()),
            _flash(q, k, v),
        )

    def ours(a: Arguments, c: Config | None) -> Any:
        q, k, v, dout, shared, done, _ = a
        tuning = Tuning(keys=c) if part == "keys" else Tuning(queries=c)
        gradients = attend_backward(q, k, v, Attended(done.out, done.lse), dout, shared, tuning)
        return gradients.q, gradients.k, gradients.v

    def peer(a: Arguments) -> Any:
        q, k, v, dout, _, _, flash = a
        out, lse, q_starts, k_starts, max_q, max_k, state, offset, _ = flash
        return torch.ops.aten._scaled_dot_product_flash_attention_backward(
            dout, q, k, v, out, lse, q_starts, k_starts, max_q, max_k, 0.0, True, state, offset
        )

    space = {"keys": backward_kernel.KEYS_SPACE, "queries": backward_kernel.QUERIES_SPACE}.get(part, ())
    return [
        Case(
            op="flash_attention_backward", model=model, shape=f"{batch}x{length} {heads}/{kv}x{dim} causal",
            bytes=2.0 * batch * length * dim * (4 * heads + 4 * kv), flops=5.0 * batch * heads * length**2 * dim,
            inputs=lambda seed, s=(batch, length, heads, kv, dim): inputs(seed, *s),
            ours=ours, peer=peer, peer_name="torch flash backward", expected=peer, tolerance=2e-2, space=space,
        )
        for model, batch, length, heads, kv, dim in ATTENTION
    ]  # fmt: skip


def decode_cases() -> list[Case]:
    shapes = (
        ("Llama-3.1-8B 32k", 1, 32768, 32, 8, 128),
        ("Llama-3.1-8B 32k", 8, 32768, 32, 8, 128),
        ("Qwen2.5-7B 16k", 16, 16384, 28, 4, 128),
        ("Mistral-7B 4k", 64, 4096, 32, 8, 128),
        ("Llama-3.1-70B 8k", 32, 8192, 64, 8, 128),
        ("Llama-2-7B 4k", 16, 4096, 32, 32, 128),
        ("Llama-3.1-8B 1k", 256, 1024, 32, 8, 128),
        ("Llama-3.2-1B 2k", 128, 2048, 32, 8, 64),
    )
    page = 16

    def inputs(seed: int, batch: int, length: int, heads: int, kv: int, dim: int) -> Arguments:
        pages = batch * length // page
        generator = torch.Generator(device="cuda").manual_seed(seed)
        table = torch.randperm(pages, device="cuda", generator=generator).to(torch.int32).view(batch, -1)
        caches = (
            random_tensor(seed + 1, pages, page, kv, dim),
            random_tensor(seed + 2, pages, page, kv, dim),
        )
        return (
            random_tensor(seed, batch, heads, dim),
            *caches,
            table,
            torch.full((batch,), length, device="cuda"),
            length,
        )

    return [
        Case(
            op="paged_decode", model=model, shape=f"{batch}x{length} {heads}/{kv}x{dim}",
            bytes=4.0 * batch * length * kv * dim + 4.0 * batch * heads * dim, flops=4.0 * batch * heads * length * dim,
            inputs=lambda seed, s=(batch, length, heads, kv, dim): inputs(seed, *s),
            ours=lambda a, c: paged_decode.paged_decode(*a[:5], max_length=a[5], config=c),
            peer=None, peer_name="", expected=lambda a: paged_decode.paged_decode_reference(*a[:5]),
            space=paged_decode.kernel.SPACE,
        )
        for model, batch, length, heads, kv, dim in shapes
    ]  # fmt: skip


def fp8_gemm_cases(*, fast: bool = True) -> list[Case]:
    """fast: sums stay in the matrix unit's narrow accumulator, whose error grows with k; ours and torch's alike."""
    shapes = (
        ("Llama-3.1-8B gate", 8192, 14336, 4096),
        ("Llama-3.1-8B down", 8192, 4096, 14336),
        ("Qwen2.5-7B gate", 8192, 18944, 3584),
        ("Llama-3.1-70B output", 8192, 8192, 8192),
        ("Llama-3.1-70B gate", 4096, 28672, 8192),
        ("Llama-3.1-405B output", 4096, 16384, 16384),
        ("DeepSeek-V3 gate", 4096, 18432, 7168),
    )

    def inputs(seed: int, m: int, n: int, k: int) -> Arguments:
        a, b = (random_tensor(seed + i, rows, k).to(torch.float8_e4m3fn) for i, rows in enumerate((m, n)))
        scales = (torch.full((1,), 0.1, device="cuda"), torch.full((1,), 0.2, device="cuda"))
        return a, b, *scales

    def peer(a: Arguments) -> Any:
        return torch._scaled_mm(a[0], a[1].T, a[2], a[3], out_dtype=BF16, use_fast_accum=fast)

    return [
        Case(
            op="fp8_gemm" if fast else "fp8_gemm_exact", model=model, shape=f"{m}x{n}x{k}",
            bytes=float(m * k + n * k + 2 * m * n), flops=2.0 * m * n * k,
            inputs=lambda seed, s=(m, n, k): inputs(seed, *s),
            ours=lambda a, c: fp8_gemm.fp8_gemm(*a, fast_accumulation=fast, config=c),
            peer=peer, peer_name="torch _scaled_mm", expected=lambda a: fp8_gemm.fp8_gemm_reference(*a),
            tolerance=5e-2 if fast else 1e-2,
            space=fp8_gemm.kernel.SPACE,
        )
        for model, m, n, k in shapes
    ]  # fmt: skip
