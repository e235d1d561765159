"""Two commits side by side, cell by cell: the one source of the verdicts that page, gate and API show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from perfdb.models import Case, Commit, Metric, Pool, Project, RunStatus, SeriesState
from perfdb.services.policies import Policies
from perfdb.stats.comparison import compare
from perfdb.stats.noise import Noise
from perfdb.stats.policy import Policy
from perfdb.stats.verdict import Outcome, Verdict

WINDOW = 10
"""Commits of the base's own level, the base included, whose launches stand for it."""


@dataclass(slots=True)
class Side:
    """One commit's launches of one cell. `failures`: status name to count of runs that gave no value."""

    values: list[float] = field(default_factory=list)
    mhz: list[float | None] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)
    infinite: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        return bool(self.values or self.infinite)


@dataclass(frozen=True, slots=True)
class Cell:
    """One case, metric, pool and environment class on both sides. `verdict` None: one side has nothing."""

    case: Case
    metric: Metric
    pool: str
    machine: str
    base: Side
    head: Side
    policy: Policy
    verdict: Verdict | None
    series_id: int | None

    @property
    def name(self) -> str:
        return f"{self.case.label} {self.metric.name}"


_ROWS = """
SELECT s.case_id, s.metric_id, p.name, s.environment_class_id, k.label, m.commit_id, m.value, m.mhz, m.n,
       m.failures, m.usable, r.status, r.invalid_reason <> '' AS marked, w.name, s.id, b.kind = 'trunk' AS trunk
FROM perfdb_measurement m
JOIN perfdb_series s ON s.id = m.series_id
JOIN perfdb_run r ON r.id = m.run_id
JOIN perfdb_pool p ON p.id = s.pool_id
JOIN perfdb_environmentclass k ON k.id = s.environment_class_id
JOIN perfdb_branch b ON b.id = s.branch_id
JOIN perfdb_metric x ON x.id = s.metric_id
LEFT JOIN perfdb_launch l ON l.id = m.launch_id
LEFT JOIN perfdb_worker w ON w.id = l.worker_id
WHERE m.commit_id = ANY(%s) AND x.tracked
ORDER BY m.run_id
"""

Key = tuple[int, int, str, int]


def compare_commits(project: Project, base: Sequence[Commit], head: Commit) -> list[Cell]:
    """Every cell that either side has, by name. `base` may be several commits of one level, the base first."""
    ids = [commit.pk for commit in base]
    sides: dict[Key, tuple[Side, Side]] = {}
    facts: dict[Key, tuple[str, int]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_ROWS, [[*ids, head.pk]])
        for row in cursor.fetchall():
            _take(row, head.pk, sides, facts)
    return _cells(project, sides, facts)


def _take(
    row: Sequence[Any],
    head_id: int,
    sides: dict[Key, tuple[Side, Side]],
    facts: dict[Key, tuple[str, int]],
) -> None:
    case, metric, pool, klass, label, commit, *rest = row
    value, mhz, n, failures, usable, status, marked, worker, series, trunk = rest
    key = (case, metric, pool, klass)
    side = sides.setdefault(key, (Side(), Side()))[1 if commit == head_id else 0]
    if trunk or key not in facts:
        facts[key] = (label, series)
    if marked or not usable:
        name = "invalid" if marked else RunStatus(status).label
        side.failures[name] = side.failures.get(name, 0) + 1
    elif value is not None:
        side.values.append(float(value))
        side.mhz.append(mhz)
        side.workers.append(str(worker or ""))
    elif n or failures:
        side.infinite += 1


def _cells(
    project: Project, sides: dict[Key, tuple[Side, Side]], facts: dict[Key, tuple[str, int]]
) -> list[Cell]:
    cases = Case.objects.select_related("benchmark").in_bulk({key[0] for key in sides})
    metrics = Metric.objects.select_related("benchmark").in_bulk({key[1] for key in sides})
    pools = {pool.name: pool for pool in Pool.objects.filter(name__in={key[2] for key in sides})}
    noises = _noises(series_id for _, series_id in facts.values())
    policies = Policies(project)
    out = []
    for key, (base, head) in sides.items():
        metric = metrics[key[1]]
        policy = policies.for_metric(metric, pool=pools[key[2]])
        label, series_id = facts[key]
        verdict = (
            decide(base, head, metric, policy, noises.get(series_id))
            if base.measured and head.measured
            else None
        )
        out.append(Cell(cases[key[0]], metric, key[2], label, base, head, policy, verdict, series_id))
    return sorted(out, key=lambda cell: (cell.name, cell.pool, cell.machine))


def decide(base: Side, head: Side, metric: Metric, policy: Policy, noise: Noise | None) -> Verdict:
    """The verdict of one cell; a launch whose percentile fell on a failure ranks above every value."""
    clocks = [*base.mhz, *head.mhz]
    with_clock = (
        bool(clocks) and all(clock is not None for clock in clocks) and not (base.infinite or head.infinite)
    )
    value = metric.value()
    infinite = metric.lower_is_better is True and (base.infinite or head.infinite)
    return compare(
        [[v] for v in base.values] + ([[]] * base.infinite if infinite else []),
        [[v] for v in head.values] + ([[]] * head.infinite if infinite else []),
        metric=value,
        policy=policy,
        noise=noise,
        base_mhz=[c for c in base.mhz if c is not None] if with_clock else None,
        head_mhz=[c for c in head.mhz if c is not None] if with_clock else None,
        base_failures=[0] * len(base.values) + [1] * base.infinite if infinite else None,
        head_failures=[0] * len(head.values) + [1] * head.infinite if infinite else None,
        base_workers=base.workers if all(base.workers) and all(head.workers) and not infinite else None,
        head_workers=head.workers if all(base.workers) and all(head.workers) and not infinite else None,
    )


def _noises(series_ids: Iterable[int]) -> dict[int, Noise]:
    rows = SeriesState.objects.filter(series_id__in=set(series_ids)).exclude(calibration={})
    return {
        row.series_id: Noise(**row.calibration["noise"])
        for row in rows
        if row.calibration.get("noise") is not None
    }


def by_outcome(cells: Iterable[Cell], *outcomes: Outcome) -> list[Cell]:
    return [cell for cell in cells if cell.verdict is not None and cell.verdict.outcome in outcomes]
