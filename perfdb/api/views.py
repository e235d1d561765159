"""API v1: parse, call a service, respond. Each view names the scope that its caller needs."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import msgspec
from django.db import transaction
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from perfdb.api import render, schemas
from perfdb.api.access import caller, may, project_for, require
from perfdb.api.lists import PAGES
from perfdb.api.problems import Problem
from perfdb.api.requests import View, decoded, paged, parameter, text_parameter, whole_number
from perfdb.models import Alert, AlertState, ApiToken, Bisection, BranchKind, Job, Project, Run, Series
from perfdb.services import alerts, catalogue, comparing, gate, lineage, schedule
from perfdb.services import ingest as ingesting
from perfdb.services import series as series_service
from perfdb.services.batch import Batch
from perfdb.services.decimate import thin
from perfdb.tasks import analyse_series, send_jobs_later

_decode_batch = msgspec.json.Decoder(Batch).decode
_decode_project = msgspec.json.Decoder(schemas.NewProject).decode
_decode_transition = msgspec.json.Decoder(schemas.Transition).decode
_decode_job = msgspec.json.Decoder(schemas.NewJob).decode


class ProjectsView(View):
    """The projects that the caller may read."""

    @extend_schema(operation_id="projects_list", parameters=PAGES, responses={200: schemas.PROJECTS})
    def get(self, request: Request) -> Response:
        readable = [row.pk for row in Project.objects.all() if may(request, "read", row)]
        return paged(request, Project.objects.filter(pk__in=readable), "projects", render.project)

    @extend_schema(request=schemas.NEW_PROJECT, responses={201: schemas.PROJECT})
    def post(self, request: Request) -> Response:
        """Make a project that is fed by uploads. Scope: admin, of no single project."""
        require(request, "admin", None)
        wanted = decoded(request, _decode_project)
        project, made = Project.objects.get_or_create(
            slug=wanted.slug,
            defaults={
                "name": wanted.name or wanted.slug,
                "default_branch": wanted.default_branch,
                "public": wanted.public,
            },
        )
        if not made:
            raise Problem(f"project {wanted.slug!r} exists already", status_code=409)
        return Response(render.project(project), status=201)


class ProjectView(View):
    @extend_schema(responses={200: schemas.PROJECT})
    def get(self, request: Request, slug: str) -> Response:
        return Response(render.project(project_for(request, slug, "read")))


class UploadView(View):
    """Store launches of one commit. The same upload twice is stored once."""

    @extend_schema(request=schemas.BATCH, responses={201: schemas.INGESTED, 200: schemas.INGESTED})
    def post(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "upload")
        batch = decoded(request, _decode_batch)
        if isinstance(request.auth, ApiToken) and request.auth.fork:
            self._check_fork(project, batch)
        try:
            with transaction.atomic():
                result = ingesting.ingest(project, batch)
                if result.series_ids:
                    transaction.on_commit(partial(analyse_series.delay, sorted(result.series_ids)))
        except ingesting.BatchError as error:
            raise Problem(str(error), status_code=422) from None
        if result.rejected and not result.runs:
            raise Problem(
                "every run was rejected; nothing is stored",
                status_code=422,
                rejected=render.ingested(result)["rejected"],
            )
        return Response(render.ingested(result), status=201 if result.created else 200)

    def _check_fork(self, project: Project, batch: Batch) -> None:
        """A fork's token writes to pull-request branches only."""
        kind = BranchKind.PULL_REQUEST
        named = project.branches.filter(name=batch.branch or "", kind=kind).exists()
        if batch.pull_request is None and not named:
            raise Problem("a fork's token may upload to a pull request only", status_code=403)


class SeriesListView(View):
    @extend_schema(
        parameters=[
            OpenApiParameter("benchmark"),
            OpenApiParameter("metric"),
            OpenApiParameter("branch"),
            *PAGES,
        ],
        responses={200: schemas.SERIES_LIST},
    )
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "read")
        rows = Series.objects.filter(case__benchmark__project=project).select_related(
            "case__benchmark", "metric", "pool", "environment_class", "branch"
        )
        fields = {"benchmark": "case__benchmark__name", "metric": "metric__name", "branch": "branch__name"}
        for name, field in fields.items():
            if value := text_parameter(request, name):
                rows = rows.filter(**{field: value})
        return paged(request, rows, "series", schemas.series_head)


class SeriesView(View):
    """One series: every commit's launch values, thinned to `points` if asked, and the changes found."""

    @extend_schema(parameters=[OpenApiParameter("points", int)], responses={200: schemas.SERIES})
    def get(self, request: Request, pk: int) -> Response:
        row = (
            Series.objects.filter(pk=pk)
            .select_related("case__benchmark__project", "metric", "pool", "environment_class", "branch")
            .first()
        )
        if row is None or not may(request, "read", row.case.benchmark.project):
            raise Problem(f"no series {pk}", status_code=404)
        limit = whole_number(request, "points", least=2)
        history = series_service.history(row)
        points = thin(history.points, limit) if limit else history.points
        return Response(schemas.series_full(row, points, total=len(history.points)))


