"""Results in: one transaction per batch, rows by COPY, the same batch twice is harmless.

An item that cannot be is rejected with its place and reason while the rest is stored; nothing is half-written.
Ingest decides nothing: it returns the series that got new values, and the caller queues their analysis.
"""

from __future__ import annotations

import json
import math
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from django.db import transaction
from django.utils import timezone
from psycopg.types.json import Jsonb

from perfdb.models import (
    UNPLACED,
    Branch,
    BranchCommit,
    Build,
    Case,
    Commit,
    Environment,
    Job,
    Launch,
    Metric,
    Pool,
    Project,
    RequestTable,
    Run,
    RunStatus,
    TraceSummary,
    Worker,
)
from perfdb.services import catalogue
from perfdb.services.batch import Batch, LaunchRow, MetricRow, RunRow, as_array
from perfdb.services.copying import allocate_ids, copy_rows
from perfdb.services.placing import extend
from perfdb.stats.launch_summary import Summaries, summarise
from perfdb.stats.ranks import Floats
from perfdb.units import UnitError, convert, lookup

MAX_SAMPLES = 5_000_000
_NAMESPACE = uuid.UUID("7d6f3a52-5a3e-4b57-9f0a-0f3f6f1f8a11")
_SIGNED_FAMILIES = {"temperature"}

RUN_COLUMNS = {
    "id": "int8", "uuid": "uuid", "case_id": "int8", "commit_id": "int8", "branch_id": "int8",
    "environment_id": "int8", "pool_id": "int8", "launch_id": "int8", "build_id": "int8", "status": "int2",
    "reason": "text", "log": "text", "definition_hash": "varchar", "started_at": "timestamptz",
    "duration_s": "float8", "correctness": "jsonb", "work": "jsonb", "trace_summary_id": "int8",
    "invalid_reason": "text",
}  # fmt: skip
MEASUREMENT_COLUMNS = {
    "series_id": "int8", "position": "int4", "run_id": "int8", "launch_id": "int8", "metric_id": "int8",
    "commit_id": "int8", "environment_id": "int8", "n": "int4", "failures": "int4", "value": "float8",
    "median": "float8", "mad": "float8", "p99": "float8", "minimum": "float8", "maximum": "float8",
    "mhz": "float8", "usable": "bool",
}  # fmt: skip
SAMPLE_COLUMNS = {"run_id": "int8", "metric_id": "int8", "values": "float8[]", "mhz": "float8[]"}


@dataclass(frozen=True, slots=True)
class Rejected:
    """An item that was not stored. `path` is its place in the batch, as in `launches[0].runs[3]`."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ingested:
    """runs: uuids of what is stored now, in the batch's order, duplicates of earlier uploads included."""

    created: int
    duplicates: int
    rejected: tuple[Rejected, ...]
    series_ids: frozenset[int]
    runs: tuple[uuid.UUID, ...]
    commit_id: int | None


@dataclass(slots=True)
class _Measured:
    """One metric of one run on its way in; samples already in the metric's stored unit."""

    row: MetricRow
    samples: Floats
    mhz: Floats | None
    value: float | None


@dataclass(slots=True)
class _Item:
    """One run on its way in."""

    path: str
    row: RunRow
    launch: int
    uuid: uuid.UUID
    measured: list[_Measured] = field(default_factory=list)
    case: Case | None = None
    id: int = 0


@dataclass(frozen=True, slots=True)
class Context:
    """Where a batch belongs, resolved."""

    project: Project
    branch: Branch
    commit: Commit | None
    pool: Pool
    worker: Worker | None = None
    job: Job | None = None
    build: Build | None = None


class BatchError(ValueError):
    """The whole batch is refused; the message names what and where."""


@transaction.atomic
def ingest(
    project: Project,
    batch: Batch,
    *,
    worker: Worker | None = None,
    job: Job | None = None,
    build: Build | None = None,
    branch: Branch | None = None,
) -> Ingested:
    """Store a batch. Raises BatchError for one that is refused whole (too large, nothing in it)."""
    if not any(launch.runs for launch in batch.launches):
        raise BatchError("launches: nothing was measured (no run in any launch)")
    _check_size(batch)
    context = Context(
        project=project,
        branch=branch or catalogue.branch(project, name=batch.branch, pull_request=batch.pull_request),
        commit=catalogue.commit(project, batch.commit) if batch.commit else None,
        pool=catalogue.pool(batch.pool),
        worker=worker,
        job=job,
        build=build,
    )
    if batch.commit and context.commit and not project.url:
        extend(context.branch, context.commit.sha, batch.commit.first_parents)
    return _Writer(context, batch).write()


