"""Bisections live in rows: any process may die at any time, and nothing is lost or counted twice."""

from __future__ import annotations

import numpy as np
import pytest

from perfdb.models import (
    Alert,
    Bisection,
    BisectionState,
    Branch,
    Commit,
    Job,
    JobState,
    Pool,
    Probe,
    Project,
    Worker,
)
from perfdb.services import alerts, bisection, detect, ingest, schedule
from perfdb.services.batch import Batch, CommitRow, EnvironmentRow, LaunchRow, MetricRow, RunRow
from perfdb.services.placing import place

SHAS = [f"{number:040x}" for number in range(1, 31)]
CULPRIT = 17
rng = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def same_noise_in_any_order() -> None:
    rng.bit_generator.state = np.random.default_rng(5).bit_generator.state


@pytest.fixture
def branch(db: None) -> Branch:
    project = Project.objects.create(slug="lab", name="Lab")
    branch = Branch.objects.create(project=project, name="main", kind="trunk")
    for number, sha in enumerate(SHAS):
        Commit.objects.create(project=project, sha=sha, parents=SHAS[number - 1 : number] if number else [])
    place(branch, SHAS)
    return branch


def measure(branch: Branch, index: int, launches: int, job: Job | None = None) -> frozenset[int]:
    """What a worker stores: launches of a case that is 30 % slower from the culprit on."""
    level = 1.3 if index >= CULPRIT else 1.0
    rows = [
        LaunchRow(
            environment=EnvironmentRow(klass={"cpu": "x"}),
            runs=[
                RunRow(
                    benchmark="work",
                    metrics=[
                        MetricRow(
                            "time", "s", [level * float(np.exp(rng.normal(0, 0.01)))], lower_is_better=True
                        )
                    ],
                )
            ],
        )
        for _ in range(launches)
    ]
    batch = Batch(launches=rows, commit=CommitRow(sha=SHAS[index]))
    return ingest.ingest(branch.project, batch, job=job, branch=branch).series_ids


def alert_of(branch: Branch) -> Alert:
    """Every third commit is measured, so the range holds commits that nobody has measured."""
    series: frozenset[int] = frozenset()
    for index in range(0, 30, 3):
        series |= measure(branch, index, 3)
    bundled = alerts.bundle(detect.analyse(series))
    (alert_id,) = bundled.new
    return Alert.objects.get(pk=alert_id)


def serve(branch: Branch, worker: Worker) -> None:
    """One claimed probe job, measured and finished."""
    job = schedule.claim(worker)
    assert job is not None
    assert job.launches is not None
    measure(branch, SHAS.index(job.commit.sha), job.launches, job=job)
    schedule.finish(job, JobState.DONE)


@pytest.fixture
def worker(db: None) -> Worker:
    pool, _ = Pool.objects.get_or_create(name="default")
    return Worker.objects.create(name="w", pool=pool)


def test_the_range_is_searched_with_what_is_measured_already(branch: Branch, worker: Worker) -> None:
    alert = alert_of(branch)
    started = bisection.start_for_alert(alert)
    assert started is not None
    reused = started.probes.filter(observed=True)
    assert reused.count() >= 2
    assert all(probe.job_id is None for probe in reused)
    while not bisection.advance(started.pk).finished:
        serve(branch, worker)
    alert.refresh_from_db()
    assert alert.culprit is not None
    assert alert.culprit.sha == SHAS[CULPRIT]
    assert alert.state == "confirmed"


def test_advancing_again_asks_for_nothing_twice(branch: Branch, worker: Worker) -> None:
    started = bisection.start_for_alert(alert_of(branch))
    assert started is not None
    first = bisection.advance(started.pk)
    assert len(first.jobs) == 1
    for _ in range(3):  # a redelivered message, a second worker, the beat
        assert bisection.advance(started.pk).jobs == ()
    assert Job.objects.filter(kind="probe").count() == 1
    serve(branch, worker)
    bisection.advance(started.pk)
    observed = [(p.order, p.index, tuple(p.values or ())) for p in started.probes.filter(observed=True)]
    bisection.advance(started.pk)
    assert observed == [
        (p.order, p.index, tuple(p.values or ())) for p in started.probes.filter(observed=True)
    ]


def test_replayed_observations_give_the_same_answer(branch: Branch, worker: Worker) -> None:
    started = bisection.start_for_alert(alert_of(branch))
    assert started is not None
    while not bisection.advance(started.pk).finished:
        serve(branch, worker)
    row = Bisection.objects.get(pk=started.pk)
    again = bisection.search_of(row)
    assert again.answer.kind == row.answer["kind"] == "culprit"
    assert again.answer.probability == pytest.approx(row.answer["probability"])
    assert again.next() == []


def test_an_unbuildable_commit_is_no_verdict(branch: Branch, worker: Worker) -> None:
    started = bisection.start_for_alert(alert_of(branch))
    assert started is not None
    bisection.advance(started.pk)
    job = schedule.claim(worker)
    assert job is not None
    schedule.finish(job, JobState.FAILED, reason="the build failed")
    bisection.advance(started.pk)
    probe = Probe.objects.get(job=job)
    assert (probe.observed, probe.unbuildable, probe.reason) == (True, True, "the build failed")
    while not bisection.advance(started.pk).finished:
        serve(branch, worker)
    row = Bisection.objects.get(pk=started.pk)
    assert row.answer["kind"] in ("culprit", "range")
    names = [row.shas[index] for index in row.answer["commits"]]
    assert SHAS[CULPRIT] in names


def test_cancel_stops_probes_and_keeps_what_was_measured(branch: Branch, worker: Worker) -> None:
    started = bisection.start_for_alert(alert_of(branch))
    assert started is not None
    (job_id,) = bisection.advance(started.pk).jobs
    assert bisection.cancel(started, who="me")
    assert Job.objects.get(pk=job_id).state == JobState.CANCELLED
    assert Bisection.objects.get(pk=started.pk).state == BisectionState.CANCELLED
    assert bisection.advance(started.pk).jobs == ()
    assert started.probes.filter(observed=True).exists()
