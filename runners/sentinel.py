"""A fixed control benchmark beside every launch: when it moves, the machine moved and not the code.

A matrix product, a copy and a launch-latency probe. Nothing of the project's code takes part. Below 0.3 s.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

REPEATS = 7
_CPU_PRODUCT_SIZE = 44
_CPU_COPY_BYTES = 16 * 2**20
_CPU_ROUND_TRIPS = 500
_GPU_PRODUCT_SIZE = 4096
_GPU_COPY_BYTES = 256 * 2**20
_GPU_WARM = 3
_GPU_REPEATS = 40


def measure(device: str) -> dict[str, float]:
    """Medians in seconds of "product_s", "copy_s" and "launch_s" on `device` ("cpu" or "cuda")."""
    return _measure_cuda() if device == "cuda" else _measure_cpu()


def _measure_cpu() -> dict[str, float]:
    """In pure Python, so that it says the same on a machine without torch or numpy."""
    size = _CPU_PRODUCT_SIZE
    left = [[float(i * j % 7) for j in range(size)] for i in range(size)]
    columns = list(zip(*left, strict=True))

    def product() -> None:
        for row in left:
            for column in columns:
                sum(map(float.__mul__, row, column))

    source = bytearray(os.urandom(4096) * (_CPU_COPY_BYTES // 4096))
    target = bytearray(_CPU_COPY_BYTES)

    def copy() -> None:
        target[:] = source

    reader, writer = os.pipe()

    def round_trips() -> None:
        for _ in range(_CPU_ROUND_TRIPS):
            os.write(writer, b"x")
            os.read(reader, 1)

    try:
        return {
            "product_s": _median_s(product),
            "copy_s": _median_s(copy),
            "launch_s": _median_s(round_trips) / _CPU_ROUND_TRIPS,
        }
    finally:
        os.close(reader)
        os.close(writer)


def _median_s(work: Callable[[], None]) -> float:
    work()
    samples = []
    for _ in range(REPEATS):
        start = perf_counter_ns()
        work()
        samples.append((perf_counter_ns() - start) * 1e-9)
    return statistics.median(samples)


def _measure_cuda() -> dict[str, float]:
    import torch

    values = _cuda_probes()
    torch.cuda.empty_cache()
    return values


def _cuda_probes() -> dict[str, float]:
    import torch

    generator = torch.Generator(device="cuda").manual_seed(0)
    shape = (_GPU_PRODUCT_SIZE, _GPU_PRODUCT_SIZE)
    left = torch.randn(shape, device="cuda", dtype=torch.bfloat16, generator=generator)
    out = torch.empty_like(left)
    source = torch.empty(_GPU_COPY_BYTES, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    one = torch.zeros(1, device="cuda")

    def launch_and_wait() -> None:
        one.add_(1)
        torch.cuda.synchronize()

    return {
        "product_s": _event_median_s(lambda: torch.mm(left, left, out=out)),
        "copy_s": _event_median_s(lambda: target.copy_(source)),
        "launch_s": _median_s(launch_and_wait),
    }


def _event_median_s(work: Callable[[], object]) -> float:
    import torch

    event: Any = torch.cuda.Event
    samples: list[float] = []
    for _ in range(_GPU_WARM + _GPU_REPEATS):
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        samples.append(float(start.elapsed_time(end)) * 1e-3)
    return statistics.median(samples[_GPU_WARM:])