def _check_size(batch: Batch) -> None:
    total = 0
    for launch in batch.launches:
        for run in launch.runs:
            for metric in run.metrics:
                samples = metric.samples
                total += len(samples) if isinstance(samples, list) else samples.count
    if total > MAX_SAMPLES:
        raise BatchError(
            f"launches: {total} samples are more than the {MAX_SAMPLES} that one upload may hold"
        )


class _Writer:
    """The steps of one ingest, in order; `write` is the story."""

    def __init__(self, context: Context, batch: Batch) -> None:
        self.context = context
        self.batch = batch
        self.rejected: list[Rejected] = []
        self.environments: list[Environment] = []
        self.launch_uuids: list[uuid.UUID] = []
        self.now = timezone.now()

    def write(self) -> Ingested:
        items = self._read_items()
        self._resolve_cases(items)
        items = self._resolve_metrics(items)
        existing = set(
            Run.objects.filter(uuid__in=[item.uuid for item in items]).values_list("uuid", flat=True)
        )
        fresh = [item for item in items if item.uuid not in existing]
        series_ids: set[int] = set()
        if fresh:
            launch_ids = self._write_launches({item.launch for item in fresh})
            self._write_runs(fresh, launch_ids)
            series_ids = self._write_measurements(fresh, launch_ids)
        return Ingested(
            created=len(fresh),
            duplicates=len(items) - len(fresh),
            rejected=tuple(self.rejected),
            series_ids=frozenset(series_ids),
            runs=tuple(item.uuid for item in items),
            commit_id=self.context.commit.id if self.context.commit else None,
        )

    # -- reading -------------------------------------------------------------------------------------------
    def _read_items(self) -> list[_Item]:
        items: list[_Item] = []
        for number, launch in enumerate(self.batch.launches):
            self.environments.append(catalogue.environment(launch.environment))
            self.launch_uuids.append(launch.id or self._content_uuid(launch))
            if self.launch_uuids[number] in self.launch_uuids[:number]:
                if launch.id:
                    self._reject(f"launches[{number}]", f"id {launch.id} stands twice in this batch")
                    continue
                # Equal content twice in one batch is two launches that measured the same.
                self.launch_uuids[number] = uuid.uuid5(self.launch_uuids[number], str(number))
            seen: set[tuple[str, str]] = set()
            for index, run in enumerate(launch.runs):
                path = f"launches[{number}].runs[{index}]"
                key = (run.benchmark, catalogue.digest(run.params))
                if key in seen:
                    self._reject(
                        path, f"{run.benchmark!r} with the same parameters stands twice in one launch"
                    )
                    continue
                seen.add(key)
                item = _Item(path, run, number, uuid.uuid5(self.launch_uuids[number], "\x1f".join(key)))
                try:
                    item.measured = [self._read_metric(path, metric) for metric in run.metrics]
                    _check_metric_names(run)
                except ValueError as error:
                    self._reject(path, str(error))
                    continue
                if run.status == "ok" and not any(
                    len(m.samples) or m.row.failures or m.value is not None for m in item.measured
                ):
                    self._reject(path, "status is ok, but no metric has a sample")
                    continue
                items.append(item)
        return items

    def _content_uuid(self, launch: LaunchRow) -> uuid.UUID:
        """Without a client's key, equal content at the same commit and branch is the same launch."""
        place = [
            self.context.project.id,
            self.context.branch.id,
            self.context.commit and self.context.commit.id,
        ]
        return uuid.uuid5(_NAMESPACE, f"{place}" + catalogue.digest(msgspec.to_builtins(launch)))

    def _read_metric(self, path: str, row: MetricRow) -> _Measured:
        """Raises ValueError naming metric and position of a sample that cannot be."""
        samples = as_array(row.samples)
        signed = lookup(row.unit).family in _SIGNED_FAMILIES or not lookup(row.unit).known
        for name, values in (
            ("samples", samples),
            ("value", np.array([row.value if row.value is not None else 0.0])),
        ):
            bad = ~np.isfinite(values) if signed else ~(np.isfinite(values) & (values >= 0))
            if bad.any():
                at = int(np.argmax(bad))
                place = f"{name}[{at}]" if name == "samples" else name
                problem = "is negative" if math.isfinite(values[at]) else "is not a finite number"
                raise ValueError(f"metric {row.name!r}: {place} {problem} ({values[at]:g} {row.unit})")
        if row.failures < 0:
            raise ValueError(f"metric {row.name!r}: failures cannot be negative ({row.failures})")
        mhz = None if row.mhz is None else as_array(row.mhz)
        if mhz is not None and len(mhz) != len(samples):
            raise ValueError(f"metric {row.name!r}: {len(mhz)} clock readings for {len(samples)} samples")
        return _Measured(row, samples, mhz, row.value)

    def _reject(self, path: str, reason: str) -> None:
        self.rejected.append(Rejected(path, reason))

    # -- resolving -----------------------------------------------------------------------------------------
    def _resolve_cases(self, items: Sequence[_Item]) -> None:
        named = catalogue.benchmarks(
            self.context.project, {item.row.benchmark: item.row.tier for item in items}
        )
        found = catalogue.cases((named[item.row.benchmark], item.row.params) for item in items)
        for item in items:
            item.case = found[named[item.row.benchmark].id, catalogue.digest(item.row.params)]

    def _resolve_metrics(self, items: list[_Item]) -> list[_Item]:
        wanted = {(_case(item).benchmark_id, m.row.name): m.row for item in items for m in item.measured}
        self.metrics = catalogue.metrics(wanted)
        return [item for item in items if self._fits_metrics(item)]

    def _fits_metrics(self, item: _Item) -> bool:
        """Convert to the stored unit; refuse another family or the opposite direction."""
        for measured in item.measured:
            metric = self.metrics[_case(item).benchmark_id, measured.row.name]
            row = measured.row
            if None not in (row.lower_is_better, metric.lower_is_better) and (
                row.lower_is_better != metric.lower_is_better
            ):
                better = {True: "lower", False: "higher"}
                self._reject(
                    item.path,
                    f"metric {row.name!r}: {better[bool(row.lower_is_better)]} is better here, but the stored metric "
                    f"says {better[bool(metric.lower_is_better)]}",
                )
                return False
            if row.unit == metric.unit:
                continue
            try:
                factor = convert(1.0, row.unit, metric.unit)
            except UnitError as error:
                self._reject(item.path, f"metric {row.name!r}: {error}")
                return False
            measured.samples = measured.samples * factor
            measured.value = None if measured.value is None else measured.value * factor
        return True

    # -- writing -------------------------------------------------------------------------------------------
    def _write_launches(self, numbers: set[int]) -> dict[int, int]:
        rows = []
        for number in sorted(numbers):
            source = self.batch.launches[number]
            rows.append(
                Launch(
                    uuid=self.launch_uuids[number],
                    worker=self.context.worker,
                    environment=self.environments[number],
                    job=self.context.job,
                    health=source.health,
                    info=source.environment.info,
                    harness_version=source.harness_version[:60],
                    started_at=source.started_at or self.now,
                    duration_s=source.duration_s,
                )
            )
        Launch.objects.bulk_create(rows, ignore_conflicts=True)
        uuids = [row.uuid for row in rows]
        ids = dict(Launch.objects.filter(uuid__in=uuids).values_list("uuid", "id"))
        return {number: ids[self.launch_uuids[number]] for number in numbers}

    def _write_runs(self, items: Sequence[_Item], launch_ids: dict[int, int]) -> None:
        context = self.context
        for item, id_ in zip(items, allocate_ids("perfdb_run", len(items)), strict=True):
            item.id = id_
        traces = self._traces(items)
        copy_rows(
            "perfdb_run",
            RUN_COLUMNS,
            (
                (
                    item.id, item.uuid, _case(item).id, context.commit and context.commit.id, context.branch.id,
                    self.environments[item.launch].id, context.pool.id, launch_ids[item.launch],
                    context.build and context.build.id, RunStatus[item.row.status.upper()].value,
                    _text(item.row.reason), _text(item.row.log), item.row.definition_hash[:64],
                    item.row.started_at or self.batch.launches[item.launch].started_at or self.now,
                    item.row.duration_s, _json(item.row.correctness), _json(item.row.work), traces.get(item.id), "",
                )
                for item in items
            ),
        )  # fmt: skip
        for item in items:
            if item.row.requests:
                _write_requests(item.id, item.row.requests)

    def _traces(self, items: Sequence[_Item]) -> dict[int, int]:
        digests = {
            item.id: catalogue.digest(item.row.trace_summary) for item in items if item.row.trace_summary
        }
        summaries = {digests[item.id]: item.row.trace_summary for item in items if item.row.trace_summary}
        if not summaries:
            return {}
        TraceSummary.objects.bulk_create(
            [
                TraceSummary(digest=digest, name=str((summary or {}).get("name", ""))[:300], summary=summary)
                for digest, summary in summaries.items()
            ],
            ignore_conflicts=True,
        )
        ids = dict(TraceSummary.objects.filter(digest__in=summaries).values_list("digest", "id"))
        return {run_id: ids[digest] for run_id, digest in digests.items()}

    def _write_measurements(self, items: Sequence[_Item], launch_ids: dict[int, int]) -> set[int]:
        position = self._position()
        series = self._series(items)
        rows: list[tuple[Any, ...]] = []
        samples: list[tuple[Any, ...]] = []
        commit_id = self.context.commit.id if self.context.commit else None
        for metric, group in self._by_metric(items).items():
            found = summarise(
                [measured.samples for _, measured in group],
                metric=metric.value(),
                failures=self._failures(metric, group),
            )
            for i, (item, measured) in enumerate(group):
                environment = self.environments[item.launch]
                rows.append(
                    (
                        series[environment.klass_id, _case(item).id, metric.id], position, item.id,
                        launch_ids[item.launch], metric.id, commit_id, environment.id, int(found.n[i]),
                        measured.row.failures, *_summary(found, i, measured), _clock(measured.mhz),
                        item.row.status == "ok",
                    )
                )  # fmt: skip
                if len(measured.samples):
                    samples.append((item.id, metric.id, measured.samples.tolist(), _listed(measured.mhz)))
        copy_rows("perfdb_measurement", MEASUREMENT_COLUMNS, rows)
        copy_rows("perfdb_sample", SAMPLE_COLUMNS, samples)
        return {row[0] for row in rows}

    def _position(self) -> int:
        if self.context.commit is None:
            return UNPLACED
        place = BranchCommit.objects.filter(branch=self.context.branch, commit=self.context.commit).first()
        return int(place.position) if place else UNPLACED

    def _series(self, items: Sequence[_Item]) -> dict[tuple[int, int, int], int]:
        wanted: dict[int, set[tuple[int, int]]] = defaultdict(set)
        klasses = {environment.klass_id: environment.klass for environment in self.environments}
        for item in items:
            for measured in item.measured:
                metric = self.metrics[_case(item).benchmark_id, measured.row.name]
                wanted[self.environments[item.launch].klass_id].add((_case(item).id, metric.id))
        out: dict[tuple[int, int, int], int] = {}
        for klass_id, keys in wanted.items():
            ids = catalogue.series(
                keys, pool=self.context.pool, klass=klasses[klass_id], branch=self.context.branch
            )
            out |= {(klass_id, *key): id_ for key, id_ in ids.items()}
        return out

    def _by_metric(self, items: Sequence[_Item]) -> dict[Metric, list[tuple[_Item, _Measured]]]:
        groups: dict[Metric, list[tuple[_Item, _Measured]]] = defaultdict(list)
        for item in items:
            for measured in item.measured:
                groups[self.metrics[_case(item).benchmark_id, measured.row.name]].append((item, measured))
        return groups

    def _failures(self, metric: Metric, group: Sequence[tuple[_Item, _Measured]]) -> list[int]:
        """Failures that rank in the value: none where the sender gave the value himself."""
        ranks = metric.value().statistic.quantile is not None or metric.statistic == "median"
        return [m.row.failures if ranks and m.value is None else 0 for _, m in group]


