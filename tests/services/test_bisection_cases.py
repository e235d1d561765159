"""Situations that made other bisectors name the wrong commit, crash or fall silent."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone

from perfdb.models import (
    Alert,
    AlertState,
    Bisection,
    BisectionState,
    Job,
    JobState,
    Probe,
    Worker,
)
from perfdb.services import bisection, bisection_probes, bisection_queue, bisection_report, schedule
from perfdb.services.batch import RunRow
from perfdb.services.measure import RunnerFailed, run_launch
from tests.services.bisection_lab import BEFORE, TIMEOUT_S, Lab, Level, straight

pytestmark = pytest.mark.django_db


def search(lab: Lab, length: int, *, ratio: float) -> tuple[Bisection, set[int], Alert]:
    """The finished bisection, the numbers of the named commits among the lab's levels, the alert."""
    alert = lab.alert(BEFORE, BEFORE + length - 1, ratio=ratio)
    started = bisection.start_for_alert(alert)
    assert started is not None
    row = lab.run(started)
    names = {int(row.shas[index], 16) - BEFORE for index in row.answer["commits"]}
    alert.refresh_from_db()
    return row, names, alert


@pytest.mark.parametrize(
    ("levels", "ratio", "kinds", "named"),
    [
        pytest.param([10, "X", "X", 15], 1.5, {"range"}, {2, 3, 4}, id="first commit after a broken range"),
        pytest.param([10, 14, 12], 1.2, {"culprit", "several"}, {2}, id="a commit that improved"),
        pytest.param([10, "X", 15], 1.5, {"range"}, {2, 3}, id="a failed build is no verdict"),
        pytest.param(["X", 10, 10, 15, "X"], 1.5, {"culprit"}, {4}, id="ends that do not build"),
        pytest.param(
            [10, 10, *["X"] * 14, 10, 10, 15, 15], 1.5, {"culprit"}, {19}, id="a block that does not build"
        ),
        pytest.param(
            [10, 10, *["X"] * 14, 15, 15], 1.5, {"range"}, set(range(3, 18)), id="hidden by a block"
        ),
    ],
)
def test_broken_commits_are_never_blamed(
    levels: list[Level], ratio: float, kinds: set[str], named: set[int]
) -> None:
    row, names, alert = search(straight(levels), len(levels), ratio=ratio)
    assert row.answer["kind"] in kinds
    assert names == named
    assert (alert.culprit is not None) == (row.answer["kind"] == "culprit")


def test_a_level_that_goes_up_and_down_is_not_one_culprit() -> None:
    lab = straight([10, 13, 10, 13])
    for number in range(4):
        lab.measure(f"{BEFORE + 1 + number:040x}", 3)
    row, names, alert = search(lab, 4, ratio=1.3)
    assert (row.answer["kind"], names) == ("several", {2, 4})
    assert alert.culprit is None


def test_an_alert_that_was_noise_is_not_reproduced() -> None:
    lab = straight([10.0] * 8)
    row, names, alert = search(lab, 8, ratio=1.12)
    assert (row.answer["kind"], names) == ("not_reproduced", set())
    assert alert.state == AlertState.RECOVERED
    assert alert.culprit is None


def test_time_outs_are_slow_not_broken() -> None:
    lab = straight([10, 10, 10, 10, "T", "T", "T", "T"])
    row, names, _ = search(lab, 8, ratio=3.0)
    assert (row.answer["kind"], names) == ("culprit", {5})
    slow = row.probes.filter(values__contains=[TIMEOUT_S])
    assert slow.exists()
    assert not slow.filter(unbuildable=True).exists()


def test_good_and_bad_must_be_two_commits_in_order() -> None:
    lab = straight([10, 15])
    first, last = f"{1:040x}", f"{BEFORE:040x}"
    with pytest.raises(bisection.BisectionError, match="are the same"):
        bisection.start_between(lab.series, last, last, ratio=1.2, who="me")
    with pytest.raises(bisection.BisectionError, match="not before"):
        bisection.start_between(lab.series, last, first, ratio=1.2, who="me")
    with pytest.raises(bisection.BisectionError, match="no commit of the branch main"):
        bisection.start_between(lab.series, "f" * 40, last, ratio=1.2, who="me")
    assert not Bisection.objects.exists()


def test_a_name_is_told_with_the_comparison_behind_it() -> None:
    row, names, alert = search(straight([10, 10, 10, 13, 13, 13]), 6, ratio=1.3)
    assert names == {4}
    parent = row.shas[row.answer["commits"][0] - 1][:10]
    assert f"Compared with its parent {parent}: median " in alert.conclusion
    assert "launches" in row.answer["reason"]


