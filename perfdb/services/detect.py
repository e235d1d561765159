"""From new values to changes: re-analyse the series that got them and reconcile what is stored.

Pure finding is in `perfdb.stats.changes`; here its answer is held against the `Change` rows. A change that is
seen again keeps its row (its range may narrow), one that is no longer seen becomes inactive and is never deleted.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median

from django.db import transaction
from django.utils import timezone

from perfdb.models import Change, Series, SeriesState
from perfdb.services.policies import Policies
from perfdb.services.series import History, histories
from perfdb.stats.calibration import estimate_noise
from perfdb.stats.changes import Change as Found
from perfdb.stats.changes import ChangeKind, find_changes
from perfdb.stats.comparison import compare
from perfdb.stats.noise import Noise
from perfdb.stats.policy import Metric, Policy
from perfdb.stats.short_history import short_change
from perfdb.stats.verdict import Verdict

LASTING = (ChangeKind.STEP, ChangeKind.RAMP, ChangeKind.NEW_MODE)
FAILED_SURROGATE = 1e3
"""A percentile that fell on a failure ranks above everything; this many times the largest finite value stands in."""


@dataclass(frozen=True, slots=True)
class Analysed:
    """New, narrowed and lost changes of one round, by id."""

    new: tuple[int, ...]
    updated: tuple[int, ...]
    lost: tuple[int, ...]


def analyse(series_ids: Iterable[int]) -> Analysed:
    """Re-analyse these series. Each series is one transaction, locked by its state row."""
    new: list[int] = []
    updated: list[int] = []
    lost: list[int] = []
    rows = Series.objects.select_related(
        "metric__benchmark", "case__benchmark__project", "pool", "branch"
    ).filter(pk__in=set(series_ids), metric__tracked=True)
    policies: dict[int, Policies] = {}
    for series in rows.order_by("pk"):
        project = series.case.benchmark.project
        if project.pk not in policies:
            policies[project.pk] = Policies(project)
        done = _analyse_one(series, policies[project.pk].for_series(series))
        new += done.new
        updated += done.updated
        lost += done.lost
    return Analysed(tuple(new), tuple(updated), tuple(lost))


@transaction.atomic
def _analyse_one(series: Series, policy: Policy) -> Analysed:
    SeriesState.objects.get_or_create(series=series)
    state = SeriesState.objects.select_for_update().get(series=series)
    history = histories([series.pk])[series.pk]
    metric = series.metric.value()
    found = changes_of(history, metric=metric, policy=policy)
    result = _reconcile(series, history, found)
    _remember(state, history, found, metric, policy)
    return result


def dense(history: History) -> tuple[int, list[list[float] | None], float]:
    """(first position, launch values per position, surrogate): failed percentiles replaced by the surrogate."""
    first, _ = history.dense()
    finite = [value for point in history.points for value in point.values if value is not None]
    surrogate = FAILED_SURROGATE * max(finite, default=1.0)
    rows: list[list[float] | None] = [None] * (
        history.points[-1].position - first + 1 if history.points else 0
    )
    for point in history.points:
        rows[point.position - first] = [surrogate if v is None else v for v in point.values] or None
    return first, rows, surrogate


def changes_of(history: History, *, metric: Metric, policy: Policy) -> list[Found]:
    """`find_changes` on stored launches; indices are positions on the branch."""
    first, rows, surrogate = dense(history)
    if not rows:
        return []
    found = find_changes(rows, metric=metric, policy=policy)
    if not any(change.kind in LASTING for change in found):
        young = short_change(rows, metric=metric, policy=policy)
        found = [*found, young] if young else found
    return [_at_positions(change, first, surrogate) for change in found]


def _at_positions(change: Found, first: int, surrogate: float) -> Found:
    failed = max(change.before, change.after) > surrogate / 2
    return replace(
        change,
        index=change.index + first,
        earliest=change.earliest + first,
        latest=change.latest + first,
        end=None if change.end is None else change.end + first,
        ratio=None if failed else change.ratio,
        low=None if failed else change.low,
        high=None if failed else change.high,
    )


def direction(change: Found, metric: Metric) -> str:
    """regressed, improved, or changed where the metric has no direction or the change is one of spread."""
    if metric.lower_is_better is None or change.kind is ChangeKind.VARIANCE:
        return "changed"
    worse = change.after > change.before if metric.lower_is_better else change.after < change.before
    return "regressed" if worse else "improved"


def measured_range(change: Found, positions: Sequence[int]) -> tuple[int, int]:
    """(good, bad): the last measured position before the change may have happened, the first it surely has."""
    if change.kind is ChangeKind.EPISODE:
        before = [p for p in positions if p < change.index]
        return (before[-1] if before else change.index - 1), change.index
    before = [p for p in positions if p < change.earliest]
    after = [p for p in positions if p >= change.latest]
    good = before[-1] if before else change.earliest - 1
    bad = after[0] if after else change.latest
    return min(good, bad - 1), bad


def _reconcile(series: Series, history: History, found: Sequence[Found]) -> Analysed:
    metric = series.metric.value()
    # What `services.watch` finds (a case that turned into an error) is no change of a value and not ours to close.
    stored = list(series.changes.exclude(kind="broken").select_for_update())
    new: list[int] = []
    updated: list[int] = []
    kept: set[int] = set()
    for change in found:
        good, bad = measured_range(change, history.positions)
        towards = direction(change, metric)
        row = _same(stored, kept, good, bad, towards)
        fields = {
            "kind": str(change.kind),
            "good_position": good,
            "bad_position": bad,
            "end_position": change.end,
            "ratio": change.ratio,
            "low": _finite(change.low),
            "high": _finite(change.high),
            "confidence": change.confidence,
            "direction": towards,
            "active": True,
            "verdict": {
                "before": _finite(change.before),
                "after": _finite(change.after),
                "index": change.index,
            },
        }
        if row is None:
            row = Change.objects.create(series=series, **fields)
            new.append(row.pk)
        else:
            changed = any(
                getattr(row, key) != fields[key]
                for key in ("kind", "good_position", "bad_position", "active")
            )
            for key, value in fields.items():
                setattr(row, key, value)
            row.save()
            if changed:
                updated.append(row.pk)
        kept.add(row.pk)
    lost = [row for row in stored if row.pk not in kept and row.active]
    for row in lost:
        row.active = False
        row.save(update_fields=["active"])
    return Analysed(tuple(new), tuple(updated), tuple(row.pk for row in lost))


def _same(stored: Sequence[Change], taken: set[int], good: int, bad: int, towards: str) -> Change | None:
    """The stored change that this one is: ranges overlap, same direction; the nearest first."""
    near = [
        row
        for row in stored
        if row.pk not in taken
        and row.direction == towards
        and row.good_position < bad
        and good < row.bad_position
    ]
    return min(near, key=lambda row: (not row.active, abs(row.bad_position - bad)), default=None)


def _remember(
    state: SeriesState, history: History, found: Sequence[Found], metric: Metric, policy: Policy
) -> None:
    """The state row: level and noise of the present level, and the newest commit's verdict against it."""
    verdict = newest_verdict(history, found, metric=metric, policy=policy)
    values = [value for value in _present_level(history, found) if value is not None]
    state.position = history.points[-1].position if history.points else None
    state.commits = len(history.points)
    state.level = _median(values)
    noise = _noise(history, found)
    state.noise = noise.between_launches if noise else None
    state.calibration = {"noise": asdict(noise)} if noise else {}
    state.outcome = str(verdict.outcome) if verdict else ""
    state.verdict = verdict.to_mapping() if verdict else {}
    state.analysed_at = timezone.now()
    state.save()


def _present_level(history: History, found: Sequence[Found]) -> list[float | None]:
    start = max((change.index for change in found if change.kind in LASTING), default=-1)
    return [value for point in history.points if point.position >= start for value in point.values]


def newest_verdict(
    history: History, found: Sequence[Found], *, metric: Metric, policy: Policy
) -> Verdict | None:
    """The newest measured commit against the launches of its own level before it; None without either."""
    if len(history.points) < 2:
        return None
    newest = history.points[-1]
    start = max((c.index for c in found if c.kind in LASTING and c.index < newest.position), default=-1)
    before = [p for p in history.points[:-1] if p.position >= start][-10:]
    base = [value for point in before for value in point.values if value is not None]
    head = [value for value in newest.values if value is not None]
    if not base or not head:
        return None
    return compare(
        [[v] for v in base], [[v] for v in head], metric=metric, policy=policy, noise=_noise(history, found)
    )


def _noise(history: History, found: Sequence[Found]) -> Noise | None:
    """Launch-to-launch scatter with the levels found taken out."""
    starts = [change.index for change in found if change.kind in LASTING]
    rows = [[v for v in point.values if v is not None] for point in history.points]
    return estimate_noise(rows, [bisect_right(starts, point.position) for point in history.points])


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
