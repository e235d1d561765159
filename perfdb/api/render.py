"""Rows as JSON: one function per word. Figures come from the services as they are."""

from __future__ import annotations

from typing import Any

from perfdb.models import (
    Alert,
    ApiToken,
    Benchmark,
    Bisection,
    Case,
    Commit,
    Environment,
    Job,
    PolicyVersion,
    Project,
    Run,
    Subscription,
    TraceSummary,
    Worker,
)
from perfdb.services import links
from perfdb.services.comparing import Cell, Side
from perfdb.services.gate import Answer
from perfdb.services.ingest import Ingested


def project(row: Project) -> dict[str, Any]:
    return {
        "slug": row.slug,
        "name": row.name,
        "url": row.url,
        "default_branch": row.default_branch,
        "public": row.public,
        "tracked_branches": row.tracked_branches,
        "polled_at": row.polled_at,
        "poll_error": row.poll_error,
    }


def commit(row: Commit | None) -> dict[str, Any] | None:
    return None if row is None else commit_row(row)


def commit_row(row: Commit) -> dict[str, Any]:
    return {
        "sha": row.sha,
        "parents": row.parents,
        "author": row.author,
        "subject": row.subject,
        "committed_at": row.committed_at,
        "vanished": row.vanished,
    }


def ingested(result: Ingested) -> dict[str, Any]:
    return {
        "created": result.created,
        "duplicates": result.duplicates,
        "rejected": [{"path": item.path, "reason": item.reason} for item in result.rejected],
        "runs": [str(uuid) for uuid in result.runs],
    }


def side(row: Side) -> dict[str, Any]:
    return {"launches": row.values, "failed_launches": row.infinite, "failures": row.failures}


def cell(row: Cell) -> dict[str, Any]:
    return {
        "benchmark": row.case.benchmark.name,
        "params": row.case.params,
        "metric": row.metric.name,
        "unit": row.metric.unit,
        "lower_is_better": row.metric.lower_is_better,
        "pool": row.pool,
        "machine": row.machine,
        "series": row.series_id,
        "blocking": row.policy.blocking,
        "commits_back": row.commits_back,
        "base": side(row.base),
        "head": side(row.head),
        "verdict": row.verdict.to_mapping() if row.verdict else None,
    }


def gate(answer: Answer) -> dict[str, Any]:
    decided, total = answer.coverage
    lists = (
        "regressions",
        "advisory",
        "improvements",
        "changed",
        "inconclusive",
        "missing",
        "broken",
        "invalid",
        "new",
    )
    return {
        "decision": answer.decision.value,
        "exit_code": answer.decision.exit_code,
        "base": commit(answer.base),
        "head": commit(answer.head),
        "note": answer.note,
        "coverage": {"decided": decided, "total": total},
        "same": len(answer.same),
        "launches_needed": answer.launches,
        "minutes_needed": answer.minutes,
        **{name: [cell(row) for row in getattr(answer, name)] for name in lists},
    }


def alert(row: Alert) -> dict[str, Any]:
    return {
        "id": row.pk,
        "kind": row.kind,
        "state": row.state,
        "title": row.title,
        "branch": row.branch.name,
        "good": commit(row.good),
        "bad": commit(row.bad),
        "culprit": commit(row.culprit),
        "culprit_probability": row.culprit_probability,
        "conclusion": row.conclusion,
        "cause": row.cause,
        "cause_posterior": row.cause_posterior,
        "blocking": row.blocking,
        "created_at": row.created_at,
        "link": links.alert(row),
    }


def job(row: Job) -> dict[str, Any]:
    return {
        "id": str(row.uuid),
        "kind": row.kind,
        "state": row.state,
        "reason": row.reason,
        "commit": row.commit.sha,
        "branch": row.branch.name,
        "pool": row.pool.name,
        "priority": row.priority,
        "attempts": row.attempts,
        "progress": row.progress,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
    }


