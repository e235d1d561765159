"""The SM clock over a stretch of work, counted on the device itself.

NVML's reading is an average over tens of milliseconds; a power-capped matrix product changes clock faster. Here
a kernel of one thread stamps (SM, cycle counter, nanosecond timer) before and after: the cycles of one SM over
the nanoseconds between are its clock. Two stamps count only when both ran on the same SM.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

# SM id, %clock64, %globaltimer.
_FIELDS = 3


@triton.jit
def _stamp(out):  # type: ignore[no-untyped-def]
    """Write the three counters to `out` (int64). One program of one warp."""
    sm = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    cycles = tl.inline_asm_elementwise(
        "mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )
    time_ns = tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )
    tl.store(out, sm.to(tl.int64))
    tl.store(out + 1, cycles)
    tl.store(out + 2, time_ns)


class ClockCounter:
    """Stamps on the current stream; read after a synchronisation."""

    def __init__(self, capacity: int) -> None:
        """Room for `capacity` intervals; their oldest are overwritten after that."""
        self._capacity = capacity
        self._stamps = torch.zeros((capacity, 2, _FIELDS), dtype=torch.int64, device="cuda")
        # Compiled here, outside of what is timed.
        self.begin(0)
        self.end(0)

    def begin(self, interval: int) -> None:
        """Stamp the start of an interval."""
        _stamp[(1,)](self._stamps[interval % self._capacity, 0], num_warps=1)

    def end(self, interval: int) -> None:
        """Stamp its end."""
        _stamp[(1,)](self._stamps[interval % self._capacity, 1], num_warps=1)

    def mhz(self, count: int) -> list[float | None]:
        """SM clock of the first `count` intervals; None where the two stamps ran on different SMs."""
        rows: list[Any] = self._stamps[:count].tolist()
        return [interval_mhz(*row) for row in rows]


def interval_mhz(begin: list[int], end: list[int]) -> float | None:
    """SM clock between two stamps (SM, cycles, nanoseconds); None across SMs or without time between."""
    duration_ns = end[2] - begin[2]
    if begin[0] != end[0] or duration_ns <= 0:
        return None
    return (end[1] - begin[1]) / duration_ns * 1e3
