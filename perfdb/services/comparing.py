"""Two commits side by side, cell by cell: the one source of the verdicts that page, gate and API show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.db import connection

from perfdb.models import Case, Change, Commit, Metric, Pool, Project, RunStatus, SeriesState
from perfdb.services.detect import LASTING
from perfdb.services.policies import Policies
from perfdb.stats.calibration import estimate_noise
from perfdb.stats.comparison import compare
from perfdb.stats.noise import Noise
from perfdb.stats.policy import Metric as MetricValue
from perfdb.stats.policy import Policy, Statistic
from perfdb.stats.rates import Count, compare_rates
from perfdb.stats.units import Family, conversion, family
from perfdb.stats.verdict import Outcome, Verdict

WINDOW = 10
"""Commits of the base's own level, the base included, whose launches stand for it."""
ENOUGH = 5
"""Launches of a base that stand alone: older commits fill up to here, since an undetected step could lie between."""
_LASTING = [str(kind) for kind in LASTING]


@dataclass(slots=True)
class Side:
    """One side's launches of one cell. `failures`: status name to count of runs that gave no value.

    requests: samples and failures behind each value; a share's events and a percentile's weight come from it.
    """

    values: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    infinite_requests: list[int] = field(default_factory=list)
    mhz: list[float | None] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)
    infinite: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        return bool(self.values or self.infinite)


@dataclass(frozen=True, slots=True)
class Cell:
    """One case, metric, pool and environment class on both sides. `verdict` None: one side has nothing.

    commits_back: how far before the base asked for the newest base launches lie (0: at the base itself).
    """

    case: Case
    metric: Metric
    pool: str
    machine: str
    base: Side
    head: Side
    policy: Policy
    verdict: Verdict | None
    series_id: int | None
    commits_back: int = 0

    @property
    def name(self) -> str:
        return f"{self.case.label} {self.metric.name}"


