"""What did not arrive: cases that turned into errors (broken), and cases, workers and branches that fell silent.

Neither is a change of a value, so the detector, which sees values only, cannot find them. Called now and then for every
trunk; calling it again changes nothing until new runs come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Max
from django.utils import timezone

from perfdb.models import (
    Alert,
    AlertEvent,
    AlertKind,
    AlertState,
    Branch,
    BranchKind,
    Change,
    Run,
    Series,
    Worker,
)
from perfdb.services import alerts

BROKEN = "broken"
"""Kind of the `Change` rows kept here; the detector leaves them alone."""
BROKEN_COMMITS = 2
"""Consecutive measured commits without one good run that make a case broken: one may be a mishap."""
MISSED_COMMITS = 3
"""Newest measured commits of a branch that a case must be absent from to be called missing."""
USUAL_COMMITS = 5
"""Measured commits before those; a case that was in most of them is one that reports."""
WINDOW = 100
SILENT_WORKER = timedelta(days=1)
SILENT_BRANCH = timedelta(days=7)
NAMED = 5


@dataclass(frozen=True, slots=True)
class Watched:
    """Alerts by id: opened now, closed now, and open ones that still miss data (told once a day)."""

    new: tuple[int, ...] = ()
    closed: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()


@dataclass(slots=True)
class _Case:
    """A case on a branch by position: positions with a good run, and those with failed runs alone."""

    good: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    @property
    def broken_since(self) -> tuple[int, int] | None:
        """(last good, first failed) where the newest BROKEN_COMMITS measured commits or more have all failed."""
        if not self.good:
            return None
        after = [position for position in self.failed if position > self.good[-1]]
        return (self.good[-1], after[0]) if len(after) >= BROKEN_COMMITS else None


def watch(*, now: datetime | None = None) -> Watched:
    """Look at the trunk of every project."""
    new: list[int] = []
    closed: list[int] = []
    missing: list[int] = []
    for branch in Branch.objects.filter(kind=BranchKind.TRUNK).select_related("project").order_by("pk"):
        done = watch_branch(branch, now=now or timezone.now())
        new += done.new
        closed += done.closed
        missing += done.missing
    return Watched(tuple(new), tuple(closed), tuple(missing))


@transaction.atomic
def watch_branch(branch: Branch, *, now: datetime) -> Watched:
    Branch.objects.select_for_update().get(pk=branch.pk)
    cases = _cases(branch)
    new, closed = _broken(branch, cases)
    gone = _missing_cases(branch, cases) + _silent_workers(branch, now) + _silent_branch(branch, now)
    opened, ended, still = _missing(branch, gone)
    return Watched((*new, *opened), (*closed, *ended), tuple(still))


_STATUSES = """
SELECT r.case_id, p.position, bool_or(r.status = 0 AND r.invalid_reason = ''), bool_or(r.status IN (1, 2, 3, 4))
FROM perfdb_run r
JOIN perfdb_branchcommit p ON p.branch_id = r.branch_id AND p.commit_id = r.commit_id
WHERE r.branch_id = %s AND p.position > (
    SELECT max(position) - %s FROM perfdb_branchcommit WHERE branch_id = %s)
