"""Peak memory over a stretch of work, on the device or of this process."""

from __future__ import annotations

from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


class PeakMemory:
    """Counts from its construction. CUDA: the allocator's peak. CPU: growth of the resident set's peak."""

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self._base_bytes = 0
        if self._cuda:
            import torch

            torch.cuda.reset_peak_memory_stats()
        else:
            _reset_peak()
            self._base_bytes = _status_bytes("VmRSS")

    def peak_bytes(self) -> int:
        """Bytes at the highest point since construction (on the CPU: above where it began)."""
        if self._cuda:
            import torch

            return int(torch.cuda.max_memory_allocated())
        return max(0, _status_bytes("VmHWM") - self._base_bytes)


def _reset_peak() -> None:
    """VmHWM starts again from the present size (5: proc(5), clear_refs). Without it the peak is an upper bound."""
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return


def _status_bytes(key: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0


def limit_device_memory(limit_bytes: int | None) -> None:
    """Hold torch's CUDA allocator to `limit_bytes` (None: all of the device). Beyond it torch raises its own error."""
    import torch

    total = int(torch.cuda.get_device_properties(0).total_memory)
    share = 1.0 if limit_bytes is None else min(1.0, limit_bytes / total)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(share)
