"""The shapes of requests and responses, for decoding and for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from perfdb.models import AlertState, Series
from perfdb.services import links
from perfdb.services.batch import Batch
from perfdb.services.series import Point

Slug = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_-]{1,80}$")]


Reference = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]


class NewProject(msgspec.Struct, forbid_unknown_fields=True):
    slug: Slug
    name: Annotated[str, msgspec.Meta(max_length=200)] = ""
    default_branch: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] = "main"
    public: bool = True


class Transition(msgspec.Struct, forbid_unknown_fields=True):
    state: Literal[
        "new", "confirmed", "investigating", "acknowledged", "fixed", "recovered", "recorded", "wontfix",
        "invalid", "duplicate", "backed_out",
    ]  # fmt: skip
    why: Annotated[str, msgspec.Meta(max_length=10_000)] = ""


class NewJob(msgspec.Struct, forbid_unknown_fields=True):
    commit: Reference
    branch: Annotated[str, msgspec.Meta(min_length=1, max_length=300)] | None = None
    pool: Slug = "default"
    launches: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    tiers: list[Literal["static", "micro", "step", "replay"]] = []


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    """`scopes` of a project's token; `days` until it expires (null: never)."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    scopes: Annotated[
        list[Literal["read", "upload", "operate", "admin"]], msgspec.Meta(min_length=1, max_length=4)
    ]
    days: Annotated[int, msgspec.Meta(ge=1, le=3650)] | None = 365
    fork: bool = False


class NewPolicy(msgspec.Struct, forbid_unknown_fields=True):
    """Thresholds of a scope: an empty name means all. `values` holds the keys that differ from the defaults."""

    values: dict[str, Any]
    benchmark: Annotated[str, msgspec.Meta(max_length=500)] = ""
    metric: Annotated[str, msgspec.Meta(max_length=200)] = ""
    pool: Annotated[str, msgspec.Meta(max_length=80)] = ""
    why: Annotated[str, msgspec.Meta(max_length=10_000)] = ""


class NewSubscription(msgspec.Struct, forbid_unknown_fields=True):
    """Give either `email` or `webhook`. Patterns are shell-like (`attention*`); empty ones match all."""

    email: Annotated[str, msgspec.Meta(max_length=254)] = ""
    webhook: Annotated[str, msgspec.Meta(max_length=500)] = ""
    webhook_style: Literal["json", "slack"] = "json"
    benchmark_pattern: Annotated[str, msgspec.Meta(max_length=300)] = ""
    metric_pattern: Annotated[str, msgspec.Meta(max_length=200)] = ""
    only_blocking: bool = False
    digest: bool = False


def _of(type_: Any) -> dict[str, Any]:
    """JSON schema of a msgspec type with its parts inlined, as OpenAPI takes it."""
    (schema,), parts = msgspec.json.schema_components([type_], ref_template="{name}")
    inlined = _inline(schema, parts)
    assert isinstance(inlined, dict)
    return inlined


def _inline(node: Any, parts: dict[str, Any]) -> Any:
    if isinstance(node, dict):
        if "$ref" in node:
            return _inline(parts[node["$ref"]], parts)
        return {key: _inline(value, parts) for key, value in node.items()}
    return [_inline(item, parts) for item in node] if isinstance(node, list) else node


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": schema}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


TEXT, NUMBER, COUNT, FLAG = {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}
ANY: dict[str, Any] = {}
OBJECT = {"type": "object"}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


