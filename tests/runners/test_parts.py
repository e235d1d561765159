"""Locks, stopping, units, the signed channel, environment, health and sentinel, each alone."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runners import health, lock, sentinel
from runners.channel import ChannelError, Receiver, Sender, run_from_wire, run_to_wire
from runners.environment import fingerprint
from runners.health import Bounds, Monitor
from runners.loading import CaseError, check_accepts, resolve
from runners.nvml import GpuLost, reason_names
from runners.process import scrubbed_environment
from runners.pump import Tail
from runners.quantities import Kind, kind_of, measured, select
from runners.result import Measurement, MetricSpec, RunResult, Status
from runners.stopping import FixedCount, MedianPrecision, relative_median_error
from runners.versions import collect


def metric(unit: str, name: str = "m") -> MetricSpec:
    return MetricSpec(name, unit, lower_is_better=True)


class TestLock:
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(lock.FOLDER_VARIABLE, str(tmp_path / "locks"))

    def test_a_held_lock_names_its_holder(self) -> None:
        with lock.held(["gpu-0"]):
            context = multiprocessing.get_context("spawn")
            with context.Pool(1) as pool:
                message = pool.apply(_busy_message, (["cpu-1", "gpu-0"],))
        assert message == f"gpu-0 is measured on by another process (pid {os.getpid()})"

    def test_it_is_free_again(self) -> None:
        for _ in range(2):
            with lock.held(["cpu-0", "cpu-1"], wait_s=0):
                pass

    def test_disjoint_sets_do_not_meet(self) -> None:
        with lock.held(["cpu-0"]), lock.held(["cpu-1"], wait_s=0):
            pass

    def test_every_user_can_take_it(self) -> None:
        with lock.held(["cpu-0"]):
            folder = lock.lock_folder()
            assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
            assert stat.S_IMODE((folder / "cpu-0.lock").stat().st_mode) == 0o666

    def test_names(self) -> None:
        assert lock.names(gpu=None, cpus=(3, 1)) == ["cpu-1", "cpu-3"]
        assert lock.names(gpu="GPU-a", cpus=None) == ["gpu-GPU-a"]
        assert lock.names(gpu="GPU-a", cpus=(2,)) == ["gpu-GPU-a", "cpu-2"]
        assert lock.names(gpu=None, cpus=None) == [f"cpu-{core}" for core in sorted(os.sched_getaffinity(0))]


def _busy_message(wanted: list[str]) -> str:
    try:
        with lock.held(wanted, wait_s=0.1):
            return "not busy"
    except lock.Busy as error:
        return str(error)


class TestStopping:
    def test_steady_samples_stop_at_fifty(self) -> None:
        criterion = MedianPrecision()
        samples = [1.0] * 50
        assert not criterion.done(samples[:49], 0.01)
        assert criterion.done(samples, 0.01)

    def test_half_a_second_is_enough_for_few_samples(self) -> None:
        assert MedianPrecision().done([1.0, 1.0, 1.0], 0.6)
        assert not MedianPrecision().done([1.0, 1.0, 1.0], 0.4)

    def test_noise_goes_on_until_the_budget_ends(self) -> None:
        noisy = [1.0, 2.0] * 25
        assert not MedianPrecision(budget_s=2).done(noisy, 1.9)
        assert MedianPrecision(budget_s=2).done(noisy, 2.0)
        assert not MedianPrecision(budget_s=2).done([], 99)

    def test_a_fixed_count(self) -> None:
        assert not FixedCount(3).done([1.0, 1.0], 99)
        assert FixedCount(3).done([1.0] * 3, 0)
        assert FixedCount(3, budget_s=1).done([1.0], 1)

    def test_relative_error_is_that_of_a_median(self) -> None:
        samples = [99.0, 100.0, 101.0] * 12
        assert relative_median_error(samples) == pytest.approx(1.2533 * 1.4826 * 1 / 6 / 100)
        assert relative_median_error([1.0]) == float("inf")


class TestQuantities:
    @pytest.mark.parametrize(
        ("unit", "base", "shown"),
        [("s", 2.0, 2.0), ("us", 2e-6, 2.0), ("MiB", 2**21, 2.0), ("GB/s", 3e9, 3.0), ("%", 0.5, 50.0)],
    )
    def test_base_values_are_shown_in_the_unit(self, unit: str, base: float, shown: float) -> None:
        assert measured(metric(unit), [base]).samples == pytest.approx([shown])

    def test_an_unknown_unit_is_named(self) -> None:
        with pytest.raises(CaseError, match="measures nothing in 'widgets'"):
            kind_of(metric("widgets"), tier="micro")

    def test_names_first_then_the_kind(self) -> None:
        named = {"time": Kind.TIME, "single_call": Kind.TIME, "bandwidth": Kind.BANDWIDTH}
        wanted = [metric("us", "latency"), metric("us", "single_call"), metric("GB/s", "speed")]
        assert select(wanted, headline="time", named=named, tier="micro") == {
            "latency": "time",
            "single_call": "single_call",
            "speed": "bandwidth",
        }
        with pytest.raises(CaseError, match="nothing in 'MiB'"):
            select([metric("MiB")], headline="time", named=named, tier="micro")


class TestChannel:
    def test_messages_arrive_whole_in_any_pieces(self) -> None:
        read, write = os.pipe()
        Sender(write, b"k" * 32).send({"a": 1})
        Sender(write, b"k" * 32).send({"b": [2.5]})
        data = os.read(read, 1000)
        receiver = Receiver(b"k" * 32)
        found = [message for byte in data for message in receiver.feed(bytes([byte]))]
        assert found == [{"a": 1}, {"b": [2.5]}]

    @pytest.mark.parametrize("data", [b"\xff" * 64, b"\x00\x00\x00\x02" + b"m" * 32 + b"{}"])
    def test_foreign_bytes_are_refused(self, data: bytes) -> None:
        with pytest.raises(ChannelError, match="did not write"):
            list(Receiver(b"k" * 32).feed(data))

    def test_a_number_that_is_none_is_not_sent(self) -> None:
        read, write = os.pipe()
        with pytest.raises(ValueError, match="Out of range"):
            Sender(write, b"k").send({"a": float("nan")})
        os.close(write)
        assert os.read(read, 1) == b""

    def test_a_run_survives_the_wire(self) -> None:
        run = RunResult(
            "b", {"n": 1}, "micro", Status.OK, measurements=[Measurement(metric("s"), [1.0], [2.0])]
        )
        assert run_from_wire(json.loads(json.dumps(run_to_wire(run)))) == run

    @pytest.mark.parametrize("raw", [{}, {"measurements": [{}]}, {"measurements": [], "status": "great"}])
    def test_a_malformed_run_is_refused(self, raw: dict[str, Any]) -> None:
        with pytest.raises(ChannelError, match="malformed"):
            run_from_wire(raw)


def test_a_tail_keeps_whole_last_lines() -> None:
    tail = Tail(limit=20)
    for i in range(10):
        tail.add(f"line {i}\n".encode())
    assert tail.text() == "[...]\nline 8\nline 9\n"
    tail.add(b"a\x00b")
    assert tail.text().endswith("a\ufffdb")


def test_only_allowed_variables_pass() -> None:
    source = {"PATH": "/bin", "GITHUB_TOKEN": "t", "AWS_SECRET_ACCESS_KEY": "s", "LD_PRELOAD": "x.so"}
    passed = scrubbed_environment({"MINE": "1"}, source=source)
    assert passed["PATH"] == "/bin"
    assert passed["MINE"] == "1"
    assert passed["PYTHONHASHSEED"] == "0"
    assert not {"GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "LD_PRELOAD"} & set(passed)


class TestLoading:
    def test_dots_reach_into_classes(self) -> None:
        assert resolve("json:JSONDecoder.decode") is json.JSONDecoder.decode

    @pytest.mark.parametrize(
        ("entry", "complaint"),
        [
            ("json", "expected"),
            ("json:nothing", "has no"),
            ("json:__name__", "not callable"),
            ("no_such:f", "import"),
        ],
    )
    def test_what_is_not_there(self, entry: str, complaint: str) -> None:
        with pytest.raises(CaseError, match=complaint):
            resolve(entry)

    def test_builtins_without_a_signature_are_left_to_the_call(self) -> None:
        check_accepts(max, {"x": 1}, role="entry")


class FakeGpu:
    """Answers as a GPU would, from what the test sets."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes
        self.asked = 0

    def identity(self) -> dict[str, Any]:
        keys = ("vbios", "ecc", "mig", "uuid", "max_sm_mhz", "memory_bytes", "clock_policy")
        return {"name": "Fake", "power_limit_w": 700.0, **dict.fromkeys(keys)}

    def reading(self) -> dict[str, Any]:
        if self.changes.get("lost"):
            raise GpuLost("GPU is lost")
        return {
            "sm_mhz": 1980,
            "temperature_c": self.changes.get("temperature_c", 40),
            "power_w": 300.0,
            "event_reasons": self.changes.get("event_reasons", 0x4),
        }

    def counters(self) -> dict[str, Any]:
        self.asked += 1
        return {"ecc_uncorrected": self.asked if self.changes.get("errors") else 0}

    def processes(self) -> dict[int, int | None]:
        return self.changes.get("processes", {})


