"""Much data, by the bulk: what a page must bear is not what ingest is tested with."""

from __future__ import annotations

from uuid import uuid4

import msgspec

from perfdb.models import Environment, Launch, Measurement, Project, Run, Series
from perfdb.services import detect
from perfdb.services.batch import Batch
from perfdb.services.ingest import ingest
from tests.web.data import FIRST_DAY, sha


def many_cases(project: Project, count: int) -> None:
    """`count` cases measured at the newest two commits."""
    for index, level in ((2998, 1.0), (2999, 1.02)):
        runs = [
            {"benchmark": f"op_{number:04d}", "params": {"n": number},
             "metrics": [{"name": "time", "unit": "ms", "lower_is_better": True, "samples": [level + number]}]}
            for number in range(count)
        ]  # fmt: skip
        body = {
            "commit": {"sha": sha(index)},
            "launches": [{"id": str(uuid4()), "runs": runs} for _ in range(2)],
        }
        assert not ingest(project, msgspec.convert(body, Batch)).rejected


def long_series(project: Project, commits: int) -> Series:
    """A series with one launch at each of `commits` commits."""
    row = Series.objects.filter(case__benchmark__name="op_0001").get()
    environment = Environment.objects.first()
    assert environment is not None
    launch = Launch.objects.create(environment=environment)
    placed = {place.position: place.commit for place in row.branch.places.select_related("commit")}
    runs = Run.objects.bulk_create(
        Run(case=row.case, commit=placed[position], branch=row.branch, environment=environment, pool=row.pool,
            launch=launch, status=0, started_at=FIRST_DAY)
        for position in range(commits - 2)
    )  # fmt: skip
    Measurement.objects.bulk_create(
        Measurement(series=row, position=position, run=run, launch=launch, metric=row.metric, commit=placed[position],
                    environment=environment, n=1, value=2.0 + 0.001 * (position % 7))
        for position, run in enumerate(runs)
    )  # fmt: skip
    detect.SeriesState.objects.get_or_create(series=row)
    return row
