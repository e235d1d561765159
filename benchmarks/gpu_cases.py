"""Cases for `benchmarks/timing.py`: shapes like those of the H200 data, and the same with a little more work.

Each op is `inputs_<op>` -> arguments, `<op>` and `<op>_reference`. More work is more rows (or a longer inner
dimension for the product), so that a planted +3 % is 3 % of real work and no sleep.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn import functional


def _normal(*shape: int, seed: int, device: str, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=device).to(dtype)


def inputs_softmax(seed: int, device: str, rows: int, cols: int) -> tuple[Any, ...]:
    return (_normal(rows, cols, seed=seed, device=device, dtype=torch.float32),)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def inputs_rmsnorm(seed: int, device: str, rows: int, cols: int) -> tuple[Any, ...]:
    x = _normal(rows, cols, seed=seed, device=device, dtype=torch.bfloat16)
    return x, _normal(cols, seed=seed + 1, device=device, dtype=torch.bfloat16)


@triton.jit
def _rmsnorm_kernel(x, weight, out, cols, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    values = tl.load(x + row * cols + offsets, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / cols + 1e-6)
    gain = tl.load(weight + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * cols + offsets, (values * scale * gain).to(tl.bfloat16), mask=mask)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    _rmsnorm_kernel[(x.shape[0],)](
        x, weight, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8
    )
    return out


def rmsnorm_reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


def inputs_gemm(seed: int, device: str, m: int, n: int, k: int) -> tuple[Any, ...]:
    left = _normal(m, k, seed=seed, device=device, dtype=torch.bfloat16)
    return left, _normal(k, n, seed=seed + 1, device=device, dtype=torch.bfloat16)


def gemm(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return left @ right


def inputs_attention(seed: int, device: str, heads: int, queries: int, keys: int) -> tuple[Any, ...]:
    shapes = ((1, heads, queries, 128), (1, heads, keys, 128), (1, heads, keys, 128))
    return tuple(
        _normal(*shape, seed=seed + i, device=device, dtype=torch.bfloat16) for i, shape in enumerate(shapes)
    )


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(query, key, value, is_causal=query.shape[2] > 1)


def inputs_embedding_bag(seed: int, device: str, bags: int) -> tuple[Any, ...]:
    generator = torch.Generator(device=device).manual_seed(seed)
    table = _normal(200_000, 128, seed=seed + 1, device=device, dtype=torch.float32)
    index = torch.randint(0, table.shape[0], (bags, 32), generator=generator, device=device)
    return table, index


def embedding_bag(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return functional.embedding_bag(index, table, mode="sum")


def inputs_add(seed: int, device: str, count: int) -> tuple[Any, ...]:
    left = _normal(count, seed=seed, device=device, dtype=torch.float32)
    return left, _normal(count, seed=seed + 1, device=device, dtype=torch.float32)


def add(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return left + right


# name -> (op, params). `name@+X` does X % more work than `name`.
CASES: dict[str, tuple[str, dict[str, int]]] = {
    "softmax.8192x4096": ("softmax", {"rows": 8192, "cols": 4096}),
    "softmax.8192x4096@+3": ("softmax", {"rows": 8438, "cols": 4096}),
    "rmsnorm.8192x4096": ("rmsnorm", {"rows": 8192, "cols": 4096}),
    "rmsnorm.8192x4096@+1": ("rmsnorm", {"rows": 8274, "cols": 4096}),
    "rmsnorm.8192x4096@+3": ("rmsnorm", {"rows": 8438, "cols": 4096}),
    "gemm.4096": ("gemm", {"m": 4096, "n": 4096, "k": 4096}),
    "gemm.4096@+3": ("gemm", {"m": 4096, "n": 4096, "k": 4224}),
    "embbag.16384": ("embedding_bag", {"bags": 16384}),
    "embbag.16384@+3": ("embedding_bag", {"bags": 16876}),
    "rmsnorm.1024x4096": ("rmsnorm", {"rows": 1024, "cols": 4096}),
    "small.1M": ("add", {"count": 1 << 20}),
    "gemm.8192": ("gemm", {"m": 8192, "n": 8192, "k": 8192}),
    "gemm.skinny16": ("gemm", {"m": 16, "n": 8192, "k": 8192}),
    "attn.prefill4k": ("attention", {"heads": 32, "queries": 4096, "keys": 4096}),
    "attn.decode8k": ("attention", {"heads": 256, "queries": 1, "keys": 8192}),
}
PLANTED = {
    "softmax.8192x4096@+3": "softmax.8192x4096",
    "rmsnorm.8192x4096@+1": "rmsnorm.8192x4096",
    "rmsnorm.8192x4096@+3": "rmsnorm.8192x4096",
    "gemm.4096@+3": "gemm.4096",
    "embbag.16384@+3": "embbag.16384",
}
REFERENCES = {
    "softmax": "softmax",
    "rmsnorm": "rmsnorm_reference",
    "gemm": "gemm",
    "attention": "attention",
    "embedding_bag": "embedding_bag",
    "add": "add",
}


def profile_one(name: str, *, calls: int) -> None:
    """Call the case `calls` times between profiler marks, on inputs of their own, for Nsight Compute's eyes.

    Outputs are kept, so that each call writes to other memory, as in the runner's graph.
    """
    op, params = CASES[name]
    made = [globals()[f"inputs_{op}"](seed=i, device="cuda", **params) for i in range(calls)]
    function = globals()[op]
    kept = [function(*args) for args in made[:3]]
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for i in range(calls):
        kept.append(function(*made[i]))
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    import sys

    for wanted in sys.argv[2:]:
        print(f"case {wanted}", flush=True)
        profile_one(wanted, calls=int(sys.argv[1]))
