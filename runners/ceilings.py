"""What this GPU reaches: copy bandwidth and matrix rates per dtype, measured in the launch that uses them."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

COPY_BYTES = 1 << 30
MATRIX = 8192
MATRIX_FP32 = 4096
_WARM = 3
_REPEATS = 7


@dataclass(frozen=True)
class Ceilings:
    """copy_bytes_per_s: a large device-to-device copy, bytes read plus bytes written. flops_per_s: by dtype."""

    copy_bytes_per_s: float
    flops_per_s: dict[str, float]
    l2_bytes: int

    def floor_s(self, *, bytes_moved: float, flops: float, dtypes: Iterable[str]) -> float:
        """Roofline time of one call: the larger of both terms, with the fastest rate among `dtypes`."""
        rates = [self.flops_per_s[name] for name in dtypes if name in self.flops_per_s]
        rate = max(rates or self.flops_per_s.values(), default=0.0)
        return max(bytes_moved / self.copy_bytes_per_s, flops / rate if rate else 0.0)

    def as_wire(self) -> dict[str, Any]:
        return asdict(self)


@functools.cache
def measured() -> Ceilings:
    """Measure once per process, about 0.2 s. Call before candidate code is imported."""
    import torch

    ceilings = Ceilings(_copy(), _rates(), int(torch.cuda.get_device_properties(0).L2_cache_size))
    torch.cuda.empty_cache()
    return ceilings


def _copy() -> float:
    import torch

    source = torch.ones(COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / _median_s(lambda: target.copy_(source))


def _rates() -> dict[str, float]:
    """FLOP/s of a square product, on random data (zeros run faster, at less power)."""
    import torch

    rates = {}
    for name, size in (("bfloat16", MATRIX), ("float16", MATRIX), ("float32", MATRIX_FP32)):
        left = torch.randn(size, size, device="cuda").to(getattr(torch, name))
        out = torch.empty_like(left)
        rates[name] = 2 * size**3 / _median_s(functools.partial(torch.mm, left, left, out=out))
    if torch.cuda.get_device_capability() >= (8, 9):
        left = torch.randn(MATRIX, MATRIX, device="cuda").to(torch.float8_e4m3fn)
        one = torch.ones((), device="cuda")
        product = functools.partial(
            torch._scaled_mm, left, left.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )
        rates["float8_e4m3fn"] = 2 * MATRIX**3 / _median_s(product)
    return rates


def _median_s(work: Callable[[], object]) -> float:
    import torch

    event: Any = torch.cuda.Event
    samples = []
    for _ in range(_WARM + _REPEATS):
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        samples.append(float(start.elapsed_time(end)) * 1e-3)
    return statistics.median(samples[_WARM:])
