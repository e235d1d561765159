"""Why an alert's changes happened: gather the facts from rows, let `perfdb.stats.cause` weigh them, store the lines.

Facts come from the alert's clearest change: the launches of its series at a few commits on either side. Called when an
alert is made or moved, and again when a bisection ends: its probes measured the old commit again, after the change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import log
from statistics import median
from typing import Any

from django.db import connection, transaction

from perfdb.models import Alert, Change, Environment, Evidence, Measurement, RequestTable, Series, Tier
from perfdb.services import alerts
from perfdb.services.detect import LASTING
from perfdb.stats import cause
from perfdb.stats.cause import Line
from perfdb.stats.drift import Drift, Workload, workload_drift

SIDE_COMMITS = 5
"""Measured commits on either side of the range whose launches stand for the old and the new level."""
HOST_BUSY_RISE = 0.25
"""Rise of the share of busy cores, old side to new, that is worth a line."""
FROM_NOTHING = log(10.0)
"""Logarithm that stands for a change from or to zero, which has none."""
_LASTING = [str(kind) for kind in LASTING]


@dataclass(frozen=True, slots=True)
class Seen:
    """One launch's value of the series and what is known of the launch. Empty texts and None: not recorded."""

    position: int
    run: int
    value: float
    mhz: float | None
    worker: str
    environment: int
    started_at: datetime
    health: dict[str, Any]
    harness: str
    definition: str
    trace: int | None
    artifact: str


@transaction.atomic
def attribute(alert_id: int) -> str:
    """Weigh the evidence of an alert anew and store it; returns the cause. Evidence of earlier calls is replaced."""
    alert = Alert.objects.select_for_update().get(pk=alert_id)
    change = _clearest(alert)
    lines = evidence(change) if change is not None else []
    verdict = cause.judge(lines)
    alert.evidence.all().delete()
    Evidence.objects.bulk_create(
        Evidence(
            alert=alert,
            name=line.name,
            sentence=line.sentence,
            likelihood=dict(line.likelihood),
            experiment=line.experiment,
        )
        for line in lines
    )
    alert.cause = verdict.cause
    alert.cause_posterior = {name: round(value, 4) for name, value in verdict.posterior.items()}
    alert.save(update_fields=["cause", "cause_posterior", "updated_at"])
    return verdict.cause


def _clearest(alert: Alert) -> Change | None:
    """A change with two finite levels before one that ended in failures, a measured metric before a counter."""
    changes = alert.changes.filter(active=True, kind__in=_LASTING).select_related(
        "series__case__benchmark", "series__metric"
    )
    return min(
        changes,
        key=lambda c: (_levels(c) is None, c.series.metric.deterministic, -min(alerts.size(c), 10.0), c.pk),
        default=None,
    )


@dataclass(frozen=True, slots=True)
class Size:
    """A change as the lines compare with it: `log` of after / before; FROM_NOTHING where a level is not positive."""

    before: float
    after: float

    @property
    def log(self) -> float:
        return self.of(self.before, self.after)

    def of(self, old: float, new: float) -> float:
        """The same for another pair of levels of the series: its share of this change, where there is no ratio."""
        if min(self.before, self.after, old, new) > 0:
            return log(new / old)
        return FROM_NOTHING * (new - old) / abs(self.after - self.before)


def _levels(change: Change) -> Size | None:
    """None where a level fell on failures, or both are the same."""
    before, after = change.verdict.get("before"), change.verdict.get("after")
    return Size(before, after) if before is not None and after is not None and before != after else None


def evidence(change: Change) -> list[Line]:
    """All lines that the stored rows give for one change."""
    series, size = change.series, _levels(change)
    old, new, late = _sides(change)
    if not old or not new or size is None:
        return []
    slower = size.log
    cost = slower if series.metric.lower_is_better is not False else -slower
    last, first = max(s.position for s in old), min(s.position for s in new)
    before, after = [s for s in old if s.position == last], [s for s in new if s.position == first]
    lines: list[Line | None] = [
        cause.sentinel(_sentinels(old), _sentinels(new), slower=cost),
        cause.clock([s.mhz for s in old if s.mhz], [s.mhz for s in new if s.mhz], slower=cost),
        cause.workers(_by_worker(old, new, size), slower=slower),
        cause.other_worker({s.worker for s in old if s.worker}, {s.worker for s in new if s.worker}),
        _others(change, old, new, cost=cost),
        cause.health(health_changes(old, new)),
        cause.environment(environment_changes(before, after)),
        _workload(series, before, after),
        _method(before, after),
        _artifact(before, after),
        _again(old, late, size),
    ]
    return [line for line in lines if line is not None]