# -- what the machinery breaks ------------------------------------------------------------------------------
def first_probe(lab: Lab) -> tuple[Bisection, Job]:
    started = bisection.start_for_alert(lab.alert(BEFORE, BEFORE + 7, ratio=1.3))
    assert started is not None
    assert bisection.advance(started.pk).jobs
    job = schedule.claim(lab.worker)
    assert job is not None
    return started, job


@pytest.mark.parametrize(
    "reason", ["the worker fell silent 3 times", "cancelled", "the runner ended with -9: killed"]
)
def test_a_probe_that_the_machinery_broke_is_asked_for_once_more(reason: str) -> None:
    lab = straight([10, 10, 10, 10, 13, 13, 13, 13])
    started, job = first_probe(lab)
    schedule.finish(job, JobState.FAILED, reason=reason)
    (second,) = bisection.advance(started.pk).jobs
    assert second != job.pk
    probe = started.probes.get(observed=False)
    assert probe.job_id == second
    again = schedule.claim(lab.worker)
    assert again is not None
    schedule.finish(again, JobState.FAILED, reason=reason)
    bisection.advance(started.pk)
    probe.refresh_from_db()
    assert (probe.observed, probe.unbuildable, probe.reason) == (True, True, reason)


def test_the_runners_own_failures_read_as_machinery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfdb.services.measure.as_account", lambda command, **_: ["false"])
    from runners.result import LaunchRequest

    with pytest.raises(RunnerFailed) as failed:
        run_launch(LaunchRequest(launch_id="x", root="/", cases=()))
    assert str(failed.value).startswith(bisection_probes._NOT_THE_COMMIT)


def test_an_unhealthy_host_is_not_the_commit() -> None:
    lab = straight([10, 10, 10, 10, 13, 13, 13, 13])
    started, job = first_probe(lab)
    lab.store(
        job.commit.sha, [RunRow(benchmark="work", metrics=[], status="invalid", reason="throttled")], job
    )
    schedule.finish(job, JobState.DONE)
    assert len(bisection.advance(started.pk).jobs) == 1
    assert not started.probes.filter(unbuildable=True).exists()


def test_a_commit_that_is_gone_is_skipped_with_its_reason() -> None:
    lab = straight([10, 10, 10, 10, 13, 13, 13, 13])
    started, job = first_probe(lab)
    schedule.finish(job, JobState.FAILED, reason="the commit is gone: no such object")
    bisection.advance(started.pk)
    probe = Probe.objects.get(job=job)
    assert (probe.unbuildable, probe.reason) == (True, "the commit is gone: no such object")
    row = lab.run(started)
    assert row.answer["kind"] in ("culprit", "range")


def test_a_range_that_is_gone_ends_with_an_answer() -> None:
    lab = straight([10, 10, 13, 13])
    alert = lab.alert(BEFORE, BEFORE + 3, ratio=1.3)
    started = bisection.start_for_alert(alert)
    assert started is not None
    while not bisection.advance(started.pk).finished:
        job = schedule.claim(lab.worker)
        assert job is not None
        schedule.finish(job, JobState.FAILED, reason="the commit is gone: no such object")
    started.refresh_from_db()
    alert.refresh_from_db()
    assert started.state == BisectionState.DONE
    assert started.answer["kind"] not in ("culprit", "running")
    assert alert.conclusion