class CompareView(View):
    """Two commits, cell by cell."""

    @extend_schema(
        parameters=[OpenApiParameter("base", required=True), OpenApiParameter("head", required=True)],
        responses={200: schemas.COMPARED},
    )
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "read")
        try:
            base = lineage.resolve(project, parameter(request, "base"))
            head = lineage.resolve(project, parameter(request, "head"))
        except lineage.UnknownCommit as error:
            raise Problem(str(error), status_code=404) from None
        cells = comparing.compare_commits(project, [base], head)
        return Response(
            {
                "base": render.commit(base),
                "head": render.commit(head),
                "cells": [render.cell(cell) for cell in cells],
            }
        )


class GateView(View):
    """May this commit pass? 200 whatever the answer; `decision` and `exit_code` say it."""

    @extend_schema(
        parameters=[OpenApiParameter("base"), OpenApiParameter("head", required=True)],
        responses={200: schemas.GATE},
    )
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "read")
        base = text_parameter(request, "base") or project.default_branch
        try:
            answer = gate.gate(project, base=base, head=parameter(request, "head"))
        except lineage.UnknownCommit as error:
            raise Problem(str(error), status_code=404) from None
        return Response(render.gate(answer))


class AlertsView(View):
    @extend_schema(parameters=[OpenApiParameter("state"), *PAGES], responses={200: schemas.ALERTS})
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "read")
        rows = Alert.objects.filter(project=project).select_related("branch", "good", "bad", "culprit")
        state = text_parameter(request, "state")
        if state:
            if state not in AlertState.values:
                raise Problem(f"state: {state!r} is none of {', '.join(AlertState.values)}", status_code=400)
            rows = rows.filter(state=state)
        return paged(request, rows, "alerts", render.alert)


def alert_for(request: Request, pk: int, scope: str) -> Alert:
    row = Alert.objects.filter(pk=pk).select_related("project", "branch", "good", "bad", "culprit").first()
    if row is None or not may(request, "read", row.project):
        raise Problem(f"no alert {pk}", status_code=404)
    require(request, scope, row.project)
    return row


class AlertView(View):
    @extend_schema(responses={200: schemas.ALERT})
    def get(self, request: Request, pk: int) -> Response:
        row = alert_for(request, pk, "read")
        events = [
            {"at": e.at, "who": e.who, "from": e.from_state, "to": e.to_state, "text": e.text}
            for e in row.events.all()
        ]
        return Response(render.alert(row) | {"events": events})


class TransitionView(View):
    """Move an alert to another state; who and why go into its history. Scope: operate."""

    @extend_schema(request=schemas.TRANSITION, responses={200: schemas.ALERT})
    def post(self, request: Request, pk: int) -> Response:
        row = alert_for(request, pk, "operate")
        wanted = decoded(request, _decode_transition)
        alerts.move(row, wanted.state, who=caller(request), why=wanted.why)
        return Response(render.alert(alert_for(request, pk, "operate")))


class BisectionView(View):
    @extend_schema(responses={200: schemas.BISECTION})
    def get(self, request: Request, pk: int) -> Response:
        row = Bisection.objects.filter(pk=pk).select_related("series__case__benchmark__project").first()
        if row is None or not may(request, "read", row.series.case.benchmark.project):
            raise Problem(f"no bisection {pk}", status_code=404)
        return Response(render.bisection(row))


class JobsView(View):
    """Jobs of a project; POST asks for a measurement of a commit (scope: operate)."""

    @extend_schema(parameters=PAGES, responses={200: schemas.JOBS})
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "read")
        rows = Job.objects.filter(project=project).select_related("commit", "branch", "pool")
        return paged(request, rows, "jobs", render.job)

    @extend_schema(request=schemas.NEW_JOB, responses={201: schemas.JOB})
    def post(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "operate")
        wanted = decoded(request, _decode_job)
        try:
            commit = lineage.resolve(project, wanted.commit)
        except lineage.UnknownCommit as error:
            raise Problem(str(error), status_code=404) from None
        branch = catalogue.branch(project, name=wanted.branch, pull_request=None)
        with transaction.atomic():
            job = schedule.request(
                branch,
                commit,
                pool=catalogue.pool(wanted.pool),
                launches=wanted.launches,
                tiers=wanted.tiers,
                priority=schedule.PRIORITY["asked"],
            )
            send_jobs_later([job.pk])
        return Response(render.job(job), status=201)


class RunView(View):
    """One run with its raw samples."""

    @extend_schema(responses={200: schemas.RUN})
    def get(self, request: Request, uuid: UUID) -> Response:
        row = (
            Run.objects.filter(uuid=uuid)
            .select_related(
                "case__benchmark__project", "commit", "branch", "pool", "launch", "environment__klass"
            )
            .first()
        )
        if row is None or not may(request, "read", row.case.benchmark.project):
            raise Problem(f"no run {uuid}", status_code=404)
        return Response(render.run(row))


@extend_schema(exclude=True)
class NothingView(View):
    """An address that is none of the API's: a problem document, like every other error."""

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        raise Problem(f"the API has no {request.path}", status_code=404)