def _sides(change: Change) -> tuple[list[Seen], list[Seen], list[Seen]]:
    """Launches of the old level, of the new one, and of old commits that were measured after the new one was seen."""
    rows = Measurement.objects.filter(series=change.series, usable=True, value__isnull=False)
    positions = list(rows.order_by("position").values_list("position", flat=True).distinct())
    before = [p for p in positions if 0 <= p <= change.good_position][-SIDE_COMMITS:]
    after = [p for p in positions if p >= change.bad_position][:SIDE_COMMITS]
    seen = _read(rows.filter(position__in=[*before, *after]))
    new = [s for s in seen if s.position in after]
    first_new = min((s.started_at for s in new), default=None)
    old = [s for s in seen if s.position in before]
    late = [s for s in old if first_new is not None and s.started_at > first_new]
    early = [s for s in old if s not in late]
    return (early or old), new, (late if early else [])


def _read(rows: Any) -> list[Seen]:
    columns = (
        "position", "run_id", "value", "mhz", "launch__worker__name", "environment_id", "launch__started_at",
        "launch__health", "launch__harness_version", "run__definition_hash", "run__trace_summary_id",
        "run__build__artifact_hash",
    )  # fmt: skip
    return [
        Seen(*[*row[:4], row[4] or "", *row[5:11], row[11] or ""])
        for row in rows.order_by("position", "run_id").values_list(*columns)
    ]


def _sentinels(side: Iterable[Seen]) -> dict[str, list[float]]:
    """Control times in seconds by component, one a launch: the median of its readings before and after."""
    found: dict[str, list[float]] = defaultdict(list)
    for seen in side:
        readings = seen.health.get("sentinel") or {}
        parts = [readings.get(when) or {} for when in ("before", "after")]
        for name in parts[0].keys() | parts[1].keys():
            values = [p[name] for p in parts if isinstance(p.get(name), int | float) and p[name] > 0]
            if values:
                found[name].append(median(values))
    return found


def _by_worker(old: Sequence[Seen], new: Sequence[Seen], size: Size) -> dict[str, float]:
    sides: list[dict[str, list[float]]] = [defaultdict(list), defaultdict(list)]
    for values, side in zip(sides, (old, new), strict=True):
        for seen in side:
            if seen.worker:
                values[seen.worker].append(seen.value)
    return {
        name: size.of(median(sides[0][name]), median(sides[1][name]))
        for name in sides[0].keys() & sides[1].keys()
    }


_OTHERS = """
SELECT s.case_id, x.lower_is_better,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY m.value) FILTER (WHERE m.position = ANY(%s)),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY m.value) FILTER (WHERE m.position = ANY(%s))
FROM perfdb_measurement m
JOIN perfdb_series s ON s.id = m.series_id
JOIN perfdb_metric x ON x.id = m.metric_id
WHERE s.branch_id = %s AND s.pool_id = %s AND s.case_id <> %s AND m.usable AND m.value > 0
  AND x.tracked AND NOT x.deterministic AND x.lower_is_better IS NOT NULL AND m.position = ANY(%s)
GROUP BY s.id, s.case_id, x.lower_is_better
"""


def _others(change: Change, old: Sequence[Seen], new: Sequence[Seen], *, cost: float) -> Line | None:
    """Other cases of the pool over the same commits: how many moved the same way by half as much or more."""
    before, after = ([*{s.position for s in side}] for side in (old, new))
    series = change.series
    with connection.cursor() as cursor:
        cursor.execute(
            _OTHERS,
            [before, after, series.branch_id, series.pool_id, series.case_id, [*before, *after]],
        )
        rows = cursor.fetchall()
    moved: dict[int, bool] = {}
    for case, lower, first, last in rows:
        if first is not None and last is not None:
            delta = log(last / first) * (1 if lower else -1)
            moved[case] = moved.get(case, False) or (delta * cost > 0 and abs(delta) > abs(cost) / 2)
    return cause.other_series(sum(moved.values()), len(moved))


