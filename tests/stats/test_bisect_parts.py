"""The pieces of the bisection: information, buildability, verification, noise laws, and launches as they are given."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from perfdb.stats import bisect_planning as planning
from perfdb.stats import bisect_verify as verify
from perfdb.stats.bisect import Search
from perfdb.stats.bisect_launches import launch_value, without_infinity
from perfdb.stats.bisect_likelihood import (
    collect,
    laws_from_history,
    laws_without_history,
    log_likelihood,
)
from perfdb.stats.bisect_model import LevelModel, StepPrior

H200 = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "h200" / "harness.json.gz"


def bits(p: float, d: float) -> float:
    return float(planning.information(np.array([p]), np.array([d]))[0])


def test_information_lies_between_nothing_and_the_entropy() -> None:
    assert bits(0.5, 0.0) == pytest.approx(0.0, abs=1e-6)
    assert bits(0.5, 7.9) == pytest.approx(1.0, abs=1e-3)
    assert bits(0.0, 5.0) == bits(1.0, 5.0) == 0.0
    assert bits(0.1, 7.9) == pytest.approx(-(0.1 * math.log2(0.1) + 0.9 * math.log2(0.9)), abs=5e-3)
    assert bits(0.3, 1.5) == pytest.approx(bits(0.7, 1.5))


def test_information_agrees_with_a_simulated_channel() -> None:
    rng = np.random.default_rng(0)
    yes = rng.random(200_000) < 0.5
    y = rng.normal(size=yes.size) + np.where(yes, 1.0, -1.0)
    p_yes = 1.0 / (1.0 + np.exp(-2.0 * y))
    left = -np.log2(np.where(yes, p_yes, 1.0 - p_yes)).mean()
    assert bits(0.5, 2.0) == pytest.approx(1.0 - left, abs=0.01)


def test_launches_beside_earlier_ones_separate_less() -> None:
    fresh, again = planning.separation(np.array([0.0, 8.0]), np.array([2.0, 2.0]), 2.0, 0.1)
    assert fresh > again > 0
    assert fresh == pytest.approx(2.0 / math.sqrt(0.5 + 0.1))


def test_commits_beside_a_broken_one_are_less_likely_to_build() -> None:
    p = planning.buildable_probability([0, 100], [50, 52, 55], 100)
    assert p[50] == p[52] == p[55] == 0.0
    assert p[0] == p[100] == 1.0
    assert p[51] < p[60] < p[80]
    assert np.all((p >= 0) & (p <= 1))


@pytest.mark.parametrize(("n", "m"), [(3, 3), (4, 7), (12, 12), (20, 15)])
def test_rank_p_agrees_with_scipy(n: int, m: int) -> None:
    rng = np.random.default_rng(n * m)
    a, b = rng.normal(size=n).tolist(), rng.normal(0.4, 1.0, size=m).tolist()
    method = "exact" if max(n, m) <= 12 else "asymptotic"
    expected = mannwhitneyu(b, a, alternative="greater", method=method).pvalue
    assert verify.rank_p(a, b) == pytest.approx(expected, rel=1e-6)


def test_rank_test_needs_three_a_side() -> None:
    assert not verify.separated([1.0, 1.0], [2.0, 2.0])
    assert verify.separated([1.0, 1.1, 1.0], [2.0, 2.1, 2.0])
    assert not verify.separated([2.0, 2.1, 2.0], [1.0, 1.1, 1.0])
    assert not verify.separated([1.0] * 6, [1.0] * 6)


def test_verification_wants_launches_of_its_own() -> None:
    pair = verify.Pair(4, 5, 3, 3)
    launches = {4: [0.0, 0.01, 0.0], 5: [1.0, 1.01, 1.0]}
    assert not verify.verified(pair, launches, 1.0, 0.1)
    launches[4].append(0.0)
    assert not verify.verified(pair, launches, 1.0, 0.1)
    assert verify.verified(pair, {**launches, 5: [1.0, 1.01, 1.0, 1.0]}, 1.0, 0.1)
    assert not verify.verified(pair, {**launches, 5: [1.0, 1.01, 1.0, 0.02]}, 1.0, 0.1)


def test_one_worker_verifies_in_the_order_a_b_b_a() -> None:
    pair, launches = verify.Pair(4, 5, 0, 0), {4: list[float](), 5: list[float]()}
    order = []
    while len(order) < 8:
        (request,) = verify.requests(pair, launches, 1)
        for _ in range(request.launches):
            launches[request.commit].append(0.0)
            order.append(request.commit)
    assert order[:8] == [4, 5, 5, 4, 4, 5, 5, 4]


def test_every_noise_law_is_a_density() -> None:
    history = np.random.default_rng(0).standard_t(3, size=60) * 0.01
    laws = laws_from_history(history, 0.02, trusted=True)
    assert laws.kernel is not None
    assert np.exp(laws.log_prior).sum() == pytest.approx(1.0)
    levels = np.linspace(-40.0, 40.0, 800_001)
    table = log_likelihood(collect({0: [0.0]}), laws, levels)
    wide = laws.effective_sd < 0.1
    inside = np.trapezoid(np.exp(table[wide, 0]), levels, axis=1)
    assert inside == pytest.approx(np.ones(int(wide.sum())), abs=0.02)


def test_a_history_too_short_for_a_density_gives_scales_only() -> None:
    assert laws_from_history(np.random.default_rng(0).normal(size=12), 0.02, trusted=True).kernel is None
    assert laws_without_history(0.02).gauss_scales.min() < 0.02 / 50


def test_likelihood_of_gaussian_launches_is_the_textbook_sum() -> None:
    laws = laws_without_history(1.0)
    values = [0.3, -0.2, 0.7]
    table = log_likelihood(collect({3: values}), laws, np.array([0.1]))
    sd = laws.gauss_scales[4]
    expected = sum(-0.5 * ((v - 0.1) / sd) ** 2 - math.log(sd * math.sqrt(2 * math.pi)) for v in values)
    assert table[4, 0, 0] == pytest.approx(expected)


def test_posterior_is_a_distribution_and_finds_the_gap() -> None:
    rng = np.random.default_rng(0)
    launches = {
        c: (rng.normal(0.0, 0.01, 4) + (0.05 if c >= 40 else 0.0)).tolist() for c in (0, 20, 39, 41, 64)
    }
    data = collect(launches)
    model = LevelModel(StepPrior(0.05), laws_from_history(rng.normal(0, 0.01, 30), 0.05, trusted=False))
    posterior = model.posterior(data, np.diff(data.commits), 64)
    everything = posterior.none + posterior.reversed + posterior.several + posterior.one
    assert everything + posterior.hidden_gaps.sum() == pytest.approx(1.0)
    assert int(np.argmax(posterior.one_gaps)) == 2
    assert posterior.one_gaps[2] > 0.9
    assert posterior.step == pytest.approx(0.05, abs=0.01)


def test_launches_as_given() -> None:
    assert launch_value([3.0, 1.0, 2.0], "level") == 2.0
    assert launch_value([0, 0, 1, 1], "rate") == 0.5
    assert launch_value([0, 3], "pass_fail") == 1.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        launch_value(1.2, "rate")


def test_a_time_out_lies_beyond_everything_finite() -> None:
    values = without_infinity(np.array([0.0, 0.1, np.inf]), 0.5)
    assert values.tolist() == [0.0, 0.1, 0.5]
    assert without_infinity(np.array([0.0, 0.1, -np.inf]), 0.5).min() < -0.3


def test_real_launch_noise_never_gives_a_wrong_name() -> None:
    """10 searches for 2 % on launches of an H200 whose clock was capped now and then (launch CV 7 %)."""
    if not H200.exists():
        pytest.skip(f"no launches of an H200 at {H200}")
    launches = json.loads(gzip.decompress(H200.read_bytes()))
    medians = np.log([np.median(launch["cases"]["softmax.8192x4096"]["naive"]) for launch in launches])
    rng, named = np.random.default_rng(2), 0
    for _ in range(10):
        culprit = int(rng.integers(1, 17))
        search = Search(16, alert_ratio=1.02, max_cost=60)
        while probes := search.next():
            noise = rng.choice(medians, probes[0].launches)
            step = 0.02 if probes[0].commit >= culprit else 0.0
            search.observe(probes[0].commit, np.exp(noise + step).tolist())
        answer = search.answer
        if answer.kind in ("culprit", "range", "several"):
            named += 1
            assert culprit in answer.commits
    assert named < 10
