"""One job from claim to stored results: check out, build, launch by launch, ingest.

Measuring happens in `python -m runners`, a child process; this module only feeds it and stores what it says.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
from django.db import connection

from perfdb.local.command import as_account
from perfdb.local.cores import MEASURE_CPUS_VARIABLE, parse_cpu_list
from perfdb.manifest import Case as ManifestCase
from perfdb.manifest import Manifest, ManifestError, parse
from perfdb.models import Benchmark, Build, Job, JobState, Worker
from perfdb.services import build as building
from perfdb.services import catalogue, schedule
from perfdb.services.batch import Batch, CommitRow, EnvironmentRow, LaunchRow, MetricRow, RunRow
from perfdb.services.foreign import read_output
from perfdb.services.ingest import Ingested, ingest
from perfdb.services.track import repository
from perfdb.vcs import CommitGone, GitError
from runners.result import LaunchRequest, LaunchResult, Measurement, RunResult

_GRACE_S = 1020.0
"""What a launch may take beyond its cases' own limits: start of processes, sentinel, correctness (120 s), and the
wait for another measurement on the same cores or GPU (the runner gives up after 900 s)."""


class Cancelled(RuntimeError):
    """The job was cancelled, or given to another worker."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended. `series_ids` got new values and want analysis."""

    state: JobState
    reason: str
    series_ids: frozenset[int]
    launches: int


def perform(job: Job, *, worker: Worker) -> Outcome:
    """Run a claimed job to its end and record it. Raises nothing that belongs to the tracked repository."""
    try:
        outcome = _perform(job, worker)
    except Cancelled as error:
        return Outcome(JobState.CANCELLED, str(error), frozenset(), 0)
    except building.BuildFailed as error:
        outcome = Outcome(JobState.FAILED, str(error), frozenset(), 0)
    except CommitGone as error:
        outcome = Outcome(JobState.FAILED, f"the commit is gone: {error}", frozenset(), 0)
    except (GitError, ManifestError) as error:
        outcome = Outcome(JobState.FAILED, str(error), frozenset(), 0)
    except RunnerFailed as error:
        outcome = Outcome(JobState.FAILED, str(error), frozenset(), 0)
    schedule.finish(job, outcome.state, reason=outcome.reason)
    return outcome


def _perform(job: Job, worker: Worker) -> Outcome:
    mirror = repository(job.project)
    if not job.commit.sha:
        raise CommitGone("no commit")
    try:
        mirror.resolve(job.commit.sha)
    except CommitGone:
        mirror.fetch()
    text = mirror.file_at(job.commit.sha, job.project.manifest_path)
    if text is None:
        raise ManifestError("the commit has no such file", source=job.project.manifest_path)
    manifest = parse(text, source=job.project.manifest_path)
    wanted = select(job, manifest)
    if not wanted:
        return Outcome(
            JobState.DONE, "the manifest of this commit has none of the cases asked for", frozenset(), 0
        )
    with (
        _heartbeat(job) as alive,
        building.checkout(mirror, job.commit, manifest, alive=alive.check) as checkout,
    ):
        return _launches(job, worker, manifest, wanted, checkout, alive)


def select(job: Job, manifest: Manifest) -> list[ManifestCase]:
    """The manifest's cases that a job asks for: its own list, or every tier that is due at this commit."""
    cases = manifest.cases()
    chosen = list(job.cases.select_related("benchmark"))
    if chosen:
        keys = {(case.benchmark.name, case.params_hash) for case in chosen}
        return [case for case in cases if (case.spec.benchmark, catalogue.digest(case.spec.params)) in keys]
    place = job.branch.places.filter(commit=job.commit).values_list("position", flat=True).first() or 0
    due = [case for case in cases if case.on == "every" and place % case.sample_every == 0]
    return [case for case in due if not job.tiers or case.spec.tier in job.tiers]


