"""pyperf: runs are launches, calibration and warm-ups are not samples."""

from __future__ import annotations

import gzip

import pytest

from perfdb.formats import FormatError, read
from tests.formats.files import benchmark, handed, identities, metric, own, samples, shared


def test_runs_are_launches_without_calibration() -> None:
    reading = handed("pyperf/mult_list_py36.json")
    assert len(identities(reading)) == 3
    for each in reading.benchmarks:
        time = metric(each, "time")
        assert (len(samples(time)), len(time.launches), time.unit) == (60, 20, "s")
    assert reading.environment.klass["python"] == "cpython 3.6"


def test_packed_files_are_unpacked_under_the_cap() -> None:
    path = shared("pyperf/outliers.json.gz")
    (only,) = read(path).benchmarks
    assert len(samples(metric(only, "time"))) == 60
    unpacked = len(gzip.decompress(path.read_bytes()))
    with pytest.raises(FormatError, match="larger than"):
        read(path, max_bytes=unpacked - 1)
    assert read(path, max_bytes=unpacked).benchmarks


def test_other_units_and_a_benchmark_that_only_calibrated() -> None:
    reading = own("pyperf_units.json")
    peak = metric(benchmark(reading, "peak"), "memory")
    assert (peak.launches, peak.unit, peak.lower_is_better) == (((1000, 1100), (1050,)), "bytes", True)
    assert metric(benchmark(reading, "loops"), "value").lower_is_better is None
    assert reading.rejected[0].reason == "no run with values"
