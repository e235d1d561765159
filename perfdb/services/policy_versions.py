"""New versions of a policy, and what a draft would have found in the stored history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import transaction

from perfdb.models import PolicyVersion, Pool, Project, Series
from perfdb.services.detect import changes_of
from perfdb.services.policies import Policies
from perfdb.services.series import histories
from perfdb.stats.policy import Policy

MOST_SERIES = 200


@dataclass(frozen=True, slots=True)
class FoundChange:
    """A change that one of the two policies finds: its series and first position."""

    series: int
    name: str
    position: int
    ratio: float | None


@dataclass(frozen=True, slots=True)
class Backtest:
    """Changes of the newest `series` series: found by the present policy only, by the draft only, by both."""

    series: int
    only_now: list[FoundChange]
    only_with_draft: list[FoundChange]
    both: int


def draft(
    project: Project, *, benchmark: str, metric: str, pool: str, values: dict[str, Any]
) -> PolicyVersion:
    """An unsaved version of this scope. Raises ValueError for an unknown name or a value that does not fit."""
    Policy.from_mapping(values)
    found = project.benchmarks.filter(name=benchmark).first() if benchmark else None
    if benchmark and found is None:
        raise ValueError(f"benchmark: no {benchmark!r} in {project.slug}")
    machines = Pool.objects.filter(name=pool).first() if pool else None
    if pool and machines is None:
        raise ValueError(f"pool: no {pool!r}")
    return PolicyVersion(project=project, benchmark=found, metric=metric, pool=machines, values=values)


@transaction.atomic
def activate(version: PolicyVersion, *, author: str, why: str) -> PolicyVersion:
    """Store the version as the newest of its scope; earlier ones stay, and no longer decide."""
    Project.objects.select_for_update().get(pk=version.project_id)
    same = PolicyVersion.objects.filter(
        project=version.project, benchmark=version.benchmark, metric=version.metric, pool=version.pool
    )
    newest = same.order_by("-version").values_list("version", flat=True).first()
    same.update(active=False)
    version.version = (newest or 0) + 1
    version.author, version.why = author[:200], why
    version.save()
    version.refresh_from_db()
    return version


def backtest(version: PolicyVersion) -> Backtest:
    """Find the changes of the stored history twice: as the policies stand, and with the draft among them."""
    project = version.project
    version.version = 2**31 - 1  # the newest of its scope, so that it wins over the one that stands
    now, then = Policies(project), Policies(project, extra=[version])
    rows = Series.objects.filter(case__benchmark__project=project, metric__tracked=True).select_related(
        "metric__benchmark", "case__benchmark", "pool"
    )[:MOST_SERIES]
    stored = histories([row.pk for row in rows])
    only_now: list[FoundChange] = []
    only_then: list[FoundChange] = []
    both = 0
    for row in rows:
        metric, history = row.metric.value(), stored[row.pk]
        old, new = (
            {
                change.index: FoundChange(row.pk, str(row), change.index, change.ratio)
                for change in changes_of(history, metric=metric, policy=policies.for_series(row))
            }
            for policies in (now, then)
        )
        both += len(old.keys() & new.keys())
        only_now += [found for index, found in old.items() if index not in new]
        only_then += [found for index, found in new.items() if index not in old]
    return Backtest(len(rows), only_now, only_then, both)
