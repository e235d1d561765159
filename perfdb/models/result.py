"""What was measured. The layout follows measured facts: summaries under a covering key, raw samples apart."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from perfdb.models.machine import Environment, EnvironmentClass, Pool, Worker
from perfdb.models.source import Branch, Build, Commit, Project
from perfdb.stats.policy import Metric as MetricValue
from perfdb.stats.policy import Statistic


class Tier(models.TextChoices):
    STATIC = "static", "static"
    MICRO = "micro", "micro"
    STEP = "step", "step"
    REPLAY = "replay", "replay"


class Benchmark(models.Model):
    """A named measurement of a tier. `definition` is its latest text in the manifest, hashed per run."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="benchmarks")
    name = models.CharField(max_length=500)
    tier = models.CharField(max_length=10, choices=Tier.choices)
    definition = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "name"], name="benchmark_unique_name"),
        ]

    def __str__(self) -> str:
        return self.name


class Case(models.Model):
    """A benchmark at one set of parameters (canonical JSON, hashed)."""

    benchmark = models.ForeignKey(Benchmark, on_delete=models.CASCADE, related_name="cases")
    params = models.JSONField(default=dict)
    params_hash = models.CharField(max_length=64)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["benchmark", "params_hash"], name="case_unique_params"),
        ]

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """`benchmark[a=1, b=2]`, the name used on pages, in mails and by the gate."""
        inside = ", ".join(f"{key}={value}" for key, value in sorted(self.params.items()))
        return f"{self.benchmark.name}[{inside}]" if inside else self.benchmark.name


class Metric(models.Model):
    """A metric of a benchmark; `value()` gives the plain object that the statistics take."""

    benchmark = models.ForeignKey(Benchmark, on_delete=models.CASCADE, related_name="metrics")
    name = models.CharField(max_length=200)
    unit = models.CharField(max_length=60)
    lower_is_better = models.BooleanField(null=True)
    statistic = models.CharField(
        max_length=10, choices=[(s.value, s.value) for s in Statistic], default=Statistic.MEDIAN.value
    )
    deterministic = models.BooleanField(default=False)
    tracked = models.BooleanField(default=True, help_text="Untracked metrics are stored and never alert.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["benchmark", "name"], name="metric_unique_name"),
        ]

    def __str__(self) -> str:
        return self.name

    def value(self) -> MetricValue:
        return MetricValue(
            name=self.name,
            unit=self.unit,
            lower_is_better=self.lower_is_better,
            statistic=Statistic(self.statistic),
            deterministic=self.deterministic,
        )


class TraceSummary(models.Model):
    """What a workload or a profile looked like, stored once per content."""

    digest = models.CharField(max_length=64, unique=True)
    name = models.CharField(max_length=300, blank=True, default="")
    summary = models.JSONField(default=dict)

    class Meta:
        verbose_name_plural = "trace summaries"

    def __str__(self) -> str:
        return self.name or self.digest[:10]


class Launch(models.Model):
    """One process: the unit of statistics. Health and environment belong to it and are stored once."""

    uuid = models.UUIDField(unique=True, default=uuid.uuid4)
    worker = models.ForeignKey(
        Worker, null=True, blank=True, on_delete=models.SET_NULL, related_name="launches"
    )
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="launches")
    job = models.ForeignKey(
        "Job", null=True, blank=True, on_delete=models.SET_NULL, related_name="launch_set"
    )
    health = models.JSONField(default=dict, blank=True)
    info = models.JSONField(default=dict, blank=True)
    harness_version = models.CharField(max_length=60, blank=True, default="")
    started_at = models.DateTimeField(db_default=Now())
    duration_s = models.FloatField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "launches"

    def __str__(self) -> str:
        return str(self.uuid)


class RunStatus(models.IntegerChoices):
    OK = 0, "ok"
    INCORRECT = 1, "incorrect"
    OOM = 2, "oom"
    ERROR = 3, "error"
    TIMEOUT = 4, "timeout"
    INVALID = 5, "invalid"


class Run(models.Model):
    """One case in one launch at one commit. A failed run is a row with a status, never a missing row.

    `commit` is None for an upload that names none: shown by its time, never part of ordered analysis.
    """

    uuid = models.UUIDField(unique=True, default=uuid.uuid4)
    case = models.ForeignKey(Case, on_delete=models.CASCADE, related_name="runs")
    commit = models.ForeignKey(Commit, null=True, blank=True, on_delete=models.CASCADE, related_name="runs")
    branch = models.ForeignKey(Branch, on_delete=models.CASCADE, related_name="runs")
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="runs")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="runs")
    launch = models.ForeignKey(Launch, on_delete=models.CASCADE, related_name="runs")
    build = models.ForeignKey(Build, null=True, blank=True, on_delete=models.SET_NULL, related_name="runs")
    status = models.SmallIntegerField(choices=RunStatus.choices)
    reason = models.TextField(blank=True, default="")
    log = models.TextField(blank=True, default="")
    definition_hash = models.CharField(max_length=64, blank=True, default="")
    started_at = models.DateTimeField()
    duration_s = models.FloatField(null=True, blank=True)
    correctness = models.JSONField(null=True, blank=True)
    work = models.JSONField(null=True, blank=True)
    trace_summary = models.ForeignKey(
        TraceSummary, null=True, blank=True, on_delete=models.SET_NULL, related_name="runs"
    )
    # A person's mark; `status` keeps what was measured, so that taking the mark back loses nothing.
    invalid_reason = models.TextField(blank=True, default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["case", "commit", "environment", "launch"],
                name="run_unique_launch",
                nulls_distinct=False,
            ),
            models.CheckConstraint(condition=Q(status__in=RunStatus.values), name="run_status_known"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["commit", "case"], name="run_commit_case"),
            models.Index(fields=["case", "-started_at"], name="run_case_started"),
        ]

    def __str__(self) -> str:
        return str(self.uuid)

    @property
    def counts(self) -> bool:
        """Whether the statistics may use it."""
        return self.status == RunStatus.OK and not self.invalid_reason