NEXT = _or_null(TEXT)
TIME = {"type": "string", "format": "date-time"}
COMMIT = _object(
    sha=TEXT, parents=_list(TEXT), author=TEXT, subject=TEXT, committed_at=_or_null(TIME), vanished=FLAG
)
PROJECT = _object(
    slug=TEXT, name=TEXT, url=TEXT, default_branch=TEXT, public=FLAG, tracked_branches=_list(TEXT),
    polled_at=_or_null(TIME), poll_error=TEXT,
)  # fmt: skip
PROJECTS = _object(projects=_list(PROJECT), next=NEXT)
INGESTED = _object(
    created=COUNT, duplicates=COUNT, rejected=_list(_object(path=TEXT, reason=TEXT)), runs=_list(TEXT)
)
SIDE = _object(launches=_list(NUMBER), failed_launches=COUNT, failures=OBJECT)
CELL = _object(
    benchmark=TEXT, params=OBJECT, metric=TEXT, unit=TEXT, lower_is_better=_or_null(FLAG), pool=TEXT, machine=TEXT,
    series=_or_null(COUNT), blocking=FLAG, commits_back=COUNT, base=SIDE, head=SIDE, verdict=_or_null(OBJECT),
)  # fmt: skip
COMPARED = _object(base=COMMIT, head=COMMIT, cells=_list(CELL))
_CELLS = (
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
GATE = _object(
    decision={"type": "string", "enum": ["pass", "fail", "inconclusive", "nothing measured"]},
    exit_code=COUNT, base=_or_null(COMMIT), head=COMMIT, note=TEXT, coverage=_object(decided=COUNT, total=COUNT),
    same=COUNT, launches_needed=COUNT, minutes_needed=NUMBER, **{name: _list(CELL) for name in _CELLS},
)  # fmt: skip
ALERT = _object(
    id=COUNT, kind=TEXT, state={"type": "string", "enum": list(AlertState.values)}, title=TEXT, branch=TEXT,
    good=_or_null(COMMIT), bad=_or_null(COMMIT), culprit=_or_null(COMMIT), culprit_probability=_or_null(NUMBER),
    conclusion=TEXT, cause=TEXT, cause_posterior=OBJECT, blocking=FLAG, created_at=TIME, link=TEXT,
)  # fmt: skip
ALERTS = _object(alerts=_list(ALERT), next=NEXT)
JOB = _object(
    id=TEXT, kind=TEXT, state=TEXT, reason=TEXT, commit=TEXT, branch=TEXT, pool=TEXT, priority=COUNT, attempts=COUNT,
    progress=OBJECT, created_at=TIME, started_at=_or_null(TIME), finished_at=_or_null(TIME),
)  # fmt: skip
JOBS = _object(jobs=_list(JOB), next=NEXT)
BISECTION = _object(
    id=COUNT, state=TEXT, series=COUNT, alert=_or_null(COUNT), commits=_list(TEXT), answer=OBJECT,
    probes=_list(OBJECT), created_at=TIME, finished_at=_or_null(TIME),
)  # fmt: skip
RUN = _object(
    uuid=TEXT, benchmark=TEXT, params=OBJECT, commit=_or_null(TEXT), branch=TEXT, pool=TEXT, launch=TEXT, status=TEXT,
    reason=TEXT, samples=_list(OBJECT), link=TEXT,
)  # fmt: skip
_SERIES = {
    "id": COUNT, "benchmark": TEXT, "params": OBJECT, "metric": TEXT, "unit": TEXT, "lower_is_better": _or_null(FLAG),
    "pool": TEXT, "machine": TEXT, "branch": TEXT, "link": TEXT,
}  # fmt: skip
SERIES_LIST = _object(series=_list(_object(**_SERIES)), next=NEXT)
SERIES = _object(**_SERIES, total=COUNT, points=_list(OBJECT), changes=_list(OBJECT), state=_or_null(OBJECT))
BATCH = _json(_of(Batch))
NEW_PROJECT, TRANSITION, NEW_JOB = _json(_of(NewProject)), _json(_of(Transition)), _json(_of(NewJob))


def series_head(row: Series) -> dict[str, Any]:
    return {
        "id": row.pk,
        "benchmark": row.case.benchmark.name,
        "params": row.case.params,
        "metric": row.metric.name,
        "unit": row.metric.unit,
        "lower_is_better": row.metric.lower_is_better,
        "pool": row.pool.name,
        "machine": row.environment_class.label,
        "branch": row.branch.name,
        "link": links.series(row),
    }


def series_full(row: Series, points: Sequence[Point], *, total: int) -> dict[str, Any]:
    """A launch value of null ranks as +infinity: the percentile fell on a failed request."""
    shas = dict(
        row.case.benchmark.project.commits.filter(pk__in=[p.commit_id for p in points]).values_list(
            "pk", "sha"
        )
    )
    state = getattr(row, "state", None)
    return series_head(row) | {
        "total": total,
        "points": [
            {
                "position": point.position,
                "commit": shas.get(point.commit_id),
                "launches": point.values,
                "unusable": point.unusable,
            }
            for point in points
        ],
        "changes": [
            {
                "kind": change.kind,
                "direction": change.direction,
                "good_position": change.good_position,
                "bad_position": change.bad_position,
                "ratio": change.ratio,
                "low": change.low,
                "high": change.high,
                "confidence": change.confidence,
                "alert": change.alert_id,
            }
            for change in row.changes.filter(active=True)
        ],
        "state": None
        if state is None
        else {"outcome": state.outcome, "level": state.level, "noise": state.noise, "verdict": state.verdict},
    }


# -- What stands beside the results: the rows of a project, one schema a word ------------------------------
COMMITS = _object(commits=_list(COMMIT), next=NEXT)
BENCHMARK = _object(id=COUNT, name=TEXT, tier=TEXT, definition=OBJECT)
BENCHMARKS = _object(benchmarks=_list(BENCHMARK), next=NEXT)
CASE = _object(id=COUNT, benchmark=TEXT, tier=TEXT, params=OBJECT)
CASES = _object(cases=_list(CASE), next=NEXT)
RUN_HEAD = _object(
    uuid=TEXT, benchmark=TEXT, params=OBJECT, commit=_or_null(TEXT), branch=TEXT, pool=TEXT, status=TEXT, reason=TEXT,
    invalid_reason=TEXT, started_at=TIME, link=TEXT,
)  # fmt: skip
RUNS = _object(runs=_list(RUN_HEAD), next=NEXT)
WORKER = _object(name=TEXT, pool=TEXT, host=TEXT, device=TEXT, seen_at=TIME, enabled=FLAG)
WORKERS = _object(workers=_list(WORKER), next=NEXT)
ENVIRONMENT = {"id": COUNT, "class": OBJECT, "boundary": OBJECT, "label": TEXT}
ENVIRONMENTS = _object(environments=_list(_object(**ENVIRONMENT)), next=NEXT)
TRACE = _object(digest=TEXT, name=TEXT, summary=OBJECT)
TRACES = _object(traces=_list(TRACE), next=NEXT)
BISECTIONS = _object(bisections=_list(BISECTION), next=NEXT)
TOKEN = _object(
    id=COUNT, name=TEXT, prefix=TEXT, scopes=_list(TEXT), fork=FLAG, created_at=TIME, expires_at=_or_null(TIME),
    used_at=_or_null(TIME), revoked_at=_or_null(TIME),
)  # fmt: skip
TOKENS = _object(tokens=_list(TOKEN), next=NEXT)
MADE_TOKEN = _object(token=TOKEN, secret=TEXT)
POLICY = _object(
    id=COUNT, version=COUNT, benchmark=TEXT, metric=TEXT, pool=TEXT, values=OBJECT, active=FLAG, author=TEXT, why=TEXT,
    created_at=TIME,
)  # fmt: skip
POLICIES = _object(policies=_list(POLICY), next=NEXT)
BACKTEST = _object(
    series=COUNT,
    only_now=_list(OBJECT),
    only_with_draft=_list(OBJECT),
    both=COUNT,
)
SUBSCRIPTION = _object(
    id=COUNT, email=TEXT, webhook=TEXT, webhook_style=TEXT, benchmark_pattern=TEXT, metric_pattern=TEXT,
    only_blocking=FLAG, digest=FLAG, active=FLAG,
)  # fmt: skip
SUBSCRIPTIONS = _object(subscriptions=_list(SUBSCRIPTION), next=NEXT)
HOOK = _object(secret=TEXT, urls=OBJECT)
HOOKED = _object(done=TEXT)
NEW_TOKEN, NEW_POLICY = _json(_of(NewToken)), _json(_of(NewPolicy))
NEW_SUBSCRIPTION, PAYLOAD = _json(_of(NewSubscription)), _json(OBJECT)
