"""Google Benchmark: iteration rows are samples, aggregates are not, counters are never judged."""

from __future__ import annotations

import json

import pytest

from perfdb import units
from perfdb.formats import FormatError, read
from tests.formats.files import benchmark, handed, identities, in_base, metric, own, samples, shared


@pytest.mark.parametrize("run", ["run1", "run2"])
def test_timed_rows_without_big_o_and_rms(run: str) -> None:
    reading = handed(f"google-benchmark/gbench_test1_{run}.json")
    assert len(identities(reading)) == 14
    assert not any("BigO" in each.name or "RMS" in each.name for each in reading.benchmarks)
    assert all(len(samples(metric(each, "real_time"))) == 1 for each in reading.benchmarks)


def test_another_time_unit_is_a_billionfold_change() -> None:
    before, after = (
        metric(
            benchmark(handed(f"google-benchmark/gbench_test1_{run}.json"), "BM_DifferentTimeUnit"),
            "real_time",
        )
        for run in ("run1", "run2")
    )
    assert in_base(before) / in_base(after) == pytest.approx(1e9)
    assert units.lookup(before.unit).family == units.lookup(after.unit).family


def test_repeated_rows_are_samples_of_one_benchmark() -> None:
    reading = handed("google-benchmark/gbench_test3_run0.json")
    two = metric(benchmark(reading, "BM_Two"), "real_time")
    assert (samples(two), two.unit) == ([9, 8], "ns")
    assert samples(metric(benchmark(reading, "BM_One"), "real_time")) == []
    assert samples(metric(benchmark(reading, "short"), "real_time")) == []


def test_counters_are_stored_without_direction() -> None:
    reading = handed("google-benchmark/kokkos_atomic.json")
    assert len(identities(reading)) == 8
    for each in reading.benchmarks:
        judged = {made.name for made in each.metrics if made.lower_is_better is not None}
        assert judged == {"real_time", "cpu_time"}
        assert metric(each, "Value non-atomic").lower_is_better is None
    assert reading.commit is not None
    assert (reading.commit.id, reading.commit.branch, reading.commit.dirty) == ("2b25f2b", "develop", False)


def test_a_document_that_breaks_in_a_row_is_rejected_with_its_position() -> None:
    with pytest.raises(FormatError) as caught:
        read(shared("from-issues/gbench_300_percent.json"))
    assert caught.value.format == "google-benchmark"
    assert caught.value.at == "line 1 column 66"


def test_aggregates_of_old_versions_are_known_by_their_names() -> None:
    rows = [
        {"name": name, "iterations": 10, "real_time": time, "cpu_time": time, "time_unit": "ns"}
        for name, time in (("BM_A", 1), ("BM_A", 3), ("BM_A_mean", 2), ("BM_A_stddev", 1), ("BM_geo_mean", 7))
    ]
    reading = read(json.dumps({"context": {}, "benchmarks": rows}).encode())
    assert [(each.name, samples(metric(each, "real_time"))) for each in reading.benchmarks] == [
        ("BM_A", [1, 3]),
        ("BM_geo_mean", [7]),
    ]


def test_repetitions_errors_skips_and_unknown_units() -> None:
    reading = own("google-benchmark_repetitions.json")
    copied = benchmark(reading, "BM_Copy/8/repeats:3")
    assert samples(metric(copied, "real_time")) == [10.0, 12.0, 11.0]
    assert metric(copied, "real_time").value == 11.0
    assert metric(copied, "bytes_per_second").lower_is_better is False
    only = benchmark(reading, "BM_Only")
    assert (metric(only, "real_time").value, metric(only, "real_time").statistic) == (2.4, "median")
    assert (benchmark(reading, "BM_Throws").status, benchmark(reading, "BM_Throws").reason) == (
        "error",
        "no device",
    )
    assert benchmark(reading, "BM_Skips").status == "skipped"
    assert "fortnight" in reading.rejected[0].reason
    assert any("debug build" in warning for warning in reading.warnings)