def _launches(
    job: Job,
    worker: Worker,
    manifest: Manifest,
    wanted: Sequence[ManifestCase],
    checkout: building.Checkout,
    alive: _Heart,
) -> Outcome:
    series: set[int] = set()
    total = max(job.launches or case.launches for case in wanted)
    _record_definitions(job, wanted)
    for number in range(total):
        due = [case for case in wanted if number < (job.launches or case.launches)]
        for device in sorted({case.device for case in due}):
            cases = [case for case in due if case.device == device]
            alive.progress = {
                "launch": number + 1,
                "launches": total,
                "cases": [case.spec.benchmark for case in cases][:20],
            }
            alive.check()
            request = LaunchRequest(
                # The same launch of the same attempt has the same id, so that storing it twice is harmless.
                launch_id=str(uuid.uuid5(job.uuid, f"{job.attempts}.{number}.{device}")),
                root=str(checkout.root),
                cases=tuple(case.spec for case in cases),
                seed=int(job.uuid.int + number) % 2**31,
                python=_interpreter(manifest, checkout.root),
                device=device,
                cpus=measuring_cpus(),
            )
            result = run_launch(request, alive=alive.check)
            series |= _store(job, worker, result, cases, checkout.build).series_ids
    return Outcome(JobState.DONE, "", frozenset(series), total)


def measuring_cpus() -> tuple[int, ...]:
    """The cores kept for measuring: PERFDB_MEASURE_CPUS, else those that this process may use.

    Named even where they are all: a launch without cores would lock every core of the machine, and its threads
    would not know how many they are.
    """
    asked = os.environ.get(MEASURE_CPUS_VARIABLE)
    return tuple(sorted(parse_cpu_list(asked) if asked else os.sched_getaffinity(0)))


def _interpreter(manifest: Manifest, root: Path) -> str | None:
    python = manifest.project.python
    if python is None:
        return None
    return str(root / python) if "/" in python and not python.startswith("/") else python


class RunnerFailed(RuntimeError):
    """`python -m runners` itself failed; not the measured code, whose failures are statuses."""


