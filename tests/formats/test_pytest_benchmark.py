"""pytest-benchmark: seconds per call, identity by full name, nothing made up."""

from __future__ import annotations

import json

import pytest

from perfdb.formats import read
from tests.formats.files import INPUTS, benchmark, handed, identities, metric, own, samples, shared


def test_data_are_per_call_and_a_cut_list_is_partial() -> None:
    reading = handed("pytest-benchmark/bencher_four.json")
    assert len(identities(reading)) == 4
    fib = metric(benchmark(reading, "bench.py::test_fib_1"), "time")
    assert (fib.value, fib.unit, fib.lower_is_better) == (1.4995610248628836e-7, "s", True)
    assert len(samples(fib)) == 4
    assert all(1e-7 < sample < 2e-7 for sample in samples(fib))
    assert [metric(each, "time").partial for each in reading.benchmarks] == [True, True, True, False]
    assert reading.commit is not None
    assert reading.commit.dirty is True


def test_a_summary_has_no_samples_and_the_interpreter_is_environment() -> None:
    reading = handed("pytest-benchmark/lagom_3.9.json")
    assert len(identities(reading)) == 3
    assert all(samples(metric(each, "time")) == [] for each in reading.benchmarks)
    assert not any(metric(each, "time").partial for each in reading.benchmarks)
    text = shared("pytest-benchmark/lagom_3.9.json").read_text().replace("3.9.7", "3.8.12")
    assert read(text.encode()).environment.klass != reading.environment.klass


def test_a_file_of_version_2_5() -> None:
    reading = handed("pytest-benchmark/pb_storage_0001.json")
    (only,) = reading.benchmarks
    assert metric(only, "time").value == pytest.approx(262.24e-9, rel=1e-4)


def test_memory_addresses_in_params_make_no_new_series() -> None:
    path = shared("pytest-benchmark/resource-semaphore_0001_baseline.json")
    reading = read(path)
    assert len(identities(reading)) == 56
    later = path.read_text().replace("0x78ead", "0x7fffa")
    assert identities(read(later.encode())) == identities(reading)


def test_groups_and_addresses_in_names() -> None:
    reading = own("pytest-benchmark_groups.json")
    small = benchmark(reading, "tests/test_sort.py::test_sort[small]")
    assert samples(metric(small, "time")) == [1e-06, 2e-06, 3e-06]
    assert not metric(small, "time").partial
    assert small.info["group"] == "sort"
    benchmark(reading, "tests/test_sort.py::test_key[<function key>]")
    assert [each.at for each in reading.rejected] == ["benchmarks[3] stats.mean"]
    assert reading.environment.klass["python"] == "CPython 3.12"


def test_the_same_full_name_twice_never_overwrites() -> None:
    document = json.loads((INPUTS / "pytest-benchmark_groups.json").read_text())
    document["benchmarks"][1]["fullname"] = document["benchmarks"][0]["fullname"]
    reading = read(json.dumps(document).encode())
    assert metric(benchmark(reading, "tests/test_sort.py::test_sort[small]"), "time").value == 2e-06
    assert "second time" in reading.rejected[0].reason
