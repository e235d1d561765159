"""Which bisections that alerts started may ask for probes now: the most valuable first, within a daily budget.

One that a person started is never held back; what it spends counts.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import inf, log

from django.db.models import F, Sum
from django.utils import timezone

from perfdb.models import Alert, AlertKind, Bisection, BisectionState, Job, JobKind, Project, Worker
from perfdb.services.alerts import SYSTEM

WAITING = "waiting"
"""Key of `Bisection.answer` that says why no probe is asked for."""

_BUDGET_SPENT = "minutes a day for bisections are spent"


def is_wanted(alert: Alert) -> bool:
    """Which alerts are bisected unasked: open regressions that block."""
    return alert.kind == AlertKind.REGRESSION and alert.is_open and alert.blocking


def value(bisection: Bisection) -> tuple[bool, bool, float, int]:
    """Sorts the most valuable first: a search within a merge ends what was begun, then the larger change."""
    ratio = bisection.alert_ratio
    size = abs(log(ratio)) if 0 < ratio < inf else inf
    blocking = bisection.alert is not None and bisection.alert.blocking
    return bisection.parent_id is None, not blocking, -size, bisection.pk


def spent_minutes(project: Project, *, since: datetime) -> float:
    """Measuring time of the project's probes that began after `since`."""
    probes = Job.objects.filter(project=project, kind=JobKind.PROBE, started_at__gte=since)
    ended = probes.filter(finished_at__isnull=False).aggregate(total=Sum(F("finished_at") - F("started_at")))
    running = [
        timezone.now() - started
        for started in probes.filter(finished_at__isnull=True).values_list("started_at", flat=True)
        if started is not None
    ]
    return ((ended["total"] or timedelta()) + sum(running, timedelta())).total_seconds() / 60


def held_back(bisection: Bisection) -> str:
    """Why this bisection asks for nothing now; empty where it may."""
    if bisection.started_by != SYSTEM:
        return ""
    project = bisection.series.case.benchmark.project
    today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    limit = project.bisection_minutes_per_day
    if spent_minutes(project, since=today) >= limit:
        return f"the project's {limit} {_BUDGET_SPENT}; it goes on tomorrow (UTC)"
    if bisection.state == BisectionState.RUNNING:
        return ""
    others = [
        other
        for other in Bisection.objects.filter(
            series__pool=bisection.series.pool,
            started_by=SYSTEM,
            state__in=[BisectionState.QUEUED, BisectionState.RUNNING],
        ).select_related("alert")
        if other.pk != bisection.pk and _BUDGET_SPENT not in other.answer.get(WAITING, "")
    ]
    free = _workers(bisection) - sum(other.state == BisectionState.RUNNING for other in others)
    before = sum(other.state == BisectionState.QUEUED and value(other) < value(bisection) for other in others)
    return "" if before < free else "it waits for more valuable bisections on its pool"


def _workers(bisection: Bisection) -> int:
    return max(1, Worker.objects.filter(pool=bisection.series.pool, enabled=True).count())


def unfinished() -> list[int]:
    """Bisections to look after, the most valuable first: the beat advances them, so no lost message stops one."""
    rows = Bisection.objects.filter(state__in=[BisectionState.QUEUED, BisectionState.RUNNING])
    return [row.pk for row in sorted(rows.select_related("alert"), key=value)]
