"""Bisections as rows: rebuild the pure search from its observed probes, ask for the next, record the answer.

Nothing of the search is kept in memory or in the broker. `advance` may be called at any time, by anyone, any number
of times: it collects finished probe jobs, replays everything observed in order, and creates only probes that are
not already asked for. Each call is one transaction: what died half-way never happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from django.db import transaction
from django.utils import timezone

from perfdb.models import (
    Alert,
    Bisection,
    BisectionState,
    BranchCommit,
    Build,
    BuildStatus,
    Change,
    Job,
    Series,
)
from perfdb.services import alerts, schedule
from perfdb.services import bisection_probes as probing
from perfdb.services import bisection_report as report
from perfdb.services.bisection_merges import descend, merge_entered
from perfdb.services.bisection_probes import observation
from perfdb.services.bisection_queue import WAITING, held_back, is_wanted, unfinished
from perfdb.services.bisection_report import conclusion
from perfdb.services.detect import LASTING
from perfdb.stats.bisect import Search

__all__ = [
    "Advanced", "BisectionError", "advance", "cancel", "conclusion", "is_wanted", "observation", "of_job",
    "search_of", "start", "start_between", "start_for_alert", "unfinished",
]  # fmt: skip

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
    next_ids: bisections that may go on because this one ended: the search of a merge's side, or those that waited.
    """

    jobs: tuple[int, ...]
    finished: bool
    alert_id: int | None = None
    recovered: bool = False
    next_ids: tuple[int, ...] = ()


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
    return _create(
        series,
        [place.commit.sha for place in places],
        alert=alert,
        response=_response(series, change),
        threshold=_threshold(change),
        alert_ratio=_ratio(change),
        max_cost=max_cost,
        seed=change.pk,
        who=who,
    )


@transaction.atomic
def start_between(
    series: Series, good: str, bad: str, *, ratio: float, who: str, max_cost: float | None = None
) -> Bisection:
    """Search the commits of the series' branch from `good` to `bad` (SHAs). Raises BisectionError."""
    where = dict(
        series.branch.places.filter(commit__sha__in=[good, bad]).values_list("commit__sha", "position")
    )
    for sha in (good, bad):
        if sha not in where:
            raise BisectionError(f"{sha[:10]} is no commit of the branch {series.branch.name}")
    if where[good] >= where[bad]:
        same = (
            "the good and the bad commit are the same"
            if good == bad
            else "the good commit is not before the bad"
        )
        raise BisectionError(same)
    if not ratio > 0 or ratio == 1.0:
        raise BisectionError(f"ratio: bad over good is a positive number other than 1, got {ratio:g}")
    places = series.branch.places.filter(position__range=(where[good], where[bad])).order_by("position")
    shas = list(places.values_list("commit__sha", flat=True))
    response = "rate" if _is_rate(series) else "level"
    return _create(
        series, shas, alert=None, response=response, threshold=None, alert_ratio=ratio, max_cost=max_cost, seed=0,
        who=who,
    )  # fmt: skip


def _create(
    series: Series,
    shas: Sequence[str],
    *,
    alert: Alert | None,
    response: str,
    threshold: float | None,
    alert_ratio: float,
    max_cost: float | None,
    seed: int,
    who: str,
) -> Bisection:
    bisection = Bisection.objects.create(
        alert=alert,
        series=series,
        shas=list(shas),
        response=response,
        threshold=threshold,
        alert_ratio=alert_ratio,
        max_cost=max_cost,
        seed=seed,
        started_by=who,
        noise_history=probing.noise_history(series, shas, commits=HISTORY_COMMITS)
        if response == "level"
        else [],
    )
    probing.reuse(bisection)
    return bisection


def _is_rate(series: Series) -> bool:
    return series.metric.statistic in _RATE_NAMES and series.metric.unit == "ratio"


def _response(series: Series, change: Change) -> str:
    """rate for shares of failures; pass_fail where a level has no logarithm (a counter that starts at 0)."""
    if _is_rate(series):
        return "rate"
    before, after = change.verdict.get("before"), change.verdict.get("after")
    return (
        "pass_fail" if (before is not None and before <= 0) or (after is not None and after <= 0) else "level"
    )


def _threshold(change: Change) -> float | None:
    """Half-way between both levels; None where one of them is a failed percentile."""
    before, after = change.verdict.get("before"), change.verdict.get("after")
    return None if before is None or after is None else (before + after) / 2


