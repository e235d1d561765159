"""The rules of a verdict, each by its smallest example."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfdb.stats import Metric, Noise, Outcome, Policy, Statistic, Verdict, compare

COUNTER = Metric(name="registers", unit="registers", deterministic=True)
THROUGHPUT = Metric(name="throughput", unit="tokens/s", lower_is_better=False)
SCORE = Metric(name="checksum", unit="", lower_is_better=None)


def launches(
    count: int, level: float, *, seed: int, spread: float = 0.003, samples: int = 20
) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    centres = level * np.exp(rng.normal(0.0, spread, count))
    return [list(centre * np.exp(rng.normal(0.0, 0.004, samples))) for centre in centres]


def reason(verdict: Verdict, start: str) -> str:
    return next(sentence for sentence in verdict.reasons if sentence.startswith(start))


class TestOutcomes:
    def test_slower_code_is_regressed_with_an_interval_that_holds_the_truth(self) -> None:
        verdict = compare(launches(5, 1.0, seed=1), launches(5, 1.05, seed=2))
        assert verdict.outcome is Outcome.REGRESSED
        assert verdict.low is not None
        assert verdict.high is not None
        assert 1.0 < verdict.low < 1.05 < verdict.high
        assert (verdict.n_base, verdict.n_head) == (5, 5)
        assert verdict.launches_needed is None

    def test_faster_code_is_improved(self) -> None:
        assert compare(launches(5, 1.0, seed=1), launches(5, 0.9, seed=2)).outcome is Outcome.IMPROVED

    def test_direction_follows_the_metric(self) -> None:
        base, head = launches(5, 100.0, seed=1), launches(5, 80.0, seed=2)
        assert compare(base, head, metric=THROUGHPUT).outcome is Outcome.REGRESSED
        assert compare(head, base, metric=THROUGHPUT).outcome is Outcome.IMPROVED

    def test_unknown_direction_changes_and_neither_regresses_nor_improves(self) -> None:
        base, head = launches(5, 1.0, seed=1), launches(5, 2.0, seed=2)
        assert compare(base, head, metric=SCORE).outcome is Outcome.CHANGED
        assert compare(head, base, metric=SCORE).outcome is Outcome.CHANGED

    def test_same_only_where_the_whole_interval_is_inside_the_margin(self) -> None:
        verdict = compare(launches(10, 1.0, seed=1), launches(10, 1.0, seed=2))
        assert verdict.outcome is Outcome.SAME
        assert verdict.low is not None
        assert verdict.high is not None
        assert 1 / 1.01 <= verdict.low <= verdict.high <= 1.01

    def test_noise_that_hides_the_answer_is_inconclusive_with_the_launches_needed(self) -> None:
        verdict = compare(launches(5, 1.0, seed=1, spread=0.03), launches(5, 1.02, seed=2, spread=0.03))
        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert verdict.launches_needed is not None
        assert verdict.launches_needed > 5
        assert f"about {verdict.launches_needed} launches a side" in verdict.reasons[-1]

    def test_an_empty_side_is_invalid_and_never_a_pass(self) -> None:
        verdict = compare([], [[1.0]])
        assert verdict.outcome is Outcome.INVALID
        assert "nothing was measured on base" in verdict.reasons[0]
        assert "base and head" in compare([], []).reasons[0]


class TestThreeRules:
    def test_each_rule_is_a_sentence(self) -> None:
        verdict = compare(launches(5, 1.0, seed=1), launches(5, 1.05, seed=2))
        assert "0.5 %" in reason(verdict, "relative:")
        assert " s " in reason(verdict, "absolute:")
        assert "0.005" in reason(verdict, "noise:")
        assert verdict.rules is not None
        assert verdict.rules.all_met

    def test_relative_floor_alone_holds_a_verdict_back(self) -> None:
        base, head = launches(10, 1.0, seed=1, spread=1e-4), launches(10, 1.02, seed=2, spread=1e-4)
        verdict = compare(base, head, policy=Policy(relative_floor=0.05, equivalence_margin=0.05))
        assert verdict.outcome is Outcome.SAME
        assert verdict.rules is not None
        assert (verdict.rules.relative, verdict.rules.absolute, verdict.rules.noise) == (False, True, True)

    def test_absolute_floor_alone_holds_a_verdict_back(self) -> None:
        base, head = launches(10, 1.0, seed=1), launches(10, 1.05, seed=2)
        verdict = compare(base, head, policy=Policy(absolute_floor=0.1))
        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert verdict.rules is not None
        assert (verdict.rules.relative, verdict.rules.absolute, verdict.rules.noise) == (True, False, True)
        assert compare(base, head, policy=Policy(absolute_floor=0.01)).outcome is Outcome.REGRESSED

    def test_default_absolute_floor_of_a_time_is_the_tick_of_its_timer(self) -> None:
        base = [[6.0, 6.5, 7.0], [6.5, 6.5, 7.0], [6.5, 6.5, 7.0], [6.0, 6.5, 6.5], [6.5, 7.0, 7.0]]
        verdict = compare(base, base, metric=Metric(unit="us"))
        assert "floor of 0.5 us" in reason(verdict, "absolute:")

    def test_a_count_has_no_tick(self) -> None:
        base = [[6.0, 7.0, 8.0]] * 5
        verdict = compare(base, base, metric=Metric(unit="objects", lower_is_better=None))
        assert "floor of 0 objects" in reason(verdict, "absolute:")


class TestFewLaunches:
    def test_one_launch_a_side_is_inconclusive_with_ratio_and_direction(self) -> None:
        verdict = compare([[10.0, 10.1, 9.9]], [[20.0, 20.1, 19.9]])
        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert verdict.ratio == pytest.approx(2.0)
        assert verdict.p_value is None
        assert verdict.launches_needed is not None
        assert "+100.00 %" in reason(verdict, "relative:")

    def test_many_iterations_do_not_replace_launches(self) -> None:
        base, head = launches(1, 1.0, seed=1, samples=5000), launches(1, 1.1, seed=2, samples=5000)
        assert compare(base, head).outcome is Outcome.INCONCLUSIVE

    def test_known_noise_lets_one_launch_decide(self) -> None:
        assert compare([[10.0]], [[20.0]], noise=0.01).outcome is Outcome.REGRESSED
        assert compare([[10.0]], [[10.2]], noise=0.01).outcome is Outcome.INCONCLUSIVE

    def test_one_launch_inside_the_gap_that_history_has_seen_does_not_decide(self) -> None:
        noise = Noise(between_launches=0.01, degrees=50, widest_gap=0.2)
        verdict = compare([[10.0]], [[11.5]], noise=noise)
        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert "from launch to launch" in reason(verdict, "noise:")
        assert compare([[10.0]], [[13.0]], noise=noise).outcome is Outcome.REGRESSED

    def test_three_equal_rounded_times_are_not_deterministic(self) -> None:
        assert compare([[5.0, 5.0, 5.0]], [[5.2, 5.2, 5.2]]).outcome is Outcome.INCONCLUSIVE
        assert compare([[5.0]] * 3, [[5.2]] * 3).outcome is Outcome.INCONCLUSIVE

    def test_three_launches_may_be_two_modes_unless_the_change_is_large(self) -> None:
        base, head = launches(3, 1.0, seed=1), launches(3, 1.04, seed=2)
        verdict = compare(base, head)
        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert "modes" in reason(verdict, "noise:")
        assert verdict.launches_needed == 5
        assert compare(base, launches(3, 1.5, seed=2)).outcome is Outcome.REGRESSED
        assert compare(base, head, noise=0.003).outcome is Outcome.REGRESSED

    def test_launches_noisier_than_the_history_speak_for_themselves(self) -> None:
        base, head = launches(5, 1.0, seed=1, spread=0.05), launches(5, 1.02, seed=2, spread=0.05)
        quiet = compare(base, head, noise=0.001)
        assert quiet.outcome is Outcome.INCONCLUSIVE
        assert quiet.high is not None
        assert quiet.high > 1.04

    def test_scatter_between_commits_is_not_averaged_away(self) -> None:
        base, head = launches(20, 1.0, seed=1), launches(20, 1.02, seed=2)
        assert compare(base, head, noise=Noise(0.003)).outcome is Outcome.REGRESSED
        assert compare(base, head, noise=Noise(0.003, between_commits=0.02)).outcome is Outcome.INCONCLUSIVE


class TestDeterministic:
    def test_any_difference_is_a_change_at_one_launch(self) -> None:
        verdict = compare([[40]], [[41]], metric=COUNTER)
        assert verdict.outcome is Outcome.REGRESSED
        assert verdict.ratio == verdict.low == verdict.high == 41 / 40
        assert compare([[40]], [[39]], metric=COUNTER).outcome is Outcome.IMPROVED
        assert compare([[40]], [[40]], metric=COUNTER).outcome is Outcome.SAME

    def test_a_part_in_a_million_counts(self) -> None:
        assert compare([[1_000_000]], [[1_000_001]], metric=COUNTER).outcome is Outcome.REGRESSED

    def test_nothing_to_nothing_is_no_change_and_nothing_to_five_has_no_percentage(self) -> None:
        same = compare([[0]], [[0]], metric=COUNTER)
        assert (same.outcome, same.ratio) == (Outcome.SAME, 1.0)
        changed = compare([[0]], [[5]], metric=COUNTER)
        assert (changed.outcome, changed.ratio, changed.difference) == (Outcome.REGRESSED, None, 5.0)

    def test_declared_but_varying_is_said_and_compared_like_noise(self) -> None:
        verdict = compare([[40, 41]] * 5, [[40, 41]] * 5, metric=COUNTER)
        assert verdict.outcome is Outcome.SAME
        assert "declared deterministic, but" in verdict.reasons[0]


class TestZeros:
    def test_undeclared_zero_to_zero(self) -> None:
        assert compare([[0.0]] * 3, [[0.0]] * 3).outcome is Outcome.SAME

    def test_undeclared_zero_to_five(self) -> None:
        verdict = compare([[0.0]] * 3, [[5.0]] * 3)
        assert (verdict.outcome, verdict.ratio, verdict.low) == (Outcome.REGRESSED, None, None)
        assert "no percentage" in verdict.reasons[-1]

    def test_constant_values_give_no_alarm_and_no_crash(self) -> None:
        assert compare([[5.0]] * 6, [[5.0]] * 6).outcome is Outcome.SAME
        assert compare([[5.0]] * 6, [[6.0]] * 6).outcome is Outcome.REGRESSED

    def test_a_time_of_zero_is_no_improvement(self) -> None:
        verdict = compare(launches(5, 1.0, seed=1), [[0.0] * 20] * 5)
        assert verdict.outcome is Outcome.INVALID
        assert "head launch 1 took no time" in verdict.reasons[0]

    def test_a_count_may_fall_to_zero(self) -> None:
        spills = Metric(unit="spills")
        assert compare([[3.0, 3.0, 4.0]] * 5, [[0.0]] * 5, metric=spills).outcome is Outcome.IMPROVED

    def test_negative_values_of_an_unknown_unit_are_compared_as_differences(self) -> None:
        rng = np.random.default_rng(3)
        verdict = compare(rng.normal(-5.0, 0.01, 8), rng.normal(-4.0, 0.01, 8), metric=SCORE)
        assert (verdict.outcome, verdict.ratio) == (Outcome.CHANGED, None)
        assert verdict.difference == pytest.approx(1.0, abs=0.05)


class TestClock:
    def test_a_gap_in_time_alone_is_a_clock_effect(self) -> None:
        cycles = launches(5, 1980.0, seed=1, spread=0.001), launches(5, 1980.0, seed=2, spread=0.001)
        mhz = [1980.0] * 5, [1500.0] * 5
        times = [
            [[v / clock for v in launch] for launch, clock in zip(side, clocks, strict=True)]
            for side, clocks in zip(cycles, mhz, strict=True)
        ]
        assert compare(*times).outcome is Outcome.REGRESSED
        verdict = compare(*times, base_mhz=mhz[0], head_mhz=mhz[1])
        assert verdict.outcome is Outcome.SAME
        assert verdict.clock_effect
        assert verdict.ratio == pytest.approx(1980 / 1500, rel=0.01)
        assert verdict.cycles is not None
        assert verdict.cycles.ratio == pytest.approx(1.0, abs=0.01)
        assert "clock effect" in verdict.reasons[-1]

    def test_a_gap_in_both_stands(self) -> None:
        verdict = compare(
            launches(5, 1.0, seed=1), launches(5, 1.1, seed=2), base_mhz=[1980] * 5, head_mhz=[1975] * 5
        )
        assert (verdict.outcome, verdict.clock_effect) == (Outcome.REGRESSED, False)

    def test_cycles_show_what_clock_noise_hides(self) -> None:
        rng = np.random.default_rng(4)
        mhz = 1700.0 * np.exp(rng.normal(0.0, 0.03, (2, 6)))
        work = np.array([1.0, 1.03])[:, None] * np.exp(rng.normal(0.0, 0.002, (2, 6)))
        times = work / mhz
        assert compare(times[0], times[1]).outcome is Outcome.INCONCLUSIVE
        verdict = compare(times[0], times[1], base_mhz=mhz[0], head_mhz=mhz[1])
        assert (verdict.outcome, verdict.method) == (Outcome.REGRESSED, "cycles")

    def test_fewer_cycles_at_a_slower_clock_and_equal_time_are_no_improvement(self) -> None:
        base, head = launches(8, 1.0, seed=1, spread=0.001), launches(8, 1.0, seed=2, spread=0.001)
        verdict = compare(base, head, base_mhz=[1980] * 8, head_mhz=[1700] * 8)
        assert verdict.outcome is Outcome.SAME

    def test_a_rate_falls_with_the_clock_and_bytes_do_not(self) -> None:
        base, head = launches(5, 1980.0, seed=1, spread=0.001), launches(5, 1500.0, seed=2, spread=0.001)
        clocks = {"base_mhz": [1980.0] * 5, "head_mhz": [1500.0] * 5}
        assert compare(base, head, metric=THROUGHPUT).outcome is Outcome.REGRESSED
        verdict = compare(base, head, metric=THROUGHPUT, **clocks)
        assert (verdict.outcome, verdict.clock_effect) == (Outcome.SAME, True)
        memory = compare(base, head, metric=Metric(unit="B"), **clocks)
        assert (memory.outcome, memory.cycles) == (Outcome.IMPROVED, None)

    @pytest.mark.parametrize("mhz", [[1980.0], [1980.0, 0.0], [1980.0, math.nan]])
    def test_impossible_clocks_are_refused(self, mhz: list[float]) -> None:
        with pytest.raises(ValueError, match="clock"):
            compare([[1.0]] * 2, [[1.0]] * 2, base_mhz=mhz, head_mhz=[1980.0] * 2)


class TestWorkers:
    def test_different_workers_cannot_be_told_from_different_code(self) -> None:
        base, head = launches(5, 1.0, seed=1), launches(5, 1.05, seed=2)
        verdict = compare(base, head, base_workers=["a"] * 5, head_workers=["b"] * 5)
        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert "no worker measured both" in verdict.reasons[-1]
        shared = compare(base, head, base_workers=["a"] * 5, head_workers=["a"] * 4 + ["b"])
        assert shared.outcome is Outcome.REGRESSED

    def test_a_known_scatter_between_workers_is_allowed_for(self) -> None:
        base, head = launches(5, 1.0, seed=1), launches(5, 1.05, seed=2)

        def outcome(between: float) -> Outcome:
            noise = Noise(0.003, degrees=50, between_workers=between)
            return compare(base, head, noise=noise, base_workers=["a"] * 5, head_workers=["b"] * 5).outcome

        assert outcome(0.002) is Outcome.REGRESSED
        assert outcome(0.05) is Outcome.INCONCLUSIVE


class TestReproducible:
    @given(seed=st.integers(0, 10_000), data=st.data())
    @settings(max_examples=25, deadline=None)
    def test_order_of_arrival_changes_nothing(self, seed: int, data: st.DataObject) -> None:
        base, head = launches(6, 1.0, seed=seed), launches(6, 1.01, seed=seed + 1)
        again = compare(
            [data.draw(st.permutations(launch)) for launch in data.draw(st.permutations(base))],
            data.draw(st.permutations(head)),
        )
        assert again == compare(base, head)

    @given(seed=st.integers(0, 10_000), shift=st.floats(-0.2, 0.2))
    @settings(max_examples=50, deadline=None)
    def test_swapping_the_sides_inverts_the_verdict(self, seed: int, shift: float) -> None:
        base, head = launches(5, 1.0, seed=seed), launches(5, math.exp(shift), seed=seed + 1)
        there, back = compare(base, head), compare(head, base)
        opposite = {Outcome.REGRESSED: Outcome.IMPROVED, Outcome.IMPROVED: Outcome.REGRESSED}
        assert back.outcome is opposite.get(there.outcome, there.outcome)
        assert there.ratio is not None
        assert back.ratio == pytest.approx(1.0 / there.ratio)
        assert back.p_value == pytest.approx(there.p_value)

    def test_the_unit_changes_nothing(self) -> None:
        base, head = launches(5, 1.0, seed=1), launches(5, 1.05, seed=2)
        in_ms = [[1000 * value for value in launch] for launch in head]
        verdict = compare(base, in_ms, head_unit="ms")
        assert verdict.ratio == pytest.approx(compare(base, head).ratio)

    def test_a_verdict_is_plain_json_without_infinity(self) -> None:
        for verdict in (
            compare(launches(5, 1.0, seed=1), launches(5, 1.05, seed=2), base_mhz=[1] * 5, head_mhz=[1] * 5),
            compare([[1.0]], [[2.0]]),
            compare([[0.0]] * 3, [[5.0]] * 3),
            compare([], []),
            compare(
                [[1.0]] * 3, [[1.0]] * 3, metric=Metric(statistic=Statistic.P99), head_failures=[1, 1, 1]
            ),
        ):
            assert json.loads(json.dumps(verdict.to_mapping(), allow_nan=False))["outcome"] == verdict.outcome
