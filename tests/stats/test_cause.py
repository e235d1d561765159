"""Evidence lines and their posterior, on plain facts."""

from __future__ import annotations

from math import log

import pytest

from perfdb.stats import cause
from perfdb.stats.cause import CAUSES, Line, judge

SLOWER = log(1.2)


def name(line: Line | None) -> str:
    assert line is not None
    return line.name


def test_no_evidence_says_unknown_and_gives_the_prior_back() -> None:
    verdict = judge([])
    assert verdict.cause == "unknown"
    assert verdict.posterior == pytest.approx(cause.PRIOR)


def test_posterior_is_bayes_rule() -> None:
    line = Line("x", "x", {"code": 0.8, "infra": 0.2, "workload": 0.2, "method": 0.2})
    weights = {
        "code": 0.4,
        "infra": 0.04,
        "workload": 0.02,
        "method": 0.02,
        "unknown": 0.1 * (0.8 * 0.008) ** 0.25,
    }
    total = sum(weights.values())
    assert judge([line]).posterior == pytest.approx({k: v / total for k, v in weights.items()})


def test_sentinel_moves_only_by_the_changes_size_and_sign() -> None:
    still = {"product_s": [1.0, 1.01, 0.99]}
    assert name(cause.sentinel(still, {"product_s": [1.2, 1.21, 1.19]}, slower=SLOWER)) == "sentinel moved"
    assert name(cause.sentinel(still, {"product_s": [1.03, 1.04, 1.02]}, slower=SLOWER)) == "sentinel steady"
    assert name(cause.sentinel(still, {"product_s": [0.8, 0.81, 0.79]}, slower=SLOWER)) == "sentinel steady"
    noisy = {"product_s": [0.5, 1.0, 2.0]}
    assert name(cause.sentinel(noisy, {"product_s": [0.6, 1.2, 2.4]}, slower=SLOWER)) == "sentinel steady"
    assert cause.sentinel({}, {"product_s": [1.0]}, slower=SLOWER) is None


def test_clock_that_fell_as_much_explains_the_time() -> None:
    assert name(cause.clock([1800.0] * 3, [1500.0] * 3, slower=SLOWER)) == "gone in cycles"
    assert name(cause.clock([1800.0] * 3, [1795.0] * 3, slower=SLOWER)) == "same in cycles"
    assert cause.clock([], [1500.0], slower=SLOWER) is None


def test_workers_tell_one_machine_from_all() -> None:
    assert name(cause.workers({"a": SLOWER, "b": 0.0}, slower=SLOWER)) == "some workers"
    assert name(cause.workers({"a": SLOWER, "b": 0.15}, slower=SLOWER)) == "all workers"
    assert cause.workers({"a": SLOWER}, slower=SLOWER) is None
    assert name(cause.other_worker({"a"}, {"b"})) == "other worker"
    assert cause.other_worker({"a"}, {"a", "b"}) is None


def test_identical_artifact_rules_code_out_whatever_else_looks_like_it() -> None:
    lines = [
        cause.sentinel({"c": [1.0] * 3}, {"c": [1.0] * 3}, slower=SLOWER),
        cause.other_series(0, 20),
        cause.artifact(identical=True),
    ]
    assert judge([line for line in lines if line]).posterior["code"] < 0.01


def test_old_commit_at_the_new_level_is_never_code() -> None:
    line = cause.again(SLOWER, slower=SLOWER, launches=4)
    assert line.experiment
    assert judge([line]).posterior["code"] < 0.02
    assert judge([cause.again(0.001, slower=SLOWER, launches=4)]).posterior["infra"] < 0.02


def test_every_line_gives_each_cause_a_probability() -> None:
    lines = [
        cause.trace(changed=True, drifted=["input tokens"]), cause.trace(changed=True, decided=True),
        cause.trace(changed=True), cause.trace(changed=False), cause.method(definition=True),
        cause.method(definition=False), cause.method(definition=None, harness=["1", "2"]),
        cause.environment(["driver 1 to 2"]), cause.environment([]), cause.health(["hot"]), cause.fixed_input(),
        cause.artifact(identical=False), cause.other_series(9, 10),
    ]  # fmt: skip
    for line in lines:
        assert line is not None
        assert set(line.likelihood) == set(CAUSES)
        assert all(0.0 < value < 1.0 for value in line.likelihood.values())
        assert line.sentence.endswith(".")
    assert cause.method(definition=None) is None
    assert cause.health([]) is None
