"""Readings of one GPU through NVML (package nvidia-ml-py). Nothing here changes a setting."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

# nvmlClocksEventReason*: bits of the driver's interface, by the words of its documentation.
EVENT_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
_VIOLATIONS = {
    "power": 0,
    "thermal": 1,
    "sync_boost": 2,
    "board_limit": 3,
    "low_utilization": 4,
    "reliability": 5,
}


class GpuLost(RuntimeError):
    """The GPU fell off the bus while it was being read."""


class Gpu:
    """One device. Every reading is None where the driver does not offer it."""

    def __init__(self, nvml: ModuleType, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def _read(self, name: str, *arguments: Any) -> Any:
        function: Callable[..., Any] | None = getattr(self._nvml, name, None)
        if function is None:
            return None
        try:
            value = function(self._handle, *arguments)
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) == self._nvml.NVML_ERROR_GPU_IS_LOST:
                raise GpuLost(str(error)) from None
            return None
        return value.decode() if isinstance(value, bytes) else value

    def identity(self) -> dict[str, Any]:
        """Model, memory, MIG, limits and clock policy: what does not change while a benchmark runs."""
        nvml = self._nvml
        limit_mw = self._read("nvmlDeviceGetPowerManagementLimit")
        mig = self._read("nvmlDeviceGetMigMode")
        ecc = self._read("nvmlDeviceGetEccMode")
        memory = self._read("nvmlDeviceGetMemoryInfo")
        return {
            "name": self._read("nvmlDeviceGetName"),
            "uuid": self._read("nvmlDeviceGetUUID"),
            "vbios": self._read("nvmlDeviceGetVbiosVersion"),
            "power_limit_w": None if limit_mw is None else limit_mw / 1000,
            "mig": None if mig is None else bool(mig[0]),
            "ecc": None if ecc is None else bool(ecc[0]),
            "memory_bytes": None if memory is None else int(memory.total),
            "max_sm_mhz": self._read("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
            "clock_policy": self._clock_policy(),
        }

    def _clock_policy(self) -> str:
        clocks = []
        for kind in (self._nvml.NVML_CLOCK_GRAPHICS, self._nvml.NVML_CLOCK_MEM):
            set_to = self._read("nvmlDeviceGetApplicationsClock", kind)
            default = self._read("nvmlDeviceGetDefaultApplicationsClock", kind)
            if set_to is not None and default is not None and set_to != default:
                clocks.append(f"{set_to} MHz (default {default})")
        return "application clocks " + ", ".join(clocks) if clocks else "default"

    def reading(self) -> dict[str, Any]:
        """Clocks (MHz), temperature (°C), power (W), event-reason bits, memory used (bytes), utilisation."""
        nvml = self._nvml
        power_mw = self._read("nvmlDeviceGetPowerUsage")
        memory = self._read("nvmlDeviceGetMemoryInfo")
        load = self._read("nvmlDeviceGetUtilizationRates")
        return {
            "sm_mhz": self._read("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "mem_mhz": self._read("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "temperature_c": self._read("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            "power_w": None if power_mw is None else power_mw / 1000,
            "event_reasons": self._read("nvmlDeviceGetCurrentClocksEventReasons"),
            "memory_used_bytes": None if memory is None else int(memory.used),
            "utilization": None if load is None else load.gpu / 100,
        }

    def counters(self) -> dict[str, Any]:
        """Counters that only rise: nanoseconds spent limited, by cause, and ECC errors since boot."""
        counters: dict[str, Any] = {}
        for name, policy in _VIOLATIONS.items():
            status = self._read("nvmlDeviceGetViolationStatus", policy)
            counters[f"violation_{name}_ns"] = None if status is None else int(status.violationTime)
        for name, kind in (("corrected", 0), ("uncorrected", 1)):
            counters[f"ecc_{name}"] = self._read("nvmlDeviceGetMemoryErrorCounter", kind, 0, 2)
        return counters

    def processes(self) -> dict[int, int | None]:
        """Compute processes on the GPU: process id -> bytes used."""
        listed = self._read("nvmlDeviceGetComputeRunningProcesses") or []
        return {int(item.pid): item.usedGpuMemory for item in listed}


def open_gpu(index: int) -> Gpu | None:
    """GPU `index` of those that CUDA_VISIBLE_DEVICES leaves; None without driver, package or such a device."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        visible = [
            part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()
        ]
        if not visible:
            return Gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
        if index >= len(visible):
            return None
        chosen = visible[index]
        if chosen.isdigit():
            return Gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(int(chosen)))
        return Gpu(nvml, nvml.nvmlDeviceGetHandleByUUID(chosen))
    except nvml.NVMLError:
        return None


def driver_version() -> str | None:
    """The driver's version; call after `open_gpu` returned a device."""
    nvml = importlib.import_module("pynvml")
    try:
        version = nvml.nvmlSystemGetDriverVersion()
    except nvml.NVMLError:
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


def reason_names(bits: int) -> list[str]:
    """Words for the bits of `event_reasons`."""
    return [name for bit, name in EVENT_REASONS.items() if bits & bit]
