"""Alerts and bisections."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from perfdb.models import (
    Alert,
    AlertKind,
    AlertState,
    Bisection,
    BisectionState,
    BranchCommit,
    Change,
    Project,
)
from perfdb.services import alerts as service
from perfdb.services import bisection as bisecting
from perfdb.services import reproduce
from perfdb.tasks import advance_bisection
from perfdb.web import asked, charts
from perfdb.web.access import may_operate, operable, readable

PER_PAGE = 50
UNDER_WAY = [BisectionState.QUEUED, BisectionState.RUNNING]
MANUAL_STATES = [
    AlertState.CONFIRMED, AlertState.INVESTIGATING, AlertState.ACKNOWLEDGED, AlertState.FIXED, AlertState.WONTFIX,
    AlertState.INVALID, AlertState.DUPLICATE, AlertState.BACKED_OUT,
]  # fmt: skip


def alerts(request: HttpRequest, slug: str) -> HttpResponse:
    project = readable(request, get_object_or_404(Project, slug=slug))
    rows = Alert.objects.filter(project=project).select_related("culprit", "good", "bad", "branch", "owner")
    kind, state = asked.text(request.GET, "kind"), asked.text(request.GET, "state", "open")
    if kind in AlertKind.values:
        rows = rows.filter(kind=kind)
    if state == "open":
        rows = rows.filter(state__in=AlertState.open_states())
    elif state in AlertState.values:
        rows = rows.filter(state=state)
    context = {
        "project": project,
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
        "kinds": AlertKind.choices,
        "states": AlertState.choices,
        "kind": kind,
        "state": state,
        "manual": [(s.value, s.label) for s in MANUAL_STATES],
        "operate": may_operate(request, project),
    }
    return render(request, "web/alerts.html", context)


def _alert(pk: int) -> Alert:
    return get_object_or_404(
        Alert.objects.select_related("project", "branch", "good", "bad", "culprit", "owner"), pk=pk
    )


def alert(request: HttpRequest, pk: int) -> HttpResponse:
    row = _alert(pk)
    project = readable(request, row.project)
    changes = list(
        row.changes.select_related(
            "series__case__benchmark", "series__metric", "series__pool", "series__branch"
        )
    )
    changes.sort(key=service.size, reverse=True)
    active = [change for change in changes if change.active]
    between = BranchCommit.objects.none()
    if row.good_position is not None and row.bad_position is not None:
        between = BranchCommit.objects.filter(
            branch=row.branch, position__gt=row.good_position, position__lte=row.bad_position
        ).select_related("commit")
    context = {
        "project": project,
        "alert": row,
        "changes": changes[:200],
        "total": len(changes),
        "more": max(0, len(changes) - 200),
        "between": between[:50],
        "evidence": row.evidence.all(),
        "events": row.events.all(),
        "bisections": row.bisections.all(),
        "messages_sent": row.messages.all() if may_operate(request, project) else [],
        "command": reproduce.alert_command(row, active[0]) if active else "",
        "manual": [(s.value, s.label) for s in MANUAL_STATES],
        "operate": may_operate(request, project),
    }
    return render(request, "web/alert.html", context)


@require_POST
def act(request: HttpRequest, slug: str) -> HttpResponse:
    """Transition, comment or claim, for one alert or many."""
    project = get_object_or_404(Project, slug=slug)
    operable(request, project)
    ids = [int(value) for value in request.POST.getlist("alert") if value.isdigit()]
    rows = list(Alert.objects.filter(project=project, pk__in=ids))
    why, state = asked.text(request.POST, "why", limit=10_000), asked.text(request.POST, "state")
    who = request.user.get_username()
    with transaction.atomic():
        for row in rows:
            _act_on(row, request, state=state, why=why, who=who)
    if not rows:
        messages.error(request, "No alert was chosen.")
    return redirect("web:alert", rows[0].pk) if len(rows) == 1 else redirect("web:alerts", slug)


def _act_on(row: Alert, request: HttpRequest, *, state: str, why: str, who: str) -> None:
    if "claim" in request.POST and request.user.is_authenticated:
        row.owner_id = request.user.pk
        row.save(update_fields=["owner"])
        service.comment(row, "took it", who=who)
    if state in AlertState.values:
        service.move(row, state, who=who, why=why)
    elif why:
        service.comment(row, why, who=who)


@require_POST
def bisect(request: HttpRequest, pk: int) -> HttpResponse:
    """Start a bisection of the alert's clearest cell, or of the change named."""
    row = _alert(pk)
    operable(request, row.project)
    who = request.user.get_username()
    try:
        chosen: Any = request.POST.get("change", "")
        if chosen.isdigit():
            change = get_object_or_404(Change, pk=int(chosen), alert=row)
            under_way = row.bisections.filter(series=change.series_id, state__in=UNDER_WAY).first()
            started: Bisection | None = under_way or bisecting.start(change, alert=row, who=who)
        else:
            started = bisecting.start_for_alert(row, who=who)
    except bisecting.BisectionError as error:
        messages.error(request, str(error))
        return redirect("web:alert", pk)
    if started is None:
        messages.error(request, "No active change is left to bisect.")
        return redirect("web:alert", pk)
    advance_bisection.delay(started.pk)
    return redirect("web:bisection", started.pk)


def bisection(request: HttpRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(
        Bisection.objects.select_related(
            "series__case__benchmark__project", "series__metric", "series__pool", "series__branch", "alert"
        ),
        pk=pk,
    )
    project = readable(request, row.series.case.benchmark.project)
    probes = list(row.probes.select_related("job"))
    subjects = dict(project.commits.filter(sha__in=row.shas).values_list("sha", "subject"))
    posterior = (row.answer.get("posterior") or {}).get("commits") or []
    named = set(row.answer.get("commits") or [])
    strip = [
        {
            "index": index,
            "sha": sha,
            "subject": subjects.get(sha, ""),
            "probability": posterior[index] if index < len(posterior) else None,
            "probes": [probe for probe in probes if probe.index == index],
            "unbuildable": any(probe.unbuildable for probe in probes if probe.index == index),
            "named": index in named and row.answer.get("kind") in ("culprit", "range", "several"),
        }
        for index, sha in enumerate(row.shas)
    ]
    context = {
        "project": project,
        "bisection": row,
        "strip": strip,
        "chart": charts.bisection_chart(row.shas, row.answer, probes, unit=row.series.metric.unit),
        "conclusion": row.answer.get("reason", ""),
        "operate": may_operate(request, project),
    }
    return render(request, "web/bisection.html", context)


@require_POST
def bisection_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(
        Bisection.objects.select_related("series__case__benchmark__project", "alert"), pk=pk
    )
    project = row.series.case.benchmark.project
    operable(request, project)
    if not request.user.is_authenticated:
        raise PermissionDenied
    bisecting.cancel(row, who=request.user.get_username())
    return redirect("web:bisection", pk)