def health_changes(old: Sequence[Seen], new: Sequence[Seen]) -> list[str]:
    """Readings in most launches of the new side and in few of the old one, in words."""
    found = []
    sides = [[s.health.get("during") or {} for s in side] for side in (old, new)]
    reasons = [[set(d.get("event_reasons") or []) for d in side] for side in sides]
    for name in sorted(set().union(*reasons[1])):
        if _share(reasons[1], name) > 0.5 and _share(reasons[0], name) < 0.2:
            found.append(f"the GPU reports {name.replace('_', ' ')}")
    foreign = [[bool(d.get("foreign_processes")) for d in side] for side in sides]
    if _mean(foreign[1]) > 0.5 and _mean(foreign[0]) < 0.2:
        found.append("another process uses the GPU")
    for key, name in (
        ("host_busy", "of the host's cores are busy"),
        ("steal", "of the cores' time is stolen"),
    ):
        known = [[float(d[key]) for d in side if isinstance(d.get(key), int | float)] for side in sides]
        if all(known) and median(known[1]) - median(known[0]) > HOST_BUSY_RISE:
            found.append(f"{median(known[1]):.0%} {name} (before: {median(known[0]):.0%})")
    return found


def _share(sets: Sequence[set[str]], name: str) -> float:
    return _mean([name in one for one in sets])


def _mean(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


def environment_changes(old: Sequence[Seen], new: Sequence[Seen]) -> list[str]:
    """Boundary fields whose values on the two sides have nothing in common."""
    sides = [{s.environment for s in side} for side in (old, new)]
    if sides[0] & sides[1]:
        return []
    stored = Environment.objects.in_bulk(sides[0] | sides[1])
    values: list[dict[str, set[str]]] = [defaultdict(set), defaultdict(set)]
    for known, ids in zip(values, sides, strict=True):
        for id_ in ids:
            for name, value in stored[id_].boundary.items():
                known[name].add(str(value))
    return [
        f"{name} {_listed(values[0][name])} to {_listed(values[1][name])}"
        for name in sorted(values[0].keys() & values[1].keys())
        if not values[0][name] & values[1][name]
    ]


def _listed(values: set[str]) -> str:
    return ", ".join(sorted(values))[:80]


def _workload(series: Series, old: Sequence[Seen], new: Sequence[Seen]) -> Line | None:
    traces = [{s.trace for s in side if s.trace is not None} for side in (old, new)]
    if not all(traces):
        return None if series.case.benchmark.tier == Tier.REPLAY else cause.fixed_input()
    if traces[0] & traces[1]:
        return cause.trace(changed=False)
    drift = _drift(old[-1].run, new[0].run)
    if drift is None or not drift.decidable:
        return cause.trace(changed=True)
    return cause.trace(changed=True, drifted=drift.dimensions, decided=True)


def _drift(old_run: int, new_run: int) -> Drift | None:
    tables = RequestTable.objects.in_bulk([old_run, new_run])
    if len(tables) < 2:
        return None
    old, new = (
        Workload(
            table.input_tokens,
            [value or 0 for value in table.output_tokens],
            arrival_s=table.t_sched,
            classes=table.klass,
        )
        for table in (tables[old_run], tables[new_run])
    )
    return workload_drift(old, new)


def _method(old: Sequence[Seen], new: Sequence[Seen]) -> Line | None:
    definitions = [{s.definition for s in side if s.definition} for side in (old, new)]
    harness = [{s.harness for s in side if s.harness} for side in (old, new)]
    changed = None if not all(definitions) else not definitions[0] & definitions[1]
    versions = (
        [_listed(harness[0]), _listed(harness[1])] if all(harness) and not harness[0] & harness[1] else []
    )
    return cause.method(definition=changed, harness=versions)


def _artifact(old: Sequence[Seen], new: Sequence[Seen]) -> Line | None:
    built = [{s.artifact for s in side if s.artifact} for side in (old, new)]
    if not all(built):
        return None
    return cause.artifact(identical=bool(built[0] & built[1]))


def _again(old: Sequence[Seen], late: Sequence[Seen], size: Size) -> Line | None:
    """Old commits measured after the new level was first seen, against what they were before."""
    if not late or not old:
        return None
    moved = size.of(median(s.value for s in old), median(s.value for s in late))
    return cause.again(moved, slower=size.log, launches=len(late))
