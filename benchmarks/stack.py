"""The whole stack on this machine, measuring the demo's history, with the database's own record of what was measured.

    CI=true python -m benchmarks.stack --out stack.json [--limit-s 220] [--steps 4 16]

Runs `manage.py demo` (embedded PostgreSQL and Valkey, web server, both Celery workers, beat, runner) and, before the
stack stops, writes what the database holds: environment, jobs, runs by status, medians by commit, alerts and mail.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit-s", type=float, default=1500.0)
    parser.add_argument(
        "--steps", type=int, nargs=2, metavar=("FROM", "TO"), help="only these commits of the demo's script"
    )
    arguments = parser.parse_args()
    # What the demo sets and then starts itself again for: its data lie apart from the checkout's own.
    os.environ["PERFDB_STATE"] = str(ROOT / ".demo" / "state")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "perfdb.config.settings")
    import django

    django.setup()
    from perfdb.demo import history
    from perfdb.management.commands import demo

    if arguments.steps:
        history.STEPS = history.STEPS[slice(*arguments.steps)]

    class Recorded(demo.Command):
        def _run(self, made: Any, address: str, *, limit_s: float) -> bool:
            try:
                return super()._run(made, address, limit_s=limit_s)
            finally:
                arguments.out.write_text(json.dumps(record(), indent=1, default=str))

    Recorded(stdout=sys.stdout, stderr=sys.stderr).handle(port=None, limit_s=arguments.limit_s, exit=True)


def record() -> dict[str, Any]:
    """What the database holds of the one project there."""
    from perfdb.models import Alert, Bisection, Environment, Job, Launch, Message, Run

    runs = Run.objects.select_related("case__benchmark")
    return {
        "environments": [
            {"class": each.klass.fields, "boundary": each.boundary} for each in Environment.objects.all()
        ],
        "launches": Launch.objects.count(),
        "runs": Counter(f"{run.case.benchmark.name}: {run.get_status_display()}" for run in runs),
        "reasons": Counter(run.reason[:200] for run in runs if run.reason),
        "jobs": [
            {
                "commit": job.commit.short,
                "kind": job.kind,
                "state": job.state,
                "reason": job.reason[:300],
                "seconds": None
                if job.started_at is None or job.finished_at is None
                else round((job.finished_at - job.started_at).total_seconds(), 2),
            }
            for job in Job.objects.select_related("commit").order_by("started_at")
        ],
        "series": series(),
        "alerts": [
            {
                "kind": alert.kind,
                "state": alert.state,
                "title": alert.title,
                "culprit": alert.culprit and alert.culprit.short,
                "probability": alert.culprit_probability,
                "conclusion": alert.conclusion,
            }
            for alert in Alert.objects.select_related("culprit")
        ],
        "bisections": [
            {"state": each.state, "commits": len(each.shas), "probes": each.probes.count()}
            for each in Bisection.objects.all()
        ],
        "mail": [f"{each.state}: {each.subject}" for each in Message.objects.all()],
    }


def series() -> dict[str, dict[str, list[float | None]]]:
    """Per tracked series (benchmark and metric) and position on the branch: the launches' values."""
    from perfdb.models import Measurement

    found: dict[str, dict[str, list[float | None]]] = {}
    rows = Measurement.objects.filter(metric__tracked=True).select_related("metric__benchmark")
    for row in rows.order_by("series_id", "position", "run_id"):
        name = f"{row.metric.benchmark.name} {row.metric.name} [{row.metric.unit}]"
        found.setdefault(name, {}).setdefault(str(row.position), []).append(row.value)
    return found


if __name__ == "__main__":
    main()