@pytest.mark.parametrize(
    "where", ["perfdb.services.bisection_probes.ask", "perfdb.services.bisection_report.tell_alert"]
)
def test_a_transaction_that_dies_half_way_never_happened(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = straight([10, 10, 10, 13, 13, 13])
    started = bisection.start_for_alert(lab.alert(BEFORE, BEFORE + 5, ratio=1.3))
    assert started is not None
    module, name = where.rsplit(".", 1)
    owner = {"bisection_probes": bisection_probes, "bisection_report": bisection_report}[
        module.rsplit(".", 1)[1]
    ]
    real = getattr(owner, name)

    def dies(*args: object) -> object:
        real(*args)
        raise OperationalError("server closed the connection")

    finished = False
    while not finished:
        before = state_of(started)
        monkeypatch.setattr(owner, name, dies)
        try:
            finished = bisection.advance(started.pk).finished
        except OperationalError:
            assert state_of(started) == before
            monkeypatch.setattr(owner, name, real)
            finished = bisection.advance(started.pk).finished
        if not finished and schedule.next_job(lab.worker) is not None:
            lab.serve()
    row = Bisection.objects.get(pk=started.pk)
    assert row.answer["kind"] == "culprit"
    assert bisection.search_of(row).answer.launches == row.answer["launches"]
    assert Job.objects.filter(kind="probe").count() == row.probes.filter(job__isnull=False).count()
    assert row.alert is not None
    assert row.alert.events.filter(to_state=AlertState.CONFIRMED).count() == 1


def state_of(started: Bisection) -> list[object]:
    probes = started.probes.values_list("order", "index", "observed", "values", "job")
    return [Bisection.objects.get(pk=started.pk).state, *probes, *Job.objects.values_list("pk", "state")]


# -- who measures, and when ---------------------------------------------------------------------------------
def test_probes_stay_with_the_first_worker_while_it_lives() -> None:
    lab = straight([10, 10, 10, 10, 13, 13, 13, 13])
    other = Worker.objects.create(name="other", pool=lab.worker.pool)
    started = bisection.start_for_alert(lab.alert(BEFORE, BEFORE + 7, ratio=1.3))
    assert started is not None
    bisection.advance(started.pk)
    lab.serve()
    (job_id,) = bisection.advance(started.pk).jobs
    started.refresh_from_db()
    assert started.worker == lab.worker
    assert schedule.claim(other) is None
    assert schedule.is_reserved(job_id, other)
    assert schedule.next_job(lab.worker) == job_id
    long_ago = timezone.now() - schedule.RESERVED_FOR - timedelta(seconds=1)
    Job.objects.filter(pk=job_id).update(created_at=long_ago)
    claimed = schedule.claim(other)
    assert claimed is not None
    assert claimed.pk == job_id


def test_the_larger_regression_goes_first_and_the_other_waits() -> None:
    lab, more = straight([10] * 4 + [13] * 4), straight([10] * 4 + [20] * 4, slug="more")
    small = bisection.start_for_alert(lab.alert(BEFORE, BEFORE + 7, ratio=1.3))
    large = bisection.start_for_alert(more.alert(BEFORE, BEFORE + 7, ratio=2.0))
    assert small is not None
    assert large is not None
    assert bisection.unfinished() == [large.pk, small.pk]
    assert bisection.advance(small.pk).jobs == ()
    small.refresh_from_db()
    assert (small.state, small.answer[bisection_queue.WAITING][:8]) == (BisectionState.QUEUED, "it waits")
    assert bisection.advance(large.pk).jobs
    more.run(large)
    assert bisection.advance(small.pk).jobs


def test_a_spent_day_holds_back_what_alerts_started_and_nothing_else() -> None:
    lab = straight([10] * 4 + [13] * 4)
    lab.project.bisection_minutes_per_day = 0
    lab.project.save()
    alert = lab.alert(BEFORE, BEFORE + 7, ratio=1.3)
    started = bisection.start_for_alert(alert)
    assert started is not None
    assert bisection.advance(started.pk).jobs == ()
    started.refresh_from_db()
    assert "0 minutes a day" in started.answer[bisection_queue.WAITING]
    lab.project.bisection_minutes_per_day = 1
    lab.project.save()
    assert bisection.advance(started.pk).jobs
    assert bisection.cancel(started, who="me")
    lab.project.bisection_minutes_per_day = 0
    lab.project.save()
    asked = bisection.start_for_alert(alert, who="me")
    assert asked is not None
    assert bisection.advance(asked.pk).jobs


def test_spent_time_is_that_of_probes() -> None:
    lab = straight([10, 13])
    started = bisection.start_for_alert(lab.alert(BEFORE, BEFORE + 1, ratio=1.3))
    assert started is not None
    (job_id,) = bisection.advance(started.pk).jobs
    lab.serve()
    end = timezone.now()
    Job.objects.filter(pk=job_id).update(started_at=end - timedelta(minutes=7), finished_at=end)
    since = end - timedelta(hours=1)
    assert bisection_queue.spent_minutes(lab.project, since=since) == pytest.approx(7.0)


def test_a_spent_search_is_inconclusive() -> None:
    lab = straight([10] * 20 + [10.2] * 20)
    alert = lab.alert(BEFORE, BEFORE + 39, ratio=1.02)
    started = bisection.start_for_alert(alert, max_cost=20.0)
    assert started is not None
    row = lab.run(started)
    assert row.answer["kind"] == "inconclusive"
    alert.refresh_from_db()
    assert alert.culprit is None
    assert "inconclusive" in alert.conclusion


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, True),
        ({"blocking": False}, False),
        ({"kind": "improvement"}, False),
        ({"state": "wontfix"}, False),
    ],
)
def test_which_alerts_are_bisected_unasked(fields: dict[str, object], wanted: bool) -> None:
    lab = straight([10, 13])
    alert = lab.alert(BEFORE, BEFORE + 1, ratio=1.3)
    for key, value in fields.items():
        setattr(alert, key, value)
    assert bisection.is_wanted(alert) is wanted