_ROWS = """
SELECT s.case_id, s.metric_id, p.name, s.environment_class_id, k.label, m.commit_id, m.value, m.mhz, m.n,
       m.failures, m.usable, r.status, r.invalid_reason <> '' AS marked, w.name, s.id, b.kind = 'trunk' AS trunk,
       m.position
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


@dataclass(frozen=True, slots=True)
class _Row:
    """One measurement of either side, as `_ROWS` selects it."""

    case: int
    metric: int
    pool: str
    klass: int
    label: str
    commit: int
    value: float | None
    mhz: float | None
    n: int
    failures: int
    usable: bool
    status: int
    marked: bool
    worker: str | None
    series: int
    trunk: bool
    position: int

    @property
    def key(self) -> Key:
        return self.case, self.metric, self.pool, self.klass

    @property
    def counts(self) -> bool:
        return self.usable and not self.marked


def compare_commits(project: Project, base: Sequence[Commit], head: Commit) -> list[Cell]:
    """Every cell that either side has, by name.

    `base` is the base, newest first, followed by older commits of its branch: their launches stand for a cell's base
    as far as they are known to lie on the base's own level, and in its place where the base lacks the cell.
    """
    ids = [commit.pk for commit in base]
    with connection.cursor() as cursor:
        cursor.execute(_ROWS, [[*ids, head.pk]])
        rows = [_Row(*row) for row in cursor.fetchall()]
    order = {id_: index for index, id_ in enumerate(ids)}
    old: dict[Key, dict[int, list[_Row]]] = defaultdict(lambda: defaultdict(list))
    new: dict[Key, Side] = defaultdict(Side)
    facts: dict[Key, tuple[str, int]] = {}
    seen: dict[int, int] = {}
    for row in rows:
        if row.trunk or row.key not in facts:
            facts[row.key] = (row.label, row.series)
        if row.commit == head.pk:
            _take(row, new[row.key])
            seen[row.series] = row.position
        else:
            old[row.key][order[row.commit]].append(row)
    starts = _level_starts(row for commits in old.values() for rows in commits.values() for row in rows)
    bases = {key: _base(old[key], starts) for key in facts}
    return _cells(project, bases, new, facts, seen)


@dataclass(frozen=True, slots=True)
class _Base:
    """The base of a cell. level: launch values of each commit known to lie on its level, for the noise."""

    side: Side
    level: list[list[float]]
    commits_back: int


def _base(commits: dict[int, list[_Row]], starts: dict[int, int]) -> _Base:
    """The newest commit that has the cell, filled up with older ones of its level where it has few launches."""
    measured = sorted(back for back, rows in commits.items() if any(row.counts for row in rows))
    nearest = measured[0] if measured else min(commits, default=0)
    side = Side()
    level: list[list[float]] = []
    for back in sorted(commits):
        rows = commits[back]
        if back < nearest or (
            back > nearest and any(row.position < starts.get(row.series, row.position + 1) for row in rows)
        ):
            continue
        level.append([row.value for row in rows if row.counts and row.value is not None])
        if back == nearest or len(side.values) + side.infinite < ENOUGH:
            for row in rows:
                _take(row, side)
    return _Base(side, level, nearest)


def _level_starts(rows: Iterable[_Row]) -> dict[int, int]:
    """First position of the level on which each series' newest row lies; absent where the analysis lags behind it.

    Without an analysis nobody knows whether an older commit lies on the same level, so it cannot stand for the base.
    """
    last: dict[int, int] = {}
    for row in rows:
        last[row.series] = max(last.get(row.series, row.position), row.position)
    done = SeriesState.objects.filter(series_id__in=last).values_list("series_id", "position")
    starts = {id_: 0 for id_, position in done if position is not None and position >= last[id_]}
    changes = Change.objects.filter(series_id__in=starts, active=True, kind__in=_LASTING)
    for series_id, position in changes.values_list("series_id", "bad_position"):
        if position <= last[series_id]:
            starts[series_id] = max(starts[series_id], position)
    return starts


def _take(row: _Row, side: Side) -> None:
    if not row.counts:
        name = "invalid" if row.marked else RunStatus(row.status).label
        side.failures[name] = side.failures.get(name, 0) + 1
    elif row.value is not None:
        side.values.append(float(row.value))
        side.requests.append(row.n + row.failures)
        side.mhz.append(row.mhz)
        side.workers.append(row.worker or "")
    elif row.n or row.failures:
        side.infinite += 1
        side.infinite_requests.append(row.n + row.failures)


def _cells(
    project: Project,
    bases: dict[Key, _Base],
    heads: dict[Key, Side],
    facts: dict[Key, tuple[str, int]],
    seen: dict[int, int],
) -> list[Cell]:
    """seen: position of the head by series, where it stands on the series itself."""
    cases = Case.objects.select_related("benchmark").in_bulk({key[0] for key in facts})
    metrics = Metric.objects.select_related("benchmark").in_bulk({key[1] for key in facts})
    pools = {pool.name: pool for pool in Pool.objects.filter(name__in={key[2] for key in facts})}
    noises = _noises({series_id for _, series_id in facts.values()}, seen)
    policies = Policies(project)
    out = []
    for key, (label, series_id) in facts.items():
        base, head = bases[key], heads.get(key, Side())
        metric = metrics[key[1]]
        policy = policies.for_metric(metric, pool=pools[key[2]])
        verdict = None
        if base.side.measured and head.measured:
            noise = noises.get(series_id) or estimate_noise(base.level, [0] * len(base.level))
            verdict = decide(base.side, head, metric, policy, noise)
        out.append(
            Cell(
                cases[key[0]], metric, key[2], label, base.side, head, policy, verdict, series_id, base.commits_back
            )
        )  # fmt: skip
    return sorted(out, key=lambda cell: (cell.name, cell.pool, cell.machine))


def decide(base: Side, head: Side, metric: Metric, policy: Policy, noise: Noise | None) -> Verdict:
    """The verdict of one cell; a launch whose percentile fell on a failure ranks above every value.

    A share of requests is compared by its counts, which stay exact where there are few failures or none.
    """
    value = metric.value()
    infinite = metric.lower_is_better is True and (base.infinite or head.infinite)
    if _is_share(value) and not infinite and min(*base.requests, *head.requests, 2) > 1:
        return compare_rates(_counts(base, value), _counts(head, value), metric=value, policy=policy)
    clocks = [*base.mhz, *head.mhz]
    with_clock = bool(clocks) and all(clock is not None for clock in clocks) and not infinite
    with_workers = all(base.workers) and all(head.workers) and not infinite
    tail = value.statistic.quantile is not None
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
        base_requests=_requests(base) if tail and _counted(base, head) else None,
        head_requests=_requests(head) if tail and _counted(base, head) else None,
        base_workers=base.workers if with_workers else None,
        head_workers=head.workers if with_workers else None,
    )


def _is_share(metric: MetricValue) -> bool:
    return metric.statistic is Statistic.RATE and family(metric.unit) is Family.FRACTION


def _counts(side: Side, metric: MetricValue) -> list[Count]:
    """Events and trials of each launch; the value is their share in the metric's unit."""
    scale = conversion(metric.unit, "fraction")
    return [
        Count(min(n, round(value * scale * n)), n)
        for value, n in zip(side.values, side.requests, strict=True)
    ]


def _requests(side: Side) -> list[int]:
    return [*side.requests, *side.infinite_requests]


def _counted(base: Side, head: Side) -> bool:
    """Whether requests are known at all: a file that gives its percentile alone (no sample) tells of none."""
    return all(_requests(base)) and all(_requests(head))


def _noises(series_ids: Iterable[int], seen: dict[int, int]) -> dict[int, Noise]:
    """What the analysis knows of each series' noise, but not where the head itself is part of that knowledge."""
    rows = SeriesState.objects.filter(series_id__in=series_ids).exclude(calibration={})
    return {
        row.series_id: Noise(**row.calibration["noise"])
        for row in rows
        if row.calibration.get("noise") is not None
        and (row.series_id not in seen or row.position is None or row.position < seen[row.series_id])
    }


def by_outcome(cells: Iterable[Cell], *outcomes: Outcome) -> list[Cell]:
    return [cell for cell in cells if cell.verdict is not None and cell.verdict.outcome in outcomes]
