"""API v1: parse, call a service, respond. Each view names the scope that its caller needs."""

from __future__ import annotations

import gzip
import zlib
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
from django.db import transaction
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from perfdb.api import render, schemas
from perfdb.api.access import may, project_for, require
from perfdb.api.problems import Problem
from perfdb.models import Alert, AlertState, ApiToken, Bisection, BranchKind, Job, Project, Run, Series
from perfdb.services import alerts, catalogue, comparing, gate, lineage, schedule
from perfdb.services import ingest as ingesting
from perfdb.services import series as series_service
from perfdb.services.batch import Batch
from perfdb.services.decimate import thin
from perfdb.tasks import analyse_series, send_jobs_later

MAX_BODY = 64 * 1024 * 1024
PAGE = 100
_decode_batch = msgspec.json.Decoder(Batch).decode


def body(request: Request) -> bytes:
    """The request's bytes, unpacked if gzipped. Raises Problem 413 beyond MAX_BODY, packed or not."""
    declared = int(request.META.get("CONTENT_LENGTH") or 0)
    if declared > MAX_BODY:
        raise Problem(f"the body has {declared} bytes, at most {MAX_BODY} are taken", status_code=413)
    raw = request._request.body
    if request.META.get("HTTP_CONTENT_ENCODING", "").lower() == "gzip":
        unpack = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            raw = unpack.decompress(raw, MAX_BODY + 1)
        except (zlib.error, gzip.BadGzipFile) as error:
            raise Problem(f"the body is not gzip: {error}", status_code=400) from None
    if len(raw) > MAX_BODY:
        raise Problem(f"the unpacked body has more than {MAX_BODY} bytes", status_code=413)
    return raw


def decode_batch(raw: bytes) -> Batch:
    """Raises Problem naming the path of the field that does not fit."""
    try:
        return _decode_batch(raw)
    except msgspec.ValidationError as error:
        raise Problem(str(error), status_code=422) from None
    except msgspec.DecodeError as error:
        raise Problem(f"the body is not JSON: {error}", status_code=400) from None


def paged(request: Request, rows: QuerySet[Any], name: str, show: Any) -> Response:
    """Newest first; `cursor` is the id after which to go on, `next` the address of the following page."""
    cursor = request.query_params.get("cursor")
    if cursor:
        if not cursor.isdigit():
            raise Problem(f"cursor: {cursor!r} is no cursor of this list", status_code=400)
        rows = rows.filter(pk__lt=int(cursor))
    page = list(rows.order_by("-pk")[: PAGE + 1])
    more = len(page) > PAGE
    shown = page[:PAGE]
    following = None
    if more:
        params = request.query_params.copy()
        params["cursor"] = str(shown[-1].pk)
        following = request.build_absolute_uri(f"{request.path}?{params.urlencode()}")
    return Response({name: [show(row) for row in shown], "next": following})


def parameter(request: Request, name: str) -> str:
    value = request.query_params.get(name, "")
    if not value:
        raise Problem(f"the parameter {name!r} is missing", status_code=400)
    return value


class ProjectsView(APIView):
    """The projects that the caller may read."""

    @extend_schema(responses=schemas.PROJECTS)
    def get(self, request: Request) -> Response:
        rows = [row for row in Project.objects.all() if may(request, "read", row)]
        return Response({"projects": [render.project(row) for row in rows]})

    @extend_schema(request=schemas.NEW_PROJECT, responses={201: schemas.PROJECT})
    def post(self, request: Request) -> Response:
        """Make a project that is fed by uploads. Scope: admin, of no single project."""
        require(request, "admin", None)
        try:
            wanted = msgspec.json.decode(body(request), type=schemas.NewProject)
        except msgspec.MsgspecError as error:
            raise Problem(str(error), status_code=422) from None
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


class ProjectView(APIView):
    @extend_schema(responses=schemas.PROJECT)
    def get(self, request: Request, slug: str) -> Response:
        return Response(render.project(project_for(request, slug, "read")))


class UploadView(APIView):
    """Store launches of one commit. The same upload twice is stored once."""

    @extend_schema(request=schemas.BATCH, responses={201: schemas.INGESTED, 200: schemas.INGESTED})
    def post(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "upload")
        batch = decode_batch(body(request))
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


class SeriesListView(APIView):
    @extend_schema(
        parameters=[
            OpenApiParameter("benchmark"),
            OpenApiParameter("metric"),
            OpenApiParameter("branch"),
            OpenApiParameter("cursor"),
        ],
        responses=schemas.SERIES_LIST,
    )
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "read")
        rows = Series.objects.filter(case__benchmark__project=project).select_related(
            "case__benchmark", "metric", "pool", "environment_class", "branch"
        )
        fields = {"benchmark": "case__benchmark__name", "metric": "metric__name", "branch": "branch__name"}
        for name, field in fields.items():
            if request.query_params.get(name):
                rows = rows.filter(**{field: request.query_params[name]})
        return paged(request, rows, "series", schemas.series_head)


