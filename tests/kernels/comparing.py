"""How close a kernel must come to its reference in float64, and what to compare."""

from collections.abc import Callable, Sequence

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Relative errors of whole tensors: the rounding of one result, and a few roundings in between.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """‖found - expected‖ / ‖expected‖; infinite for NaN or another shape."""
    if found.shape != expected.shape:
        return float("inf")
    wide = expected.double()
    error = float(((found.double() - wide).norm() / wide.norm().clamp(min=1e-30)).detach())
    return error if error == error else float("inf")


def random(
    generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0
) -> torch.Tensor:
    values = torch.randn(shape, device=generator.device, generator=generator) * scale
    return values.to(dtype).requires_grad_()


def check_with_gradients(
    ours: Callable[..., Sequence[torch.Tensor]],
    reference: Callable[..., Sequence[torch.Tensor]],
    inputs: Sequence[torch.Tensor],
    tolerance: float,
) -> None:
    """Outputs, and gradients of a random weighting of them, against the reference on float64 copies."""
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    found, expected = ours(*inputs), reference(*wide)
    for index, (left, right) in enumerate(zip(found, expected, strict=True)):
        assert relative_error(left, right) <= tolerance, f"output {index}"
    weights = [torch.randn_like(right) for right in expected]
    gradients = torch.autograd.grad(
        sum((left.double() * weight).sum() for left, weight in zip(found, weights, strict=True)), inputs
    )
    expected_gradients = torch.autograd.grad(
        sum((right * weight).sum() for right, weight in zip(expected, weights, strict=True)), wide
    )
    for index, (left, right) in enumerate(zip(gradients, expected_gradients, strict=True)):
        assert relative_error(left, right) <= 2 * tolerance, f"gradient of input {index}"
