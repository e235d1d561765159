"""One incident, one alert: changes with overlapping commit ranges on a branch are bundled, and their state kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, log

from django.db import transaction
from django.db.models import QuerySet

from perfdb.models import Alert, AlertEvent, AlertKind, AlertState, Branch, BranchCommit, Change
from perfdb.services.detect import LASTING, Analysed
from perfdb.services.policies import Policies

SYSTEM = "perfdb"
_LASTING = [str(kind) for kind in LASTING]
_KIND = {
    "regressed": AlertKind.REGRESSION,
    "improved": AlertKind.IMPROVEMENT,
    "changed": AlertKind.CHANGE,
}


@dataclass(frozen=True, slots=True)
class Bundled:
    """Alerts by id: made now, whose range or members changed, and that have closed."""

    new: tuple[int, ...]
    touched: tuple[int, ...]
    closed: tuple[int, ...]


@transaction.atomic
def bundle(analysed: Analysed) -> Bundled:
    """Give every new or moved change its alert and close alerts that no active change supports."""
    new: list[int] = []
    touched: list[int] = []
    changes = _changes([*analysed.new, *analysed.updated])
    branches = {change.series.branch_id for change in changes}
    # One analysis at a time may bundle on a branch, else two could open two alerts for one incident.
    list(Branch.objects.select_for_update().filter(pk__in=branches).order_by("pk"))
    for change in changes:
        if change.kind not in _LASTING or not change.active or change.alert_id is not None:
            continue
        alert = _overlapping(change)
        if alert is None:
            alert = _open(change)
            new.append(alert.pk)
        change.alert = alert
        change.save(update_fields=["alert"])
        touched.append(alert.pk)
    touched += [change.alert_id for change in changes if change.alert_id]
    for alert in Alert.objects.filter(pk__in=touched):
        _summarise(alert)
    closed = _close_unsupported(_changes([*analysed.updated, *analysed.lost]))
    return Bundled(tuple(dict.fromkeys(new)), tuple(dict.fromkeys(touched)), tuple(closed))


def _changes(ids: Iterable[int]) -> list[Change]:
    rows: QuerySet[Change] = Change.objects.filter(pk__in=set(ids)).select_related(
        "series__case__benchmark__project", "series__metric__benchmark", "series__pool", "series__branch"
    )
    return list(rows.order_by("bad_position", "pk"))


def _overlapping(change: Change) -> Alert | None:
    """An alert of the same kind on the branch whose commit range overlaps: the same incident.

    Closed alerts count too, except where they were closed as fixed or recovered: an incident that was judged
    must not be raised again by the next series that shows it.
    """
    rows = Alert.objects.filter(
        branch=change.series.branch,
        kind=_KIND[change.direction],
        good_position__lt=change.bad_position,
        bad_position__gt=change.good_position,
    ).exclude(state__in=[AlertState.FIXED, AlertState.RECOVERED])
    return rows.order_by("-state", "pk").first()


def _open(change: Change) -> Alert:
    series = change.series
    policy = Policies(series.case.benchmark.project).for_series(series)
    kind = _KIND[change.direction]
    alert = Alert.objects.create(
        project=series.case.benchmark.project,
        branch=series.branch,
        kind=kind,
        state=AlertState.NEW if kind == AlertKind.REGRESSION else AlertState.RECORDED,
        title="",
        good_position=change.good_position,
        bad_position=change.bad_position,
        blocking=policy.blocking and kind == AlertKind.REGRESSION,
    )
    AlertEvent.objects.create(alert=alert, who=SYSTEM, to_state=alert.state, text="found")
    return alert


def _summarise(alert: Alert) -> None:
    """Range (what all changes allow together), title and end commits from the active changes."""
    changes = [
        c for c in _changes(alert.changes.values_list("pk", flat=True)) if c.active and c.kind in _LASTING
    ]
    if not changes:
        return
    good, bad = common_range([(c.good_position, c.bad_position) for c in changes])
    alert.good_position, alert.bad_position = good, bad
    places = dict(
        BranchCommit.objects.filter(branch=alert.branch, position__in=[good, bad]).values_list(
            "position", "commit_id"
        )
    )
    alert.good_id, alert.bad_id = places.get(good), places.get(bad)
    alert.title = title(alert, changes)
    alert.save()


def common_range(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The intersection of half-open ranges (good, bad]; their hull where they do not all overlap."""
    good, bad = max(g for g, _ in ranges), min(b for _, b in ranges)
    return (good, bad) if good < bad else (min(g for g, _ in ranges), max(b for _, b in ranges))


def title(alert: Alert, changes: Sequence[Change]) -> str:
    """The largest change, and how many more."""
    largest = max(changes, key=size)
    more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
    return f"{describe(largest)}{more}"[:500]


def size(change: Change) -> float:
    """How large a change is for ordering: |log ratio|; a change from or to zero (no ratio) is the largest."""
    return abs(log(change.ratio)) if change.ratio and change.ratio > 0 else inf


def describe(change: Change) -> str:
    """`softmax[n=4096] time +31.2 %`."""
    series = change.series
    name = f"{series.case.label} {series.metric.name}"
    if change.ratio:
        return f"{name} {100 * (change.ratio - 1):+.1f} %"
    before, after = change.verdict.get("before"), change.verdict.get("after")
    return f"{name} {_short(before)} to {_short(after)} {series.metric.unit}".strip()


def _short(value: float | None) -> str:
    return "failures" if value is None else f"{value:.3g}"


def _close_unsupported(changes: Sequence[Change]) -> list[int]:
    """Close open alerts all of whose changes have gone: recovered where an episode says so, else not seen again."""
    closed = []
    for alert in Alert.objects.filter(pk__in={c.alert_id for c in changes if c.alert_id}):
        members = list(alert.changes.all())
        if not alert.is_open or any(c.active and c.kind in _LASTING for c in members):
            continue
        passed = any(c.active and c.kind == "episode" for c in members)
        if alert.culprit_id is not None and not passed:
            continue  # a bisection measured both sides of it; later noise does not undo that
        why = (
            "the metric went back to its old level by itself"
            if passed
            else "with more measurements the change is no longer seen"
        )
        move(alert, AlertState.RECOVERED, who=SYSTEM, why=why)
        closed.append(alert.pk)
    return closed


@transaction.atomic
def move(alert: Alert, state: str, *, who: str, why: str = "") -> Alert:
    """Change an alert's state and write who, when and why into its history. The same state again writes nothing."""
    alert = Alert.objects.select_for_update().get(pk=alert.pk)
    if alert.state == state:
        return alert
    AlertEvent.objects.create(alert=alert, who=who, from_state=alert.state, to_state=state, text=why)
    alert.state = state
    alert.save(update_fields=["state", "updated_at"])
    return alert


def comment(alert: Alert, text: str, *, who: str) -> AlertEvent:
    """A line in the history without a transition."""
    return AlertEvent.objects.create(alert=alert, who=who, text=text)
