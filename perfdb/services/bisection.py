"""Bisections as rows: rebuild the pure search from its observed probes, ask for the next, record the answer.

Nothing of the search is kept in memory or in the broker. `advance` may be called at any time, by anyone, any number
of times: it collects finished probe jobs, replays everything observed in order, and creates only probes that are
not already asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from django.db import transaction
from django.utils import timezone

from perfdb.models import (
    Alert,
    AlertState,
    Bisection,
    BisectionState,
    BranchCommit,
    Build,
    BuildStatus,
    Change,
    Commit,
    Job,
    JobKind,
    Measurement,
    Probe,
    RunStatus,
    Series,
)
from perfdb.services import alerts, schedule
from perfdb.services.detect import LASTING
from perfdb.services.series import histories
from perfdb.stats.bisect import Answer, Search

GOOD_MARGIN, BAD_MARGIN = 2, 1
"""Commits that are searched beyond the range that the detector allows."""
HISTORY_COMMITS = 60
_RATE_NAMES = ("rate",)


class BisectionError(ValueError):
    """This cannot be bisected; the message says why."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """What `advance` did. `jobs` need a message; `finished` is True once, when the answer was recorded.

    alert_id: the alert that learned something worth telling (a culprit, a range, a recovery), None otherwise.
    """

    jobs: tuple[int, ...]
    finished: bool
    alert_id: int | None = None
    recovered: bool = False


def start_for_alert(
    alert: Alert, *, who: str = alerts.SYSTEM, max_cost: float | None = None
) -> Bisection | None:
    """Bisect the alert's clearest cell unless a bisection of it is under way. None where it has no active change."""
    changes = [
        change
        for change in alert.changes.filter(active=True).select_related("series__metric", "series__branch")
        if change.kind in [str(kind) for kind in LASTING]
    ]
    if not changes:
        return None
    running = alert.bisections.filter(state__in=[BisectionState.QUEUED, BisectionState.RUNNING]).first()
    if running:
        return running
    change = min(changes, key=lambda c: (c.bad_position - c.good_position, -min(alerts.size(c), 10.0), c.pk))
    return start(change, alert=alert, who=who, max_cost=max_cost)


@transaction.atomic
def start(
    change: Change, *, alert: Alert | None = None, who: str = alerts.SYSTEM, max_cost: float | None = None
) -> Bisection:
    """Search the commits around a change. What is already measured there is used. Raises BisectionError."""
    series = change.series
    places = list(
        BranchCommit.objects.filter(
            branch=series.branch,
            position__gte=max(0, change.good_position - GOOD_MARGIN),
            position__lte=change.bad_position + BAD_MARGIN,
        ).select_related("commit")
    )
    if len(places) < 2:
        raise BisectionError("the range holds fewer than two commits of the branch")
    bisection = Bisection.objects.create(
        alert=alert,
        series=series,
        shas=[place.commit.sha for place in places],
        response=_response(series, change),
        threshold=_threshold(change),
        alert_ratio=_ratio(change),
        max_cost=max_cost,
        seed=change.pk,
        started_by=who,
    )
    _reuse(bisection, series, [place.position for place in places])
    return bisection


def _response(series: Series, change: Change) -> str:
    """rate for shares of failures; pass_fail where a level has no logarithm (a counter that starts at 0)."""
    if series.metric.statistic in _RATE_NAMES and series.metric.unit == "ratio":
        return "rate"
    before, after = change.verdict.get("before"), change.verdict.get("after")
    return (
        "pass_fail" if (before is not None and before <= 0) or (after is not None and after <= 0) else "level"
    )


def _threshold(change: Change) -> float | None:
    """Half-way between both levels; None where one of them is a failed percentile."""
    before, after = change.verdict.get("before"), change.verdict.get("after")
    return None if before is None or after is None else (before + after) / 2


def observation(bisection: Bisection, values: Sequence[float]) -> list[float]:
    """Launch values as the search takes them: for pass_fail 1 where a launch is beyond the threshold."""
    if bisection.response != "pass_fail" or bisection.threshold is None:
        return list(values)
    worse_above = bisection.alert_ratio > 1
    return [float((value > bisection.threshold) is worse_above) for value in values]


def _ratio(change: Change) -> float:
    """The alert's size; a change from nothing counts as a large one in its direction."""
    if change.ratio and change.ratio > 0 and change.ratio != 1.0:
        return change.ratio
    before, after = change.verdict.get("before") or 0.0, change.verdict.get("after") or 0.0
    return 10.0 if after >= before else 0.1


