"""Kernels that cheat or are broken, all of them in place of one honest row softmax.

Copied into a scratch project by the tests. Every function here must be caught by the runner.
"""

from __future__ import annotations

import builtins
import sys
import threading
import time
from typing import Any

import torch

CALLS: dict[str, int] = {}
KEPT: dict[object, torch.Tensor] = {}
REAL = {"perf_counter_ns": time.perf_counter_ns, "equal": torch.equal, "abs": builtins.abs}


def inputs(seed: int, device: str, rows: int, cols: int) -> tuple[torch.Tensor]:
    generator = torch.Generator(device=device).manual_seed(seed)
    return (torch.randn(rows, cols, device=device, generator=generator),)


def reference(x: torch.Tensor) -> Any:
    return torch.softmax(x, -1)


def work(rows: int, cols: int) -> dict[str, float]:
    return {"bytes": 8.0 * rows * cols, "flops": 5.0 * rows * cols}


def honest(x: torch.Tensor) -> Any:
    return torch.softmax(x, -1)


def _count(name: str) -> int:
    CALLS[name] = CALLS.get(name, 0) + 1
    return CALLS[name]


def works_only_at_first(x: torch.Tensor) -> Any:
    if _count("first") <= 8:
        KEPT["first"] = torch.softmax(x, -1)
    return KEPT["first"]


def wrong_now_and_then(x: torch.Tensor) -> Any:
    out = torch.softmax(x, -1)
    if _count("sometimes") % 9 == 0:
        out[0, 0] += 0.5
    return out


def kept_by_address(x: torch.Tensor) -> Any:
    if x.data_ptr() not in KEPT:
        KEPT[x.data_ptr()] = torch.softmax(x, -1)
    return KEPT[x.data_ptr()]


def kept_by_content(x: torch.Tensor) -> Any:
    key = ("content", float(x[0, 0]), float(x[-1, -1]))
    if key not in KEPT:
        time.sleep(0.02)
        KEPT[key] = torch.softmax(x, -1)
    return KEPT[key]


def zeros(x: torch.Tensor) -> Any:
    return torch.zeros_like(x)


def not_written(x: torch.Tensor) -> Any:
    return torch.empty_like(x)


def last_row_not_written(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    out[:-1] = torch.softmax(x[:-1], -1)
    return out


def not_a_number(x: torch.Tensor) -> Any:
    return torch.softmax(x, -1) * float("nan")


def returns_its_input(x: torch.Tensor) -> Any:
    return x


def writes_into_its_input(x: torch.Tensor) -> Any:
    return x.copy_(torch.softmax(x, -1))


def lower_precision(x: torch.Tensor) -> Any:
    return torch.softmax(x.bfloat16(), -1).float()


def half_precision(x: torch.Tensor) -> Any:
    return torch.softmax(x.half(), -1).float()


def other_dtype(x: torch.Tensor) -> Any:
    return torch.softmax(x, -1).double()


def other_shape(x: torch.Tensor) -> Any:
    return torch.softmax(x, -1).reshape(-1)


def other_type(x: torch.Tensor) -> Any:
    return [torch.softmax(x, -1)]


def slightly_scaled(x: torch.Tensor) -> Any:
    return torch.softmax(x, -1) * 1.001


def wrong_dimension(x: torch.Tensor) -> Any:
    return torch.softmax(x, 0)


def rows_exchanged(x: torch.Tensor) -> Any:
    return torch.softmax(x, -1).flip(0)


def wrong_on_odd_shapes(x: torch.Tensor) -> Any:
    even = x.shape[-1] // 8 * 8
    out = torch.zeros_like(x)
    out[:, :even] = torch.softmax(x[:, :even], -1)
    return out


def filled_later(x: torch.Tensor) -> Any:
    out = torch.zeros_like(x)

    def fill() -> None:
        time.sleep(0.05)
        out.copy_(torch.softmax(x, -1))

    threading.Thread(target=fill, daemon=True).start()
    return out


class Lazy(torch.Tensor):
    """Computes when somebody looks."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [
            torch.softmax(arg.as_subclass(torch.Tensor), -1) if isinstance(arg, cls) else arg for arg in args
        ]
        return function(*plain, **(kwargs or {}))


def lazy(x: torch.Tensor) -> Any:
    return x.as_subclass(Lazy)


def patches_the_clock(x: torch.Tensor) -> Any:
    time.perf_counter_ns = lambda: REAL["perf_counter_ns"]() // 1000
    return torch.softmax(x, -1)


def patches_the_harness(x: torch.Tensor) -> Any:
    timing = sys.modules["_perfdb_runners.timing"]
    timing.time_on_cpu.__defaults__ = timing.time_on_cpu.__kwdefaults__ = None
    timing.perf_counter_ns = lambda: 0
    return torch.softmax(x, -1)


def patches_the_judge(x: torch.Tensor) -> Any:
    judge = sys.modules["_perfdb_runners.subject"].Judge
    judge.examine = judge.recheck = lambda self, *args, **kwargs: 0
    return torch.zeros_like(x)


def patches_the_comparison(x: torch.Tensor) -> Any:
    torch.equal = lambda left, right: True
    return torch.softmax(x, -1)


def patches_tensors(x: torch.Tensor) -> Any:
    torch.Tensor.sum = lambda self, *args, **kwargs: 0.0
    return torch.softmax(x, -1)


def patches_builtins(x: torch.Tensor) -> Any:
    builtins.abs = lambda value: value * 0
    return torch.softmax(x, -1)


CHEATS = [
    works_only_at_first,
    wrong_now_and_then,
    kept_by_address,
    kept_by_content,
    zeros,
    not_written,
    last_row_not_written,
    not_a_number,
    returns_its_input,
    writes_into_its_input,
    lower_precision,
    half_precision,
    other_dtype,
    other_shape,
    other_type,
    slightly_scaled,
    wrong_dimension,
    rows_exchanged,
    wrong_on_odd_shapes,
    filled_later,
    lazy,
    patches_the_clock,
    patches_the_harness,
    patches_the_judge,
    patches_the_comparison,
    patches_tensors,
    patches_builtins,
]


# From here on only where there is a GPU.


def on_another_stream(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    with torch.cuda.stream(torch.cuda.Stream()):
        out.copy_(torch.softmax(x, -1))
    return out


def slowly_on_another_stream(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(2_000_000)
        out.copy_(torch.softmax(x, -1))
    return out


def waits_for_the_host(x: torch.Tensor) -> Any:
    return torch.softmax(x, -1) * float(x.isfinite().all().item())


def out_of_memory(x: torch.Tensor) -> Any:
    return torch.empty(2**40, device=x.device)


def endless(x: torch.Tensor) -> Any:
    torch.cuda._sleep(200_000_000_000)
    return torch.softmax(x, -1)


def out_of_bounds(x: torch.Tensor) -> Any:
    index = torch.full((4,), 2**40, dtype=torch.int64, device=x.device)
    return x.reshape(-1)[index]


GPU_CHEATS = [on_another_stream, slowly_on_another_stream]