class SeriesView(APIView):
    """One series: every commit's launch values, thinned to `points` if asked, and the changes found."""

    @extend_schema(parameters=[OpenApiParameter("points", int)], responses=schemas.SERIES)
    def get(self, request: Request, pk: int) -> Response:
        row = (
            Series.objects.filter(pk=pk)
            .select_related("case__benchmark__project", "metric", "pool", "environment_class", "branch")
            .first()
        )
        if row is None or not may(request, "read", row.case.benchmark.project):
            raise Problem(f"no series {pk}", status_code=404)
        limit = request.query_params.get("points", "")
        if limit and (not limit.isdigit() or int(limit) < 2):
            raise Problem(f"points: a whole number of at least 2, got {limit!r}", status_code=400)
        history = series_service.history(row)
        points = thin(history.points, int(limit)) if limit else history.points
        return Response(schemas.series_full(row, points, total=len(history.points)))


class CompareView(APIView):
    """Two commits, cell by cell."""

    @extend_schema(
        parameters=[OpenApiParameter("base", required=True), OpenApiParameter("head", required=True)],
        responses=schemas.COMPARED,
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


class GateView(APIView):
    """May this commit pass? 200 whatever the answer; `decision` and `exit_code` say it."""

    @extend_schema(
        parameters=[OpenApiParameter("base"), OpenApiParameter("head", required=True)], responses=schemas.GATE
    )
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "read")
        base = request.query_params.get("base") or project.default_branch
        try:
            answer = gate.gate(project, base=base, head=parameter(request, "head"))
        except lineage.UnknownCommit as error:
            raise Problem(str(error), status_code=404) from None
        return Response(render.gate(answer))


class AlertsView(APIView):
    @extend_schema(
        parameters=[OpenApiParameter("state"), OpenApiParameter("cursor")], responses=schemas.ALERTS
    )
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "read")
        rows = Alert.objects.filter(project=project).select_related("branch", "good", "bad", "culprit")
        state = request.query_params.get("state")
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


class AlertView(APIView):
    @extend_schema(responses=schemas.ALERT)
    def get(self, request: Request, pk: int) -> Response:
        row = alert_for(request, pk, "read")
        events = [
            {"at": e.at, "who": e.who, "from": e.from_state, "to": e.to_state, "text": e.text}
            for e in row.events.all()
        ]
        return Response(render.alert(row) | {"events": events})


class TransitionView(APIView):
    """Move an alert to another state; who and why go into its history. Scope: operate."""

    @extend_schema(request=schemas.TRANSITION, responses=schemas.ALERT)
    def post(self, request: Request, pk: int) -> Response:
        row = alert_for(request, pk, "operate")
        try:
            wanted = msgspec.json.decode(body(request), type=schemas.Transition)
        except msgspec.MsgspecError as error:
            raise Problem(str(error), status_code=422) from None
        alerts.move(row, wanted.state, who=caller(request), why=wanted.why)
        return Response(render.alert(alert_for(request, pk, "operate")))


def caller(request: Request) -> str:
    if isinstance(request.auth, ApiToken):
        return f"token {request.auth.name}"
    return str(request.user.get_username())


class BisectionView(APIView):
    @extend_schema(responses=schemas.BISECTION)
    def get(self, request: Request, pk: int) -> Response:
        row = Bisection.objects.filter(pk=pk).select_related("series__case__benchmark__project").first()
        if row is None or not may(request, "read", row.series.case.benchmark.project):
            raise Problem(f"no bisection {pk}", status_code=404)
        return Response(render.bisection(row))


class JobsView(APIView):
    """Jobs of a project; POST asks for a measurement of a commit (scope: operate)."""

    @extend_schema(parameters=[OpenApiParameter("cursor")], responses=schemas.JOBS)
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "read")
        rows = Job.objects.filter(project=project).select_related("commit", "branch", "pool")
        return paged(request, rows, "jobs", render.job)

    @extend_schema(request=schemas.NEW_JOB, responses={201: schemas.JOB})
    def post(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "operate")
        try:
            wanted = msgspec.json.decode(body(request), type=schemas.NewJob)
            commit = lineage.resolve(project, wanted.commit)
        except msgspec.MsgspecError as error:
            raise Problem(str(error), status_code=422) from None
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


class RunView(APIView):
    """One run with its raw samples."""

    @extend_schema(responses=schemas.RUN)
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