def watched(**changes: Any) -> tuple[dict[str, Any], list[str]]:
    monitor = Monitor(FakeGpu(**changes))  # type: ignore[arg-type]
    monitor.start()
    monitor._stop.wait(0.15)
    return monitor.finish()


class TestHealth:
    def test_a_power_cap_is_normal_and_recorded(self) -> None:
        during, violations = watched()
        assert violations == []
        assert during["event_reasons"] == ["sw_power_cap"]
        assert during["sm_mhz"]["median"] == 1980
        assert len(during["readings"]["t_s"]) >= 1

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"event_reasons": 0x40}, "slowed itself down: hw thermal slowdown"),
            ({"temperature_c": 95}, "reached 95 °C"),
            ({"errors": True}, "1 uncorrectable memory errors"),
            ({"lost": True}, "the GPU was lost"),
            ({"processes": {1: 10}}, "busy with another process"),
        ],
    )
    def test_out_of_bounds_is_a_violation(self, changes: dict[str, Any], reason: str) -> None:
        _, violations = watched(**changes)
        assert len(violations) == 1
        assert reason in violations[0]

    def test_our_own_processes_are_not_foreign(self) -> None:
        assert watched(processes={os.getpid(): 10})[1] == []

    def test_stolen_time_is_a_violation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ticks = iter([{"busy": 0, "idle": 0, "steal": 0}, {"busy": 60, "idle": 40, "steal": 30}])
        last = {"busy": 60, "idle": 40, "steal": 30}
        monkeypatch.setattr(health, "_cpu_ticks", lambda: next(ticks, last))
        monitor = Monitor(None, bounds=Bounds(steal=0.2))
        monitor.before = monitor._snapshot()
        monitor._thread = SimpleNamespace(join=lambda: None)  # type: ignore[assignment]
        assert monitor.finish()[1] == ["the hypervisor took 30% of the cores' time"]

    def test_reason_words(self) -> None:
        assert reason_names(0x4 | 0x8) == ["sw_power_cap", "hw_slowdown"]


def test_versions_are_read_without_importing_torch() -> None:
    found = collect()
    assert found["python"] == ".".join(str(part) for part in __import__("sys").version_info[:3])
    assert {"torch", "triton", "cuda", "cudnn", "nccl", "numpy", "libc"} <= set(found)


def test_the_gpu_is_part_of_the_class_only_when_used() -> None:
    arguments: dict[str, Any] = {
        "gpu": FakeGpu(),
        "cpus": (0,),
        "python": "p",
        "versions": {},
        "environment": {},
    }
    assert "gpu_model" not in fingerprint(device="cpu", **arguments).klass
    on_gpu = fingerprint(device="cuda", **{**arguments, "environment": {"MALLOC_CONF": "x"}})
    assert on_gpu.klass["gpu_model"] == "Fake"
    assert on_gpu.klass["power_limit_w"] == 700
    assert on_gpu.boundary["allocator"] == {"MALLOC_CONF": "x"}


def test_the_sentinel_measures_three_things() -> None:
    values = sentinel.measure("cpu")
    assert set(values) == {"product_s", "copy_s", "launch_s"}
    assert all(value > 0 for value in values.values())
