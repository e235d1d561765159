"""Formats of other trackers: github-action-benchmark, Bencher, LNT, Codespeed."""

from __future__ import annotations

import json

import pytest

from perfdb.formats import FormatError, read
from perfdb.formats.history import history
from tests.formats.files import INPUTS, benchmark, handed, identities, metric, own, samples, shared


@pytest.mark.parametrize("name", ["customBiggerIsBetter_output", "customSmallerIsBetter_output2"])
def test_custom_files_have_no_direction_until_it_is_declared(name: str) -> None:
    path = shared(f"github-action-benchmark/{name}.json")
    reading = read(path)
    assert all(metric(each, "value").lower_is_better is None for each in reading.benchmarks)
    assert any("direction" in warning for warning in reading.warnings)
    declared = read(path, lower_is_better=False)
    assert all(metric(each, "value").lower_is_better is False for each in declared.benchmarks)
    assert declared.warnings == ()


def test_custom_values_and_units() -> None:
    memory = benchmark(
        handed("github-action-benchmark/customBiggerIsBetter_output.json"),
        "My Custom Bigger Is Better Benchmark - Free Memory",
    )
    assert (metric(memory, "value").value, metric(memory, "value").unit) == (150, "Megabytes")
    assert metric(memory, "value").summary == {"range": 3}


def test_data_js_is_a_history() -> None:
    with pytest.raises(FormatError, match="--history"):
        own("github-action_data.js")
    items = list(history(INPUTS / "github-action_data.js"))
    readings = [item.reading for item in items if item.reading]
    assert len(readings) == 4
    first = readings[0]
    assert first.commit is not None
    assert first.commit.id == "1" * 40
    fib = metric(benchmark(first, "Rust/bench_fib"), "value")
    assert (fib.value, fib.unit, fib.lower_is_better, fib.summary) == (255, "ns/iter", True, {"range": 32})
    assert metric(benchmark(first, "Rust/bench_sum"), "value").value == 13967756.30
    assert metric(benchmark(readings[1], "Rust/rate"), "value").lower_is_better is False
    go = readings[2]
    assert metric(benchmark(go, "Other/BenchmarkX"), "value").lower_is_better is True
    assert metric(benchmark(go, "Other/BenchmarkX - MB/s"), "value").lower_is_better is False
    unknown = readings[3]
    assert unknown.commit is None
    assert metric(benchmark(unknown, "Other/b"), "value").lower_is_better is None


def test_a_history_is_the_same_twice() -> None:
    first = [item.key for item in history(INPUTS / "github-action_data.js")]
    assert first == [item.key for item in history(INPUTS / "github-action_data.js")]
    assert len(set(first)) == len(first)


def test_a_broken_data_js_names_the_position_in_the_file() -> None:
    with pytest.raises(FormatError) as caught:
        read(b'window.BENCHMARK_DATA = {"entries": {"a": [}}')
    assert (caught.value.format, caught.value.at) == ("github-action-benchmark-data-js", "line 1 column 44")


def test_bmf_bounds_that_do_not_hold_the_value_are_ignored() -> None:
    reading = handed("bmf/report_bmf_mixed.json")
    assert len(identities(reading)) == 3
    latency = metric(benchmark(reading, "benchmark-b"), "latency")
    assert (latency.value, latency.unit, latency.lower_is_better, latency.summary) == (3443.0, "ns", True, {})
    assert len(reading.warnings) == 3


def test_bmf_measures_known_and_unknown() -> None:
    reading = own("bencher-bmf.json")
    first = benchmark(reading, "bench::a")
    assert metric(first, "latency").summary == {"lower": 87.4, "upper": 88.9}
    assert metric(first, "throughput").lower_is_better is False
    second = benchmark(reading, "bench::b")
    assert [(each.name, each.lower_is_better) for each in second.metrics] == [("karma", None)]
    assert len(reading.rejected) == 2


def test_lnt_without_tests_is_no_pass() -> None:
    reading = handed("lnt/minimal.json")
    assert (reading.format, reading.benchmarks) == ("lnt", ())
    assert any("not a pass" in warning for warning in reading.warnings)


def test_lnt_failed_samples_and_a_missing_test() -> None:
    first, second = handed("lnt/nts-regression-run1.json"), handed("lnt/nts-regression-run2.json")
    before, after = (metric(benchmark(each, "test1"), "execution_time").value for each in (first, second))
    assert (before, after) == (1.0, 10.0)
    partial = metric(benchmark(first, "test2"), "execution_time")
    assert samples(partial) == [1.0]
    assert [each.reason for each in partial.flagged] == ["status 1"]
    assert [each.name for each in second.benchmarks] == ["test1"]
    assert first.commit is not None
    assert first.commit.id == "152292"


def test_lnt_old_names() -> None:
    reading = own("lnt_old.json")
    foo = benchmark(reading, "SingleSource/Foo")
    assert samples(metric(foo, "execution_time")) == [1.5, 1.6]
    assert metric(foo, "compile_time").value == 0.1
    assert benchmark(reading, "SingleSource/Bar").status == "error"
    assert reading.commit is not None
    assert reading.commit.id == "154331"


def test_lnt_zero_times_are_no_times() -> None:
    tests = [{"name": "a", "compile_time": 0.0, "execution_time": 2.0}, {"name": "b", "execution_time": 0.0}]
    reading = read(json.dumps({"machine": {"name": "m"}, "run": {}, "tests": tests}).encode())
    assert [each.name for each in benchmark(reading, "a").metrics] == ["execution_time"]
    assert benchmark(reading, "b").status == "invalid"
    assert reading.rejected[0].reason == "0.0 s is no possible duration"


def test_lnt_format_5() -> None:
    reading = own("lnt_v5.json")
    first = benchmark(reading, "t1")
    assert samples(metric(first, "execution_time")) == [0.12, 0.13]
    assert metric(first, "score").lower_is_better is False
    assert metric(first, "odd").lower_is_better is None
    assert len(reading.rejected) == 2


def test_codespeed_list_and_dump() -> None:
    with pytest.raises(FormatError, match="--history"):
        own("codespeed_list.json")
    readings = [item.reading for item in history(INPUTS / "codespeed_list.json")]
    assert [each.commit.id for each in readings if each and each.commit] == ["14", "15"]
    assert readings[1] is not None
    assert "expected a number, got null" in readings[1].rejected[0].reason
    dump = own("codespeed_dump.json")
    assert metric(benchmark(dump, "float"), "value").lower_is_better is True
    assert metric(benchmark(dump, "ops"), "value").lower_is_better is False
    assert "no revision 7" in dump.rejected[0].reason