class Series(models.Model):
    """Case x metric x pool x environment class along a branch."""

    case = models.ForeignKey(Case, on_delete=models.CASCADE, related_name="series")
    metric = models.ForeignKey(Metric, on_delete=models.CASCADE, related_name="series")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="series")
    environment_class = models.ForeignKey(EnvironmentClass, on_delete=models.PROTECT, related_name="series")
    branch = models.ForeignKey(Branch, on_delete=models.CASCADE, related_name="series")

    class Meta:
        verbose_name_plural = "series"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["case", "metric", "pool", "environment_class", "branch"], name="series_unique"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.case.label} {self.metric.name}"


UNPLACED = -1
"""`Measurement.position` of a run whose commit is unknown or not on the branch."""


class Measurement(models.Model):
    """Summary of one metric of one run, in the metric's unit. Rows of a series lie together under the key.

    `value` is the launch's figure (the metric's statistic); None where it ranks as +infinity (a percentile that
    falls on a failure). `usable` repeats `Run.counts`, so that reading a series touches this table only.
    """

    pk = models.CompositePrimaryKey("series_id", "position", "run_id")
    series = models.ForeignKey(Series, on_delete=models.CASCADE, related_name="measurements", db_index=False)
    position = models.IntegerField()
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="measurements")
    launch = models.ForeignKey(Launch, on_delete=models.CASCADE, related_name="+", db_index=False)
    metric = models.ForeignKey(Metric, on_delete=models.CASCADE, related_name="+", db_index=False)
    commit = models.ForeignKey(Commit, null=True, on_delete=models.CASCADE, related_name="measurements")
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="+", db_index=False)
    n = models.IntegerField()
    failures = models.IntegerField(default=0)
    value = models.FloatField(null=True)
    median = models.FloatField(null=True)
    mad = models.FloatField(null=True)
    p99 = models.FloatField(null=True)
    minimum = models.FloatField(null=True)
    maximum = models.FloatField(null=True)
    mhz = models.FloatField(null=True)
    usable = models.BooleanField(default=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(n__gte=0) & Q(failures__gte=0), name="measurement_counts"),
            models.CheckConstraint(
                condition=Q(minimum__isnull=True) | Q(maximum__gte=F("minimum")), name="measurement_range"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.series_id}@{self.position}"


class Sample(models.Model):
    """The raw samples of one metric of one run, in the metric's unit and the order taken. Never empty.

    `mhz` is the SM clock over each sample, where it was counted.
    """

    pk = models.CompositePrimaryKey("run_id", "metric_id")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="samples", db_index=False)
    metric = models.ForeignKey(Metric, on_delete=models.CASCADE, related_name="+", db_index=False)
    values = ArrayField(models.FloatField())
    mhz = ArrayField(models.FloatField(), null=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(values__len__gte=1), name="sample_never_empty"),
        ]

    def __str__(self) -> str:
        return f"run {self.run_id} metric {self.metric_id}"


class RequestTable(models.Model):
    """The requests of a replay run as aligned arrays: times in seconds from the start, None where absent."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="requests")
    t_sched = ArrayField(models.FloatField())
    t_send = ArrayField(models.FloatField(null=True))
    t_first = ArrayField(models.FloatField(null=True))
    t_last = ArrayField(models.FloatField(null=True))
    input_tokens = ArrayField(models.IntegerField())
    output_tokens = ArrayField(models.IntegerField(null=True))
    klass = ArrayField(models.TextField())
    status = ArrayField(models.TextField())

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(t_sched__len=F("t_send__len"))
                & Q(t_sched__len=F("t_first__len"))
                & Q(t_sched__len=F("t_last__len"))
                & Q(t_sched__len=F("input_tokens__len"))
                & Q(t_sched__len=F("output_tokens__len"))
                & Q(t_sched__len=F("klass__len"))
                & Q(t_sched__len=F("status__len")),
                name="requesttable_aligned",
            ),
        ]

    def __str__(self) -> str:
        return f"requests of {self.run_id}"


class SeriesState(models.Model):
    """What the analysis last said of a series: one row each, so that pages need no aggregate."""

    series = models.OneToOneField(Series, on_delete=models.CASCADE, primary_key=True, related_name="state")
    analysed_at = models.DateTimeField(db_default=Now())
    position = models.IntegerField(null=True)
    commits = models.IntegerField(default=0)
    outcome = models.CharField(max_length=20, blank=True, default="")
    level = models.FloatField(null=True)
    noise = models.FloatField(null=True, help_text="Launch-to-launch standard deviation of the log value.")
    verdict = models.JSONField(default=dict, blank=True)
    calibration = models.JSONField(default=dict, blank=True)

    def __str__(self) -> str:
        return f"state of {self.series_id}"
