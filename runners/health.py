"""Was the machine fit to measure on? Readings before, at 10 Hz during, and after; and the reasons if not."""

from __future__ import annotations

import os
import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .nvml import Gpu, GpuLost, reason_names

INTERVAL_S = 0.1
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
# Reasons that say the hardware protected itself. A software power cap is normal for a matrix product
# at full power; it is recorded, and the clock counted beside each sample carries its effect.
_FORBIDDEN_REASONS = frozenset(
    {"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"}
)


@dataclass(frozen=True)
class Bounds:
    """What a launch must stay within; outside it is invalid (and kept)."""

    steal: float = 0.20
    memory_stall: float = 0.20
    temperature_c: float = 90.0


@dataclass
class _Series:
    """The 10 Hz readings of one launch, column by column."""

    columns: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, reading: dict[str, Any]) -> None:
        for name, value in reading.items():
            self.columns.setdefault(name, []).append(value)


class Monitor:
    """Watches one launch: `start()`, measure, `finish()`.

    Sampling runs on a thread of the parent, which never shares the cores that the launch is pinned to.
    """

    def __init__(self, gpu: Gpu | None, *, bounds: Bounds | None = None) -> None:
        self._gpu = gpu
        self._bounds = bounds or Bounds()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="health", daemon=True)
        self._series = _Series()
        self._foreign: dict[int, str] = {}
        self._lost = ""
        self._started = 0.0
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}

    def start(self) -> None:
        self.before = self._snapshot()
        self._started = time.monotonic()
        self._thread.start()

    def finish(self) -> tuple[dict[str, Any], list[str]]:
        """Stop sampling. The summary of the readings during the launch, and the violations."""
        self._stop.set()
        self._thread.join()
        self.after = self._snapshot()
        during = self._summary()
        return during, self._violations(during)

    def _snapshot(self) -> dict[str, Any]:
        snapshot: dict[str, Any] = {
            "load_average": list(os.getloadavg()),
            "cpu_ticks": _cpu_ticks(),
            "pressure_us": _pressure(),
            "cpu_mhz": _cpu_mhz(),
        }
        if self._gpu is not None:
            try:
                snapshot |= {"gpu": self._gpu.reading() | self._gpu.counters()}
                snapshot["gpu_processes"] = {
                    str(pid): _command_of(pid) for pid in self._gpu.processes() if not _is_ours(pid)
                }
            except GpuLost as error:
                self._lost = str(error)
        return snapshot

    def _sample(self) -> None:
        next_at = time.monotonic()
        while not self._stop.is_set():
            reading: dict[str, Any] = {"t_s": round(time.monotonic() - self._started, 3)}
            reading["host_busy"] = _cpu_ticks()["busy"]
            if self._gpu is not None and not self._lost:
                try:
                    reading |= self._gpu.reading()
                    for pid in self._gpu.processes():
                        if not _is_ours(pid) and Path(f"/proc/{pid}").exists():
                            self._foreign.setdefault(pid, _command_of(pid))
                except GpuLost as error:
                    self._lost = str(error)
            self._series.add(reading)
            next_at += INTERVAL_S
            self._stop.wait(max(0.0, next_at - time.monotonic()))

    def _summary(self) -> dict[str, Any]:
        before, after = self.before["cpu_ticks"], self.after["cpu_ticks"]
        elapsed_s = time.monotonic() - self._started
        ticks = {name: after[name] - before[name] for name in before}
        total = max(1, ticks["busy"] + ticks["idle"])
        summary: dict[str, Any] = {
            "duration_s": round(elapsed_s, 3),
            "host_busy": ticks["busy"] / total,
            "steal": ticks["steal"] / total,
            "stalled": {
                name: (self.after["pressure_us"][name] - start) * 1e-6 / max(elapsed_s, 1e-9)
                for name, start in self.before["pressure_us"].items()
                if name in self.after["pressure_us"]
            },
            "readings": self._series.columns,
        }
        if self._gpu is not None:
            columns = self._series.columns
            for name in ("sm_mhz", "temperature_c", "power_w"):
                values = [value for value in columns.get(name, []) if value is not None]
                if values:
                    summary[name] = {
                        "min": min(values),
                        "median": statistics.median(values),
                        "max": max(values),
                    }
            bits = 0
            for value in columns.get("event_reasons", []):
                bits |= value or 0
            summary["event_reasons"] = reason_names(bits)
            summary["foreign_processes"] = {str(pid): name for pid, name in self._foreign.items()}
        return summary

    def _violations(self, during: dict[str, Any]) -> list[str]:
        found = []
        if during["steal"] > self._bounds.steal:
            found.append(f"the hypervisor took {during['steal']:.0%} of the cores' time")
        stalled = during["stalled"].get("memory_full", 0.0)
        if stalled > self._bounds.memory_stall:
            found.append(f"all tasks waited for memory during {stalled:.0%} of the launch")
        if self._gpu is None:
            return found
        if self._lost:
            return [*found, f"the GPU was lost: {self._lost}"]
        foreign = dict(self.before.get("gpu_processes", {})) | during.get("foreign_processes", {})
        for pid, name in foreign.items():
            found.append(f"the GPU was busy with another process: {name} (pid {pid})")
        for name in during.get("event_reasons", []):
            if name in _FORBIDDEN_REASONS:
                found.append(f"the GPU slowed itself down: {name.replace('_', ' ')}")
        hottest = during.get("temperature_c", {}).get("max", 0.0)
        if hottest > self._bounds.temperature_c:
            found.append(f"the GPU reached {hottest} °C (bound {self._bounds.temperature_c:g})")
        found.extend(self._ecc())
        return found

    def _ecc(self) -> list[str]:
        before = self.before.get("gpu", {}).get("ecc_uncorrected")
        after = self.after.get("gpu", {}).get("ecc_uncorrected")
        if before is None or after is None or after <= before:
            return []
        return [f"{after - before} uncorrectable memory errors on the GPU during the launch"]


def _cpu_ticks() -> dict[str, int]:
    """Jiffies of all cores since boot, from the first line of /proc/stat."""
    try:
        fields = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except (OSError, ValueError, IndexError):
        return {"busy": 0, "idle": 0, "steal": 0}
    fields += [0] * (8 - len(fields))
    idle, steal = fields[3] + fields[4], fields[7]
    return {"busy": sum(fields[:8]) - idle, "idle": idle, "steal": steal}


def _pressure() -> dict[str, int]:
    """Total stall time in microseconds by resource (PSI); empty where the kernel does not keep it."""
    stalls = {}
    for resource in ("cpu", "memory", "io"):
        try:
            lines = Path(f"/proc/pressure/{resource}").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            kind, _, rest = line.partition(" ")
            stalls[f"{resource}_{kind}"] = int(rest.rpartition("total=")[2])
    return stalls


def _cpu_mhz() -> list[float] | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")] or None


def _is_ours(pid: int) -> bool:
    """Whether `pid` is this process or descends from it."""
    me = os.getpid()
    while pid > 1:
        if pid == me:
            return True
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = int(stat.rpartition(")")[2].split()[1])
    return False


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "unknown"
