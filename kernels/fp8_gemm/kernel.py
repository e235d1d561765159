"""FP8 matrix product: tiles through tensor descriptors (the copy engine on Hopper), scales applied to the tile."""

from __future__ import annotations

import triton
import triton.language as tl

from ..common import Config, config

SPACE: tuple[Config, ...] = tuple(
    config(BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, PERSISTENT=persistent, num_warps=8, num_stages=stages)
    for m, n, k, stages in (
        (128, 256, 128, 3),
        (128, 256, 128, 4),
        (128, 128, 128, 4),
        (256, 128, 128, 3),
        (64, 256, 128, 4),
        (64, 128, 128, 5),
    )
    for persistent in (0, 1)
)


def choose(m: int, n: int, cores: int, *, fast_accumulation: bool) -> Config:
    """Large tiles where they still give every multiprocessor one; smaller ones below. Both by the sweep."""
    if -(-m // 128) * -(-n // 256) >= cores:
        if not fast_accumulation:
            return config(BLOCK_M=256, BLOCK_N=128, BLOCK_K=128, PERSISTENT=0, num_warps=8, num_stages=3)
        return config(BLOCK_M=128, BLOCK_N=256, BLOCK_K=128, PERSISTENT=1, num_warps=8, num_stages=3)
    return config(BLOCK_M=64, BLOCK_N=128, BLOCK_K=128, PERSISTENT=0, num_warps=4, num_stages=5)


@triton.jit
def fp8_gemm(
    a_desc,
    b_desc,
    scale_a_ptr,
    scale_b_ptr,
    out_desc,
    m,
    n,
    k,
    SCALE_A_ROWS: tl.constexpr,
    SCALE_B_ROWS: tl.constexpr,
    FAST_ACCUMULATION: tl.constexpr,
    GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PERSISTENT: tl.constexpr,
):
    """out = (a @ b.T) * scales. Programs walk the tiles in groups of GROUP_M rows of tiles, so that those running
    at one time share operands in the cache. Without FAST_ACCUMULATION partial sums of every BLOCK_K products leave
    the matrix unit's narrow accumulator for float32 registers."""
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    group = GROUP_M * tiles_n
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=PERSISTENT == 1):
        first = (tile // group) * GROUP_M
        members = min(tiles_m - first, GROUP_M)
        row = (first + (tile % group) % members) * BLOCK_M
        column = ((tile % group) // members) * BLOCK_N
        total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        for step in range(tl.cdiv(k, BLOCK_K)):
            a = a_desc.load([row, step * BLOCK_K])
            b = b_desc.load([column, step * BLOCK_K])
            if FAST_ACCUMULATION:  # noqa: SIM108  (a branch at compile time)
                total = tl.dot(a, b.T, total)
            else:
                total = tl.dot(a, b.T, total, max_num_imprecise_acc=BLOCK_K)
        if SCALE_A_ROWS:
            rows = row + tl.arange(0, BLOCK_M)
            total *= tl.load(scale_a_ptr + rows, mask=rows < m, other=0.0)[:, None]
        else:
            total *= tl.load(scale_a_ptr)
        if SCALE_B_ROWS:
            columns = column + tl.arange(0, BLOCK_N)
            total *= tl.load(scale_b_ptr + columns, mask=columns < n, other=0.0)[None, :]
        else:
            total *= tl.load(scale_b_ptr)
        out_desc.store([row, column], total.to(out_desc.dtype))