def _case(item: _Item) -> Case:
    if item.case is None:
        raise AssertionError("cases are resolved before they are used")
    return item.case


def _check_metric_names(run: RunRow) -> None:
    names = [metric.name for metric in run.metrics]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"metric {name!r} stands twice")


def _summary(found: Summaries, i: int, measured: _Measured) -> tuple[float | None, ...]:
    value = float(found.value[i]) if measured.value is None else measured.value
    rest = (found.median[i], found.mad[i], found.p99[i], found.minimum[i], found.maximum[i])
    return tuple(float(x) if math.isfinite(x) else None for x in (value, *rest))


def _clock(mhz: Floats | None) -> float | None:
    return float(np.median(mhz)) if mhz is not None and len(mhz) else None


def _listed(values: Floats | None) -> list[float] | None:
    return None if values is None else values.tolist()


def _text(text: str) -> str:
    """PostgreSQL's text holds no NUL."""
    return text.replace("\x00", "\ufffd")


def _json(value: Any) -> Any:
    return None if value is None else Jsonb(value, dumps=json.dumps)


def _write_requests(run_id: int, table: dict[str, list[Any]]) -> None:
    count = len(table["t_sched"])
    RequestTable.objects.create(
        run_id=run_id,
        t_sched=table["t_sched"],
        t_send=table["t_send"],
        t_first=table["t_first"],
        t_last=table["t_last"],
        input_tokens=table["input_tokens"],
        output_tokens=table["output_tokens"],
        klass=table.get("class") or [""] * count,
        status=table["status"],
    )
