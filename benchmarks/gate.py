"""The gate over 1000 cases with a history of 500 commits: server time of one request.

    python -m benchmarks.gate [--cases 1000] [--commits 500]

The history is written straight into the tables in the shape that uploads leave behind: every commit on main, one launch
of every case at each, five at base and head.
"""

from __future__ import annotations

import argparse
import statistics
import time

from benchmarks.upload import database


def fill(cases: int, commits: int) -> None:
    from django.db import connection

    from perfdb.models import Branch, Commit, Environment, EnvironmentClass, Pool, Project
    from perfdb.services.placing import place

    project = Project.objects.create(slug="bench", name="Bench")
    shas = [f"{number:040x}" for number in range(1, commits + 1)]
    Commit.objects.bulk_create(
        [Commit(project=project, sha=sha, parents=shas[i - 1 : i] if i else []) for i, sha in enumerate(shas)]
    )
    branch = Branch.objects.create(project=project, name="main", kind="trunk")
    place(branch, shas)
    pool = Pool.objects.create(name="default")
    klass = EnvironmentClass.objects.create(digest="k", label="machine")
    environment = Environment.objects.create(digest="e", klass=klass)
    ids = {
        "project": project.pk,
        "branch": branch.pk,
        "pool": pool.pk,
        "klass": klass.pk,
        "env": environment.pk,
    }
    ids |= {"cases": cases, "last": commits - 2}
    statements = (
        (
            "INSERT INTO perfdb_benchmark (project_id, name, tier, definition)"
            " SELECT %(project)s, 'b' || g, 'micro', '{}' FROM generate_series(1, %(cases)s) g"
        ),
        (
            "INSERT INTO perfdb_case (benchmark_id, params, params_hash) SELECT id, '{}',"
            " 'h' FROM perfdb_benchmark"
        ),
        (
            "INSERT INTO perfdb_metric (benchmark_id, name, unit, lower_is_better, statistic,"
            " deterministic, tracked)"
            " SELECT id, 'time', 'ms', true, 'median', false, true FROM perfdb_benchmark"
        ),
        (
            "INSERT INTO perfdb_series (case_id, metric_id, pool_id, environment_class_id, branch_id)"
            " SELECT c.id, m.id, %(pool)s, %(klass)s, %(branch)s FROM perfdb_case c"
            " JOIN perfdb_metric m USING (benchmark_id)"
        ),
        (
            "INSERT INTO perfdb_launch (uuid, environment_id, health, info, harness_version)"
            " SELECT gen_random_uuid(), %(env)s, '{}', '{}', '' FROM perfdb_branchcommit b,"
            " generate_series(1, CASE WHEN b.position >= %(last)s THEN 5 ELSE 1 END) g ORDER BY b.position"
        ),
        (
            "WITH place AS (SELECT b.commit_id,"
            " row_number() OVER (ORDER BY b.position) AS n FROM perfdb_branchcommit b,"
            " generate_series(1, CASE WHEN b.position >= %(last)s THEN 5 ELSE 1 END) g),"
            " launch AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM perfdb_launch)"
            " INSERT INTO perfdb_run (uuid, case_id, commit_id, branch_id, environment_id, pool_id,"
            " launch_id, status,"
            " reason, log, definition_hash, started_at, invalid_reason)"
            " SELECT gen_random_uuid(), c.id, p.commit_id, %(branch)s, %(env)s, %(pool)s, l.id, 0,"
            " '', '', '', now(), ''"
            " FROM place p JOIN launch l USING (n), perfdb_case c"
        ),
        (
            "INSERT INTO perfdb_measurement (series_id, position, run_id, launch_id, metric_id,"
            " commit_id, environment_id,"
            " n, failures, value, median, mad, p99, minimum, maximum, usable)"
            " SELECT s.id, b.position, r.id, r.launch_id, s.metric_id, r.commit_id, r.environment_id, 20, 0,"
            " v, v, 0, v, v, v,"
            " true FROM (SELECT *, 10 + 0.01 * random() AS v FROM perfdb_run) r"
            " JOIN perfdb_series s USING (case_id) JOIN perfdb_branchcommit b ON b.commit_id = r.commit_id"
        ),
        (
            "INSERT INTO perfdb_seriesstate (series_id, position, commits, outcome, verdict, calibration)"
            " SELECT id, %(last)s + 1, %(last)s + 2, '', '{}', '{}' FROM perfdb_series"
        ),
        "ANALYZE",
    )
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement, ids)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--profile", action="store_true", help="profile one request instead")
    args = parser.parse_args()
    with database():
        fill(args.cases, args.commits)
        measure(args.commits, profile=args.profile)


def measure(commits: int, *, profile: bool) -> None:
    from django.test import Client

    client = Client(SERVER_NAME="localhost")
    params = {"base": "main", "head": f"{commits:040x}"}

    def ask() -> dict[str, object]:
        found: dict[str, object] = client.get("/api/v1/projects/bench/gate", params).json()
        return found

    answer = ask()
    print(f"{answer['decision']}, coverage {answer['coverage']}, {answer['note']}")
    if profile:
        import cProfile
        import pstats

        profiler = cProfile.Profile()
        profiler.runcall(ask)
        pstats.Stats(profiler).sort_stats("cumtime").print_stats(45)
        return
    times = []
    for _ in range(7):
        start = time.perf_counter()
        ask()
        times.append(time.perf_counter() - start)
    print(f"gate: median {statistics.median(times):.2f} s, fastest {min(times):.2f} s (at most 1 s)")


if __name__ == "__main__":
    main()
