"""MLPerf loadgen: summaries and detail logs."""

from __future__ import annotations

import pytest

from perfdb.formats import FormatError, read
from tests.formats.files import handed, in_base, metric, own, shared


def test_the_headline_of_an_offline_run() -> None:
    (run,) = handed("mlperf/llama2-70b_Offline_summary.txt").benchmarks
    assert (run.status, run.params["scenario"]) == ("ok", "Offline")
    first = run.metrics[0]
    assert (first.name, first.value, first.unit, first.lower_is_better) == (
        "tokens_per_second",
        27803.9,
        "tokens/s",
        False,
    )
    p99 = metric(run, "latency_p99")
    assert (p99.value, p99.unit, p99.no_tail) == (2666812360394, "ns", False)


def test_an_empty_summary_is_rejected() -> None:
    with pytest.raises(FormatError, match="not a pass"):
        read(shared("mlperf/automotive_empty_summary.txt"))
    with pytest.raises(FormatError, match="not a pass"):
        read(b"", "mlperf")


def test_ten_queries_say_nothing_of_the_tail() -> None:
    (run,) = handed("mlperf/thienlm_summary.txt").benchmarks
    assert run.status == "ok"
    assert metric(run, "latency_p99").no_tail
    assert metric(run, "latency_p90").no_tail
    assert not metric(run, "latency_mean").no_tail
    assert any("no tail information" in note for note in run.notes)
    assert any("min_duration 0" in note for note in run.notes)


def test_an_invalid_server_run_is_kept_and_marked() -> None:
    (run,) = own("mlperf_server_summary.txt").benchmarks
    assert run.status == "invalid"
    assert "TTFT constrain not met" in run.reason
    assert run.metrics[0].name == "completed_tokens_per_second"
    assert metric(run, "ttft_p99").value == 900
    assert metric(run, "tpot_p99").value == 90
    assert metric(run, "latency_p99.9").statistic == "p999"


def test_single_stream_is_judged_by_its_p90() -> None:
    (run,) = own("mlperf_single_stream_summary.txt").benchmarks
    assert run.metrics[0].name == "latency_p90"
    assert in_base(run.metrics[0]) == pytest.approx(77.98e-3, rel=1e-4)


def test_the_detail_log_in_both_spellings_of_a_percentile() -> None:
    reading = own("mlperf_detail.txt")
    (run,) = reading.benchmarks
    assert (run.name, run.params) == ("Box", {"scenario": "Offline", "mode": "PerformanceOnly"})
    assert (run.metrics[0].name, run.metrics[0].value) == ("samples_per_second", 100.0)
    assert metric(run, "latency_p99").value == 90
    assert metric(run, "latency_p99.9").value == 99
    assert metric(run, "ttft_p99").value == 9
    assert "seed" not in str(run.info)
    assert [each.at.split(" result")[0] for each in reading.rejected] == ["line 16", "line 17"]


def test_a_percentile_without_decimals_is_the_same_metric() -> None:
    text = (shared("mlperf/llama2-70b_Offline_summary.txt")).read_text()
    (run,) = read(text.replace("99.00 percentile", "99 percentile").encode()).benchmarks
    assert metric(run, "latency_p99").value == 2666812360394
