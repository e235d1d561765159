"""Probes of a bisection: ordinary jobs, and what their ends mean to the search."""

from __future__ import annotations

from collections.abc import Sequence

from perfdb.models import (
    Bisection,
    BranchCommit,
    Build,
    BuildStatus,
    Commit,
    Job,
    JobKind,
    JobState,
    Measurement,
    Probe,
    RunStatus,
    Series,
)
from perfdb.services import schedule
from perfdb.services.series import histories
from perfdb.units import UnitError, convert

_ASKED_AGAIN = "asked again: "
_NOT_THE_COMMIT = ("the runner ", "the runner's ", "the worker fell silent", "cannot fetch", "cancelled")
"""How reasons begin that say nothing about the commit (measure.RunnerFailed, schedule, vcs)."""
_SLOWER_THAN_ANY = 10.0
_FAILURE_RATES = ("oom_rate", "error_rate")
_UNBUILT = (BuildStatus.FAILED, BuildStatus.TIMEOUT)


def reuse(bisection: Bisection) -> None:
    """Launches and failed builds that the commits already have become the first observations."""
    project = bisection.series.case.benchmark.project
    values: dict[str, list[float]] = {}
    measured = Measurement.objects.filter(
        series=bisection.series, commit__sha__in=bisection.shas, usable=True, value__isnull=False
    )
    for sha, value in measured.order_by("run_id").values_list("commit__sha", "value"):
        values.setdefault(sha, []).append(float(value or 0.0))
    probes = [
        Probe(
            index=index,
            launches=len(values[sha]),
            values=values[sha],
            reason="measured before the search",
        )
        for index, sha in enumerate(bisection.shas)
        if sha in values
    ]
    failed = Build.objects.filter(
        commit__project=project, commit__sha__in=bisection.shas, status__in=_UNBUILT
    )
    reasons = {
        build.commit.sha: f"build {build.get_status_display()}" for build in failed.select_related("commit")
    }
    probes += [
        Probe(index=bisection.shas.index(sha), launches=0, unbuildable=True, reason=reason)
        for sha, reason in sorted(reasons.items())
        if sha not in values
    ]
    for order, probe in enumerate(probes):
        probe.bisection, probe.order, probe.observed = bisection, order, True
    Probe.objects.bulk_create(probes)


def ask(bisection: Bisection, index: int, launches: int) -> Job:
    """A probe of one commit, on the bisection's pool and, where it is free, on its worker."""
    job = _job(bisection, index, launches)
    order = bisection.probes.count()
    Probe.objects.create(bisection=bisection, order=order, index=index, launches=launches, job=job)
    return job


def _job(bisection: Bisection, index: int, launches: int) -> Job:
    series = bisection.series
    commit = Commit.objects.get(project=series.case.benchmark.project, sha=bisection.shas[index])
    return schedule.request(
        series.branch,
        commit,
        pool=series.pool,
        kind=JobKind.PROBE,
        cases=[series.case],
        launches=launches,
        priority=schedule.PRIORITY["probe"],
        prefer=bisection.worker,
    )


def collect(bisection: Bisection, probe: Probe) -> Job | None:
    """Turn a finished probe job into an observation, or into one more job where the machinery failed, once."""
    job = probe.job
    if job is not None and not job.is_finished:
        return None
    values, reason, again = _outcome(bisection, job)
    if not values and again and not probe.reason.startswith(_ASKED_AGAIN):
        probe.job = _job(bisection, probe.index, probe.launches)
        probe.reason = f"{_ASKED_AGAIN}{reason}"
        probe.save()
        return probe.job
    if bisection.worker is None and job is not None and values:
        bisection.worker = job.worker
    probe.observed = True
    probe.values = values or None
    probe.unbuildable = not values
    probe.reason = reason
    probe.save()
    return None


def _outcome(bisection: Bisection, job: Job | None) -> tuple[list[float], str, bool]:
    """(launch values, reason, whether another job may do better).

    A time-out counts as slow. A failed build, a failed test or a commit that is gone is no value, and another job
    would not change that; a dead runner, a silent worker or an unhealthy host says nothing about the commit.
    """
    if job is None:
        return [], "its job was deleted", True
    series = bisection.series
    runs = list(
        job.launch_set.filter(runs__case=series.case).values_list("runs__id", "runs__status", "runs__reason")
    )
    if not runs:
        unbuilt = Build.objects.filter(commit=job.commit, status__in=_UNBUILT).exists()
        ended_badly = job.state in (JobState.FAILED, JobState.CANCELLED)
        again = ended_badly and not unbuilt and job.reason.startswith(_NOT_THE_COMMIT)
        return [], job.reason or "nothing was measured", again
    found = Measurement.objects.filter(
        run_id__in=[run_id for run_id, _, _ in runs], metric=series.metric, usable=True, value__isnull=False
    ).order_by("run_id")
    values = [float(row.value) for row in found if row.value is not None]
    statuses = [status for _, status, _ in runs]
    slow = timeout_value(bisection) if RunStatus.TIMEOUT in statuses else None
    if slow is not None:
        values += [slow] * statuses.count(RunStatus.TIMEOUT)
    if series.metric.name in _FAILURE_RATES:
        values += [1.0] * sum(status in (RunStatus.OOM, RunStatus.ERROR) for status in statuses)
    reasons = "; ".join(sorted({reason for _, _, reason in runs if reason}))
    return values, reasons, set(statuses) == {RunStatus.INVALID}


def timeout_value(bisection: Bisection) -> float | None:
    """What a launch that timed out counts as: slower than all else, in the metric's unit.

    None where running out of time says nothing of the metric (memory, counts).
    """
    series = bisection.series
    limit_s = float(series.case.benchmark.definition.get("timeout_s", 120.0))
    try:
        return convert(limit_s, "s", series.metric.unit)
    except UnitError:
        if series.metric.lower_is_better is False and bisection.threshold:
            return bisection.threshold / _SLOWER_THAN_ANY
        return None


def observation(bisection: Bisection, values: Sequence[float]) -> list[float]:
    """Launch values as the search takes them: for pass_fail 1 where a launch is beyond the threshold."""
    if bisection.response != "pass_fail" or bisection.threshold is None:
        return list(values)
    worse_above = bisection.alert_ratio > 1
    return [float((value > bisection.threshold) is worse_above) for value in values]


def workers(bisection: Bisection) -> list[str]:
    """Names of the workers that measured the probes."""
    names = bisection.probes.filter(observed=True, job__worker__isnull=False).values_list(
        "job__worker__name", flat=True
    )
    return sorted({name for name in names if name})


def noise_history(series: Series, shas: Sequence[str], *, commits: int) -> list[float]:
    """Launches of the level before the range: what the series' noise looks like without the change."""
    first = BranchCommit.objects.filter(branch=series.branch, commit__sha=shas[0]).first()
    if first is None:
        return []
    earlier = (
        series.changes.filter(active=True, bad_position__lte=first.position).order_by("-bad_position").first()
    )
    since = max(earlier.bad_position if earlier else 0, first.position - commits)
    points = [p for p in histories([series.pk], since=since)[series.pk].points if p.position < first.position]
    return [value for point in points for value in point.values if value is not None]
