"""Which commits are measured, when and by whom. Job state lives in PostgreSQL; a message carries an id only.

Functions return the ids of jobs that need a message; the entry point sends them after the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from perfdb.models import Branch, Case, Commit, Job, JobKind, JobState, Pool, Run, Worker

HEARTBEAT = timedelta(seconds=settings.PERFDB_HEARTBEAT_S)
SILENCE = timedelta(seconds=settings.PERFDB_SILENCE_S)
RESEND_AFTER = timedelta(seconds=60)
RESERVED_FOR = timedelta(seconds=30)
"""How long a job waits for the worker that it would rather have."""
MAX_ATTEMPTS = 3
PRIORITY = {"history": 0, "new": 10, "confirm": 20, "probe": 30, "asked": 40}


@transaction.atomic
def request(
    branch: Branch,
    commit: Commit,
    *,
    pool: Pool,
    kind: str = JobKind.MEASURE,
    cases: Iterable[Case] = (),
    tiers: Sequence[str] = (),
    launches: int | None = None,
    priority: int = 0,
    prefer: Worker | None = None,
) -> Job:
    """A job to measure `cases` (none: all that the manifest names) of a commit.

    prefer: a worker that gets it if it asks within RESERVED_FOR; afterwards any worker of the pool may.
    An equal job that still waits is raised to the higher priority instead of being asked for twice.
    """
    wanted = sorted(case.id for case in cases)
    waiting = Job.objects.filter(
        branch=branch,
        commit=commit,
        pool=pool,
        kind=kind,
        state=JobState.QUEUED,
        launches=launches,
        tiers=list(tiers),
    ).select_for_update()
    if kind != JobKind.PROBE:
        for job in waiting:
            if sorted(job.cases.values_list("id", flat=True)) == wanted:
                if job.priority < priority:
                    job.priority = priority
                    job.save(update_fields=["priority"])
                return job
    job = Job.objects.create(
        project_id=branch.project_id,
        branch=branch,
        commit=commit,
        pool=pool,
        kind=kind,
        tiers=list(tiers),
        launches=launches,
        priority=priority,
        worker=prefer,
    )
    job.cases.set(wanted)
    return job


def next_job(worker: Worker) -> int | None:
    """The most urgent queued job for a worker: a message means "there is work", the table says which."""
    jobs = Job.objects.claimable().filter(pool=worker.pool).exclude(_reserved_for_others(worker))
    return jobs.values_list("id", flat=True).first()


def _reserved_for_others(worker: Worker) -> Q:
    """Young jobs that would rather have another worker, which lives and may work."""
    now = timezone.now()
    alive = Q(worker__enabled=True, worker__pool=worker.pool, worker__seen_at__gt=now - RESERVED_FOR)
    return Q(worker__isnull=False, created_at__gt=now - RESERVED_FOR) & ~Q(worker=worker) & alive


def is_reserved(job_id: int, worker: Worker) -> bool:
    """Whether a job waits, for a while, for another worker than this one: its message must be sent again."""
    return Job.objects.filter(pk=job_id, state=JobState.QUEUED).filter(_reserved_for_others(worker)).exists()


def claim(worker: Worker) -> Job | None:
    """Take the most urgent job of the worker's pool, None when nothing waits. Two workers never get the same."""
    while (job_id := next_job(worker)) is not None:
        if Job.objects.claim(job_id, worker):
            return Job.objects.select_related("project", "commit", "branch", "pool").get(pk=job_id)
    return None


def beat(job: Job, *, progress: dict[str, object] | None = None) -> bool:
    """Say that the worker is alive. False when the job is no longer this worker's to finish."""
    fields: dict[str, object] = {"heartbeat_at": timezone.now()}
    if progress is not None:
        fields["progress"] = progress
    alive = Job.objects.filter(pk=job.pk, state=JobState.RUNNING, worker=job.worker, attempts=job.attempts)
    if job.worker_id:
        Worker.objects.filter(pk=job.worker_id).update(seen_at=timezone.now())
    return alive.update(**fields) == 1


def finish(job: Job, state: JobState, *, reason: str = "", log: str = "") -> bool:
    """End a job that this worker still holds; False when it was taken away meanwhile."""
    held = Job.objects.filter(pk=job.pk, state=JobState.RUNNING, worker=job.worker, attempts=job.attempts)
    return held.update(state=state, reason=reason, log=log, finished_at=timezone.now()) == 1


def cancel(job: Job) -> bool:
    """Cancel what has not ended; a running measurement notices at its next heartbeat."""
    open_jobs = Job.objects.filter(pk=job.pk, state__in=[JobState.QUEUED, JobState.RUNNING])
    return open_jobs.update(state=JobState.CANCELLED, reason="cancelled", finished_at=timezone.now()) == 1


def retry(job: Job) -> bool:
    """Queue a failed or cancelled job again."""
    ended = Job.objects.filter(pk=job.pk, state__in=[JobState.FAILED, JobState.CANCELLED])
    return ended.update(state=JobState.QUEUED, reason="", attempts=0, sent_at=None, finished_at=None) == 1


@transaction.atomic
def requeue_abandoned() -> list[int]:
    """Jobs whose worker fell silent wait again; after MAX_ATTEMPTS they fail with the reason."""
    lost = Job.objects.abandoned(silence=SILENCE)
    lost.filter(attempts__gte=MAX_ATTEMPTS).update(
        state=JobState.FAILED,
        reason=f"the worker fell silent {MAX_ATTEMPTS} times",
        finished_at=timezone.now(),
    )
    ids = list(lost.values_list("id", flat=True))
    Job.objects.filter(pk__in=ids, state=JobState.RUNNING).update(
        state=JobState.QUEUED, worker=None, sent_at=None
    )
    return ids


def unsent() -> list[int]:
    """Queued jobs that the broker has lost or never got."""
    return list(Job.objects.unsent(age=RESEND_AFTER).values_list("id", flat=True))


def mark_sent(job_ids: Iterable[int]) -> None:
    Job.objects.filter(pk__in=list(job_ids)).update(sent_at=timezone.now())


def unmeasured(branch: Branch, case: Case, positions: range) -> list[Commit]:
    """Commits of a branch in a range of positions with no run of `case` and no job that will make one."""
    places = branch.places.filter(position__gte=positions.start, position__lt=positions.stop).select_related(
        "commit"
    )
    measured = set(Run.objects.filter(branch=branch, case=case).values_list("commit_id", flat=True))
    waiting = set(
        Job.objects.filter(
            branch=branch, state__in=[JobState.QUEUED, JobState.RUNNING], cases=case
        ).values_list("commit_id", flat=True)
    )
    return [place.commit for place in places if place.commit_id not in measured | waiting]


def spent(job: Job) -> timedelta | None:
    """How long a job has run, None before it began."""
    return (job.finished_at or timezone.now()) - job.started_at if job.started_at else None


def release_attempt(job: Job) -> None:
    """A worker that stops in order gives its job back without counting the attempt."""
    Job.objects.filter(pk=job.pk, state=JobState.RUNNING, worker=job.worker).update(
        state=JobState.QUEUED, worker=None, sent_at=None, attempts=F("attempts") - 1
    )