def _reuse(bisection: Bisection, series: Series, positions: Sequence[int]) -> None:
    """Launches that the commits of the range already have become the first observations."""
    history = histories([series.pk])[series.pk]
    order = 0
    for index, position in enumerate(positions):
        point = history.at(position)
        values = [value for value in point.values if value is not None] if point else []
        if values:
            Probe.objects.create(
                bisection=bisection, order=order, index=index, launches=len(values), observed=True, values=values,
                reason="measured before the search",
            )  # fmt: skip
            order += 1
    failed = Build.objects.filter(
        commit__project=series.case.benchmark.project,
        commit__sha__in=bisection.shas,
        status__in=[BuildStatus.FAILED, BuildStatus.TIMEOUT],
    ).select_related("commit")
    for build in failed:
        Probe.objects.create(
            bisection=bisection, order=order, index=bisection.shas.index(build.commit.sha), launches=0,
            observed=True, unbuildable=True, reason=f"build {BuildStatus(build.status).label}",
        )  # fmt: skip
        order += 1


def search_of(bisection: Bisection) -> Search:
    """The pure search with everything observed so far replayed in order."""
    series = bisection.series
    built = Build.objects.filter(
        commit__project=series.case.benchmark.project, commit__sha__in=bisection.shas, status=BuildStatus.OK
    ).values_list("commit__sha", flat=True)
    search = Search(
        len(bisection.shas) - 1,
        alert_ratio=bisection.alert_ratio,
        response=bisection.response,  # type: ignore[arg-type]  # one of the three by construction
        history=_noise_history(bisection) if bisection.response == "level" else None,
        built=sorted(bisection.shas.index(sha) for sha in set(built)),
        max_cost=bisection.max_cost,
        seed=bisection.seed,
    )
    for probe in bisection.probes.filter(observed=True).order_by("order"):
        search.observe(probe.index, None if probe.unbuildable else observation(bisection, probe.values or []))
    return search


def _noise_history(bisection: Bisection) -> list[float] | None:
    """Launches of the level before the range: what the series' noise looked like without the change."""
    series = bisection.series
    first = BranchCommit.objects.filter(branch=series.branch, commit__sha=bisection.shas[0]).first()
    if first is None:
        return None
    earlier = (
        series.changes.filter(active=True, bad_position__lte=first.position).order_by("-bad_position").first()
    )
    since = max(earlier.bad_position if earlier else 0, first.position - HISTORY_COMMITS)
    points = [p for p in histories([series.pk], since=since)[series.pk].points if p.position < first.position]
    return [value for point in points for value in point.values if value is not None] or None


@transaction.atomic
def advance(bisection_id: int, *, workers: int = 1) -> Advanced:
    """Collect finished probes, ask for the next ones or record the answer."""
    bisection = (
        Bisection.objects.select_for_update(of=("self",))
        .select_related(
            "series__case__benchmark__project", "series__metric", "series__branch", "series__pool"
        )
        .get(pk=bisection_id)
    )
    if bisection.state in (BisectionState.DONE, BisectionState.CANCELLED):
        return Advanced((), finished=False)
    for probe in bisection.probes.filter(observed=False).select_related("job"):
        _collect(bisection, probe)
    search = search_of(bisection)
    wanted = search.next(k=workers)
    waiting = list(bisection.probes.filter(observed=False))
    bisection.answer = answer_json(search)
    if not wanted and not waiting:
        bisection.state = BisectionState.DONE
        bisection.finished_at = timezone.now()
        bisection.save()
        _conclude(bisection, search.answer)
        kind = search.answer.kind
        told = kind in ("culprit", "range", "several", "not_reproduced", "recovered")
        return Advanced(
            (),
            finished=True,
            alert_id=bisection.alert_id if told else None,
            recovered=kind in ("not_reproduced", "recovered"),
        )
    bisection.state = BisectionState.RUNNING
    bisection.save()
    jobs = [] if waiting else [_ask(bisection, probe.commit, probe.launches) for probe in wanted]
    return Advanced(tuple(job.pk for job in jobs), finished=False)


def answer_json(search: Search) -> dict[str, object]:
    """The answer and the posterior as the page shows them."""
    return {**asdict(search.answer), "posterior": asdict(search.posterior()) if search.posterior() else None}


def _ask(bisection: Bisection, index: int, launches: int) -> Job:
    series = bisection.series
    commit = Commit.objects.get(project=series.case.benchmark.project, sha=bisection.shas[index])
    job = schedule.request(
        series.branch,
        commit,
        pool=series.pool,
        kind=JobKind.PROBE,
        cases=[series.case],
        launches=launches,
        priority=schedule.PRIORITY["probe"],
    )
    order = bisection.probes.count()
    Probe.objects.create(bisection=bisection, order=order, index=index, launches=launches, job=job)
    return job


