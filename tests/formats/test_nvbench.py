"""nvbench: JSON of both shapes and the CSV with its repeated column names."""

from __future__ import annotations

import pytest

from tests.formats.files import benchmark, handed, identities, metric, own


def test_repeated_columns_are_paired_by_position() -> None:
    reading = handed("nvbench/array_add_1650.csv")
    assert len(identities(reading)) == 26
    first = reading.benchmarks[0]
    assert first.params == {"Axis Size": 2}
    gpu, cpu, batch = (metric(first, name) for name in ("gpu_time", "cpu_time", "batch_gpu_time"))
    assert gpu.value == pytest.approx(6.9418e-06, rel=1e-4)
    assert gpu.summary == {"noise_fraction": pytest.approx(0.2117, rel=1e-3), "samples": 72032}
    assert cpu.summary == {"noise_fraction": pytest.approx(5.9035, rel=1e-3), "samples": 72032}
    assert batch.summary == {"samples": 96581}
    assert metric(first, "global_memory_bandwidth").lower_is_better is False
    assert reading.environment.klass["gpu"] == "NVIDIA GeForce GTX 1650"


def test_numbers_are_strings_and_infinite_noise_is_no_number() -> None:
    reading = own("nvbench_new.json")
    first = benchmark(reading, "copy", Elements=1048576)
    assert first.params == {"T": "I32", "Elements": 1048576}
    gpu = metric(first, "gpu_time")
    assert (gpu.value, gpu.unit, gpu.launches) == (1.25e-05, "s", ((),))
    assert gpu.summary == {"noise_fraction": None, "samples": 1234}
    peak = metric(first, "peak_memory_usage")
    assert (peak.value, peak.unit, peak.lower_is_better) == (4096, "bytes", None)
    skipped = benchmark(reading, "copy", Elements=1073741824)
    assert (skipped.status, skipped.reason) == ("skipped", "not enough memory")
    # A state that is there twice is reported, and the first is kept.
    assert "second time" in reading.rejected[0].reason


def test_summaries_by_name_of_old_versions() -> None:
    (only,) = own("nvbench_old.json").benchmarks
    assert only.params == {"BlockSize": 256}
    assert metric(only, "gpu_time").value == 2e-06
    assert metric(only, "gpu_time").summary == {"noise_fraction": 0.02}


def test_skipped_and_broken_rows_of_the_csv() -> None:
    reading = own("nvbench_skipped.csv")
    assert benchmark(reading, "throughput", T="F64").status == "skipped"
    assert metric(benchmark(reading, "throughput", T="F32"), "gpu_time").summary["noise_fraction"] is None
    assert metric(benchmark(reading, "throughput", T="I8"), "gpu_time").value == 1e-05
    assert [each.at for each in reading.rejected] == ["line 4 CPU Time (sec)", "line 5"]
