"""Attention, paged decode and FP8 products against float64 references."""

import pytest
import torch

from .comparing import DTYPES, TOLERANCE, check_with_gradients, random, relative_error


@pytest.fixture
def small_blocks(device: torch.device) -> object:
    """Blocks so small that short sequences need several, full and partial; our own choice on a GPU."""
    from kernels.common import config
    from kernels.flash_attention import Tuning

    if device.type == "cuda":
        return Tuning()
    tall, wide = (config(BLOCK_M=m, BLOCK_N=n, num_warps=4, num_stages=1) for m, n in ((32, 16), (16, 32)))
    return Tuning(forward=tall, keys=wide, queries=tall)


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("lengths", [(40, 40), (17, 53), (50, 21)], ids=str)
def test_attention(
    device: torch.device,
    generator: torch.Generator,
    small_blocks: object,
    dtype: torch.dtype,
    causal: bool,
    lengths: tuple[int, int],
) -> None:
    """Grouped heads, more or fewer queries than keys: some rows of the causal mask see no key."""
    from kernels.flash_attention import attention_reference, fallback_reason, flash_attention

    queries, keys = (length * 13 if device.type == "cuda" else length for length in lengths)
    dim = 64 if device.type == "cuda" else 16
    q = random(generator, 2, 4, queries, dim, dtype=dtype)
    k, v = (random(generator, 2, 2, keys, dim, dtype=dtype) for _ in range(2))
    assert fallback_reason(q, k, v) is None
    check_with_gradients(
        lambda *a: [flash_attention(*a, causal=causal, tuning=small_blocks)],  # type: ignore[arg-type]
        lambda *a: [attention_reference(*a, causal=causal)],
        [q, k, v],
        TOLERANCE[dtype],
    )


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_packed_attention_keeps_sequences_apart(
    device: torch.device,
    generator: torch.Generator,
    small_blocks: object,
    dtype: torch.dtype,
    causal: bool,
) -> None:
    from kernels.flash_attention import flash_attention_varlen, varlen_attention_reference

    q_starts = torch.tensor([0, 5, 5, 30], device=device)  # the second sequence has no queries
    k_starts = torch.tensor([0, 9, 12, 50], device=device)
    q = random(generator, 30, 4, 32, dtype=dtype)
    k, v = (random(generator, 50, 2, 32, dtype=dtype) for _ in range(2))

    def ours(*a: torch.Tensor) -> list[torch.Tensor]:
        y = flash_attention_varlen(
            *a,
            q_starts,
            k_starts,
            max_queries=25,
            max_keys=38,
            causal=causal,
            tuning=small_blocks,  # type: ignore[arg-type]
        )
        return [y]

    def reference(*a: torch.Tensor) -> list[torch.Tensor]:
        return [varlen_attention_reference(*a, q_starts, k_starts, causal=causal)]

    check_with_gradients(ours, reference, [q, k, v], TOLERANCE[dtype])


def test_attention_reads_tokens_first_layout_and_large_scores(
    device: torch.device, generator: torch.Generator, small_blocks: object
) -> None:
    from kernels.flash_attention import attention_reference, flash_attention

    q, k, v = (random(generator, 1, 40, 2, 16, scale=20.0).detach().transpose(1, 2) for _ in range(3))
    y = flash_attention(q, k, v, tuning=small_blocks)  # type: ignore[arg-type]
    assert relative_error(y, attention_reference(q.double(), k.double(), v.double())) <= 1e-4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("splits", [1, 3, None])
@pytest.mark.parametrize("heads", [(6, 2), (4, 4)], ids=str)
def test_paged_decode(
    device: torch.device,
    generator: torch.Generator,
    dtype: torch.dtype,
    splits: int | None,
    heads: tuple[int, int],
) -> None:
    """Sequences of unequal length, one of them empty, over pages in random order."""
    from kernels.common import config
    from kernels.paged_decode import fallback_reason, paged_decode, paged_decode_reference

    q = random(generator, 3, heads[0], 16, dtype=dtype).detach()
    k, v = (random(generator, 20, 4, heads[1], 16, dtype=dtype).detach() for _ in range(2))
    table = torch.randperm(20, device=device, generator=generator)[:18].view(3, 6).to(torch.int32)
    lengths = torch.tensor([23, 0, 9], device=device)
    assert fallback_reason(q, k, v) is None
    small = config(BLOCK_N=16, num_warps=4, num_stages=2)
    y = paged_decode(q, k, v, table, lengths, max_length=23, splits=splits, config=small)
    expected = paged_decode_reference(q.double(), k.double(), v.double(), table, lengths)
    assert relative_error(y, expected) <= TOLERANCE[dtype]
    assert not y[1].any()


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "exact"])
@pytest.mark.parametrize("per_row", [True, False], ids=["rows", "tensor"])
def test_fp8_gemm(device: torch.device, generator: torch.Generator, fast: bool, per_row: bool) -> None:
    from kernels.common import config
    from kernels.fp8_gemm import fallback_reason, fp8_gemm, fp8_gemm_reference

    a, b = (random(generator, rows, 96).detach().to(torch.float8_e4m3fn) for rows in (50, 72))
    if fallback_reason(a, b):
        pytest.skip(f"no FP8 kernel here: {fallback_reason(a, b)}")
    scales = [torch.rand(rows if per_row else 1, device=device) + 0.5 for rows in (50, 72)]
    small = config(BLOCK_M=64, BLOCK_N=32, BLOCK_K=32, PERSISTENT=1, num_warps=4, num_stages=1)
    y = fp8_gemm(a, b, *scales, fast_accumulation=fast, config=small)
    wide = fp8_gemm_reference(a, b, *[s.double() for s in scales], out_dtype=torch.float64)
    assert relative_error(y, wide) <= 5e-3