def _collect(bisection: Bisection, probe: Probe) -> None:
    """Turn a finished probe job into an observation."""
    job = probe.job
    if job is None or not job.is_finished:
        return
    values, reason = _values(bisection.series, job)
    probe.observed = True
    probe.values = values or None
    probe.unbuildable = not values
    probe.reason = reason
    probe.save()


def _values(series: Series, job: Job) -> tuple[list[float], str]:
    """Launch values of a probe job, or none and the reason. A timeout counts as slow; a failed build as nothing."""
    runs = list(
        job.launch_set.filter(runs__case=series.case).values_list("runs__id", "runs__status", "runs__reason")
    )
    if not runs:
        return [], job.reason or "nothing was measured"
    found = Measurement.objects.filter(
        run_id__in=[run_id for run_id, _, _ in runs], metric=series.metric, usable=True, value__isnull=False
    ).order_by("run_id")
    values = [float(row.value) for row in found if row.value is not None]
    slow = [reason for _, status, reason in runs if status == RunStatus.TIMEOUT]
    if slow and series.metric.lower_is_better:
        values += [_timeout_s(series)] * len(slow)
    failed = [status for _, status, _ in runs if status in (RunStatus.OOM, RunStatus.ERROR)]
    if series.metric.name in ("oom_rate", "error_rate"):
        values += [1.0] * len(failed)
    reasons = "; ".join(sorted({reason for _, _, reason in runs if reason}))
    return values, reasons


def _timeout_s(series: Series) -> float:
    return float(series.case.benchmark.definition.get("timeout_s", 120.0))


def _conclude(bisection: Bisection, answer: Answer) -> None:
    """Write the answer into the alert: a culprit only where one commit was named."""
    alert = bisection.alert
    if alert is None:
        return
    shas = [bisection.shas[index] for index in answer.commits]
    if answer.kind == "culprit" and len(shas) == 1:
        alert.culprit = Commit.objects.get(project=alert.project, sha=shas[0])
        alert.culprit_probability = min(1.0, max(0.0, answer.probability))
    alert.conclusion = conclusion(bisection, answer)
    alert.save()
    if answer.kind in ("culprit", "range", "several") and alert.state == AlertState.NEW:
        alerts.move(alert, AlertState.CONFIRMED, who=alerts.SYSTEM, why=alert.conclusion)
    elif answer.kind in ("not_reproduced", "recovered") and alert.is_open:
        alerts.move(alert, AlertState.RECOVERED, who=alerts.SYSTEM, why=alert.conclusion)
    else:
        alerts.comment(alert, alert.conclusion, who=alerts.SYSTEM)


def conclusion(bisection: Bisection, answer: Answer) -> str:
    """One sentence for people."""
    shas = ", ".join(bisection.shas[index][:10] for index in answer.commits[:8])
    spent = f"{answer.launches} launches, cost {answer.cost:.0f}"
    words = {
        "culprit": f"first bad commit {shas} (probability {answer.probability:.3f})",
        "range": f"the first bad commit is one of {shas}",
        "several": f"more than one commit changed it: {shas}",
        "not_reproduced": "could not reproduce the change",
        "recovered": "the level recovered inside the range",
        "outside": "the change lies outside the range",
        "inconclusive": "inconclusive",
        "running": "still searching",
    }
    return f"{words[answer.kind]}; {spent}. {answer.reason}".strip()


def cancel(bisection: Bisection, *, who: str) -> bool:
    """Stop a search; its probes that still wait are cancelled, what was measured stays."""
    done = Bisection.objects.filter(
        pk=bisection.pk, state__in=[BisectionState.QUEUED, BisectionState.RUNNING]
    ).update(state=BisectionState.CANCELLED, finished_at=timezone.now())
    for probe in bisection.probes.filter(observed=False, job__isnull=False).select_related("job"):
        if probe.job:
            schedule.cancel(probe.job)
    if done and bisection.alert:
        alerts.comment(bisection.alert, "bisection cancelled", who=who)
    return done == 1


def of_job(job: Job) -> list[int]:
    """Bisections that wait for this job."""
    return list(
        Bisection.objects.filter(
            probes__job=job, state__in=[BisectionState.QUEUED, BisectionState.RUNNING]
        ).values_list("pk", flat=True)
    )


def unfinished() -> list[int]:
    """Bisections to look after: the beat advances them, so that no lost message stops a search."""
    return list(
        Bisection.objects.filter(state__in=[BisectionState.QUEUED, BisectionState.RUNNING]).values_list(
            "pk", flat=True
        )
    )
