"""The split of cores between services and measuring."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdb.local.cores import (
    CorePlan,
    CoresError,
    current_plan,
    format_cpu_list,
    parse_cpu_list,
    plan_cores,
    usable_core_groups,
)


def _plan(*groups: set[int]) -> CorePlan:
    return plan_cores(frozenset(group) for group in groups)


def test_two_cores_are_one_each() -> None:
    assert _plan({0}, {1}) == CorePlan(services=frozenset({0}), measuring=frozenset({1}))


def test_siblings_stay_together() -> None:
    assert _plan({0, 2}, {1, 3}) == CorePlan(services=frozenset({0, 2}), measuring=frozenset({1, 3}))


def test_the_threads_of_a_single_core_are_split() -> None:
    assert _plan({4, 5}) == CorePlan(services=frozenset({4}), measuring=frozenset({5}))


def test_a_single_cpu_is_shared() -> None:
    assert _plan({3}) == CorePlan(services=frozenset({3}), measuring=frozenset({3}))


def test_sixteen_cores_leave_fourteen_to_measuring() -> None:
    plan = _plan(*({cpu} for cpu in range(16)))
    assert (plan.services, len(plan.measuring)) == (frozenset({0, 1}), 14)


@given(st.integers(2, 64), st.integers(1, 2))
def test_the_two_sets_are_disjoint_and_complete(cores: int, threads: int) -> None:
    groups = [frozenset(range(core * threads, (core + 1) * threads)) for core in range(cores)]
    plan = plan_cores(groups)
    assert not plan.services & plan.measuring
    assert plan.services | plan.measuring == frozenset(range(cores * threads))
    assert len(plan.measuring) >= len(plan.services) > 0


def test_the_kernels_list_format_is_read() -> None:
    assert parse_cpu_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}


@given(st.frozensets(st.integers(0, 300), min_size=1))
def test_a_written_list_reads_back(cpus: frozenset[int]) -> None:
    assert parse_cpu_list(format_cpu_list(cpus)) == cpus


def test_the_environment_may_choose_the_measuring_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    usable = sorted(os.sched_getaffinity(0))
    monkeypatch.setenv("PERFDB_MEASURE_CPUS", str(usable[-1]))
    plan = current_plan()
    assert plan.measuring == {usable[-1]}
    assert plan.services == (set(usable[:-1]) or {usable[-1]})


@pytest.mark.parametrize(("text", "complaint"), [("two", "no list of CPUs"), ("0-99999", "may not use here")])
def test_impossible_cores_are_refused(monkeypatch: pytest.MonkeyPatch, text: str, complaint: str) -> None:
    monkeypatch.setenv("PERFDB_MEASURE_CPUS", text)
    with pytest.raises(CoresError, match=complaint):
        current_plan()


def test_every_usable_cpu_of_this_machine_is_in_one_group() -> None:
    groups = usable_core_groups()
    assert sorted(cpu for group in groups for cpu in group) == sorted(os.sched_getaffinity(0))
