"""The search on small, mostly noiseless ranges: what it names, what it refuses to name, and what it accepts."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from perfdb.stats.bisect import Answer, Probe, Search

Measure = Callable[[int, int], list[float] | None]


def play(search: Search, measure: Measure, *, k: int = 1, limit: int = 400) -> Answer:
    for _ in range(limit):
        probes = search.next(k)
        if not probes:
            return search.answer
        assert len(probes) <= k
        for probe in probes:
            search.observe(probe.commit, measure(probe.commit, probe.launches))
    raise AssertionError(f"no end after {limit} rounds: {search.answer}")


def levels(values: list[float | None], *, cv: float = 0.002, seed: int = 3) -> Measure:
    """Launches of known levels with lognormal noise; None cannot be built."""
    rng = np.random.default_rng(seed)

    def measure(commit: int, launches: int) -> list[float] | None:
        level = values[commit]
        if level is None:
            return None
        return [float(level * np.exp(cv * rng.normal())) for _ in range(launches)]

    return measure


def step_at(commit: int, n: int, ratio: float = 1.05) -> list[float | None]:
    return [10.0 * (ratio if c >= commit else 1.0) for c in range(n + 1)]


@pytest.mark.parametrize("culprit", [1, 2, 7, 31, 64, 127, 128])
def test_names_the_culprit_wherever_it_lies(culprit: int) -> None:
    answer = play(Search(128, alert_ratio=1.05), levels(step_at(culprit, 128)))
    assert (answer.kind, answer.commits) == ("culprit", (culprit,))
    assert answer.probability >= 0.95
    assert answer.launches <= 40


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_short_ranges(n: int) -> None:
    for culprit in range(1, n + 1):
        answer = play(Search(n, alert_ratio=1.05), levels(step_at(culprit, n)))
        assert (answer.kind, answer.commits) == ("culprit", (culprit,))


def test_a_metric_that_falls_is_searched_in_its_own_direction() -> None:
    answer = play(Search(40, alert_ratio=0.9), levels(step_at(17, 40, 0.9)))
    assert (answer.kind, answer.commits) == ("culprit", (17,))


def test_deterministic_sizes_without_any_noise() -> None:
    answer = play(Search(64, alert_ratio=1.01), levels(step_at(23, 64, 1.01), cv=0.0))
    assert (answer.kind, answer.commits) == ("culprit", (23,))


def test_commits_that_cannot_be_built_widen_the_answer_to_a_range() -> None:
    answer = play(Search(3, alert_ratio=1.5), levels([10.0, None, None, 15.0]))
    assert (answer.kind, answer.commits) == ("range", (1, 2, 3))


def test_a_build_failure_is_no_verdict() -> None:
    answer = play(Search(2, alert_ratio=1.5), levels([10.0, None, 15.0]))
    assert (answer.kind, answer.commits) == ("range", (1, 2))
    answer = play(Search(2, alert_ratio=1.5), levels([10.0, None, 10.0]))
    assert answer.kind == "not_reproduced"


def test_blocks_of_failing_commits_are_leapt_over() -> None:
    values = step_at(300, 502)
    for start in (100, 240, 380):
        for commit in range(start, start + 36):
            values[commit] = None
    search = Search(502, alert_ratio=1.05)
    answer = play(search, levels(values))
    assert (answer.kind, answer.commits) == ("culprit", (300,))
    failed = answer.cost - answer.launches - 3.0 * len({c for c in range(503) if search.launches_of(c)})
    assert failed / 3.0 <= 20


def test_culprit_hidden_in_a_block_gives_the_block() -> None:
    values = step_at(60, 128)
    for commit in range(50, 70):
        values[commit] = None
    answer = play(Search(128, alert_ratio=1.05), levels(values))
    assert (answer.kind, answer.commits) == ("range", tuple(range(50, 71)))


def test_an_end_that_cannot_be_built_is_replaced_by_its_neighbour() -> None:
    answer = play(Search(8, alert_ratio=1.2), levels([None, 10.0, 10.0, 10.0, 12.0, 12.0, 12.0, 12.0, None]))
    assert (answer.kind, answer.commits) == ("culprit", (4,))


def test_no_step_between_the_neighbours_of_a_broken_end_points_outward() -> None:
    answer = play(Search(8, alert_ratio=1.2), levels([None, *[12.0] * 8]))
    assert answer.kind == "outside"
    assert "outward" in answer.reason


def test_nothing_builds() -> None:
    answer = play(Search(4, alert_ratio=1.2), lambda commit, launches: None)
    assert answer.kind == "inconclusive"
    assert answer.commits == ()


def test_equal_ends_are_not_reproduced() -> None:
    answer = play(Search(64, alert_ratio=1.12), levels([10.0] * 65, cv=0.01))
    assert answer.kind == "not_reproduced"
    assert answer.probability >= 0.85


def test_reversed_ends_are_said_to_be_reversed() -> None:
    answer = play(Search(32, alert_ratio=1.05), levels(step_at(11, 32, 0.95)))
    assert answer.kind == "not_reproduced"
    assert "reversed" in answer.reason


def test_both_ends_at_the_bad_level_of_the_history() -> None:
    rng = np.random.default_rng(0)
    history = (10.0 * np.exp(0.002 * rng.normal(size=30))).tolist()
    answer = play(Search(32, alert_ratio=1.05, history=history), levels([10.5] * 33))
    assert answer.kind == "outside"


def test_a_level_that_comes_back_has_recovered() -> None:
    values: list[float | None] = [10.0 * (1.05 if 30 <= c < 80 else 1.0) for c in range(129)]
    answer = play(Search(128, alert_ratio=1.05), levels(values))
    assert answer.kind == "recovered"


def test_more_than_one_change_is_not_one_culprit() -> None:
    answer = play(Search(3, alert_ratio=1.3), levels([10.0, 13.0, 10.0, 13.0]))
    assert (answer.kind, answer.commits) == ("several", (1, 3))
    assert "2" in answer.reason


def test_the_commit_that_improved_is_not_blamed() -> None:
    answer = play(Search(2, alert_ratio=1.2), levels([10.0, 14.0, 12.0]))
    assert (answer.kind, answer.commits) == ("culprit", (1,))
    assert "improved" in answer.reason


def test_two_culprits_are_both_named() -> None:
    values: list[float | None] = [10.0 * 1.05 ** ((c >= 40) + (c >= 90)) for c in range(129)]
    answer = play(Search(128, alert_ratio=1.1), levels(values))
    assert (answer.kind, answer.commits) == ("several", (40, 90))


def test_a_time_out_counts_as_slow_and_is_searched_in_log_steps() -> None:
    values: list[float | None] = [0.005 if c < 45 else math.inf for c in range(129)]
    answer = play(Search(128, alert_ratio=1e4), levels(values))
    assert (answer.kind, answer.commits) == ("culprit", (45,))
    assert answer.launches <= 25


@pytest.mark.parametrize("response", ["pass_fail", "rate"])
def test_failures_are_counted(response: str) -> None:
    rng = np.random.default_rng(5)

    def measure(commit: int, launches: int) -> list[float]:
        return [float(rng.random() < (0.9 if commit >= 21 else 0.0)) for _ in range(launches)]

    answer = play(Search(64, alert_ratio=math.inf, response=response), measure)  # type: ignore[arg-type]
    assert (answer.kind, answer.commits) == ("culprit", (21,))


def test_a_fractional_rate_with_none_on_the_good_side() -> None:
    rng = np.random.default_rng(5)

    def measure(commit: int, launches: int) -> list[float]:
        return [float(rng.binomial(200, 0.1 if commit >= 33 else 0.0)) / 200 for _ in range(launches)]

    answer = play(Search(64, alert_ratio=math.inf, response="rate"), measure)
    assert (answer.kind, answer.commits) == ("culprit", (33,))


def test_raw_samples_count_as_one_launch() -> None:
    search = Search(8, alert_ratio=1.1)
    search.observe(0, [[9.9, 10.0, 10.4], 10.1])
    assert search.answer.launches == 2


def test_a_spent_budget_gives_no_name() -> None:
    search = Search(128, alert_ratio=1.01, max_cost=40)
    answer = play(search, levels(step_at(70, 128, 1.01), cv=0.02))
    assert answer.kind == "inconclusive"
    assert "budget" in answer.reason
    assert answer.cost < 60


def test_cached_builds_cost_nothing() -> None:
    free = play(Search(16, alert_ratio=1.1, built=range(17)), levels(step_at(5, 16, 1.1)))
    assert free.cost == free.launches


def test_replaying_the_observations_gives_the_same_search() -> None:
    measure = levels(step_at(50, 128, 1.02), cv=0.01)
    search, log = Search(128, alert_ratio=1.02), []
    while probes := search.next():
        twin = Search(128, alert_ratio=1.02)
        if len(log) % 5 == 0:
            for commit, launches in log:
                twin.observe(commit, launches)
            assert twin.next() == probes == search.next()
            assert twin.posterior() == search.posterior()
        values = measure(probes[0].commit, probes[0].launches)
        log.append((probes[0].commit, values))
        search.observe(probes[0].commit, values)
    twin = Search(128, alert_ratio=1.02)
    for commit, launches in log:
        twin.observe(commit, launches)
    assert twin.answer == search.answer
    assert twin.next() == []


def test_observations_of_several_workers_may_come_in_any_order() -> None:
    rng = np.random.default_rng(1)
    measure, search = levels(step_at(90, 128)), Search(128, alert_ratio=1.05)
    while probes := search.next(4):
        assert len({probe.commit for probe in probes}) == len(probes)
        for index in rng.permutation(len(probes)):
            search.observe(probes[index].commit, measure(probes[index].commit, probes[index].launches))
    assert (search.answer.kind, search.answer.commits) == ("culprit", (90,))


def test_probes_nobody_asked_for_are_used() -> None:
    search, measure = Search(16, alert_ratio=1.05), levels(step_at(9, 16))
    for commit in range(17):
        search.observe(commit, measure(commit, 3))
    assert (play(search, measure).commits) == (9,)


def test_begins_at_the_ends_and_says_that_it_runs() -> None:
    search = Search(128, alert_ratio=1.05)
    assert search.next() == [Probe(0, 1)]
    assert {probe.commit for probe in search.next(2)} == {0, 128}
    assert search.answer.kind == "running"
    assert search.expected_cost() > 0
    assert sum(search.posterior().commits) == pytest.approx(1.0)


def test_posterior_sums_to_one_less_what_it_does_not_show() -> None:
    search, measure = Search(32, alert_ratio=1.05), levels(step_at(9, 32))
    for commit in (0, 32, 16, 0, 32):
        search.observe(commit, measure(commit, 1))
    shown = search.posterior()
    assert len(shown.commits) == 33
    assert sum(shown.commits[1:17]) > 0.9
    assert 0 <= shown.none < 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_commits": 0, "alert_ratio": 1.1}, "n_commits"),
        ({"n_commits": 4, "alert_ratio": 1.0}, "alert_ratio"),
        ({"n_commits": 4, "alert_ratio": -2.0}, "alert_ratio"),
        ({"n_commits": 4, "alert_ratio": math.nan}, "alert_ratio"),
        ({"n_commits": 4, "alert_ratio": math.inf}, "alert_ratio"),
        ({"n_commits": 4, "alert_ratio": 1.1, "response": "speed"}, "response"),
        ({"n_commits": 4, "alert_ratio": 1.1, "confidence": 1.0}, "confidence"),
        ({"n_commits": 4, "alert_ratio": 1.1, "built": [5]}, "built"),
        ({"n_commits": 4, "alert_ratio": 1.1, "max_cost": 0.0}, "max_cost"),
        ({"n_commits": 4, "alert_ratio": 1.1, "history": [1.0, -1.0]}, "positive"),
    ],
)
def test_refuses_impossible_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Search(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("launches", [[], [math.nan], [0.0], [-1.0], [[]]])
def test_refuses_impossible_launches_and_stays_as_it_was(launches: list[float]) -> None:
    search = Search(4, alert_ratio=1.1)
    with pytest.raises(ValueError, match=r"launch|level|samples"):
        search.observe(2, launches)
    assert search.answer.cost == 0


def test_refuses_contradictions() -> None:
    search = Search(4, alert_ratio=1.1)
    search.observe(2, None)
    with pytest.raises(ValueError, match="unbuildable"):
        search.observe(2, [1.0])
    search.observe(1, [1.0])
    with pytest.raises(ValueError, match="launches"):
        search.observe(1, None)
    with pytest.raises(ValueError, match="outside"):
        search.observe(9, [1.0])
    with pytest.raises(ValueError, match="k is 0"):
        search.next(0)
    with pytest.raises(TypeError, match="boolean"):
        Search(4, alert_ratio=2.0, response="pass_fail").observe(0, [True])
