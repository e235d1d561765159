"""A value that turned into an error, and data that stopped coming: one alert each, closed when it ends."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from perfdb.models import Alert, AlertEvent, Branch, Change, Commit, Project, Worker
from perfdb.services import alerts, catalogue, detect, ingest
from perfdb.services.batch import Batch, CommitRow, EnvironmentRow, LaunchRow, MetricRow, RunRow, StatusName
from perfdb.services.placing import place
from perfdb.services.watch import watch

COMMITS = 20


@pytest.fixture
def branch(db: None) -> Branch:
    project = Project.objects.create(slug="lab", name="lab")
    shas = [f"{number:040x}" for number in range(1, COMMITS + 1)]
    for number, sha in enumerate(shas):
        Commit.objects.create(project=project, sha=sha, parents=shas[number - 1 : number] if number else [])
    branch = Branch.objects.create(project=project, name="main", kind="trunk")
    place(branch, shas)
    return branch


def store(branch: Branch, position: int, worker: Worker | None = None, **cases: StatusName) -> frozenset[int]:
    runs = [
        RunRow(
            benchmark=name,
            status=status,
            metrics=[MetricRow("time", "s", [1.0], lower_is_better=True)] if status == "ok" else [],
        )
        for name, status in cases.items()
    ]
    launch = LaunchRow(id=uuid.uuid4(), environment=EnvironmentRow(klass={"cpu": "x"}), runs=runs)
    batch = Batch(launches=[launch], commit=CommitRow(sha=f"{position + 1:040x}"))
    return ingest.ingest(branch.project, batch, branch=branch, worker=worker).series_ids


@pytest.mark.parametrize("status", ["error", "oom", "incorrect", "timeout"])
def test_value_that_turns_into_an_error_is_broken_once_and_recovers(
    branch: Branch, status: StatusName
) -> None:
    for position in range(4):
        store(branch, position, a="ok", b="ok", c="ok")
    store(branch, 4, a=status, b=status, c="ok")
    assert watch().new == ()
    series = store(branch, 5, a=status, b=status, c="ok")
    found = watch()
    alert = Alert.objects.get()
    assert found.new == (alert.pk,)
    assert (alert.kind, alert.state, alert.good_position, alert.bad_position) == ("broken", "new", 3, 4)
    assert alert.title == "a, b broken: every run fails"
    assert alert.bad is not None
    assert alert.bad.sha == f"{5:040x}"

    store(branch, 6, a=status, b=status, c="ok")
    alerts.bundle(detect.analyse(series | set(Change.objects.values_list("series_id", flat=True))))
    assert watch().new == ()
    assert alert.changes.filter(active=True).count() == 2

    store(branch, 7, a="ok", b=status, c="ok")
    assert watch().closed == ()
    store(branch, 8, a="ok", b="ok", c="ok")
    assert watch().closed == (alert.pk,)
    alert.refresh_from_db()
    assert alert.state == "recovered"
    assert AlertEvent.objects.filter(alert=alert, to_state="recovered").count() == 1


def test_judged_breakage_is_not_raised_again_and_a_later_one_is(branch: Branch) -> None:
    store(branch, 0, a="ok")
    for position in (1, 2):
        store(branch, position, a="error")
    watch()
    alerts.move(Alert.objects.get(), "wontfix", who="someone")
    store(branch, 3, a="error")
    assert watch().new == ()
    store(branch, 4, a="ok")
    watch()
    for position in (5, 6):
        store(branch, position, a="error")
    assert len(watch().new) == 1


def test_case_that_never_worked_is_not_broken(branch: Branch) -> None:
    for position in range(6):
        store(branch, position, a="error", b="ok")
    assert watch().new == ()


def test_case_that_stops_reporting_is_missing_until_it_reports_again(branch: Branch) -> None:
    for position in range(8):
        store(branch, position, a="ok", b="ok")
    for position in range(8, 11):
        assert watch().new == ()
        store(branch, position, a="ok")
    found = watch()
    alert = Alert.objects.get()
    assert (alert.kind, alert.title) == ("missing", "no data: b")
    assert (found.new, found.missing) == ((alert.pk,), (alert.pk,))
    assert (watch().new, watch().missing) == ((), (alert.pk,))
    alerts.move(alert, "acknowledged", who="someone")
    assert watch().missing == ()
    store(branch, 11, a="ok", b="ok")
    assert watch().closed == (alert.pk,)


def test_silent_worker_and_silent_branch_are_missing(branch: Branch) -> None:
    worker = Worker.objects.create(name="w1", pool=catalogue.pool("default"))
    store(branch, 0, worker, a="ok")
    assert watch().new == ()
    watch(now=timezone.now() + timedelta(days=2))
    assert Alert.objects.get().title == "no data: worker w1"
    watch(now=timezone.now() + timedelta(days=8))
    day = timezone.now()
    assert Alert.objects.get().title == f"no data: worker w1, everything on main since {day:%Y-%m-%d}"
    worker.enabled = False
    worker.save()
    assert len(watch().closed) == 1
