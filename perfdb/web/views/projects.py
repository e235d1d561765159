"""Home, project, series and commit."""

from __future__ import annotations

from collections import defaultdict

from django.core.paginator import Paginator
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from perfdb.models import (
    UNPLACED,
    Alert,
    AlertState,
    BranchCommit,
    Build,
    Commit,
    Job,
    JobState,
    Measurement,
    Project,
    Run,
    Series,
)
from perfdb.services import access, comparing
from perfdb.services.decimate import thin
from perfdb.services.series import histories
from perfdb.web import asked, charts
from perfdb.web.access import may_operate, readable

SERIES_PER_PAGE = 50
COMMITS_SHOWN = 12
SPARK_POINTS = 40


def home(request: HttpRequest) -> HttpResponse:
    """The projects that this visitor may read."""
    projects = access.readable_projects(request.user)
    open_alerts = dict(
        Alert.objects.filter(project__in=projects, kind="regression", state__in=AlertState.open_states())
        .values_list("project_id")
        .annotate(n=Count("pk"))
        .values_list("project_id", "n")
    )
    rows = [{"project": project, "alerts": open_alerts.get(project.pk, 0)} for project in projects]
    return render(request, "web/home.html", {"rows": rows})


def _series_rows(series: list[Series]) -> list[dict[str, object]]:
    found = histories([row.pk for row in series])
    out = []
    for row in series:
        points = thin(found[row.pk].points, SPARK_POINTS)
        values = [charts.centre(point) for point in points]
        out.append({"series": row, "state": getattr(row, "state", None), "spark": values})
    return out


def project(request: HttpRequest, slug: str) -> HttpResponse:
    row = readable(request, get_object_or_404(Project, slug=slug))
    series = (
        Series.objects.filter(case__benchmark__project=row, branch__name=row.default_branch)
        .select_related("case__benchmark", "metric", "pool", "environment_class", "state")
        .order_by("case__benchmark__name", "case_id", "metric__name", "pk")
    )
    search = asked.text(request.GET, "q")
    if search:
        series = series.filter(Q(case__benchmark__name__icontains=search) | Q(metric__name__icontains=search))
    page = Paginator(series, SERIES_PER_PAGE).get_page(request.GET.get("page"))
    places = (
        BranchCommit.objects.filter(branch__project=row, branch__name=row.default_branch)
        .select_related("commit")
        .order_by("-position")[:COMMITS_SHOWN]
    )
    context = {
        "project": row,
        "page": page,
        "rows": _series_rows(list(page)),
        "search": search,
        "alerts": Alert.objects.filter(project=row, state__in=AlertState.open_states())[:8],
        "commits": _commit_rows(row, [place.commit for place in places]),
        # Running ones first, then the most urgent.
        "jobs": Job.objects.filter(project=row, state__in=[JobState.QUEUED, JobState.RUNNING])
        .select_related("commit")
        .order_by("-state", "-priority", "pk")[:8],
        "waiting": Job.objects.filter(project=row, state=JobState.QUEUED).count(),
        "failed": Job.objects.filter(project=row, state=JobState.FAILED).count(),
    }
    return render(request, "web/project.html", context)


def _commit_rows(project: Project, commits: list[Commit]) -> list[dict[str, object]]:
    """Commits with how many runs they have and how many of those failed, and their newest job."""
    counts = {
        commit_id: (total, bad)
        for commit_id, total, bad in Run.objects.filter(commit__in=commits)
        .values_list("commit_id")
        .annotate(total=Count("pk"), bad=Count("pk", filter=~Q(status=0)))
        .values_list("commit_id", "total", "bad")
    }
    jobs: dict[int, Job] = {}
    for job in Job.objects.filter(commit__in=commits).defer("log").order_by("pk"):
        jobs[job.commit_id] = job
    builds = {build.commit_id: build for build in Build.objects.filter(commit__in=commits).defer("log")}
    return [
        {
            "commit": commit,
            "runs": counts.get(commit.pk, (0, 0))[0],
            "bad": counts.get(commit.pk, (0, 0))[1],
            "job": jobs.get(commit.pk),
            "build": builds.get(commit.pk),
        }
        for commit in commits
    ]


def series(request: HttpRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(
        Series.objects.select_related(
            "case__benchmark__project", "metric", "pool", "environment_class", "branch", "state"
        ),
        pk=pk,
    )
    project = readable(request, row.case.benchmark.project)
    history = histories([row.pk])[row.pk]
    changes = list(row.changes.filter(active=True).select_related("alert"))
    shas = dict(
        BranchCommit.objects.filter(
            branch=row.branch, position__in=[c.bad_position for c in changes]
        ).values_list("position", "commit__sha")
    )
    unplaced = Measurement.objects.filter(series=row, position=UNPLACED).select_related("run", "commit")[:50]
    newest = history.points[-20:][::-1]
    commits = Commit.objects.in_bulk([point.commit_id for point in newest])
    context = {
        "project": project,
        "series": row,
        "state": getattr(row, "state", None),
        "chart": charts.series_chart(row, history, changes),
        "changes": [{"change": change, "sha": shas.get(change.bad_position)} for change in changes],
        "unplaced": unplaced,
        "total": len(history.points),
        "newest": [
            {"point": point, "commit": commits.get(point.commit_id), "value": charts.centre(point)}
            for point in newest
        ],
    }
    return render(request, "web/series.html", context)


def commit(request: HttpRequest, slug: str, sha: str) -> HttpResponse:
    owner = readable(request, get_object_or_404(Project, slug=slug))
    row = get_object_or_404(Commit, project=owner, sha=sha)
    place = row.places.select_related("branch").order_by("branch__kind").last()
    previous = _previous(place) if place else None
    cells = comparing.compare_commits(owner, [previous] if previous else [], row)
    runs = (
        Run.objects.filter(commit=row)
        .select_related("case__benchmark", "launch__worker")
        .order_by("case__benchmark__name", "case_id", "pk")
    )
    by_case: dict[int, list[Run]] = defaultdict(list)
    for run in runs[:2000]:
        by_case[run.case_id].append(run)
    page = Paginator(
        [cell for cell in cells if cell.head.measured or cell.head.failures], SERIES_PER_PAGE
    ).get_page(request.GET.get("page"))
    context = {
        "project": owner,
        "commit": row,
        "place": place,
        "previous": previous,
        "page": page,
        "groups": list(by_case.values()),
        "builds": row.builds.all(),
        "jobs": row.jobs.select_related("worker"),
        "alerts": Alert.objects.filter(culprit=row),
        "operate": may_operate(request, owner),
    }
    return render(request, "web/commit.html", context)


def _previous(place: BranchCommit) -> Commit | None:
    """The nearest commit before that has runs."""
    earlier = (
        BranchCommit.objects.filter(
            branch=place.branch, position__lt=place.position, commit__runs__isnull=False
        )
        .select_related("commit")
        .order_by("-position")
        .first()
    )
    return earlier.commit if earlier else None
