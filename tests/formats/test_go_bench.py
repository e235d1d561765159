"""Go benchmark text: packages, GOMAXPROCS, repeated lines, unknown units."""

from __future__ import annotations

import math

import pytest

from tests.formats.files import benchmark, handed, identities, metric, own, samples


def test_the_procs_suffix_is_a_final_number_only() -> None:
    reading = handed("go-bench/gab_go_output.txt")
    assert len(identities(reading)) == 8
    names = {each.name for each in reading.benchmarks}
    assert {"BenchmarkFib10", "BenchmarkFib/my_tabled_benchmark_-_20", "BenchmarkFib11"} <= names
    assert not any(name.endswith(("-8", "-16")) for name in names)
    extra = metric(benchmark(reading, "BenchmarkFib11"), "auxMetricUnits")
    assert (extra.value, extra.lower_is_better) == (3.0, None)


def test_one_name_in_two_packages_is_two_series() -> None:
    reading = handed("go-bench/gab_go_fiber_duplicate_names_output.txt")
    assert len(identities(reading)) == 4
    prefix = "github.com/gofiber/fiber/v3/middleware"
    cache = benchmark(reading, f"{prefix}/cache.BenchmarkAppendMsgitem")
    csrf = benchmark(reading, f"{prefix}/csrf.BenchmarkAppendMsgitem")
    assert (metric(cache, "time").value, metric(csrf, "time").value) == (55.76, 0.3733)
    directions = {made.unit: made.lower_is_better for made in cache.metrics}
    assert directions == {"ns/op": True, "MB/s": False, "B/op": True, "allocs/op": True}


def test_no_header_and_no_last_newline() -> None:
    assert len(identities(handed("go-bench/benchfmt_a"))) == 2


def test_only_common_names_make_the_ratio() -> None:
    before, after = handed("from-issues/go_19565_a.txt"), handed("from-issues/go_19565_b.txt")
    assert len(samples(metric(before.benchmarks[0], "time"))) == 6
    common = identities(before) & identities(after)
    values = [
        {each.identity: metric(each, "time").value for each in reading.benchmarks}
        for reading in (before, after)
    ]
    logs = [math.log(values[1][key] / values[0][key]) for key in common]  # type: ignore[operator]
    assert math.exp(sum(logs) / len(logs)) == pytest.approx(1.0)


def test_cpu_lists_sub_benchmarks_and_broken_lines() -> None:
    reading = own("go-bench_cpu.txt")
    parse = {each.params.get("procs"): each for each in reading.benchmarks if "Parse/size" in each.name}
    # On one core the suffix is missing, so "size=10" stays whole; "-cpu 1,2,4" gives three cases.
    assert {key: samples(metric(each, "time")) for key, each in parse.items()} == {
        None: [10.5],
        2: [6.0, 7.0],
        4: [3.5],
    }
    counts = benchmark(reading, "example.org/parse.BenchmarkCounts")
    assert metric(counts, "time").value == 1234.5
    assert metric(counts, "i/s").lower_is_better is None
    assert benchmark(reading, "example.org/parse.BenchmarkBroken", procs=4).status == "error"
    benchmark(reading, "BenchmarkAlready(example.org/parse)")
    assert [each.at for each in reading.rejected] == ["line 10", "line 11"]


def test_events_of_packages_that_ran_at_once() -> None:
    reading = own("go-bench_events.jsonl")
    assert metric(benchmark(reading, "example.org/a.BenchmarkX"), "time").value == 5.0
    assert metric(benchmark(reading, "example.org/b.BenchmarkX"), "time").value == 7.0