GROUP BY r.case_id, p.position
ORDER BY r.case_id, p.position
"""


def _cases(branch: Branch) -> dict[int, _Case]:
    """An invalid run (a person's mark, a bad machine) says neither good nor failed."""
    found: dict[int, _Case] = defaultdict(_Case)
    with connection.cursor() as cursor:
        cursor.execute(_STATUSES, [branch.pk, WINDOW, branch.pk])
        for case, position, good, failed in cursor.fetchall():
            if good:
                found[case].good.append(position)
            elif failed:
                found[case].failed.append(position)
    return dict(found)


# -- broken ------------------------------------------------------------------------------------------------
def _broken(branch: Branch, cases: dict[int, _Case]) -> tuple[list[int], list[int]]:
    new: list[int] = []
    touched: set[int] = set()
    for case_id, case in cases.items():
        since = case.broken_since
        series = _leading(branch, case_id) if since else None
        if since is None or series is None:
            continue
        change, made = Change.objects.get_or_create(
            series=series,
            kind=BROKEN,
            bad_position=since[1],
            defaults={
                "good_position": since[0],
                "direction": "regressed",
                "verdict": {"before": _level(series, since[0]), "after": None},
            },
        )
        if made:
            alert = _incident(branch, *since)
            if alert is None:
                alert = _open(
                    branch, AlertKind.BROKEN, good_position=since[0], bad_position=since[1], blocking=True
                )
                new.append(alert.pk)
            change.alert = alert
            change.save(update_fields=["alert"])
            touched.add(alert.pk)
    for alert in Alert.objects.filter(pk__in=touched):
        _entitle(alert)
    return new, _recovered(branch, cases)


def _leading(branch: Branch, case_id: int) -> Series | None:
    """One series stands for its case: the first tracked one that has values."""
    rows = Series.objects.filter(branch=branch, case=case_id, metric__tracked=True, measurements__usable=True)
    return rows.order_by("pk").first()


def _level(series: Series, position: int) -> float | None:
    rows = series.measurements.filter(position=position, usable=True, value__isnull=False)
    return rows.values_list("value", flat=True).first()


def _incident(branch: Branch, good: int, bad: int) -> Alert | None:
    rows = Alert.objects.filter(
        branch=branch, kind=AlertKind.BROKEN, good_position__lt=bad, bad_position__gt=good
    ).exclude(state__in=[AlertState.FIXED, AlertState.RECOVERED])
    return rows.order_by("pk").first()


def _open(branch: Branch, kind: AlertKind, **fields: object) -> Alert:
    alert = Alert.objects.create(project=branch.project, branch=branch, kind=kind, title="", **fields)
    AlertEvent.objects.create(alert=alert, who=alerts.SYSTEM, to_state=alert.state, text="found")
    return alert


def _entitle(alert: Alert) -> None:
    changes = list(
        alert.changes.filter(active=True).select_related("series__case__benchmark", "series__metric")
    )
    alert.good_position, alert.bad_position = alerts.common_range(
        [(change.good_position, change.bad_position) for change in changes]
    )
    places = dict(
        alert.branch.places.filter(position__in=[alert.good_position, alert.bad_position]).values_list(
            "position", "commit_id"
        )
    )
    alert.good_id, alert.bad_id = places.get(alert.good_position), places.get(alert.bad_position)
    names = [change.series.case.label for change in changes]
    alert.title = f"{_listed(names)} broken: every run fails"[:500]
    alert.save()


def _recovered(branch: Branch, cases: dict[int, _Case]) -> list[int]:
    closed = []
    active = Change.objects.filter(series__branch=branch, kind=BROKEN, active=True).select_related(
        "series", "alert"
    )
    touched: dict[int, Alert] = {}
    for change in active:
        case = cases.get(change.series.case_id)
        if case is not None and case.good and case.good[-1] >= change.bad_position:
            change.active, change.end_position = False, case.good[-1]
            change.save(update_fields=["active", "end_position"])
            if change.alert:
                touched[change.alert.pk] = change.alert
    for alert in touched.values():
        if alert.is_open and not alert.changes.filter(active=True).exists():
            alerts.move(alert, AlertState.RECOVERED, who=alerts.SYSTEM, why="its runs succeed again")
            closed.append(alert.pk)
    return closed


# -- missing -----------------------------------------------------------------------------------------------
def _missing_cases(branch: Branch, cases: dict[int, _Case]) -> list[str]:
    """Cases that were in most of the USUAL_COMMITS and are in none of the MISSED_COMMITS measured since."""
    measured = sorted(
        {position for case in cases.values() for position in (*case.good, *case.failed)}, reverse=True
    )
    missed, usual = measured[:MISSED_COMMITS], measured[MISSED_COMMITS:][:USUAL_COMMITS]
    if len(usual) < USUAL_COMMITS:
        return []
    gone = []
    for case_id, case in cases.items():
        there = {*case.good, *case.failed}
        if not there & set(missed) and 2 * len(there & set(usual)) > len(usual):
            gone.append(case_id)
    rows = Series.objects.filter(case_id__in=gone).select_related("case__benchmark")
    return sorted({row.case.label for row in rows})


def _silent_workers(branch: Branch, now: datetime) -> list[str]:
    """Enabled workers that measured this branch in the last month and have not been heard of for a day."""
    rows = Worker.objects.filter(
        enabled=True,
        seen_at__lt=now - SILENT_WORKER,
        launches__runs__branch=branch,
        launches__started_at__gt=now - timedelta(days=30),
    )
    return [f"worker {name}" for name in sorted(set(rows.values_list("name", flat=True)))]


def _silent_branch(branch: Branch, now: datetime) -> list[str]:
    newest = Run.objects.filter(branch=branch).aggregate(at=Max("started_at"))["at"]
    if newest is None or newest > now - SILENT_BRANCH:
        return []
    return [f"everything on {branch.name} since {newest:%Y-%m-%d}"]


def _missing(branch: Branch, gone: Sequence[str]) -> tuple[list[int], list[int], list[int]]:
    """(opened, closed, still to be told of): one open alert a branch; what was judged away does not come back."""
    open_ones = list(
        Alert.objects.filter(branch=branch, kind=AlertKind.MISSING, state__in=AlertState.open_states())
    )
    if not gone:
        for alert in open_ones:
            alerts.move(alert, AlertState.RECOVERED, who=alerts.SYSTEM, why="it reports again")
        return [], [alert.pk for alert in open_ones], []
    title = f"no data: {_listed(gone)}"[:500]
    if open_ones:
        alert = open_ones[0]
        if alert.title != title:
            alert.title = title
            alert.save(update_fields=["title", "updated_at"])
        return [], [], [alert.pk] if alert.state == AlertState.NEW else []
    judged = [AlertState.WONTFIX, AlertState.INVALID, AlertState.DUPLICATE]
    if Alert.objects.filter(branch=branch, kind=AlertKind.MISSING, state__in=judged, title=title).exists():
        return [], [], []
    alert = _open(branch, AlertKind.MISSING, blocking=False)
    alert.title = title
    alert.save(update_fields=["title"])
    return [alert.pk], [], [alert.pk]


def _listed(names: Iterable[str]) -> str:
    known = list(dict.fromkeys(names))
    more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
    return ", ".join(known[:NAMED]) + more
