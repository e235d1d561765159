"""Workload drift on real traces and on planted shifts; the decomposition adds up."""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from perfdb.stats.drift import (
    Workload,
    decompose,
    length_classes,
    population_stability,
    prefix_shares,
    wasserstein,
    workload_drift,
)

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="../shared/data/traces is absent")


def azure(name: str, rows: int) -> Workload:
    with (TRACES / f"azure_{name}.csv").open() as file:
        found = [row for _, row in zip(range(rows), csv.DictReader(file), strict=False)]
    return Workload(
        [float(row["ContextTokens"]) for row in found],
        [float(row["GeneratedTokens"]) for row in found],
        [datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in found],
    )


def part(whole: Workload, chosen: np.ndarray) -> Workload:
    return Workload(
        *(np.asarray(v)[chosen].tolist() for v in (whole.input_tokens, whole.output_tokens, whole.arrival_s))
    )


@needs_traces
def test_code_against_conversation_is_drift_in_both_lengths() -> None:
    drift = workload_drift(azure("code", 4000), azure("conv", 4000))
    assert drift.drifted
    assert {"input tokens", "output tokens"} <= set(drift.dimensions)


@needs_traces
@pytest.mark.parametrize("name", ["code", "conv"])
def test_halves_of_one_stream_are_no_drift(name: str) -> None:
    whole, rng = azure(name, 1000), np.random.default_rng(4)
    drifted = 0
    for draw in range(100):
        half = rng.random(1000) < 0.5
        drifted += workload_drift(part(whole, half), part(whole, ~half), seed=draw).drifted
    assert drifted <= 1


def test_planted_shifts_are_found_in_their_own_dimension() -> None:
    rng = np.random.default_rng(2)
    lengths, answers = rng.lognormal(6, 0.7, 3000), rng.lognormal(5, 0.5, 3000)
    times = np.cumsum(rng.exponential(0.1, 3000))
    base = Workload(lengths[:1500], answers[:1500], times[:1500], ["chat"] * 1200 + ["code"] * 300)
    longer = Workload(1.4 * lengths[1500:], answers[1500:], times[1500:])
    faster = Workload(lengths[1500:], answers[1500:], times[1500:] / 2)
    mixed = Workload(lengths[1500:], answers[1500:], times[1500:], ["chat", "code"] * 750)
    assert workload_drift(base, longer).dimensions == ["input tokens"]
    assert workload_drift(base, faster).dimensions == ["time between arrivals"]
    assert workload_drift(base, mixed).dimensions == ["class mix"]


def test_few_requests_decide_nothing() -> None:
    drift = workload_drift(Workload([1.0] * 5, [1.0] * 5), Workload([9.0] * 500, [9.0] * 500))
    assert not drift.decidable
    assert not drift.drifted


def test_equal_streams_have_no_distance_and_bad_values_are_named() -> None:
    same = Workload([7.0] * 100, [3.0] * 100)
    drift = workload_drift(same, same)
    assert [(one.ks, one.psi, one.wasserstein) for one in drift.distances] == [(0.0, 0.0, 0.0)] * 2
    with pytest.raises(ValueError, match="output tokens holds a value that is not finite"):
        workload_drift(same, Workload([7.0] * 100, [float("nan")] * 100))


def test_distances_agree_with_their_definitions() -> None:
    rng = np.random.default_rng(9)
    a, b = rng.normal(0, 1, 300), rng.normal(0.4, 1.3, 200)
    assert wasserstein(a, b) == pytest.approx(stats.wasserstein_distance(a, b))
    assert population_stability([50, 50], [50, 50]) == 0.0
    assert population_stability([900, 100], [500, 500]) == pytest.approx(
        0.4 * np.log(1.8) + 0.4 * np.log(5), rel=0.01
    )


def test_prefix_shares_count_whole_prefixes_only() -> None:
    assert prefix_shares([[1, 2, 3], [1, 2, 4], [9, 2, 3], []]) == [0.0, 2 / 3, 0.0, 0.0]


@pytest.mark.parametrize("quantile", [None, 0.5, 0.99])
def test_mix_and_within_add_up_to_the_change(quantile: float | None) -> None:
    rng = np.random.default_rng(1)
    before = {"short": rng.gamma(2, 0.1, 700), "long": rng.gamma(2, 1.0, 300)}
    after = {"short": rng.gamma(2, 0.12, 400), "long": rng.gamma(2, 1.0, 500), "new": rng.gamma(2, 3.0, 100)}
    parts = decompose(before, after, quantile=quantile)
    assert parts.mix + parts.within == pytest.approx(parts.change)
    whole = [np.concatenate(list(side.values())) for side in (before, after)]
    if quantile is None:
        assert parts.after == pytest.approx(whole[1].mean())
        assert sum(parts.within_by_class.values()) == pytest.approx(parts.within)
        assert parts.within_by_class["new"] == 0.0
    else:
        assert parts.before == np.quantile(whole[0], quantile, method="inverted_cdf")


def test_pure_mix_and_pure_slowdown_go_to_their_own_part() -> None:
    mix = decompose({"a": [1.0] * 9, "b": [2.0]}, {"a": [1.0], "b": [2.0] * 9})
    assert (mix.mix, mix.within) == pytest.approx((0.8, 0.0))
    slow = decompose({"a": [1.0] * 9, "b": [2.0]}, {"a": [1.5] * 9, "b": [3.0]})
    assert (slow.mix, slow.within) == pytest.approx((0.0, 0.55))
    with pytest.raises(ValueError, match="a side has no request"):
        decompose({}, {"a": [1.0]})


def test_length_classes_are_powers_of_two() -> None:
    assert length_classes([100, 128], [1, 40]) == ["in<128 out<2", "in<256 out<64"]