def bisection(row: Bisection) -> dict[str, Any]:
    return {
        "id": row.pk,
        "state": row.state,
        "series": row.series_id,
        "alert": row.alert_id,
        "commits": row.shas,
        "answer": row.answer,
        "probes": [
            {
                "order": probe.order,
                "commit": row.shas[probe.index],
                "launches": probe.launches,
                "observed": probe.observed,
                "values": probe.values,
                "unbuildable": probe.unbuildable,
                "reason": probe.reason,
            }
            for probe in row.probes.all()
        ],
        "created_at": row.created_at,
        "finished_at": row.finished_at,
    }


def run(row: Run) -> dict[str, Any]:
    return {
        "uuid": str(row.uuid),
        "benchmark": row.case.benchmark.name,
        "params": row.case.params,
        "commit": row.commit.sha if row.commit else None,
        "branch": row.branch.name,
        "pool": row.pool.name,
        "launch": str(row.launch.uuid),
        "status": row.get_status_display(),
        "reason": row.reason,
        "invalid_reason": row.invalid_reason,
        "started_at": row.started_at,
        "duration_s": row.duration_s,
        "environment": {"class": row.environment.klass.fields, "boundary": row.environment.boundary},
        "health": row.launch.health,
        "correctness": row.correctness,
        "work": row.work,
        "log": row.log,
        "samples": [
            {
                "metric": sample.metric.name,
                "unit": sample.metric.unit,
                "values": sample.values,
                "mhz": sample.mhz,
            }
            for sample in row.samples.select_related("metric")
        ],
        "link": links.run(row),
    }


def run_head(row: Run) -> dict[str, Any]:
    return {
        "uuid": str(row.uuid),
        "benchmark": row.case.benchmark.name,
        "params": row.case.params,
        "commit": row.commit.sha if row.commit else None,
        "branch": row.branch.name,
        "pool": row.pool.name,
        "status": row.get_status_display(),
        "reason": row.reason,
        "invalid_reason": row.invalid_reason,
        "started_at": row.started_at,
        "link": links.run(row),
    }


def benchmark(row: Benchmark) -> dict[str, Any]:
    return {"id": row.pk, "name": row.name, "tier": row.tier, "definition": row.definition}


def case(row: Case) -> dict[str, Any]:
    return {"id": row.pk, "benchmark": row.benchmark.name, "tier": row.benchmark.tier, "params": row.params}


def worker(row: Worker) -> dict[str, Any]:
    return {
        "name": row.name,
        "pool": row.pool.name,
        "host": row.host,
        "device": row.device,
        "seen_at": row.seen_at,
        "enabled": row.enabled,
    }


def environment(row: Environment) -> dict[str, Any]:
    return {"id": row.pk, "class": row.klass.fields, "boundary": row.boundary, "label": row.klass.label}


def trace(row: TraceSummary) -> dict[str, Any]:
    return {"digest": row.digest, "name": row.name, "summary": row.summary}


def token(row: ApiToken) -> dict[str, Any]:
    return {
        "id": row.pk,
        "name": row.name,
        "prefix": row.prefix,
        "scopes": row.scopes,
        "fork": row.fork,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "used_at": row.used_at,
        "revoked_at": row.revoked_at,
    }


def policy(row: PolicyVersion) -> dict[str, Any]:
    return {
        "id": row.pk,
        "version": row.version,
        "benchmark": row.benchmark.name if row.benchmark else "",
        "metric": row.metric,
        "pool": row.pool.name if row.pool else "",
        "values": row.values,
        "active": row.active,
        "author": row.author,
        "why": row.why,
        "created_at": row.created_at,
    }


def subscription(row: Subscription) -> dict[str, Any]:
    return {
        "id": row.pk,
        "email": row.email,
        "webhook": row.webhook,
        "webhook_style": row.webhook_style,
        "benchmark_pattern": row.benchmark_pattern,
        "metric_pattern": row.metric_pattern,
        "only_blocking": row.only_blocking,
        "digest": row.digest,
        "active": row.active,
    }
