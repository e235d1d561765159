"""A draft policy against stored history: which past alerts it would have raised, judged by what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Sum

from perfdb.models import Alert, AlertKind, AlertState, Change, Job, PolicyVersion, Run, Series
from perfdb.services.detect import LASTING, changes_of, direction, measured_range
from perfdb.services.policies import Policies
from perfdb.services.series import histories

TRUE_STATES = (
    AlertState.CONFIRMED,
    AlertState.ACKNOWLEDGED,
    AlertState.FIXED,
    AlertState.WONTFIX,
    AlertState.BACKED_OUT,
)
"""Somebody, or a bisection, found the change real; what was done about it is another matter."""
FALSE_STATES = (AlertState.INVALID, AlertState.RECOVERED)
_LASTING = [str(kind) for kind in LASTING]


@dataclass(frozen=True, slots=True)
class Judged:
    """A past regression alert. fires: whether the draft finds one of its changes. real: None while undecided."""

    alert_id: int
    title: str
    state: str
    fires: bool
    real: bool | None


@dataclass(frozen=True, slots=True)
class Backtest:
    """precision, recall: over alerts whose state says what they were; None where none counts.

    unseen: changes that the draft finds and no stored alert covers, as (series id, first position). gpu_seconds: what
    the bisections' probes of the alerts that fire have cost; all_gpu_seconds: of all alerts.
    """

    alerts: tuple[Judged, ...]
    precision: float | None
    recall: float | None
    unseen: tuple[tuple[int, int], ...]
    gpu_seconds: float
    all_gpu_seconds: float


def score(version: PolicyVersion) -> Backtest:
    """Nothing is written: the draft is not stored and no alert changes."""
    project = version.project
    version.version = 2**31 - 1  # the newest of its scope, so that it wins over the one that stands
    policies = Policies(project, extra=[version])
    rows = list(
        Series.objects.filter(case__benchmark__project=project, metric__tracked=True).select_related(
            "metric__benchmark", "case__benchmark", "pool"
        )
    )
    stored = histories([row.pk for row in rows])
    found: dict[int, list[tuple[int, int]]] = {}
    for row in rows:
        metric, history = row.metric.value(), stored[row.pk]
        changes = changes_of(history, metric=metric, policy=policies.for_series(row))
        found[row.pk] = [
            measured_range(change, history.positions)
            for change in changes
            if change.kind in LASTING and direction(change, metric) == "regressed"
        ]
    return _scored(list(project.alerts.filter(kind=AlertKind.REGRESSION).order_by("pk")), found)


def _scored(past: Sequence[Alert], found: dict[int, list[tuple[int, int]]]) -> Backtest:
    judged: list[Judged] = []
    covered: set[tuple[int, int]] = set()
    for alert in past:
        fires = False
        for change in Change.objects.filter(alert=alert, kind__in=_LASTING):
            for good, bad in found.get(change.series_id, []):
                if good < change.bad_position and change.good_position < bad:
                    fires = True
                    covered.add((change.series_id, bad))
        real = True if alert.state in TRUE_STATES else False if alert.state in FALSE_STATES else None
        judged.append(Judged(alert.pk, alert.title, alert.state, fires, real))
    known = [one for one in judged if one.real is not None]
    hits = sum(one.fires and bool(one.real) for one in known)
    fired, real_ones = sum(one.fires for one in known), sum(bool(one.real) for one in known)
    unseen = [
        (series, bad) for series, ranges in found.items() for _, bad in ranges if (series, bad) not in covered
    ]
    return Backtest(
        alerts=tuple(judged),
        precision=hits / fired if fired else None,
        recall=hits / real_ones if real_ones else None,
        unseen=tuple(unseen),
        gpu_seconds=_cost([one.alert_id for one in judged if one.fires]),
        all_gpu_seconds=_cost([one.alert_id for one in judged]),
    )


def _cost(alert_ids: Sequence[int]) -> float:
    jobs = Job.objects.filter(probes__bisection__alert__in=alert_ids).values("pk")
    spent = Run.objects.filter(launch__job__in=jobs).aggregate(total=Sum("duration_s"))["total"]
    return float(spent or 0.0)
