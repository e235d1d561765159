"""BenchmarkDotNet's JSON, Catch2's XML and console output, libtest."""

from __future__ import annotations

import pytest

from perfdb.formats import FormatError, read
from tests.formats.files import INPUTS, benchmark, in_base, metric, own


def test_launches_come_from_the_measurements() -> None:
    reading = own("benchmarkdotnet_full.json")
    run = benchmark(reading, "Example.Sorting.Run(N: 10)")
    time = metric(run, "time")
    assert time.launches == ((100.0, 110.0), (105.0,))
    assert (time.value, time.unit, time.statistic) == (105.0, "ns", "mean")
    # The made-up job name differs from run to run and is no parameter; its settings are.
    assert run.params == {"job": "LaunchCount=2"}
    assert metric(run, "Allocated Memory").lower_is_better is True
    assert metric(run, "BranchMispredictions").lower_is_better is True
    assert benchmark(reading, "Example.Sorting.Bad").status == "error"
    assert reading.environment.klass["runtime"] == ".NET 8.0"


def test_catch2_names_are_paths_and_failures_are_errors() -> None:
    reading = own("catch2_report.xml")
    time = metric(benchmark(reading, "Fibonacci / small / Fibonacci 20"), "time")
    assert (time.value, time.unit, time.launches) == (43186.5, "ns", ((),))
    assert time.summary["samples"] == 100
    failed = benchmark(reading, "Fibonacci / throws")
    assert (failed.status, failed.reason) == ("error", "std::exception")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><Catch2TestRun>&b;</Catch2TestRun>',
            "refused",
        ),
        ('<!DOCTYPE x SYSTEM "file:///etc/hostname"><Catch2TestRun/>', "refused"),
        ("<Catch2TestRun>" + "<Section name='s'>" * 300, "nested deeper"),
        ("<Catch2TestRun><TestCase>", "not XML"),
        ("<Catch2TestRun>&undefined;</Catch2TestRun>", "not XML"),
    ],
)
def test_hostile_xml_is_refused(body: str, reason: str) -> None:
    with pytest.raises(FormatError, match=reason) as caught:
        read(body.encode())
    assert caught.value.format == "catch2"
    assert caught.value.at.startswith("line ")


def test_catch2_console_output() -> None:
    reading = own("catch2-text_console.txt")
    short = metric(benchmark(reading, "Sorting / small / std::sort 100"), "time")
    assert (short.value, short.unit) == (344, "ns")
    long = metric(
        benchmark(reading, "Sorting / small / a name so long that it is broken over two lines"), "time"
    )
    assert (long.value, long.unit) == (1.731, "us")
    assert long.summary["stddev"] == pytest.approx(0.2565)
    minutes = metric(benchmark(reading, "Other / std::sort 100"), "time")
    assert in_base(minutes) == pytest.approx(66.0)
    assert "bad: expected a mean" in reading.rejected[0].reason


def test_libtest_with_separators_and_decimals() -> None:
    reading = own("cargo-bench.txt")
    assert metric(benchmark(reading, "parse::bench_large"), "time").value == 13967756.30
    small = benchmark(reading, "parse::bench_small")
    assert (metric(small, "time").value, metric(small, "time").unit) == (88, "ns/iter")
    assert (metric(small, "throughput").value, metric(small, "throughput").lower_is_better) == (1818, False)
    assert metric(benchmark(reading, "cmov"), "time").lower_is_better is True
    assert benchmark(reading, "parse::bench_bad").status == "error"


def test_xml_in_another_encoding() -> None:
    text = (
        (INPUTS / "catch2_report.xml").read_text().replace("UTF-8", "ISO-8859-1").replace("small", "kürzer")
    )
    benchmark(read(text.encode("latin-1")), "Fibonacci / kürzer / Fibonacci 20")
