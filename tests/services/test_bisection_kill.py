"""A real worker, killed in the middle of probes, with all that the broker held: the same answer, nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np
import pytest
import redis
from django.db import connection
from pytest_django import Settings

from perfdb import tasks
from perfdb.local.services import CELERY_APP
from perfdb.models import (
    Bisection,
    BisectionState,
    Change,
    Job,
    JobState,
    Launch,
    Measurement,
    Series,
    Worker,
)
from perfdb.services import bisection, catalogue, measure, schedule, track
from tests.services.repo import GitRepo

MANIFEST = """
schema = 1
[project]
name = "tiny"
[[benchmark]]
name = "work"
tier = "micro"
entry = "tiny:work"
params = { n = [2000] }
launches = 1
timeout_s = 30
"""
FAST = "def work(n):\n    total = 0\n    for i in range(n):\n        total += i\n    return total\n"
SLOW = FAST.replace("range(n)", "range(3 * n)")
SILENCE_S = 2.0
DEADLINE_S = 240.0
"""Far beyond what it takes: a loaded machine is no failure."""


@pytest.fixture
def repo(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> GitRepo:
    settings.PERFDB_DATA = tmp_path / "data"
    monkeypatch.setattr(schedule, "SILENCE", timedelta(seconds=SILENCE_S))
    monkeypatch.setattr(schedule, "RESEND_AFTER", timedelta(seconds=SILENCE_S))
    repo = GitRepo(tmp_path / "tiny")
    repo.commit("first", {"perfdb.toml": MANIFEST, "tiny.py": FAST})
    return repo


def database_address() -> str:
    """The test database as DATABASE_URL has it."""
    known = connection.settings_dict
    options = {"host": known["HOST"], "port": known["PORT"], "user": known["USER"]}
    text = urlencode({key: value for key, value in options.items() if value} | known["OPTIONS"])
    password = f":{quote(known['PASSWORD'])}@" if known["PASSWORD"] else ""
    return f"postgresql://{password}/{known['NAME']}?{text}"


class Celery:
    """One worker process for every queue; `kill` leaves it no time to tell anybody."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.environment, self.log = environment, log
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "celery", "-A", CELERY_APP, "worker", "--queues", "analysis,measure"]
        options = ["--pool", "solo", "--loglevel", "WARNING", "--without-gossip", "--without-mingle"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*command, *options], env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.process = self._start()


@contextmanager
def worker_process(redis_url: str, data: Path) -> Iterator[Celery]:
    settings = {
        "DATABASE_URL": database_address(),
        "REDIS_URL": redis_url,
        "PERFDB_DATA": str(data / "data"),
        "PERFDB_WORKER": "killed",
        "PERFDB_HEARTBEAT_S": "0.3",
    }
    worker = Celery(os.environ | settings, data / "celery.log")
    try:
        yield worker
    finally:
        if worker.process.poll() is None:
            worker.kill()


def started_search(repo: GitRepo) -> Bisection:
    """One commit is measured; the search of the rest is asked for as an alert would."""
    project = track.track(str(repo.path))
    first, *others = track.fetch(project).jobs
    Job.objects.filter(pk__in=[job.pk for job in others]).delete()
    worker = Worker.objects.create(name="here", pool=catalogue.pool("default"))
    job = schedule.claim(worker)
    assert job == first
    measure.perform(job, worker=worker)
    series = Series.objects.get(metric__name="time", branch__project=project)
    last = project.branches.get().places.count() - 1
    change = Change.objects.create(
        series=series, kind="step", good_position=2, bad_position=last - 1, ratio=3.0, direction="regressed"
    )
    level = Measurement.objects.filter(series=series).values_list("value", flat=True)[0]
    started = bisection.start(change)
    noise = np.random.default_rng(3).normal(0, 0.05, 60)
    started.noise_history = [float(level or 1.0) * float(np.exp(one)) for one in noise]
    started.save()
    return started


def in_the_middle_of_a_probe() -> bool:
    running = Job.objects.filter(kind="probe", state=JobState.RUNNING, progress__launch__gte=1)
    return running.exists()


@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_in_the_middle_of_probes(repo: GitRepo, redis_url: str, tmp_path: Path) -> None:
    commits = [repo.commit(f"note {number}", {"notes.txt": str(number)}) for number in range(4)]
    slow = repo.commit("slower", {"tiny.py": SLOW})
    commits += [slow, *(repo.commit(f"more {number}", {"notes.txt": f"x{number}"}) for number in range(3))]
    broker = redis.Redis.from_url(redis_url)
    broker.flushdb()
    started = started_search(repo)
    tasks.advance_bisection.delay(started.pk)
    kills = 0
    deadline = time.monotonic() + DEADLINE_S
    with worker_process(redis_url, tmp_path) as worker:
        while Bisection.objects.get(pk=started.pk).state != BisectionState.DONE:
            assert time.monotonic() < deadline, (tmp_path / "celery.log").read_text()[-3000:]
            if kills < 2 and in_the_middle_of_a_probe():
                worker.kill()
                kills += 1
                if kills == 2:
                    broker.flushdb()  # it keeps nothing on disk: killed, it forgets every message
                worker.restart()
            tasks.keep_jobs()  # what beat does
            time.sleep(0.3)
    broker.flushdb()
    broker.close()
    row = Bisection.objects.get(pk=started.pk)
    assert kills == 2
    assert row.answer["kind"] == "culprit"
    assert row.shas[row.answer["commits"][0]] == slow
    again = bisection.search_of(row).answer
    assert (again.kind, list(again.commits), again.launches) == (
        "culprit",
        row.answer["commits"],
        row.answer["launches"],
    )
    assert_nothing_lost_or_twice(row)


def assert_nothing_lost_or_twice(row: Bisection) -> None:
    assert not row.probes.filter(observed=False).exists()
    assert Job.objects.filter(kind="probe", attempts__gte=2).exists()
    jobs = [probe.job for probe in row.probes.filter(job__isnull=False).select_related("job")]
    assert len({job.pk for job in jobs if job}) == len(jobs) == Job.objects.filter(kind="probe").count()
    for probe in row.probes.filter(job__isnull=False):
        stored = Measurement.objects.filter(run__launch__job=probe.job, metric=row.series.metric, usable=True)
        assert probe.values == list(stored.order_by("run_id").values_list("value", flat=True))
    counted = sum(len(probe.values or []) for probe in row.probes.all())
    assert row.answer["launches"] == counted == Launch.objects.filter(runs__commit__sha__in=row.shas).count()
