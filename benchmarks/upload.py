"""One upload of 1000 runs x 3 metrics x 50 samples against a bare binary COPY of the same rows, measured together.

    python -m benchmarks.upload [--rounds 9]

Every round stores a new commit three ways, in turn: the request as JSON, the request as base64 typed arrays (both
through the whole of Django: middleware, token, decoding, checks, summaries, COPY, commit), and the rows that the first
one stored by a bare COPY of prepared bytes. The peer is the same request through DRF serializers and bulk_create,
which does less: it checks types and stores rows, no more. The queueing of the analysis is left out of all of them.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

LAUNCHES, CASES, METRICS, SAMPLES = 10, 100, 3, 50


@contextmanager
def database() -> Iterator[None]:
    """A PostgreSQL of its own with perfdb's tables; DATABASE_URL names one to use instead."""
    from perfdb.local.account import server_account
    from perfdb.local.command import as_account
    from perfdb.local.postgres import PostgresServer
    from perfdb.local.state import StateFolder, prepare

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "perfdb.config.settings")
    with tempfile.TemporaryDirectory(prefix="perfdb-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        account = server_account()
        state = StateFolder(folder / "state")
        prepare(state, account=account)
        server = PostgresServer(
            folder=state.postgres, socket_folder=state.postgres_socket_folder, account=account
        )
        server.initialise()
        command = as_account(server.command(), account=account, death_signal=signal.SIGQUIT)
        with (state.logs / "postgres.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", start_new_session=True)
        try:
            server.ensure_database(timeout_s=60.0)
            os.environ["DATABASE_URL"] = server.url()
            import django
            from django.core.management import call_command

            django.setup()
            call_command("migrate", verbosity=0)
            yield
            from django.db import connections

            connections.close_all()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20.0)


def request_body(commit: int, *, packed: bool) -> bytes:
    rng = np.random.default_rng(commit)
    values = np.exp(rng.normal(0.0, 0.01, (LAUNCHES, CASES, METRICS, SAMPLES)))

    def samples(row: np.ndarray[Any, Any]) -> Any:
        if packed:
            return {"dtype": "f8", "bdata": base64.b64encode(row.astype("<f8").tobytes()).decode()}
        return row.tolist()

    launches = [
        {
            "environment": {"class": {"cpu": "bench"}},
            "runs": [
                {
                    "benchmark": f"benchmark {case:03}",
                    "params": {"n": case},
                    "metrics": [
                        {
                            "name": f"metric {m}",
                            "unit": "ms",
                            "lower_is_better": True,
                            "samples": samples(row[m]),
                        }
                        for m in range(METRICS)
                    ],
                }
                for case, row in enumerate(block)
            ],
        }
        for block in values
    ]
    return json.dumps({"commit": {"sha": f"{commit:040x}"}, "launches": launches}).encode()


class BareCopy:
    """The rows of one stored commit, read back as COPY's own bytes and copied into empty tables of the same shape."""

    TABLES = ("perfdb_run", "perfdb_measurement", "perfdb_sample")

    def __init__(self, commit_id: int) -> None:
        from django.db import connection

        where = {
            "perfdb_run": f"commit_id = {commit_id}",
            "perfdb_measurement": f"commit_id = {commit_id}",
            "perfdb_sample": f"run_id IN (SELECT id FROM perfdb_run WHERE commit_id = {commit_id})",
        }
        self.data: dict[str, bytes] = {}
        with connection.cursor() as cursor:
            for table in self.TABLES:
                query = f"COPY (SELECT * FROM {table} WHERE {where[table]}) TO STDOUT (FORMAT BINARY)"
                with cursor.copy(query) as copy:
                    self.data[table] = b"".join(copy)
                cursor.execute(f"CREATE TABLE bare_{table} (LIKE {table} INCLUDING ALL)")
                cursor.execute(
                    "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass"
                    " AND contype = 'f'",
                    [table],
                )
                for (definition,) in cursor.fetchall():
                    # The same foreign keys as the real table, or the server would have less to check.
                    there = definition.replace("REFERENCES perfdb_run(", "REFERENCES bare_perfdb_run(")
                    cursor.execute(f"ALTER TABLE bare_{table} ADD {there}")

    def __call__(self) -> None:
        from django.db import connection, transaction

        with transaction.atomic(), connection.cursor() as cursor:
            for table, data in self.data.items():
                with cursor.copy(f"COPY bare_{table} FROM STDIN (FORMAT BINARY)") as copy:
                    copy.write(data)

    def empty(self) -> None:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE " + ", ".join(f"bare_{table}" for table in self.TABLES))


