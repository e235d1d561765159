"""One run: samples, environment, health, log; marked invalid or measured again from here."""

from __future__ import annotations

from functools import partial

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from perfdb.models import Job, JobState, Project, Run
from perfdb.services import reproduce, runs, schedule
from perfdb.tasks import analyse_series, send_jobs_later
from perfdb.web import asked, charts
from perfdb.web.access import may_operate, operable, readable


def _run(uuid: object) -> Run:
    return get_object_or_404(
        Run.objects.select_related(
            "case__benchmark__project", "commit", "branch", "pool", "launch__worker", "environment__klass", "build",
            "trace_summary",
        ),
        uuid=uuid,
    )  # fmt: skip


def run(request: HttpRequest, uuid: object) -> HttpResponse:
    row = _run(uuid)
    project = readable(request, row.case.benchmark.project)
    samples = {sample.metric_id: sample for sample in row.samples.all()}
    metrics = []
    for measured in row.measurements.select_related("metric").order_by("metric__name"):
        sample = samples.get(measured.metric_id)
        chart = (
            charts.samples_chart(sample.values, measured.metric.unit, measured.metric.name)
            if sample and len(sample.values) > 1
            else None
        )
        metrics.append({"row": measured, "metric": measured.metric, "chart": chart})
    health = row.launch.health or {}
    context = {
        "project": project,
        "run": row,
        "metrics": metrics,
        "charts": [m["chart"] for m in metrics if m["chart"]],
        "environment": {
            "separates series": row.environment.klass.fields,
            "marks a boundary": row.environment.boundary,
            "only informs": row.launch.info,
        },
        "health": {key: health.get(key) or {} for key in ("before", "during", "after", "sentinel")},
        "violations": health.get("violations") or [],
        "command": reproduce.run_command(row),
        "operate": may_operate(request, project),
    }
    return render(request, "web/run.html", context)


@require_POST
def mark(request: HttpRequest, uuid: object) -> HttpResponse:
    """Mark a run invalid with a reason, or take the mark back (empty reason); its series are analysed again."""
    row = _run(uuid)
    operable(request, row.case.benchmark.project)
    reason = asked.text(request.POST, "reason", limit=2000)
    take_back = "take_back" in request.POST
    if not reason and not take_back:
        messages.error(request, "Say why the run is invalid.")
        return redirect("web:run", uuid)
    with transaction.atomic():
        series_ids = runs.mark(row, reason="" if take_back else f"{reason} ({request.user.get_username()})")
        transaction.on_commit(partial(analyse_series.delay, sorted(series_ids)))
    messages.success(
        request, "The mark was taken back." if take_back else "The run is marked invalid and kept."
    )
    return redirect("web:run", uuid)


@require_POST
def again(request: HttpRequest, uuid: object) -> HttpResponse:
    """Measure this case at this commit again."""
    row = _run(uuid)
    project = row.case.benchmark.project
    operable(request, project)
    if row.commit is None or not project.url:
        messages.error(request, "perfdb measures only commits of a tracked repository.")
        return redirect("web:run", uuid)
    with transaction.atomic():
        job = schedule.request(
            row.branch,
            row.commit,
            pool=row.pool,
            cases=[row.case],
            launches=5,
            priority=schedule.PRIORITY["asked"],
        )
        send_jobs_later([job.pk])
    messages.success(request, "5 launches are asked for.")
    return redirect("web:jobs", project.slug)


def jobs(request: HttpRequest, slug: str) -> HttpResponse:
    project = readable(request, get_object_or_404(Project, slug=slug))
    rows = Job.objects.filter(project=project).select_related("commit", "worker", "pool", "branch")
    state = asked.text(request.GET, "state")
    if state in JobState.values:
        rows = rows.filter(state=state)
    context = {
        "project": project, "jobs": rows.order_by("-pk")[:200], "state": state,
        "operate": may_operate(request, project),
    }  # fmt: skip
    return render(request, "web/jobs.html", context)


@require_POST
def job_action(request: HttpRequest, uuid: object) -> HttpResponse:
    """Retry or cancel a job."""
    row = get_object_or_404(Job.objects.select_related("project"), uuid=uuid)
    operable(request, row.project)
    with transaction.atomic():
        if request.POST.get("action") == "retry":
            schedule.retry(row)
            send_jobs_later([row.pk])
        else:
            schedule.cancel(row)
    return redirect("web:jobs", row.project.slug)
