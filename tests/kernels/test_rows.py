"""RMSNorm, softmax, SwiGLU and RoPE against float64 references, with gradients."""

import pytest
import torch

from .comparing import DTYPES, TOLERANCE, check_with_gradients, random, relative_error

# One column, odd, a power of two, just past one, and past what one program holds.
SHAPES = ((3, 1), (5, 77), (2, 3, 256), (4, 1025))
CUDA_SHAPES = ((1000, 4096), (333, 5120), (7, 18432))
WIDE = (2, 33000)


def shapes(device: torch.device) -> tuple[tuple[int, ...], ...]:
    return (*SHAPES, *CUDA_SHAPES) if device.type == "cuda" else SHAPES


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rmsnorm(device: torch.device, generator: torch.Generator, dtype: torch.dtype) -> None:
    from kernels.rmsnorm import fallback_reason, rmsnorm, rmsnorm_reference

    for shape in (*shapes(device)[1:], WIDE):  # of one column the gradient is zero but for eps
        x, weight = random(generator, *shape, dtype=dtype), random(generator, shape[-1], dtype=dtype)
        assert fallback_reason(x, weight) is None
        check_with_gradients(
            lambda *a: [rmsnorm(*a)], lambda *a: [rmsnorm_reference(*a)], [x, weight], TOLERANCE[dtype]
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_add_rmsnorm_gives_both_outputs_and_their_gradients(
    device: torch.device, generator: torch.Generator, dtype: torch.dtype
) -> None:
    from kernels.rmsnorm import add_rmsnorm, add_rmsnorm_reference

    for shape in (*shapes(device)[1:], WIDE):
        inputs = [random(generator, *size, dtype=dtype) for size in (shape, shape, shape[-1:])]
        check_with_gradients(add_rmsnorm, add_rmsnorm_reference, inputs, TOLERANCE[dtype])


def test_rmsnorm_of_extreme_rows(device: torch.device) -> None:
    from kernels.rmsnorm import rmsnorm

    weight = torch.ones(100, device=device)
    rows = torch.stack(
        [torch.zeros(100), torch.full((100,), 1e18), torch.full((100,), 1e-30), torch.full((100,), -3e4)]
    ).to(device)
    y = rmsnorm(rows, weight)
    assert torch.equal(y[0], torch.zeros_like(y[0]))
    torch.testing.assert_close(y[1], weight)
    torch.testing.assert_close(y[2], rows[2] * 1e3)
    torch.testing.assert_close(y[3], -weight)


def test_rmsnorm_reads_strided_rows(device: torch.device, generator: torch.Generator) -> None:
    from kernels.rmsnorm import rmsnorm, rmsnorm_reference

    x = random(generator, 6, 200).detach()[:, 50:150]
    weight = random(generator, 100).detach()
    assert relative_error(rmsnorm(x, weight), rmsnorm_reference(x.double(), weight.double())) <= 1e-6


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_softmax(device: torch.device, generator: torch.Generator, dtype: torch.dtype) -> None:
    from kernels.softmax import fallback_reason, softmax, softmax_reference

    for shape in (*shapes(device)[1:], WIDE):
        x = random(generator, *shape, dtype=dtype, scale=3.0)
        assert fallback_reason(x) is None
        check_with_gradients(
            lambda a: [softmax(a)], lambda a: [softmax_reference(a)], [x], 1.5 * TOLERANCE[dtype]
        )


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize("columns", [50, 33000])
def test_softmax_of_extreme_rows(device: torch.device, columns: int) -> None:
    from kernels.softmax import softmax

    infinity = float("inf")
    rows = torch.zeros(4, columns, device=device)
    rows[0] += 1e30
    rows[1, 1:] = -infinity
    rows[2, :] = -infinity
    rows[3, 7] = float("nan")
    y = softmax(rows)
    torch.testing.assert_close(y[0], torch.full((columns,), 1 / columns, device=device))
    assert y[1, 0] == 1
    assert y[1, 1:].sum() == 0
    assert y[2:].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("packed", [False, True], ids=["apart", "packed"])
def test_swiglu(device: torch.device, generator: torch.Generator, dtype: torch.dtype, packed: bool) -> None:
    from kernels.swiglu import fallback_reason, swiglu, swiglu_reference

    for shape in shapes(device):
        both = random(generator, *shape[:-1], 2 * shape[-1], dtype=dtype).detach()
        gate, up = both.chunk(2, dim=-1)
        if not packed:
            gate, up = gate.contiguous(), up.contiguous()
        assert fallback_reason(gate, up) is None
        inputs = [gate.requires_grad_(), up.requires_grad_()]
        check_with_gradients(
            lambda *a: [swiglu(*a)], lambda *a: [swiglu_reference(*a)], inputs, TOLERANCE[dtype]
        )


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
def test_swiglu_saturates_without_nan(device: torch.device) -> None:
    from kernels.swiglu import swiglu

    gate = torch.tensor([1e4, -1e4, 0.0], device=device)
    y = swiglu(gate, torch.full((3,), 2.0, device=device))
    assert y.tolist() == [2e4, 0.0, 0.0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("heads", [(4, 2), (7, 1)], ids=str)
def test_rope(
    device: torch.device, generator: torch.Generator, dtype: torch.dtype, heads: tuple[int, int]
) -> None:
    from kernels.rope import fallback_reason, rope, rope_reference

    q, k = (random(generator, 9, count, 32, dtype=dtype) for count in heads)
    angles = torch.arange(20, device=device)[:, None] * torch.rand(16, device=device)
    cos, sin = angles.cos(), angles.sin()
    positions = torch.tensor([3, 1, 4, 1, 5, 9, 2, 19, 0], device=device)
    assert fallback_reason(q, k, cos, sin) is None

    def ours(q: torch.Tensor, k: torch.Tensor) -> list[torch.Tensor]:
        done = rope(q, k, cos, sin, positions)
        return [done.q, done.k]

    check_with_gradients(
        ours, lambda *a: [rope_reference(x, cos, sin, positions) for x in a], [q, k], TOLERANCE[dtype]
    )
