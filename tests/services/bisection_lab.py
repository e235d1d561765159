"""A branch whose commits behave as a test says, and a worker that plays them: real rows, no runner."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from perfdb.models import (
    Alert,
    Bisection,
    Branch,
    Build,
    BuildStatus,
    Change,
    Commit,
    Job,
    JobState,
    Project,
    Series,
    Worker,
)
from perfdb.services import bisection, catalogue, ingest, schedule
from perfdb.services.batch import Batch, CommitRow, EnvironmentRow, LaunchRow, MetricRow, RunRow
from perfdb.services.placing import place

Level = float | Literal["X", "T"]
"""Seconds, X: does not build, T: runs into its limit."""
TIMEOUT_S = 30.0
BEFORE = 12


@dataclass
class Lab:
    """`levels` by SHA; commits that it lacks are at `base`."""

    branch: Branch
    worker: Worker
    levels: dict[str, Level] = field(default_factory=dict)
    base: float = 10.0
    noise: float = 0.01
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(11))

    @property
    def project(self) -> Project:
        return self.branch.project

    @property
    def series(self) -> Series:
        return Series.objects.get(branch=self.branch)

    def measure(self, sha: str, launches: int, job: Job | None = None) -> None:
        level = self.levels.get(sha, self.base)
        assert level != "X"
        self.store(sha, [self._run(level) for _ in range(launches)], job)

    def store(self, sha: str, runs: Sequence[RunRow], job: Job | None = None) -> None:
        launches = [
            LaunchRow(id=uuid.uuid4(), environment=EnvironmentRow(klass={"cpu": "x"}), runs=[run])
            for run in runs
        ]
        ingest.ingest(
            self.project, Batch(launches=launches, commit=CommitRow(sha=sha)), job=job, branch=self.branch
        )

    def _run(self, level: float | str) -> RunRow:
        if level == "T":
            return RunRow(benchmark="work", metrics=[], status="timeout", reason="ran into its limit")
        value = float(level) * float(np.exp(self.rng.normal(0, self.noise)))
        return RunRow(benchmark="work", metrics=[MetricRow("time", "s", [value], lower_is_better=True)])

    def serve(self) -> Job:
        """One claimed job, played and finished."""
        job = schedule.claim(self.worker)
        assert job is not None
        sha = job.commit.sha
        if self.levels.get(sha) == "X":
            Build.objects.get_or_create(
                commit=job.commit,
                command_hash="b",
                defaults={"command": "build", "status": BuildStatus.FAILED},
            )
            schedule.finish(job, JobState.FAILED, reason="the build failed")
            return job
        self.measure(sha, job.launches or 1, job)
        schedule.finish(job, JobState.DONE)
        return job

    def alert(self, good: int, bad: int, *, ratio: float) -> Alert:
        """A regression between two positions as the detector would have left it."""
        alert = Alert.objects.create(
            project=self.project, branch=self.branch, kind="regression", title="slower", good_position=good,
            bad_position=bad,
        )  # fmt: skip
        Change.objects.create(
            series=self.series, alert=alert, kind="step", good_position=good, bad_position=bad, ratio=ratio,
            direction="regressed", verdict={"before": self.base, "after": self.base * ratio},
        )  # fmt: skip
        return alert

    def run(self, started: Bisection) -> Bisection:
        """Advance and serve until this bisection and every search of a side below it have ended."""
        todo = [started.pk]
        while todo:
            done = bisection.advance(todo[0])
            if done.finished:
                todo = [
                    *todo[1:],
                    *(pk for pk in done.next_ids if Bisection.objects.get(pk=pk).parent_id == todo[0]),
                ]
            elif schedule.next_job(self.worker) is not None:
                self.serve()
        return Bisection.objects.get(pk=started.pk)


def straight(levels: Sequence[Level], *, measured: Sequence[int] | None = None, slug: str = "lab") -> Lab:
    """A project without a repository: BEFORE commits at the base level, then one commit for each level."""
    project = Project.objects.create(slug=slug, name=slug)
    shas = [f"{number:040x}" for number in range(1, BEFORE + len(levels) + 1)]
    for number, sha in enumerate(shas):
        Commit.objects.create(project=project, sha=sha, parents=shas[number - 1 : number] if number else [])
    branch = Branch.objects.create(project=project, name="main", kind="trunk")
    place(branch, shas)
    known = dict(zip(shas[BEFORE:], levels, strict=True))
    return prepared(branch, shas[: BEFORE - 3], known)


def prepared(branch: Branch, history: Sequence[str], levels: Mapping[str, Level]) -> Lab:
    """A lab whose `history` has four launches a commit, so that the noise is known."""
    worker, _ = Worker.objects.get_or_create(name="w", defaults={"pool": catalogue.pool("default")})
    lab = Lab(branch, worker, dict(levels))
    for sha in history:
        lab.measure(sha, 4)
    benchmark = lab.series.case.benchmark
    benchmark.definition = {"timeout_s": TIMEOUT_S}
    benchmark.save()
    return lab