def serializer_way(body: bytes, project: Any) -> None:
    """What a plain DRF application does: nested serializers, then bulk_create of every table."""
    from django.db import transaction
    from django.utils import timezone
    from rest_framework import serializers

    from perfdb.models import (
        Case,
        Commit,
        Environment,
        Launch,
        Measurement,
        Metric,
        Pool,
        Run,
        Sample,
        Series,
    )

    class MetricSerializer(serializers.Serializer[Any]):
        name = serializers.CharField()
        unit = serializers.CharField()
        lower_is_better = serializers.BooleanField(allow_null=True)
        samples = serializers.ListField(child=serializers.FloatField(min_value=0.0))

    class RunSerializer(serializers.Serializer[Any]):
        benchmark = serializers.CharField()
        params = serializers.DictField()
        metrics = MetricSerializer(many=True)

    class LaunchSerializer(serializers.Serializer[Any]):
        runs = RunSerializer(many=True)

    class BatchSerializer(serializers.Serializer[Any]):
        launches = LaunchSerializer(many=True)

    read = BatchSerializer(data=json.loads(body))
    read.is_valid(raise_exception=True)
    branch = project.branches.get(name="main")
    environment, pool = Environment.objects.get(), Pool.objects.get()
    cases = {row.benchmark.name: row for row in Case.objects.select_related("benchmark")}
    metrics = {(row.benchmark_id, row.name): row for row in Metric.objects.all()}
    series = {(row.case_id, row.metric_id): row for row in Series.objects.all()}
    with transaction.atomic():
        commit = Commit.objects.create(project=project, sha=json.loads(body)["commit"]["sha"])
        launches = Launch.objects.bulk_create(
            [Launch(environment=environment) for _ in read.validated_data["launches"]]
        )
        given = [
            (launch, run)
            for launch, rows in zip(launches, read.validated_data["launches"], strict=True)
            for run in rows["runs"]
        ]
        runs = Run.objects.bulk_create(
            [
                Run(
                    case=cases[row["benchmark"]], commit=commit, branch=branch, environment=environment, pool=pool,
                    launch=launch, status=0, started_at=timezone.now(),
                )
                for launch, row in given
            ]
        )  # fmt: skip
        measurements, samples = [], []
        for run, (launch, row) in zip(runs, given, strict=True):
            for metric_row in row["metrics"]:
                metric = metrics[run.case.benchmark_id, metric_row["name"]]
                values = np.array(metric_row["samples"])
                middle = float(np.median(values))
                measurements.append(
                    Measurement(
                        series=series[run.case_id, metric.pk], position=0, run=run, launch=launch, metric=metric,
                        commit=commit, environment=environment, n=len(values), value=middle, median=middle,
                        mad=float(np.median(np.abs(values - middle))), p99=float(values.max()),
                        minimum=float(values.min()), maximum=float(values.max()),
                    )
                )  # fmt: skip
                samples.append(Sample(run=run, metric=metric, values=metric_row["samples"]))
        Measurement.objects.bulk_create(measurements)
        Sample.objects.bulk_create(samples)


def timed(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--profile", action="store_true", help="profile one JSON request instead")
    args = parser.parse_args()
    with database():
        measure(args.rounds, profile=args.profile)


def measure(rounds: int, *, profile: bool) -> None:
    from django.core.cache import cache
    from django.db import connection
    from django.test import Client

    from perfdb.models import Commit, Project
    from perfdb.services import access
    from perfdb.tasks import analyse_series

    project = Project.objects.create(slug="bench", name="Bench")
    headers = {"Authorization": f"Bearer {access.create_token('b', ['upload'], project=project).secret}"}
    client = Client(SERVER_NAME="localhost")

    def post(body: bytes) -> None:
        answer = client.post(
            "/api/v1/projects/bench/uploads", body, content_type="application/json", headers=headers
        )
        assert answer.json()["created"] == LAUNCHES * CASES, answer.content[:300]

    with mock.patch.object(analyse_series, "delay"):
        post(request_body(1, packed=False))  # makes the cases and series
        bare = BareCopy(Commit.objects.get(sha=f"{1:040x}").pk)
        if profile:
            import cProfile
            import pstats

            body, profiler = request_body(2, packed=False), cProfile.Profile()
            profiler.runcall(post, body)
            pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
            return
        times: dict[str, list[float]] = {"copy": [], "json": [], "base64": []}
        for number in range(rounds):
            bodies = {
                "json": request_body(10 + 2 * number, packed=False),
                "base64": request_body(11 + 2 * number, packed=True),
            }
            bare.empty()
            times["copy"].append(timed(bare))
            for name, body in bodies.items():
                cache.clear()
                times[name].append(timed(partial(post, body)))
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        peer = [
            timed(partial(serializer_way, request_body(1000 + k, packed=False), project)) for k in range(3)
        ]
    base = statistics.median(times["copy"])
    print(f"bare COPY   {1e3 * base:7.1f} ms")
    for name in ("json", "base64"):
        print(f"{name:11} {1e3 * statistics.median(times[name]):7.1f} ms  {ratio(times, name):5.2f} x COPY")
    slow = statistics.median(peer)
    print(f"serializers {1e3 * slow:7.1f} ms  {slow / statistics.median(times['json']):5.1f} x json")


def ratio(times: dict[str, list[float]], name: str) -> float:
    """Median of the rounds' own ratios, since the machine's speed drifts between rounds."""
    return statistics.median(a / b for a, b in zip(times[name], times["copy"], strict=True))


if __name__ == "__main__":
    main()
