"""Definitions of the serving metrics, on records made by hand."""

from __future__ import annotations

import pytest

from runners.replay.client import Outcome, Record
from runners.replay.metrics import aligned, check, duration_s, is_good, measure, percentile
from runners.replay.options import OptionsError, Slo
from runners.replay.payloads import Planned
from runners.result import MetricSpec


def record(
    at_s: float, *chunks: float, outcome: Outcome = Outcome.OK, tokens: int | None = None, late_s: float = 0.0
) -> Record:
    return Record(
        Planned(at_s, 10, 4, "", b""),
        outcome=outcome,
        t_send=at_s + late_s,
        chunk_times=list(chunks),
        output_tokens=len(chunks) if tokens is None else tokens,
    )


def metric(name: str, unit: str, statistic: str = "median") -> MetricSpec:
    return MetricSpec(name, unit, lower_is_better=True, statistic=statistic)


def test_latency_counts_from_the_schedule_and_not_from_sending() -> None:
    late = [record(1.0, 1.75, 2.0, 2.5, late_s=0.5)]
    names = ("ttft", "ttft_from_send", "tpot", "e2e", "dispatch_delay")
    found = measure([metric(name, "ms") for name in names], late, Slo()).measurements
    assert [m.samples for m in found] == [[750.0], [250.0], [375.0], [1500.0], [500.0]]


def test_tpot_uses_the_tokens_that_the_server_counts() -> None:
    two_tokens_a_chunk = [record(0.0, 1.0, 2.0, 3.0, tokens=6)]
    found = measure([metric("tpot", "s"), metric("itl", "s")], two_tokens_a_chunk, Slo()).measurements
    assert found[0].samples == [pytest.approx(0.4)]
    assert found[1].samples == [1.0, 1.0]
    assert aligned(two_tokens_a_chunk)["chunks"] == [3]


def test_tpot_of_one_token_is_undefined_and_no_failure() -> None:
    records = [record(0.0, 1.0), record(0.0, 1.0, 3.0)]
    (found,) = measure([metric("tpot", "s")], records, Slo()).measurements
    assert (found.samples, found.failures, found.value) == ([2.0], 0, 2.0)


@pytest.mark.parametrize(
    ("count", "failures", "q", "expected"),
    [
        (100, 0, 0.99, 99.0),
        (100, 0, 0.5, 50.0),
        (99, 1, 0.99, 99.0),  # rank 99 of 100 is the last success
        (98, 2, 0.99, None),  # rank 99 of 100 is a failure
        (50, 50, 0.5, 50.0),
        (49, 51, 0.5, None),
        (1, 0, 0.5, 1.0),
        (0, 3, 0.5, None),
        (0, 0, 0.5, None),
    ],
)
def test_failures_hold_the_highest_ranks(count: int, failures: int, q: float, expected: float | None) -> None:
    assert percentile([float(i) for i in range(count, 0, -1)], failures, q) == expected


def test_more_failures_never_look_faster() -> None:
    """Dropping failed requests would make an overloaded server faster with every request it loses."""
    records = [record(0.0, float(i)) for i in range(1, 101)]
    values = []
    for lost in range(0, 60, 5):
        for slow in records[100 - lost :]:
            slow.outcome = Outcome.OOM
        (found,) = measure([metric("e2e_p50", "s")], records, Slo()).measurements
        values.append(float("inf") if found.value is None else found.value)
    assert values == sorted(values)
    assert values[0] == values[10] == 50.0
    assert values[11] == float("inf")


def test_a_percentile_on_a_failure_has_no_value_and_says_why() -> None:
    records = [record(0.0, 1.0), record(0.0, 2.0), record(0.0, outcome=Outcome.OOM)]
    found = measure([metric("e2e_p99", "s", "p99"), metric("e2e_mean", "s", "mean")], records, Slo())
    (tail,) = found.measurements  # a mean of the successes alone would pass for the mean
    assert (tail.samples, tail.value, tail.failures) == ([1.0, 2.0], None, 1)
    assert found.missing == [
        "e2e_p99: the p99 falls on one of 1 failures",
        "e2e_mean: the mean has no value, 1 requests failed",
    ]


def test_a_metric_without_any_sample_is_left_out_and_named() -> None:
    found = measure(
        [metric("ttft", "s"), metric("oom_rate", "%", "rate")], [record(0.0, outcome=Outcome.OOM)], Slo()
    )
    assert [m.metric.name for m in found.measurements] == ["oom_rate"]
    assert found.measurements[0].value == 100.0
    assert "ttft: none of 1 requests gave a value" in found.missing[0]


def test_rates_tell_memory_from_other_failures() -> None:
    outcomes = [Outcome.OK, Outcome.OOM, Outcome.TIMEOUT, Outcome.LOST]
    records = [record(0.0, 1.0, outcome=outcome) for outcome in outcomes]
    names = ("oom_rate", "error_rate", "failure_rate")
    found = measure([metric(name, "ratio", "rate") for name in names], records, Slo()).measurements
    assert [m.value for m in found] == [0.25, 0.5, 0.75]
    assert found[0].samples == [0.0, 1.0, 0.0, 0.0]


def test_goodput_counts_requests_within_every_limit() -> None:
    slo = Slo(ttft_ms=1000, tpot_ms=500)
    good = record(0.0, 0.5, 1.0)
    slow_start, slow_tokens = record(0.0, 1.5, 1.6), record(0.0, 0.5, 4.0)
    failed, single = record(0.0, 0.5, outcome=Outcome.SHORT), record(0.0, 0.5)
    assert [is_good(r, slo) for r in (good, slow_start, slow_tokens, failed, single)] == [
        True, False, False, False, True,
    ]  # fmt: skip
    records = [good, slow_start, slow_tokens, failed, single]
    (found,) = measure([metric("goodput", "req/s", "rate")], records, slo).measurements
    assert found.value == pytest.approx(2 / 4.0)
    (without,) = measure([metric("goodput", "req/s", "rate")], records, Slo()).measurements
    assert without.value == pytest.approx(4 / 4.0)


def test_duration_reaches_the_last_arrival_even_when_it_failed() -> None:
    assert duration_s([record(0.0, 1.0), record(9.0, outcome=Outcome.UNSENT)]) == 9.0
    assert duration_s([record(0.0, 1.0), record(9.0, 12.0)]) == 12.0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (metric("latency", "s"), "metric latency: the replay tier measures ttft"),
        (metric("ttft", "ratio"), "metric ttft: unit 'ratio' is none of s, ms"),
        (metric("ttft", "s", "count"), "metric ttft: a latency has no statistic 'count'"),
        (metric("e2e_p99", "s"), "metric e2e_p99: its name says p99, its statistic median"),
    ],
)
def test_a_metric_that_cannot_be_measured_is_named_before_anything_starts(
    bad: MetricSpec, message: str
) -> None:
    with pytest.raises(OptionsError, match=message):
        check([bad])