def run_launch(request: LaunchRequest, *, alive: Callable[[], None] = lambda: None) -> LaunchResult:
    """Start the runner on one request. Raises RunnerFailed; `alive` may raise to stop it."""
    limit = sum(case.timeout_s for case in request.cases) + _GRACE_S
    process = subprocess.Popen(
        as_account([sys.executable, "-P", "-m", "runners"], account=None, death_signal=signal.SIGTERM),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + limit
    data: bytes | None = request.to_json().encode()
    try:
        while True:
            try:
                out, errors = process.communicate(data, timeout=2.0)
                break
            except subprocess.TimeoutExpired:
                data = None
                alive()
                if time.monotonic() > deadline:
                    raise RunnerFailed(f"the runner gave no result within {limit:.0f} s") from None
    finally:
        _stop(process)
        for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
            stream.close()
    if process.returncode != 0:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        raise RunnerFailed(
            f"the runner ended with {process.returncode}: {lines[-1] if lines else 'no message'}"
        )
    try:
        return msgspec.json.decode(out, type=LaunchResult)
    except msgspec.DecodeError as error:
        raise RunnerFailed(f"the runner's answer does not fit: {error}") from None


def _stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM lets the runner end its own children; the group is killed if it does not."""
    if process.poll() is not None:
        return
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=8)
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


# -- storing -----------------------------------------------------------------------------------------------
def to_launch_row(result: LaunchResult, cases: Sequence[ManifestCase]) -> LaunchRow:
    """The runner's answer as ingest takes it; a launch out of bounds makes every run of it invalid."""
    definitions = {(case.spec.benchmark, catalogue.digest(case.spec.params)): case for case in cases}
    runs = []
    for run in result.runs:
        case = definitions.get((run.benchmark, catalogue.digest(run.params)))
        runs.append(_run_row(run, case, result))
    return LaunchRow(
        id=uuid.UUID(result.launch_id),
        runs=runs,
        environment=EnvironmentRow(
            klass=result.environment.klass, boundary=result.environment.boundary, info=result.environment.info
        ),
        health=msgspec.to_builtins(result.health),
        harness_version=result.harness_version,
        started_at=_time(result.started_at),
        duration_s=(_time(result.finished_at) - _time(result.started_at)).total_seconds(),
    )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _run_row(run: RunResult, case: ManifestCase | None, result: LaunchResult) -> RunRow:
    measurements, problem = list(run.measurements), ""
    if run.output is not None and case is not None and case.spec.output not in ("wall", "perfdb"):
        measurements, problem = read_output(run.output, case.spec)
    status, reason = run.status.value, run.reason
    if problem and status == "ok":
        status, reason = "error", problem
    if status == "ok" and result.health.violations:
        status, reason = "invalid", "; ".join(result.health.violations)
    return RunRow(
        benchmark=run.benchmark,
        tier=run.tier,  # type: ignore[arg-type]  # checked by the manifest
        params=run.params,
        metrics=[_metric_row(m) for m in measurements],
        status=status,  # type: ignore[arg-type]  # Status has these values only
        reason=reason,
        log=run.log,
        started_at=_time(run.started_at) if run.started_at else None,
        duration_s=run.duration_s,
        definition_hash=case.definition_hash if case else "",
        correctness=run.correctness,
        work=run.work,
        trace_summary=run.trace_summary,
        requests=run.requests,
    )


def _metric_row(m: Measurement) -> MetricRow:
    return MetricRow(
        name=m.metric.name,
        unit=m.metric.unit,
        samples=m.samples,
        lower_is_better=m.metric.lower_is_better,
        statistic=m.metric.statistic,  # type: ignore[arg-type]  # checked by the manifest
        deterministic=m.metric.deterministic,
        mhz=m.mhz,
        value=m.value,
        failures=m.failures,
    )


def _store(
    job: Job, worker: Worker, result: LaunchResult, cases: Sequence[ManifestCase], build: Build | None
) -> Ingested:
    batch = Batch(
        launches=[to_launch_row(result, cases)], commit=CommitRow(sha=job.commit.sha), pool=job.pool.name
    )
    return ingest(job.project, batch, worker=worker, job=job, build=build, branch=job.branch)


def _record_definitions(job: Job, wanted: Sequence[ManifestCase]) -> None:
    """The benchmark's page shows what the newest measured commit says of it."""
    named = {case.spec.benchmark: case for case in wanted}
    rows = catalogue.benchmarks(job.project, {name: case.spec.tier for name, case in named.items()})
    for name, case in named.items():
        definition = msgspec.to_builtins(case.spec) | {
            "definition_hash": case.definition_hash,
            "policy": case.policy,
        }
        if rows[name].definition != definition:
            rows[name].definition = definition
    Benchmark.objects.bulk_update(rows.values(), ["definition"])


# -- heartbeat ---------------------------------------------------------------------------------------------
class _Heart:
    """Says in the table that the worker lives, from a thread of its own, and notices a cancelled job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.progress: dict[str, object] = {}
        self._lost = threading.Event()
        self._end = threading.Event()

    def check(self) -> None:
        """Raises Cancelled once the job is no longer ours."""
        if self._lost.is_set():
            raise Cancelled("the job was cancelled or taken over")

    def run(self) -> None:
        try:
            while not self._end.wait(schedule.HEARTBEAT.total_seconds()):
                if not schedule.beat(self.job, progress=self.progress):
                    self._lost.set()
                    return
        finally:
            connection.close()

    def stop(self) -> None:
        self._end.set()


@contextmanager
def _heartbeat(job: Job) -> Iterator[_Heart]:
    heart = _Heart(job)
    if not schedule.beat(job, progress={}):
        raise Cancelled("the job was cancelled or taken over")
    thread = threading.Thread(target=heart.run, name=f"heartbeat-{job.pk}", daemon=True)
    thread.start()
    try:
        yield heart
    finally:
        heart.stop()
        thread.join(timeout=10)
