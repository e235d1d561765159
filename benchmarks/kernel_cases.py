"""The shapes at which the kernels are measured, each from a named public model, with work counted by formula.

Bytes are what must move through device memory once (inputs read, outputs written); FLOPs count a multiply and an add
as two, and half of the scores under a causal mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own name for it)

from kernels import adamw, cross_entropy, embedding_bag, rmsnorm, rope, softmax, swiglu
from kernels.common import Config

from .kernel_case import BF16, Arguments, Case, random_indices, random_tensor
from .kernel_products import attention_backward_cases, attention_cases, decode_cases, fp8_gemm_cases

HIDDEN = (
    ("Llama-3.2-1B", 32768, 2048),
    ("Qwen2.5-7B", 16384, 3584),
    ("Llama-3.1-8B", 16384, 4096),
    ("Qwen2.5-32B", 16384, 5120),
    ("DeepSeek-V3", 8192, 7168),
    ("Llama-3.1-70B", 8192, 8192),
    ("Llama-3.1-405B", 4096, 16384),
)


def rmsnorm_cases() -> list[Case]:
    return [
        Case(
            op="rmsnorm", model=model, shape=f"{rows}x{columns}", bytes=4.0 * rows * columns,
            flops=4.0 * rows * columns,
            inputs=lambda seed, rows=rows, columns=columns: (
                random_tensor(seed, rows, columns), random_tensor(seed + 1, columns)
            ),
            ours=lambda a, c: rmsnorm.rmsnorm(*a, config=c),
            peer=lambda a: F.rms_norm(a[0], a[1].shape, a[1], 1e-6), peer_name="torch rms_norm",
            expected=lambda a: rmsnorm.rmsnorm_reference(*a), space=rmsnorm.kernel.SPACE,
        )
        for model, rows, columns in HIDDEN
    ]  # fmt: skip


def add_rmsnorm_cases() -> list[Case]:
    def peer(a: Arguments) -> Any:
        total = a[0] + a[1]
        return F.rms_norm(total, a[2].shape, a[2], 1e-6), total

    return [
        Case(
            op="add_rmsnorm", model=model, shape=f"{rows}x{columns}", bytes=8.0 * rows * columns,
            flops=5.0 * rows * columns,
            inputs=lambda seed, rows=rows, columns=columns: (
                random_tensor(seed, rows, columns), random_tensor(seed + 1, rows, columns),
                random_tensor(seed + 2, columns),
            ),
            ours=lambda a, c: rmsnorm.add_rmsnorm(*a, config=c),
            peer=peer, peer_name="torch add, rms_norm",
            expected=lambda a: rmsnorm.add_rmsnorm_reference(*a), space=(),
        )
        for model, rows, columns in HIDDEN
    ]  # fmt: skip


def rmsnorm_backward_cases() -> list[Case]:
    def inputs(seed: int, rows: int, columns: int) -> Arguments:
        x, weight = random_tensor(seed, rows, columns), random_tensor(seed + 1, columns)
        return (
            x,
            weight,
            random_tensor(seed + 2, rows, columns),
            torch.rsqrt(x.float().square().mean(1) + 1e-6),
        )

    def ours(a: Arguments, _: Config | None) -> Any:
        x, weight, dy, rstd = a
        done = rmsnorm._backward(dy, None, x, weight, rstd)
        return done.x, done.weight

    def peer(a: Arguments) -> Any:
        x, weight, dy, rstd = a
        return torch.ops.aten._fused_rms_norm_backward(
            dy, x, list(weight.shape), rstd.unsqueeze(1), weight, [True, True]
        )

    def expected(a: Arguments) -> Any:
        x, weight, dy, _ = a
        wide = [t.float().requires_grad_() for t in (x, weight)]
        return torch.autograd.grad(rmsnorm.rmsnorm_reference(*wide), wide, dy.float())

    return [
        Case(
            op="rmsnorm_backward", model=model, shape=f"{rows}x{columns}", bytes=6.0 * rows * columns,
            flops=10.0 * rows * columns,
            inputs=lambda seed, rows=rows, columns=columns: inputs(seed, rows, columns),
            ours=ours, peer=peer, peer_name="torch _fused_rms_norm_backward", expected=expected,
        )
        for model, rows, columns in HIDDEN
    ]  # fmt: skip


def softmax_cases() -> list[Case]:
    shapes = (
        ("Llama-3.2-1B scores 1k", 131072, 1024),
        ("Llama-3.1-8B scores 2k", 65536, 2048),
        ("Llama-3.1-8B scores 4k", 32768, 4096),
        ("Mistral-7B scores 8k", 16384, 8192),
        ("Qwen2.5-7B scores 16k", 8192, 16384),
        ("Qwen2.5-7B scores 32k", 4096, 32768),
        ("Mistral-7B vocabulary", 8192, 32000),
        ("Llama-3.1 vocabulary", 2048, 128256),
        ("DeepSeek-V3 vocabulary", 2048, 129280),
        ("Qwen2.5 vocabulary", 2048, 151936),
    )
    limit = softmax.kernel.MAX_COLUMNS_ONE_PASS
    return [
        Case(
            op="softmax", model=model, shape=f"{rows}x{columns}", bytes=4.0 * rows * columns,
            flops=5.0 * rows * columns,
            inputs=lambda seed, rows=rows, columns=columns: (random_tensor(seed, rows, columns),),
            ours=lambda a, c: softmax.softmax(*a, config=c),
            peer=lambda a: torch.softmax(a[0], dim=-1), peer_name="torch softmax",
            expected=lambda a: softmax.softmax_reference(*a),
            space=softmax.kernel.SPACE if columns <= limit else softmax.kernel.WIDE_SPACE,
        )
        for model, rows, columns in shapes
    ]  # fmt: skip


VOCABULARIES = (
    ("Mistral-7B", 16384, 32000),
    ("Mistral-7B 4k", 4096, 32000),
    ("Llama-3.1", 4096, 128256),
    ("DeepSeek-V3", 4096, 129280),
    ("Qwen2.5", 4096, 151936),
    ("Qwen2.5-72B", 2048, 152064),
)


def cross_entropy_cases() -> list[Case]:
    return [
        Case(
            op="cross_entropy", model=model, shape=f"{rows}x{columns}", bytes=2.0 * rows * columns,
            flops=4.0 * rows * columns,
            inputs=lambda seed, rows=rows, columns=columns: (
                random_tensor(seed, rows, columns), random_indices(seed, columns, rows)
            ),
            ours=lambda a, c: cross_entropy.cross_entropy(*a, reduction="none", config=c),
            peer=lambda a: F.cross_entropy(*a, reduction="none"), peer_name="torch cross_entropy",
            expected=lambda a: cross_entropy.cross_entropy_reference(*a, reduction="none"),
            tolerance=1e-4, space=cross_entropy.kernel.SPACE,
        )
        for model, rows, columns in VOCABULARIES
    ]  # fmt: skip


def cross_entropy_backward_cases() -> list[Case]:
    def inputs(seed: int, rows: int, columns: int) -> Arguments:
        logits, targets = random_tensor(seed, rows, columns), random_indices(seed, columns, rows)
        done = cross_entropy._forward(logits, targets, -100)
        return logits, targets, done.lse, random_tensor(seed + 2, rows, dtype=torch.float32)

    def ours(a: Arguments, c: Config | None) -> Any:
        logits, targets, lse, dloss = a
        out = torch.empty_like(logits)
        cross_entropy._backward(logits, targets, lse, dloss, out, -100, c)
        return out

    def expected(a: Arguments) -> Any:
        logits, targets, _, dloss = a
        out = torch.softmax(logits.float(), dim=1)
        out[torch.arange(len(targets), device=out.device), targets] -= 1
        return out * dloss[:, None]

    return [
        Case(
            op="cross_entropy_backward", model=model, shape=f"{rows}x{columns}", bytes=4.0 * rows * columns,
            flops=4.0 * rows * columns,
            inputs=lambda seed, rows=rows, columns=columns: inputs(seed, rows, columns),
            ours=ours, peer=None, peer_name="", expected=expected, space=cross_entropy.kernel.BACKWARD_SPACE,
        )
        for model, rows, columns in VOCABULARIES
    ]  # fmt: skip


def swiglu_cases() -> list[Case]:
    shapes = (
        ("Llama-3.2-1B", 16384, 8192),
        ("Llama-2-7B", 8192, 11008),
        ("Llama-3.1-8B", 8192, 14336),
        ("Qwen2.5-7B", 8192, 18944),
        ("Qwen2.5-32B", 4096, 27648),
        ("Llama-3.1-70B", 4096, 28672),
        ("DeepSeek-V3", 8192, 18432),
    )
    return [
        Case(
            op="swiglu", model=model, shape=f"{rows}x{columns}", bytes=6.0 * rows * columns,
            flops=6.0 * rows * columns,
            inputs=lambda seed, rows=rows, columns=columns: (
                random_tensor(seed, rows, columns), random_tensor(seed + 1, rows, columns)
            ),
            ours=lambda a, c: swiglu.swiglu(*a, config=c),
            peer=lambda a: F.silu(a[0]) * a[1], peer_name="torch silu, mul",
            expected=lambda a: swiglu.swiglu_reference(*a), space=swiglu.kernel.SPACE,
        )
        for model, rows, columns in shapes
    ]  # fmt: skip


def rope_cases() -> list[Case]:
    shapes = (
        ("Llama-3.2-1B", 32768, 32, 8, 64),
        ("Qwen2.5-7B", 16384, 28, 4, 128),
        ("Llama-3.1-8B", 16384, 32, 8, 128),
        ("Llama-2-7B", 16384, 32, 32, 128),
        ("Qwen2.5-32B", 16384, 40, 8, 128),
        ("Llama-3.1-70B", 8192, 64, 8, 128),
        ("Llama-3.1-405B", 8192, 128, 8, 128),
    )

    def inputs(seed: int, tokens: int, heads: int, kv_heads: int, dim: int) -> Arguments:
        positions = torch.arange(tokens, device="cuda")
        frequency = 10000.0 ** -(torch.arange(0, dim, 2, device="cuda") / dim)
        angle = positions[:, None] * frequency
        return (
            random_tensor(seed, tokens, heads, dim), random_tensor(seed + 1, tokens, kv_heads, dim),
            angle.cos().to(BF16),
            angle.sin().to(BF16), positions,
        )  # fmt: skip

    def ours(a: Arguments, c: Config | None) -> Any:
        done = rope.rope(*a, config=c)
        return done.q, done.k

    def peer(a: Arguments) -> Any:
        q, k, cos, sin, positions = a
        cos, sin = (torch.cat((t[positions], t[positions]), dim=-1).unsqueeze(1) for t in (cos, sin))

        def turn(x: torch.Tensor) -> torch.Tensor:
            first, second = x.chunk(2, dim=-1)
            return x * cos + torch.cat((-second, first), dim=-1) * sin

        return turn(q), turn(k)

    def expected(a: Arguments) -> Any:
        q, k, *rest = a
        return rope.rope_reference(q, *rest), rope.rope_reference(k, *rest)

    return [
        Case(
            op="rope", model=model, shape=f"{tokens}x({heads}+{kv})x{dim}",
            bytes=4.0 * tokens * (heads + kv) * dim + tokens * (2.0 * dim + 8), flops=3.0 * tokens * (heads + kv) * dim,
            inputs=lambda seed, s=(tokens, heads, kv, dim): inputs(seed, *s),
            ours=ours, peer=peer, peer_name="torch eager", expected=expected, space=rope.kernel.SPACE,
        )
        for model, tokens, heads, kv, dim in shapes
    ]  # fmt: skip


def embedding_bag_cases() -> list[Case]:
    shapes = (
        ("DLRM 64", 1_000_000, 64, 16384, 32, torch.float32),
        ("DLRM 128", 1_000_000, 128, 16384, 32, torch.float32),
        ("DLRM 128 long", 1_000_000, 128, 8192, 100, torch.float32),
        ("DLRM 128 bf16", 1_000_000, 128, 16384, 32, BF16),
        ("DLRM-v2 256", 1_000_000, 256, 8192, 32, torch.float32),
        ("fastText 300", 1_000_000, 300, 8192, 32, torch.float32),
    )

    def inputs(seed: int, entries: int, dim: int, bags: int, length: int, dtype: torch.dtype) -> Arguments:
        offsets = torch.arange(0, bags * length, length, device="cuda")
        return (
            random_tensor(seed, entries, dim, dtype=dtype),
            random_indices(seed, entries, bags * length),
            offsets,
        )

    return [
        Case(
            op="embedding_bag", model=model, shape=f"{bags}x{length}x{dim}",
            bytes=float(bags * (length + 1) * dim * dtype.itemsize + 8 * bags * (length + 1)),
            flops=1.0 * bags * length * dim,
            inputs=lambda seed, s=(entries, dim, bags, length, dtype): inputs(seed, *s),
            ours=lambda a, c: embedding_bag.embedding_bag(*a, config=c),
            peer=lambda a: F.embedding_bag(a[1], a[0], a[2], mode="sum"), peer_name="torch embedding_bag",
            expected=lambda a: embedding_bag.embedding_bag_reference(*a), space=embedding_bag.kernel.SPACE,
        )
        for model, entries, dim, bags, length, dtype in shapes
    ]  # fmt: skip


def adamw_cases() -> list[Case]:
    # One decoder layer's matrices: query, key, value, output, gate, up, down, two norms.
    def layer(hidden: int, kv: int, inner: int) -> tuple[int, ...]:
        return (hidden**2, hidden * kv, hidden * kv, hidden**2, *[hidden * inner] * 3, hidden, hidden)

    shapes = (
        ("Llama-3.2-1B layer", layer(2048, 512, 8192)),
        ("Qwen2.5-1.5B layer", layer(1536, 256, 8960)),
        ("Qwen2.5-7B layer", layer(3584, 512, 18944)),
        ("Llama-3.1-8B layer", layer(4096, 1024, 14336)),
        ("Llama-3.1-8B head", (4096 * 128256,)),
        (
            "GPT-2 all",
            tuple(n for _ in range(12) for n in (768 * 2304, 768**2, 768 * 3072, 768 * 3072, 768, 768)),
        ),
    )
    keywords = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}

    def inputs(seed: int, sizes: tuple[int, ...]) -> Arguments:
        lists = [
            [random_tensor(seed + 7 * i, n, dtype=torch.float32) for i, n in enumerate(sizes)]
            for _ in range(3)
        ]
        lists.append([tensor.square() for tensor in lists[2]])
        steps = [torch.full((), 10.0, device="cuda") for _ in sizes]
        return (*lists, adamw.plan_adamw(*lists), steps)

    def ours(a: Arguments, c: Config | None) -> Any:
        a[4].step(step=10, config=c, **keywords)
        return a[0], a[2], a[3]

    def peer(a: Arguments) -> Any:
        torch._fused_adamw_(*a[:4], [], a[5], amsgrad=False, maximize=False, **keywords)
        return a[0], a[2], a[3]

    def expected(a: Arguments) -> Any:
        lists = [[tensor.double() for tensor in tensors] for tensors in a[:4]]
        adamw.adamw_reference(*lists, step=10, **keywords)
        return lists[0], lists[2], lists[3]

    return [
        Case(
            op="adamw", model=model, shape=f"{len(sizes)} tensors, {sum(sizes) / 1e6:.0f}M", bytes=28.0 * sum(sizes),
            flops=15.0 * sum(sizes), inputs=lambda seed, sizes=sizes: inputs(seed, sizes), ours=ours, peer=peer,
            peer_name="torch fused AdamW", expected=expected, tolerance=1e-5, space=adamw.kernel.SPACE,
        )
        for model, sizes in shapes
    ]  # fmt: skip


OPERATIONS: dict[str, Callable[[], list[Case]]] = {
    "rmsnorm": rmsnorm_cases,
    "add_rmsnorm": add_rmsnorm_cases,
    "rmsnorm_backward": rmsnorm_backward_cases,
    "softmax": softmax_cases,
    "cross_entropy": cross_entropy_cases,
    "cross_entropy_backward": cross_entropy_backward_cases,
    "swiglu": swiglu_cases,
    "rope": rope_cases,
    "flash_attention": attention_cases,
    "flash_attention_backward": attention_backward_cases,
    "paged_decode": decode_cases,
    "embedding_bag": embedding_bag_cases,
    "adamw": adamw_cases,
    "fp8_gemm": fp8_gemm_cases,
    "fp8_gemm_exact": lambda: fp8_gemm_cases(fast=False),
}


def tuning_cases(op: str) -> list[Case]:
    """The cases whose configurations are swept: for attention's backward pass, one per kernel and shape."""
    if op == "flash_attention_backward":
        parts = {part: attention_backward_cases(part) for part in ("keys", "queries")}
        return [replace(case, op=f"{op}.{part}") for part, cases in parts.items() for case in cases]
    return OPERATIONS[op]()
