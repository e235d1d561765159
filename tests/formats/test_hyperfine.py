"""hyperfine: seconds, one launch a run, failed runs flagged out."""

from __future__ import annotations

import pytest

from tests.formats.files import handed, identities, metric, own, samples


def test_every_run_is_a_launch() -> None:
    reading = handed("hyperfine/bencher_two.json")
    first, second = (metric(each, "time") for each in reading.benchmarks)
    assert first.value == pytest.approx(0.10753, abs=5e-6)
    assert second.value == pytest.approx(0.20851, abs=5e-6)
    assert [len(first.launches), len(second.launches)] == [27, 13]
    assert all(len(launch) == 1 for launch in first.launches)
    assert (first.unit, first.lower_is_better) == ("s", True)


def test_runs_with_another_exit_code_are_flagged_out() -> None:
    reading = handed("from-issues/synthetic_hyperfine_failed_params.json")
    assert len(identities(reading)) == 2
    first, second = reading.benchmarks
    assert first.params == {"n": "1"}
    assert samples(metric(first, "time")) == [0.009, 0.011]
    assert metric(first, "time").value == pytest.approx(0.010)
    assert [(each.value, each.reason) for each in metric(first, "time").flagged] == [(0.010, "exit code 22")]
    assert first.status == "ok"
    assert (second.status, samples(metric(second, "time")), metric(second, "time").value) == (
        "error",
        [],
        None,
    )


def test_the_file_is_in_seconds_whatever_the_screen_showed() -> None:
    (only,) = own("hyperfine_ms.json").benchmarks
    assert (metric(only, "time").value, metric(only, "time").unit) == (24.338, "s")
    assert only.params == {"size": "10", "file": "a.txt"}
    assert (metric(only, "peak_memory").value, metric(only, "peak_memory").unit) == (1048576, "bytes")
    assert metric(only, "system_time").value == 0.0
