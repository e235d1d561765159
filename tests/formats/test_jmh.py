"""JMH: direction by unit, forks are launches, parameters are sorted."""

from __future__ import annotations

import json

from perfdb.formats import read
from tests.formats.files import INPUTS, handed, metric, own, samples


def test_direction_follows_the_unit() -> None:
    latency, throughput = handed("jmh/bencher_latency.json"), handed("jmh/bencher_throughput.json")
    slow, fast = latency.benchmarks[0].metrics[0], throughput.benchmarks[0].metrics[0]
    assert slow.value == fast.value == 3.3762388731228185e9
    assert (slow.unit, slow.lower_is_better) == ("s/op", True)
    assert (fast.unit, fast.lower_is_better) == ("ops/s", False)
    assert any("contradicts" in warning for warning in latency.warnings)
    assert throughput.warnings == ()
    assert len(samples(fast)) == 3


def test_parameters_are_part_of_the_identity() -> None:
    (only,) = handed("jmh/gab_jmh_output_2.json").benchmarks
    assert list(only.params.items()) == [("paramA", "17"), ("paramB", "33")]


def test_modes_forks_and_secondary_metrics() -> None:
    reading = own("jmh_modes.json")
    (only,) = reading.benchmarks
    average = metric(only, "average_time")
    assert average.launches == ((2.4, 2.6), (2.5, 2.5))
    assert (average.value, average.lower_is_better) == (2.5, True)
    assert metric(only, "sample_time").summary["p99.0"] == 9.0
    assert metric(only, "sample_time").launches == ((),)
    assert metric(only, "gc.alloc.rate.norm").lower_is_better is True
    assert metric(only, "gc.count").lower_is_better is None
    assert only.params == {"size": "100", "algorithm": "merge", "threads": 4}
    assert "second time" in reading.rejected[0].reason


def test_a_score_that_is_not_a_number() -> None:
    document = json.loads((INPUTS / "jmh_modes.json").read_text())
    document[0]["primaryMetric"]["score"] = "NaN"
    reading = read(json.dumps(document[:1]).encode())
    assert reading.benchmarks == ()
    assert "expected a number, got 'NaN'" in reading.rejected[0].reason
