"""Which thresholds apply: the narrowest scope wins, key by key, over the manifest's and the defaults."""

from __future__ import annotations

from collections.abc import Iterable

from perfdb.models import Metric, PolicyVersion, Pool, Project, Series
from perfdb.stats.policy import Policy


class Policies:
    """The active policies of a project, loaded once and asked many times."""

    def __init__(self, project: Project, extra: Iterable[PolicyVersion] = ()) -> None:
        """`extra` are drafts that count as if they were active (for a back-test)."""
        stored = list(PolicyVersion.objects.filter(project=project, active=True).order_by("version"))
        self._versions = [*stored, *extra]

    def for_series(self, series: Series) -> Policy:
        """Needs `series.metric`, `series.case.benchmark` and `series.pool` loaded."""
        return self.for_metric(series.metric, pool=series.pool)

    def for_metric(self, metric: Metric, *, pool: Pool) -> Policy:
        """Raises ValueError naming the key of a stored policy that does not fit."""
        values = dict(metric.benchmark.definition.get("policy") or {})
        fitting = [version for version in self._versions if _fits(version, metric, pool)]
        for version in sorted(fitting, key=_narrowness):
            values |= version.values
        return Policy.from_mapping(values)


def _fits(version: PolicyVersion, metric: Metric, pool: Pool) -> bool:
    return (
        version.benchmark_id in (None, metric.benchmark_id)
        and version.metric in ("", metric.name)
        and version.pool_id in (None, pool.pk)
    )


def _narrowness(version: PolicyVersion) -> tuple[int, int]:
    scope = (version.pool_id is not None) + 2 * bool(version.metric) + 4 * (version.benchmark_id is not None)
    return scope, version.version
