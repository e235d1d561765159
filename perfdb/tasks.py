"""Celery entry points: load, call a service, queue what it returns. State lives in PostgreSQL, not in messages."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable
from datetime import timedelta
from functools import partial

from celery import shared_task
from django.db import transaction
from django.utils import timezone

from perfdb.models import Alert, Bisection, Job, JobState, Project, Worker
from perfdb.services import (
    alerts,
    attribute,
    bisection,
    catalogue,
    detect,
    hooks,
    measure,
    notify,
    schedule,
    track,
    watch,
)
from perfdb.vcs import GitError

log = logging.getLogger(__name__)


def measure_queue(pool_name: str) -> str:
    """The queue that the workers of a pool serve."""
    return "measure" if pool_name == "default" else f"measure.{pool_name}"


def this_worker() -> Worker:
    """The row of this process: PERFDB_WORKER (host name) in PERFDB_POOL (default)."""
    pool = catalogue.pool(os.environ.get("PERFDB_POOL", "default"))
    name = os.environ.get("PERFDB_WORKER") or socket.gethostname()
    worker, _ = Worker.objects.update_or_create(
        name=name, defaults={"pool": pool, "host": socket.gethostname(), "seen_at": timezone.now()}
    )
    return worker


def send_jobs(job_ids: Iterable[int]) -> None:
    """Wake the workers of each job's pool. A message lost here is sent again by `keep_jobs`."""
    rows = Job.objects.filter(pk__in=list(job_ids), state=JobState.QUEUED).values_list("pk", "pool__name")
    for job_id, pool_name in rows:
        measure_job.apply_async(args=(job_id,), queue=measure_queue(pool_name))
        schedule.mark_sent([job_id])


def send_jobs_later(job_ids: Iterable[int]) -> None:
    ids = tuple(job_ids)
    if ids:
        transaction.on_commit(partial(send_jobs, ids))


@shared_task
def measure_job(job_id: int) -> str:
    """A wake-up: take the most urgent job of this worker's pool (not necessarily the one named) and run it."""
    worker = this_worker()
    if not worker.enabled:
        return "worker is disabled"
    job = schedule.claim(worker)
    if job is None:
        if schedule.is_reserved(job_id, worker):
            # Its own worker is busy: the message goes round until that one takes it, or anyone may.
            measure_job.apply_async(args=(job_id,), queue=measure_queue(worker.pool.name), countdown=2.0)
            return "reserved for another worker"
        return "nothing to do"
    outcome = measure.perform(job, worker=worker)
    waiting = bisection.of_job(job)
    if outcome.series_ids:
        analyse_series.delay(sorted(outcome.series_ids))
    for bisection_id in waiting:
        advance_bisection.delay(bisection_id)
    return f"{job}: {outcome.state} {outcome.reason}".strip()


@shared_task
def analyse_series(series_ids: list[int]) -> str:
    """Analyse, bundle into alerts, and start what new alerts ask for."""
    found = detect.analyse(series_ids)
    bundled = alerts.bundle(found)
    for alert_id in bundled.touched:
        attribute.attribute(alert_id)
    for alert_id in bundled.new:
        follow_alert.delay(alert_id)
    for alert_id in bundled.closed:
        tell.delay(alert_id, "recovered")
    return f"{len(found.new)} new changes, {len(bundled.new)} new alerts"


@shared_task
def follow_alert(alert_id: int) -> str:
    """A new regression is bisected."""
    tell.delay(alert_id, "new")
    alert = Alert.objects.select_related("project", "branch").get(pk=alert_id)
    if not bisection.is_wanted(alert):
        return "nothing to follow"
    try:
        started = bisection.start_for_alert(alert)
    except bisection.BisectionError as error:
        alerts.comment(alert, f"not bisected: {error}", who=alerts.SYSTEM)
        return str(error)
    if started is None:
        return "no active change"
    advance_bisection.delay(started.pk)
    return f"bisection {started.pk}"


@shared_task
def advance_bisection(bisection_id: int) -> str:
    done = bisection.advance(bisection_id)
    send_jobs(done.jobs)
    if done.finished:
        # Its probes measured the old commits again: what was open may be decided now.
        alert_id = Bisection.objects.values_list("alert_id", flat=True).get(pk=bisection_id)
        if alert_id is not None:
            attribute.attribute(alert_id)
    if done.alert_id is not None:
        tell.delay(done.alert_id, "recovered" if done.recovered else "culprit")
    for next_id in done.next_ids:
        advance_bisection.delay(next_id)
    return "finished" if done.finished else f"{len(done.jobs)} probes asked for"


@shared_task
def fetch_project(project_id: int) -> str:
    project = Project.objects.get(pk=project_id)
    try:
        fetched = track.fetch(project)
    except GitError as error:
        log.warning("project %s: %s", project.slug, error)
        return str(error)
    send_jobs(job.pk for job in fetched.jobs)
    return f"{len(fetched.jobs)} jobs"


@shared_task
def fetch_pull_request(project_id: int, number: int, sha: str) -> str:
    project = Project.objects.get(pk=project_id)
    try:
        job = hooks.measure_pull_request(project, number, sha)
    except GitError as error:
        log.warning("project %s, pull request %d: %s", project.slug, number, error)
        return str(error)
    send_jobs([job.pk])
    return str(job)


@shared_task
def poll_projects() -> int:
    """Fetch the projects that are due."""
    now = timezone.now()
    due = [
        project.pk
        for project in Project.objects.exclude(url="")
        if project.polled_at is None or now - project.polled_at >= timedelta(seconds=project.poll_interval_s)
    ]
    for project_id in due:
        fetch_project.delay(project_id)
    return len(due)


@shared_task
def keep_jobs() -> int:
    """Requeue abandoned jobs, send again what the broker lost, push bisections that wait for nothing."""
    ids = [*schedule.requeue_abandoned(), *schedule.unsent()]
    send_jobs(ids)
    for bisection_id in bisection.unfinished():
        advance_bisection.delay(bisection_id)
    return len(ids)


@shared_task
def watch_data() -> str:
    """Broken and missing cases. Missing data is told of once a day at most: the day is part of the occasion."""
    done = watch.watch()
    for alert_id in set(done.new) - set(done.missing):
        tell.delay(alert_id, "new")
    for alert_id in done.missing:
        tell.delay(alert_id, f"missing {timezone.now():%Y-%m-%d}")
    for alert_id in done.closed:
        tell.delay(alert_id, "recovered")
    return f"{len(done.new)} new, {len(done.closed)} closed"


@shared_task
def tell(alert_id: int, occasion: str) -> int:
    """Make this occasion's messages and send them."""
    alert = Alert.objects.select_related("project", "branch", "culprit", "good", "bad").get(pk=alert_id)
    made = notify.announce(alert, occasion)
    for message_id in made:
        deliver_message.delay(message_id)
    return len(made)


@shared_task
def deliver_message(message_id: int) -> bool:
    return notify.deliver(message_id)


@shared_task
def deliver_due() -> int:
    """Digests that are due, retries, and messages whose task was lost."""
    ids = notify.due()
    for message_id in ids:
        deliver_message.delay(message_id)
    return len(ids)
