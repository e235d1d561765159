"""Results in: one transaction per batch, rows by COPY, the same batch twice is harmless.

An item that cannot be is rejected with its place and reason while the rest is stored; nothing is half-written.
Ingest decides nothing: it returns the series that got new values, and the caller queues their analysis.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
from django.db import transaction
from django.db.models import Model
from django.utils import timezone

from perfdb.models import (
    UNPLACED,
    Branch,
    BranchCommit,
    Build,
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
from perfdb.services.batch import Batch, EnvironmentRow, LaunchRow
from perfdb.services.copying import (
    Cells,
    Fixed,
    allocate_ids,
    copy_columns,
    float_arrays,
    floats,
    jsonb,
    optional_ids,
    texts,
    timestamps,
)
from perfdb.services.incoming import Item, Measured, check_metric_names, clock, read_metric
from perfdb.services.placing import extend
from perfdb.stats.launch_summary import summarise
from perfdb.stats.policy import Metric as MetricValue
from perfdb.stats.policy import Statistic
from perfdb.stats.ranks import Floats
from perfdb.units import UnitError, convert

MAX_SAMPLES = 5_000_000
_SUMMARY = ("value", "median", "mad", "p99", "minimum", "maximum")
_NAMESPACE = uuid.UUID("7d6f3a52-5a3e-4b57-9f0a-0f3f6f1f8a11")


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


_Row = tuple[Item, Measured, Metric]


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
        self.hashes: dict[str, str] = {}
        self.known: dict[str, Environment] = {}
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
            commit_id=_pk(self.context.commit),
        )

    # -- reading -------------------------------------------------------------------------------------------
    def _read_items(self) -> list[Item]:
        items: list[Item] = []
        for number, launch in enumerate(self.batch.launches):
            self.environments.append(self._environment(launch.environment))
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
                key = (run.benchmark, self._params_hash(run.params))
                if key in seen:
                    self._reject(
                        path, f"{run.benchmark!r} with the same parameters stands twice in one launch"
                    )
                    continue
                seen.add(key)
                own = uuid.uuid5(self.launch_uuids[number], "\x1f".join(key))
                item = Item(path, run, number, own, key[1])
                try:
                    item.measured = [read_metric(metric) for metric in run.metrics]
                    check_metric_names(run)
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

    def _environment(self, row: EnvironmentRow) -> Environment:
        """The launches of an upload mostly share theirs: looked up once."""
        key = catalogue.canonical([row.klass, row.boundary])
        if key not in self.known:
            self.known[key] = catalogue.environment(row)
        return self.known[key]

    def _content_uuid(self, launch: LaunchRow) -> uuid.UUID:
        """Without a client's key, equal content at the same commit and branch is the same launch."""
        place = [
            self.context.project.id,
            self.context.branch.id,
            self.context.commit and self.context.commit.id,
        ]
        content = hashlib.sha256(msgspec.json.encode(launch, order="deterministic")).hexdigest()
        return uuid.uuid5(_NAMESPACE, f"{place}{content}")

    def _params_hash(self, params: dict[str, Any]) -> str:
        """The digest of parameters; the runs of a case share it."""
        text = catalogue.canonical(params)
        found = self.hashes.get(text)
        if found is None:
            found = self.hashes[text] = catalogue.digest(params)
        return found

    def _reject(self, path: str, reason: str) -> None:
        self.rejected.append(Rejected(path, reason))

    # -- resolving -----------------------------------------------------------------------------------------
    def _resolve_cases(self, items: Sequence[Item]) -> None:
        named = catalogue.benchmarks(
            self.context.project, {item.row.benchmark: item.row.tier for item in items}
        )
        found = catalogue.cases(
            {(named[item.row.benchmark], item.params_hash): item.row.params for item in items}
        )
        for item in items:
            item.found_case = found[named[item.row.benchmark].id, item.params_hash]

    def _resolve_metrics(self, items: list[Item]) -> list[Item]:
        wanted = {(item.case.benchmark_id, m.row.name): m.row for item in items for m in item.measured}
        self.metrics = catalogue.metrics(wanted)
        return [item for item in items if self._fits_metrics(item)]

    def _fits_metrics(self, item: Item) -> bool:
        """Convert to the stored unit; refuse another family or the opposite direction."""
        for measured in item.measured:
            metric = self.metrics[item.case.benchmark_id, measured.row.name]
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

    def _write_runs(self, items: Sequence[Item], launch_ids: dict[int, int]) -> None:
        context = self.context
        for item, id_ in zip(items, allocate_ids("perfdb_run", len(items)), strict=True):
            item.id = id_
        traces = self._traces(items)
        rows = [item.row for item in items]
        copy_columns(
            "perfdb_run",
            {
                "id": Fixed("int8", [item.id for item in items]),
                "case_id": Fixed("int8", [item.case.id for item in items]),
                "commit_id": optional_ids([_pk(context.commit)] * len(items)),
                "branch_id": Fixed("int8", [context.branch.id] * len(items)),
                "environment_id": Fixed("int8", [self.environments[item.launch].id for item in items]),
                "pool_id": Fixed("int8", [context.pool.id] * len(items)),
                "launch_id": Fixed("int8", [launch_ids[item.launch] for item in items]),
                "build_id": optional_ids([_pk(context.build)] * len(items)),
                "trace_summary_id": optional_ids([traces.get(item.id) for item in items]),
                "status": Fixed("int2", [RunStatus[row.status.upper()].value for row in rows]),
                "started_at": Fixed("timestamptz", timestamps(self._started(item) for item in items)),
                "duration_s": floats([row.duration_s for row in rows]),
                "uuid": Cells([item.uuid.bytes for item in items]),
                "reason": Cells(texts(row.reason for row in rows)),
                "log": Cells(texts(row.log for row in rows)),
                "definition_hash": Cells(texts(row.definition_hash[:64] for row in rows)),
                "correctness": Cells([jsonb(row.correctness) for row in rows]),
                "work": Cells([jsonb(row.work) for row in rows]),
                "invalid_reason": Cells([b""] * len(rows)),
            },
        )
        for item in items:
            if item.row.requests:
                _write_requests(item.id, item.row.requests)

    def _started(self, item: Item) -> datetime:
        return item.row.started_at or self.batch.launches[item.launch].started_at or self.now

    def _traces(self, items: Sequence[Item]) -> dict[int, int]:
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

    def _write_measurements(self, items: Sequence[Item], launch_ids: dict[int, int]) -> set[int]:
        position = self._position()
        series = self._series(items)
        commit_id = _pk(self.context.commit)
        rows = [
            (item, measured, self.metrics[item.case.benchmark_id, measured.row.name])
            for item in items
            for measured in item.measured
        ]
        environments = [self.environments[item.launch] for item, _, _ in rows]
        ids = [
            series[environment.klass_id, item.case.id, metric.id]
            for environment, (item, _, metric) in zip(environments, rows, strict=True)
        ]
        found = self._summaries(rows)
        copy_columns(
            "perfdb_measurement",
            {
                "series_id": Fixed("int8", ids),
                "position": Fixed("int4", [position] * len(rows)),
                "run_id": Fixed("int8", [item.id for item, _, _ in rows]),
                "launch_id": Fixed("int8", [launch_ids[item.launch] for item, _, _ in rows]),
                "metric_id": Fixed("int8", [metric.id for _, _, metric in rows]),
                "commit_id": optional_ids([commit_id] * len(rows)),
                "environment_id": Fixed("int8", [environment.id for environment in environments]),
                "n": Fixed("int4", [len(measured.samples) for _, measured, _ in rows]),
                "failures": Fixed("int4", [measured.row.failures for _, measured, _ in rows]),
                **{name: floats(found[name]) for name in _SUMMARY},
                "mhz": floats([clock(measured.mhz) for _, measured, _ in rows]),
                "usable": Fixed("bool", [item.row.status == "ok" for item, _, _ in rows]),
            },
        )
        self._write_samples(rows)
        return set(ids)

    def _summaries(self, rows: Sequence[_Row]) -> dict[str, Floats]:
        """Each summary of every row; metrics that are computed alike are computed together."""
        alike: dict[MetricValue, list[int]] = defaultdict(list)
        values = {
            id_: replace(metric.value(), name="") for id_, metric in {m.id: m for _, _, m in rows}.items()
        }
        for index, (_, _, metric) in enumerate(rows):
            alike[values[metric.id]].append(index)
        out = {name: np.empty(len(rows)) for name in _SUMMARY}
        for metric_value, where in alike.items():
            group = [rows[index][1] for index in where]
            found = summarise(
                [measured.samples for measured in group],
                metric=metric_value,
                failures=_failures(metric_value, group),
            )
            for name in _SUMMARY:
                out[name][where] = getattr(found, name)
        for index, (_, measured, _) in enumerate(rows):
            if measured.value is not None:
                out["value"][index] = measured.value
        return out

    def _write_samples(self, rows: Sequence[_Row]) -> None:
        sampled = [row for row in rows if len(row[1].samples)]
        copy_columns(
            "perfdb_sample",
            {
                "run_id": Fixed("int8", [item.id for item, _, _ in sampled]),
                "metric_id": Fixed("int8", [metric.id for _, _, metric in sampled]),
                "values": Cells(float_arrays([measured.samples for _, measured, _ in sampled])),
                "mhz": Cells(float_arrays([measured.mhz for _, measured, _ in sampled])),
            },
        )

    def _position(self) -> int:
        if self.context.commit is None:
            return UNPLACED
        place = BranchCommit.objects.filter(branch=self.context.branch, commit=self.context.commit).first()
        return int(place.position) if place else UNPLACED

    def _series(self, items: Sequence[Item]) -> dict[tuple[int, int, int], int]:
        wanted: dict[int, set[tuple[int, int]]] = defaultdict(set)
        klasses = {environment.klass_id: environment.klass for environment in self.environments}
        for item in items:
            for measured in item.measured:
                metric = self.metrics[item.case.benchmark_id, measured.row.name]
                wanted[self.environments[item.launch].klass_id].add((item.case.id, metric.id))
        out: dict[tuple[int, int, int], int] = {}
        for klass_id, keys in wanted.items():
            ids = catalogue.series(
                keys, pool=self.context.pool, klass=klasses[klass_id], branch=self.context.branch
            )
            out |= {(klass_id, *key): id_ for key, id_ in ids.items()}
        return out


def _failures(metric: MetricValue, group: Sequence[Measured]) -> list[int]:
    """Failures that rank in the value: none where the sender gave the value himself."""
    ranks = metric.statistic.quantile is not None or metric.statistic is Statistic.MEDIAN
    return [measured.row.failures if ranks and measured.value is None else 0 for measured in group]


def _pk(row: Model | None) -> int | None:
    return None if row is None else int(row.pk)


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
