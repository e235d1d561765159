"""Find or make the things that a run refers to, many at once: benchmarks, cases, metrics, environments, series.

Every function takes keys and returns a dict from key to row; making is `ON CONFLICT DO NOTHING` and a second look,
so that two uploads at once agree.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from perfdb.models import (
    Benchmark,
    Branch,
    BranchKind,
    Case,
    Commit,
    Environment,
    EnvironmentClass,
    Metric,
    Pool,
    Project,
    Series,
)
from perfdb.services.batch import CommitRow, EnvironmentRow, MetricRow


def canonical(value: Any) -> str:
    """Canonical JSON: keys sorted, no spaces; the text that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def benchmarks(project: Project, wanted: Mapping[str, str]) -> dict[str, Benchmark]:
    """`wanted` maps name to tier."""
    found = {row.name: row for row in project.benchmarks.filter(name__in=list(wanted))}
    missing = [name for name in wanted if name not in found]
    if missing:
        Benchmark.objects.bulk_create(
            [Benchmark(project=project, name=name, tier=wanted[name]) for name in missing],
            ignore_conflicts=True,
        )
        found |= {row.name: row for row in project.benchmarks.filter(name__in=missing)}
    return found


def cases(wanted: Mapping[tuple[Benchmark, str], dict[str, Any]]) -> dict[tuple[int, str], Case]:
    """From (benchmark, digest of the parameters) to parameters; the answer is keyed by (benchmark id, digest)."""
    keyed = {(benchmark.id, hashed): (benchmark, params) for (benchmark, hashed), params in wanted.items()}
    by_benchmark = {key[0] for key in keyed}

    def look() -> dict[tuple[int, str], Case]:
        rows = Case.objects.filter(benchmark_id__in=by_benchmark, params_hash__in={key[1] for key in keyed})
        return {(row.benchmark_id, row.params_hash): row for row in rows.select_related("benchmark")}

    found = look()
    missing = [key for key in keyed if key not in found]
    if missing:
        Case.objects.bulk_create(
            [Case(benchmark=keyed[key][0], params=keyed[key][1], params_hash=key[1]) for key in missing],
            ignore_conflicts=True,
        )
        found = look()
    return found


def metrics(wanted: Mapping[tuple[int, str], MetricRow]) -> dict[tuple[int, str], Metric]:
    """Keyed by (benchmark id, metric name). The first row's unit and direction stay the metric's."""

    def look() -> dict[tuple[int, str], Metric]:
        rows = Metric.objects.filter(
            benchmark_id__in={key[0] for key in wanted}, name__in={key[1] for key in wanted}
        )
        return {(row.benchmark_id, row.name): row for row in rows}

    found = look()
    missing = [key for key in wanted if key not in found]
    if missing:
        Metric.objects.bulk_create(
            [
                Metric(
                    benchmark_id=key[0],
                    name=key[1],
                    unit=wanted[key].unit,
                    lower_is_better=wanted[key].lower_is_better,
                    statistic=wanted[key].statistic,
                    deterministic=wanted[key].deterministic,
                    tracked=wanted[key].tracked,
                )
                for key in missing
            ],
            ignore_conflicts=True,
        )
        found = look()
    return found


def environment(row: EnvironmentRow) -> Environment:
    """The environment with these class and boundary fields; `info` is kept with the launch."""
    class_digest = digest(row.klass)
    klass, _ = EnvironmentClass.objects.get_or_create(
        digest=class_digest, defaults={"fields": row.klass, "label": _label(row.klass)}
    )
    found, _ = Environment.objects.select_related("klass").get_or_create(
        digest=digest([class_digest, row.boundary]), defaults={"klass": klass, "boundary": row.boundary}
    )
    return found


def _label(klass: dict[str, Any]) -> str:
    for key in ("gpu_model", "gpu", "cpu_model", "cpu", "machine"):
        if klass.get(key):
            return str(klass[key])[:200]
    return (
        "unnamed machine"
        if not klass
        else ", ".join(f"{key} {value}" for key, value in sorted(klass.items()))[:200]
    )


def pool(name: str) -> Pool:
    return Pool.objects.get_or_create(name=name)[0]


def branch(project: Project, *, name: str | None, pull_request: int | None) -> Branch:
    """The named branch (the project's default where none is named); a pull request has a branch of its own."""
    if pull_request is not None:
        found, _ = Branch.objects.get_or_create(
            project=project, name=f"pr/{pull_request}", defaults={"kind": BranchKind.PULL_REQUEST}
        )
        return found
    name = name or project.default_branch
    kind = BranchKind.TRUNK if name == project.default_branch else BranchKind.BRANCH
    return Branch.objects.get_or_create(project=project, name=name, defaults={"kind": kind})[0]


def commit(project: Project, row: CommitRow) -> Commit:
    """The commit, made from what the upload says of it where it is new; an abbreviated SHA finds the full one."""
    if len(row.sha) < 40:
        known = project.commits.filter(sha__startswith=row.sha).first()
        if known:
            return known
    found, made = Commit.objects.get_or_create(
        project=project,
        sha=row.sha,
        defaults={
            "parents": row.parents,
            "author": row.author[:200],
            "subject": row.subject[:500],
            "message": row.subject,
            "committed_at": row.committed_at,
        },
    )
    if not made and row.parents and not found.parents:
        found.parents = row.parents
        found.save(update_fields=["parents"])
    return found


def series(
    wanted: Iterable[tuple[int, int]], *, pool: Pool, klass: EnvironmentClass, branch: Branch
) -> dict[tuple[int, int], int]:
    """Series ids keyed by (case id, metric id)."""
    keys = set(wanted)

    def look() -> dict[tuple[int, int], int]:
        rows = Series.objects.filter(
            pool=pool,
            environment_class=klass,
            branch=branch,
            case_id__in={key[0] for key in keys},
            metric_id__in={key[1] for key in keys},
        ).values_list("case_id", "metric_id", "id")
        return {(case_id, metric_id): id_ for case_id, metric_id, id_ in rows}

    found = look()
    missing = [key for key in keys if key not in found]
    if missing:
        Series.objects.bulk_create(
            [
                Series(case_id=key[0], metric_id=key[1], pool=pool, environment_class=klass, branch=branch)
                for key in sorted(missing)
            ],
            ignore_conflicts=True,
        )
        found = look()
    return found
