"""Work to be done: jobs, bisections and their probes. The state lives here; Celery carries ids only."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from perfdb.models.machine import Pool, Worker
from perfdb.models.regression import Alert
from perfdb.models.result import Case, Series
from perfdb.models.source import Branch, Commit, Project


class JobKind(models.TextChoices):
    MEASURE = "measure", "measure a commit"
    PROBE = "probe", "probe of a bisection"
    CONFIRM = "confirm", "confirm a change"


class JobState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    DONE = "done", "done"
    FAILED = "failed", "failed"
    CANCELLED = "cancelled", "cancelled"


class JobQuerySet(models.QuerySet["Job"]):
    def claimable(self) -> JobQuerySet:
        """Queued jobs, the most urgent first."""
        return self.filter(state=JobState.QUEUED).order_by("-priority", "id")

    def abandoned(self, *, silence: timedelta) -> JobQuerySet:
        """Running jobs whose worker has not been heard of for `silence`."""
        return self.filter(state=JobState.RUNNING, heartbeat_at__lt=timezone.now() - silence)

    def unsent(self, *, age: timedelta) -> JobQuerySet:
        """Queued jobs whose message the broker must have lost: sent more than `age` ago, or never."""
        return self.filter(state=JobState.QUEUED).filter(
            Q(sent_at__isnull=True) | Q(sent_at__lt=timezone.now() - age)
        )

    def claim(self, job_id: int, worker: Worker) -> bool:
        """Take the job for `worker`: one conditional UPDATE, so that a redelivered message does nothing twice."""
        taken = self.filter(id=job_id, state=JobState.QUEUED).update(
            state=JobState.RUNNING,
            worker=worker,
            attempts=F("attempts") + 1,
            started_at=timezone.now(),
            heartbeat_at=timezone.now(),
        )
        return taken == 1


class Job(models.Model):
    """One request to measure cases of a commit. `cases` is empty for "all of the manifest's"."""

    uuid = models.UUIDField(unique=True, default=uuid.uuid4)
    kind = models.CharField(max_length=10, choices=JobKind.choices, default=JobKind.MEASURE)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="jobs")
    commit = models.ForeignKey(Commit, on_delete=models.CASCADE, related_name="jobs")
    branch = models.ForeignKey(Branch, on_delete=models.CASCADE, related_name="jobs")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="jobs")
    cases = models.ManyToManyField(Case, blank=True, related_name="jobs")
    tiers = ArrayField(models.CharField(max_length=10), default=list, blank=True)
    launches = models.PositiveIntegerField(null=True, blank=True, help_text="Overrides the manifest's.")
    priority = models.IntegerField(default=0)
    state = models.CharField(max_length=10, choices=JobState.choices, default=JobState.QUEUED)
    reason = models.TextField(blank=True, default="")
    attempts = models.PositiveIntegerField(default=0)
    worker = models.ForeignKey(Worker, null=True, blank=True, on_delete=models.SET_NULL, related_name="jobs")
    created_at = models.DateTimeField(db_default=Now())
    sent_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    progress = models.JSONField(default=dict, blank=True)
    log = models.TextField(blank=True, default="")

    objects = JobQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=~Q(state=JobState.RUNNING) | Q(heartbeat_at__isnull=False),
                name="job_running_has_heartbeat",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["-priority", "id"], name="job_queue", condition=Q(state=JobState.QUEUED)),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.commit} {self.state}"

    @property
    def is_finished(self) -> bool:
        return self.state in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


class BisectionState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    DONE = "done", "done"
    CANCELLED = "cancelled", "cancelled"


class Bisection(models.Model):
    """The search for the first bad commit of exactly one cell (series) over `shas`, good end first.

    The search itself is pure and is rebuilt by replaying the observed probes in `order`; nothing of its inner
    state is stored. `answer` is the last `Answer` as JSON, for pages.
    """

    alert = models.ForeignKey(
        Alert, null=True, blank=True, on_delete=models.SET_NULL, related_name="bisections"
    )
    series = models.ForeignKey(Series, on_delete=models.CASCADE, related_name="bisections")
    parent = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="descents",
        help_text="The bisection that named the merge whose side this one searches.",
    )
    worker = models.ForeignKey(Worker, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    shas = ArrayField(models.CharField(max_length=64))
    response = models.CharField(max_length=10, default="level")
    threshold = models.FloatField(null=True, blank=True, help_text="pass_fail: a launch beyond it failed.")
    alert_ratio = models.FloatField()
    max_cost = models.FloatField(null=True, blank=True)
    # Fixed at the start: a replay must not see launches that came later.
    noise_history = ArrayField(models.FloatField(), default=list, blank=True)
    seed = models.BigIntegerField(default=0)
    state = models.CharField(max_length=10, choices=BisectionState.choices, default=BisectionState.QUEUED)
    answer = models.JSONField(default=dict, blank=True)
    started_by = models.CharField(max_length=200, blank=True, default="")
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(shas__len__gte=2), name="bisection_has_two_ends"),
            models.UniqueConstraint(
                fields=["alert", "series"],
                condition=Q(state__in=[BisectionState.QUEUED, BisectionState.RUNNING]),
                name="bisection_one_running_per_cell",
            ),
        ]

    def __str__(self) -> str:
        return f"bisection of {self.series}"


class Probe(models.Model):
    """One measurement of a bisection, in the order asked. `values` are launch values; None: unbuildable."""

    bisection = models.ForeignKey(Bisection, on_delete=models.CASCADE, related_name="probes")
    order = models.PositiveIntegerField()
    index = models.PositiveIntegerField(help_text="Place of the commit in the bisection's `shas`.")
    launches = models.PositiveIntegerField()
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="probes")
    observed = models.BooleanField(default=False)
    values = ArrayField(models.FloatField(), null=True, blank=True)
    unbuildable = models.BooleanField(default=False)
    reason = models.TextField(blank=True, default="")

    class Meta:
        ordering: ClassVar = ["order"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["bisection", "order"], name="probe_unique_order"),
        ]

    def __str__(self) -> str:
        return f"probe {self.order} of {self.bisection_id}"