def _ratio(change: Change) -> float:
    """The alert's size; a change from nothing counts as a large one in its direction."""
    if change.ratio and change.ratio > 0 and change.ratio != 1.0:
        return change.ratio
    before, after = change.verdict.get("before") or 0.0, change.verdict.get("after") or 0.0
    return 10.0 if after >= before else 0.1


def search_of(bisection: Bisection) -> Search:
    """The pure search with everything observed so far replayed in order; nothing but the rows enters it."""
    built = Build.objects.filter(
        commit__project=bisection.series.case.benchmark.project,
        commit__sha__in=bisection.shas,
        status=BuildStatus.OK,
        built_at__lt=bisection.created_at,  # its own builds are its cost
    ).values_list("commit__sha", flat=True)
    search = Search(
        len(bisection.shas) - 1,
        # As 0 and 1 the bad side is the higher one, whichever way the metric itself goes.
        alert_ratio=10.0 if bisection.response == "pass_fail" else bisection.alert_ratio,
        response=bisection.response,  # type: ignore[arg-type]  # one of the three by construction
        history=bisection.noise_history or None,
        built=sorted(bisection.shas.index(sha) for sha in set(built)),
        max_cost=bisection.max_cost,
        seed=bisection.seed,
    )
    probes = list(bisection.probes.filter(observed=True).order_by("order"))
    # A commit that was measured once and can no longer be is one that cannot be tested: the search takes one or other.
    untestable = {probe.index for probe in probes if probe.unbuildable}
    for probe in probes:
        values = None if probe.index in untestable else observation(bisection, probe.values or [])
        search.observe(probe.index, values)
    return search


@transaction.atomic
def advance(bisection_id: int, *, workers: int = 1) -> Advanced:
    """Collect finished probes, ask for the next ones or record the answer."""
    bisection = (
        Bisection.objects.select_for_update(of=("self",))
        .select_related(
            "series__case__benchmark__project",
            "series__metric",
            "series__branch",
            "series__pool",
            "worker",
            "alert",
            "parent",
        )
        .get(pk=bisection_id)
    )
    if bisection.state in (BisectionState.DONE, BisectionState.CANCELLED):
        return Advanced((), finished=False)
    waiting = list(bisection.probes.filter(observed=False).select_related("job__worker"))
    again = [job for probe in waiting if (job := probing.collect(bisection, probe))]
    pending = any(not probe.observed for probe in waiting)
    search = search_of(bisection)
    wanted = search.next(k=workers)
    bisection.answer = answer_json(search)
    if not wanted and not pending:
        return _finish(bisection, search)
    jobs = again
    if not pending:
        why = held_back(bisection)
        if why:
            bisection.answer[WAITING] = why
        else:
            bisection.state = BisectionState.RUNNING
            jobs = [probing.ask(bisection, probe.commit, probe.launches) for probe in wanted]
    bisection.save()
    return Advanced(tuple(job.pk for job in jobs), finished=False)


def _finish(bisection: Bisection, search: Search) -> Advanced:
    """Record the answer; a named merge is searched on before anybody is told."""
    answer = search.answer
    bisection.state = BisectionState.DONE
    bisection.finished_at = timezone.now()
    bisection.save()
    follow, merged = descend(bisection, answer)
    said = [*report.remarks(bisection, search), *([merged] if merged else [])]
    bisection.answer |= {
        "reason": " ".join([answer.reason, *said]).strip(),
        "off_branch": report.off_branch(bisection),
        "inside": follow.pk if follow else None,
    }
    bisection.save()
    text = " ".join([conclusion(bisection, answer), *said])
    merge = merge_entered(bisection)
    report.tell_alert(bisection, answer, report.inside_merge(merge, answer, text) if merge else text)
    recovered = answer.kind in ("not_reproduced", "recovered") and not merge
    told = follow is None and (bool(merge) or recovered or answer.kind in report.NAMING)
    return Advanced(
        (),
        finished=True,
        alert_id=bisection.alert_id if told else None,
        recovered=recovered,
        next_ids=(follow.pk,) if follow else tuple(unfinished()),
    )


def answer_json(search: Search) -> dict[str, object]:
    """The answer and the posterior as the page shows them."""
    return {**asdict(search.answer), "posterior": asdict(search.posterior()) if search.posterior() else None}


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
