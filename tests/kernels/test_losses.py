"""Cross-entropy, embedding bag and AdamW against float64 references, and a model that trains on our kernels."""

import pytest
import torch

from .comparing import DTYPES, TOLERANCE, check_with_gradients, random, relative_error


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(
    device: torch.device, generator: torch.Generator, dtype: torch.dtype, reduction: str
) -> None:
    from kernels.cross_entropy import cross_entropy, cross_entropy_reference, fallback_reason

    for columns in (5, 2999):
        logits = random(generator, 5, columns, dtype=dtype, scale=3.0)
        targets = torch.tensor([3, -100, columns - 1, 0, 1], device=device)
        assert fallback_reason(logits) is None
        check_with_gradients(
            lambda x, targets=targets: [cross_entropy(x, targets, reduction=reduction)],
            lambda x, targets=targets: [cross_entropy_reference(x, targets, reduction=reduction)],
            [logits],
            TOLERANCE[dtype],
        )


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
def test_cross_entropy_of_extreme_rows(device: torch.device) -> None:
    from kernels.cross_entropy import cross_entropy

    logits = torch.zeros(3, 5000, device=device)
    logits[0] = 1e30
    logits[1, 1:] = float("-inf")
    logits[2, :100] = float("-inf")
    losses = cross_entropy(logits, torch.tensor([4, 0, 4999], device=device), reduction="none")
    torch.testing.assert_close(losses[1:], torch.tensor([1.0, 4900.0], device=device).log())
    assert losses[0].isfinite()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_linear_cross_entropy_in_chunks(
    device: torch.device,
    generator: torch.Generator,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import kernels.cross_entropy as ours

    monkeypatch.setattr(ours, "_CHUNK_BYTES", 2 * 60 * 4)
    x, weight = random(generator, 7, 24, dtype=dtype), random(generator, 60, 24, dtype=dtype, scale=0.3)
    targets = torch.tensor([0, 59, -100, 7, 7, 30, 1], device=device)
    check_with_gradients(
        lambda *a: [ours.linear_cross_entropy(*a, targets)],
        lambda *a: [ours.linear_cross_entropy_reference(*a, targets)],
        [x, weight],
        2 * TOLERANCE[dtype],
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [1, 70, 1100])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bag(
    device: torch.device, generator: torch.Generator, dtype: torch.dtype, dim: int, mode: str
) -> None:
    from kernels.embedding_bag import embedding_bag, embedding_bag_reference, fallback_reason

    weight = random(generator, 50, dim, dtype=dtype)
    indices = torch.randint(0, 50, (60,), device=device, generator=generator)
    offsets = torch.tensor([0, 0, 5, 33, 60], device=device)  # the first and the last bag are empty
    assert fallback_reason(weight, indices, offsets) is None
    check_with_gradients(
        lambda w: [embedding_bag(w, indices, offsets, mode=mode)],
        lambda w: [embedding_bag_reference(w, indices, offsets, mode=mode)],
        [weight],
        TOLERANCE[dtype],
    )


def test_embedding_bag_weighs_samples(device: torch.device, generator: torch.Generator) -> None:
    from kernels.embedding_bag import embedding_bag

    weight = random(generator, 10, 8).detach()
    indices, offsets = torch.tensor([1, 2, 9], device=device), torch.tensor([0, 2], device=device)
    samples = torch.tensor([2.0, -1.0, 0.5], device=device)
    y = embedding_bag(weight, indices, offsets, per_sample_weights=samples)
    expected = torch.stack([2 * weight[1] - weight[2], 0.5 * weight[9]])
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_adamw_steps_many_tensors(
    device: torch.device, generator: torch.Generator, dtype: torch.dtype
) -> None:
    from kernels.adamw import adamw_reference, plan_adamw

    sizes = (1, 10, 8192, 9001)
    params, grads = ([random(generator, size, dtype=dtype).detach() for size in sizes] for _ in range(2))
    moments = [[torch.zeros(size, device=device) for size in sizes] for _ in range(2)]
    wide = [[tensor.double() for tensor in tensors] for tensors in (params, grads, *moments)]
    plan = plan_adamw(params, grads, *moments)
    assert plan.tables is not None
    for step in (1, 2, 3):
        plan.step(step=step, lr=0.05)
        adamw_reference(*wide, step=step, lr=0.05)
    for ours, expected in zip((params, *moments), (wide[0], *wide[2:]), strict=True):
        # All tensors at once: a single parameter can cancel to almost nothing, and its rounding with it would not.
        assert relative_error(torch.cat(ours), torch.cat(expected)) <= 2 * TOLERANCE[dtype]


def test_a_model_converges_on_our_kernels_as_on_torch(device: torch.device) -> None:
    """Embedding bag, norm, SwiGLU and loss trained by our AdamW: the loss follows that of torch's own parts."""
    from kernels.adamw import plan_adamw
    from kernels.cross_entropy import cross_entropy
    from kernels.embedding_bag import embedding_bag
    from kernels.rmsnorm import rmsnorm
    from kernels.swiglu import swiglu

    generator = torch.Generator().manual_seed(0)
    shapes = ((40, 16), (16,), (48, 16), (10, 24))
    start = [torch.randn(shape, generator=generator) * 0.5 for shape in shapes]
    words = torch.randint(0, 40, (96,), generator=generator).to(device)
    offsets = torch.arange(0, 96, 4, device=device)
    targets = torch.randint(0, 10, (24,), generator=generator).to(device)

    def ours(table: torch.Tensor, norm: torch.Tensor, up: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        hidden = rmsnorm(embedding_bag(table, words, offsets), norm)
        return cross_entropy(swiglu(*(hidden @ up.T).chunk(2, dim=-1)) @ out.T, targets)

    def torchs(table: torch.Tensor, norm: torch.Tensor, up: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        bags = torch.nn.functional.embedding_bag(words, table, offsets, mode="sum")
        hidden = torch.nn.functional.rms_norm(bags, norm.shape, norm, 1e-6)
        gate, value = (hidden @ up.T).chunk(2, dim=-1)
        return torch.nn.functional.cross_entropy((torch.nn.functional.silu(gate) * value) @ out.T, targets)

    left = [tensor.clone().to(device).requires_grad_() for tensor in start]
    right = [tensor.clone().to(device).requires_grad_() for tensor in start]
    moments = [[torch.zeros_like(tensor) for tensor in left] for _ in range(2)]
    optimizer = torch.optim.AdamW(right, lr=0.02, weight_decay=0.01)
    for step in range(1, 31):
        loss, expected = ours(*left), torchs(*right)
        torch.testing.assert_close(loss, expected, rtol=2e-3, atol=2e-4)
        grads = list(torch.autograd.grad(loss, left))
        with torch.no_grad():
            plan_adamw([t.detach() for t in left], grads, *moments).step(step=step, lr=0.02)
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.2
