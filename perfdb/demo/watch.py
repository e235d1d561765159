"""Watching the demo from outside: how far it is, when nothing more will happen, what was found."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

import redis
from django.conf import settings

from perfdb.demo.history import Planted
from perfdb.models import (
    Alert,
    AlertKind,
    AlertState,
    Bisection,
    BisectionState,
    Job,
    JobKind,
    JobState,
    Project,
)

QUIET_S = 6.0
"""Nothing queued, running or waiting in the broker for this long: the demo is over."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Jobs of the history done and asked for, later ones (confirmations, probes), what runs now."""

    done: int
    total: int
    extra: int
    now: str
    busy: bool


def progress(project: Project) -> Progress:
    jobs = list(Job.objects.filter(project=project).select_related("commit").order_by("-started_at"))
    history = [job for job in jobs if job.kind == JobKind.MEASURE]
    running = next((job for job in jobs if job.state == JobState.RUNNING), None)
    searching = Bisection.objects.filter(
        series__case__benchmark__project=project, state__in=[BisectionState.QUEUED, BisectionState.RUNNING]
    ).exists()
    return Progress(
        done=sum(job.is_finished for job in history),
        total=len(history),
        extra=len(jobs) - len(history),
        now=_now(running),
        busy=any(not job.is_finished for job in jobs) or searching or broker_busy(),
    )


def _now(job: Job | None) -> str:
    if job is None:
        return "analysing"
    names = ", ".join(job.progress.get("cases", [])) or "building"
    launch, launches = job.progress.get("launch"), job.progress.get("launches")
    part = f" (launch {launch} of {launches})" if launch else ""
    why = "" if job.kind == JobKind.MEASURE else f" [{job.get_kind_display()}]"
    return f"{job.commit.short} {names}{part}{why}"


def broker_busy() -> bool:
    """Whether an analysis message waits or is being worked on."""
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        return bool(client.llen("analysis"))


class Reporter:
    """One line that is rewritten on a terminal, a line every few seconds elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.started = time.monotonic()
        self._last = 0.0

    def show(self, state: Progress, found: int) -> None:
        spent = time.monotonic() - self.started
        left = spent / state.done * (state.total - state.done) if state.done else None
        text = (
            f"{_clock(spent)}  {state.done}/{state.total} commits"
            + (f", {state.extra} more measurements asked for" if state.extra else "")
            + f", {found} alert{'s' if found != 1 else ''}"
            + (f", about {_clock(left)} left" if left and state.done < state.total else "")
            + f"  {state.now}"
        )
        if self.out.isatty():
            self.out.write(f"\r\x1b[K{text[:150]}")
            self.out.flush()
        elif time.monotonic() - self._last > 10:
            self._last = time.monotonic()
            self.out.write(text + "\n")
            self.out.flush()

    def end(self) -> None:
        if self.out.isatty():
            self.out.write("\n")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def wait(project: Project, *, limit_s: float, out: TextIO = sys.stderr) -> bool:
    """Watch until nothing more will happen; False when `limit_s` ended first."""
    reporter = Reporter(out)
    quiet_since: float | None = None
    while time.monotonic() - reporter.started < limit_s:
        state = progress(project)
        reporter.show(state, Alert.objects.filter(project=project, kind=AlertKind.REGRESSION).count())
        if state.busy:
            quiet_since = None
        else:
            quiet_since = quiet_since or time.monotonic()
            if time.monotonic() - quiet_since > QUIET_S:
                reporter.end()
                return True
        time.sleep(1.0)
    reporter.end()
    return False


@dataclass(frozen=True, slots=True)
class Row:
    """One planted thing against what was found."""

    planted: str
    sha: str
    found: str
    right: bool


@dataclass(frozen=True, slots=True)
class Report:
    """rows: planted against found. blamed: names given to commits where nothing slower was planted."""

    rows: tuple[Row, ...]
    blamed: tuple[str, ...]

    @property
    def right(self) -> bool:
        return all(row.right for row in self.rows) and not self.blamed


def report(project: Project, planted: Mapping[Planted, str]) -> Report:
    """Hold the alerts against the script. Only regressions can be right or wrong; the rest is told."""
    alerts = list(
        Alert.objects.filter(project=project, kind=AlertKind.REGRESSION)
        .exclude(state=AlertState.RECOVERED)
        .select_related("culprit")
    )
    culprits = {alert.culprit.sha: alert for alert in alerts if alert.culprit}
    rows = []
    for what in (Planted.SLOWER, Planted.OUT_OF_MEMORY):
        sha = planted[what]
        alert = culprits.get(sha)
        rows.append(Row(what, sha, alert.title if alert else "not named", alert is not None))
    wanted = {planted[Planted.SLOWER], planted[Planted.OUT_OF_MEMORY]}
    blamed = [
        f"{alert.culprit.short}: {alert.title}"
        for sha, alert in culprits.items()
        if sha not in wanted and alert.culprit
    ]
    blamed += [f"undecided: {alert.title}: {alert.conclusion}" for alert in alerts if alert.culprit is None]
    return Report(tuple(rows), tuple(blamed))
