"""What is refused with a message, and what falls back to the reference and says why."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def test_other_inputs_fall_back_to_the_reference_and_still_work(device: torch.device) -> None:
    from kernels import cross_entropy, rmsnorm, rope, softmax, swiglu
    from kernels import flash_attention as attention

    wide = torch.randn(4, 10, device=device, dtype=torch.float64)
    weight = torch.ones(10, device=device, dtype=torch.float64)
    assert rmsnorm.fallback_reason(wide, weight) == "dtype torch.float64"
    assert torch.equal(rmsnorm.rmsnorm(wide, weight), rmsnorm.rmsnorm_reference(wide, weight))
    assert torch.equal(softmax.softmax(wide), torch.softmax(wide, dim=-1))
    assert torch.equal(swiglu.swiglu(wide, wide), swiglu.swiglu_reference(wide, wide))
    empty = torch.empty(0, 10, device=device)
    assert cross_entropy.fallback_reason(empty) == "no elements"
    odd = torch.randn(3, 2, 12, device=device)
    table = torch.randn(5, 6, device=device)
    assert rope.fallback_reason(odd, odd, table, table) == "half a head of 6, no power of two"
    q = torch.randn(1, 2, 5, 80, device=device)
    assert attention.fallback_reason(q, q, q) == "head dimension 80"
    torch.testing.assert_close(attention.flash_attention(q, q, q), attention.attention_reference(q, q, q))


def test_impossible_inputs_are_refused_by_name(device: torch.device) -> None:
    from kernels import adamw, cross_entropy, embedding_bag, fp8_gemm, paged_decode, rmsnorm
    from kernels import flash_attention as attention
    from kernels.common import KernelInputError

    x = torch.randn(4, 10, device=device)
    with pytest.raises(KernelInputError, match=r"weight has shape \(9,\), expected \(10,\)"):
        rmsnorm.rmsnorm(x, torch.ones(9, device=device))
    with pytest.raises(KernelInputError, match=r"residual has dtype torch\.float16"):
        rmsnorm.add_rmsnorm(x, x.half(), torch.ones(10, device=device))
    with pytest.raises(KernelInputError, match="reduction is 'max'"):
        cross_entropy.cross_entropy(x, torch.zeros(4, dtype=torch.int64, device=device), reduction="max")
    with pytest.raises(KernelInputError, match=r"targets has shape \(3,\)"):
        cross_entropy.cross_entropy(x, torch.zeros(3, dtype=torch.int64, device=device))
    heads = [torch.randn(1, n, 4, 16, device=device) for n in (3, 2, 2)]
    with pytest.raises(KernelInputError, match="q has 3 heads, expected a multiple of the 2"):
        attention.flash_attention(*heads)
    index = torch.zeros(1, dtype=torch.int64, device=device)
    with pytest.raises(KernelInputError, match="mode is 'max'"):
        embedding_bag.embedding_bag(x, index, index, mode="max")
    with pytest.raises(KernelInputError, match=r"grads\[0\] has shape \(2,\)"):
        adamw.adamw_step([x], [torch.zeros(2, device=device)], [x], [x], step=1, lr=0.1)
    with pytest.raises(KernelInputError, match=r"a has dtype torch\.float32"):
        fp8_gemm.fp8_gemm(x, x, x[0, :1], x[0, :1])
    q, cache = torch.randn(1, 2, 16, device=device), torch.randn(2, 4, 2, 16, device=device)
    table = torch.zeros(1, 1, dtype=torch.int32, device=device)
    with pytest.raises(KernelInputError, match="lengths has shape"):
        paged_decode.paged_decode(q, cache, cache, table, table, max_length=1)


def test_every_tuning_space_is_explicit_and_without_repeats(device: torch.device) -> None:
    from kernels import (
        adamw,
        cross_entropy,
        embedding_bag,
        fp8_gemm,
        paged_decode,
        rmsnorm,
        rope,
        softmax,
        swiglu,
    )
    from kernels.flash_attention import backward_kernel, kernel

    spaces = [
        module.kernel.SPACE
        for module in (
            rmsnorm,
            softmax,
            cross_entropy,
            swiglu,
            rope,
            paged_decode,
            embedding_bag,
            adamw,
            fp8_gemm,
        )
    ]
    spaces += [kernel.SPACE, backward_kernel.KEYS_SPACE, backward_kernel.QUERIES_SPACE]
    for space in spaces:
        assert len(space) == len(set(space)) >= 5


def test_the_package_loads_under_another_name(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness loads it beside a project's own `kernels`: every import inside must be relative."""
    folder = ROOT / "kernels"
    spec = importlib.util.spec_from_file_location(
        "renamed_kernels", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "renamed_kernels", module)
    monkeypatch.setitem(sys.modules, "kernels", None)  # importing it raises ImportError
    spec.loader.exec_module(module)
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts[-1] != "__init__":
            importlib.import_module(".".join(("renamed_kernels", *parts)))
    for name in [name for name in sys.modules if name.startswith("renamed_kernels.")]:
        monkeypatch.delitem(sys.modules, name)
