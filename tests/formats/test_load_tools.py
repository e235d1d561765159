"""k6, Locust and wrk."""

from __future__ import annotations

import pytest

from tests.formats.files import INPUTS, benchmark, in_base, metric, own


def test_k6_summary_export() -> None:
    (run,) = own("k6_export.json").benchmarks
    p95 = metric(run, "http_req_duration_p95")
    assert (p95.value, p95.unit, p95.lower_is_better, p95.successes_only) == (25.0, "ms", True, False)
    assert metric(run, "http_req_duration{expected_response:true}_p95").successes_only
    assert metric(run, "http_req_tls_handshaking_mean").value == 0
    assert metric(run, "http_reqs").lower_is_better is False
    failed = metric(run, "http_req_failed")
    assert (failed.value, failed.lower_is_better) == (0.02, True)
    assert metric(run, "checks").lower_is_better is False
    assert metric(run, "custom_trend_p99").lower_is_better is None


def test_k6_handle_summary() -> None:
    (run,) = own("k6_handle_summary.json").benchmarks
    assert metric(run, "http_req_duration_p999").statistic == "p999"
    assert metric(run, "http_req_failed").value == 0.5
    assert metric(run, "my_bytes_mean").unit == ""


def test_k6_points_are_samples() -> None:
    reading = own("k6_points.jsonl")
    (run,) = reading.benchmarks
    assert metric(run, "http_req_duration").launches == ((3.5, 4.5),)
    assert metric(run, "http_req_failed").value == 0.5
    assert reading.rejected[0].at == "line 9 http_req_duration"


def test_locust_csv() -> None:
    reading = own("locust_stats.csv")
    home = benchmark(reading, "GET /")
    assert metric(home, "response_time_p99").value == 80
    assert metric(home, "failure_rate").value == pytest.approx(0.05)
    assert benchmark(reading, "POST /buy, now").status == "error"
    benchmark(reading, "Aggregated")
    assert reading.rejected[0].at == "line 4"


def test_locust_json() -> None:
    (home,) = own("locust_stats.json").benchmarks
    values = {each.name: each.value for each in home.metrics}
    assert values == {
        "response_time_mean": 20.0,
        "response_time_median": 10,
        "response_time_p95": 20,
        "response_time_p99": 100,
        "throughput": 10.0,
        "failure_rate": 0.01,
    }


def test_wrk_outputs_of_one_target_are_launches() -> None:
    reading = own("wrk.txt")
    index = benchmark(reading, "http://127.0.0.1:8080/index.html")
    assert index.params == {"duration": "30s", "threads": 12, "connections": 400}
    assert metric(index, "throughput").launch_values == (748868.53, 700000.0)
    assert in_base(metric(index, "latency_p99")) == pytest.approx(5.8e-3)
    assert metric(index, "transfer").launch_values[0] == pytest.approx(606.33 * 2**20)
    assert metric(index, "failure_rate").launch_values[0] == pytest.approx(10 / 22464661)
    assert benchmark(reading, "http://127.0.0.1:8080/away").status == "error"
    assert (INPUTS / "wrk.txt").exists()
