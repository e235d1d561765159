"""What a project holds, list by list: commits, benchmarks, cases, runs, bisections, workers, environments, traces."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from perfdb.api import render, schemas
from perfdb.api.access import project_for
from perfdb.api.problems import Problem
from perfdb.api.requests import View, paged, text_parameter
from perfdb.models import (
    Benchmark,
    Bisection,
    Case,
    Commit,
    Environment,
    Run,
    RunStatus,
    TraceSummary,
    Worker,
)

PAGES = [OpenApiParameter("cursor"), OpenApiParameter("limit", int)]


class CommitsView(View):
    """Commits of a project, of one branch if asked."""

    @extend_schema(
        operation_id="commits_list",
        parameters=[OpenApiParameter("branch"), *PAGES],
        responses={200: schemas.COMMITS},
    )
    def get(self, request: Request, slug: str) -> Response:
        rows = Commit.objects.filter(project=project_for(request, slug, "read"))
        if branch := text_parameter(request, "branch"):
            rows = rows.filter(places__branch__name=branch)
        return paged(request, rows, "commits", render.commit_row)


class CommitView(View):
    @extend_schema(responses={200: schemas.COMMIT})
    def get(self, request: Request, slug: str, sha: str) -> Response:
        row = Commit.objects.filter(project=project_for(request, slug, "read"), sha=sha).first()
        if row is None:
            raise Problem(f"no commit {sha!r} in {slug}", status_code=404)
        return Response(render.commit_row(row))


class BenchmarksView(View):
    @extend_schema(parameters=PAGES, responses={200: schemas.BENCHMARKS})
    def get(self, request: Request, slug: str) -> Response:
        rows = Benchmark.objects.filter(project=project_for(request, slug, "read"))
        return paged(request, rows, "benchmarks", render.benchmark)


class CasesView(View):
    @extend_schema(parameters=[OpenApiParameter("benchmark"), *PAGES], responses={200: schemas.CASES})
    def get(self, request: Request, slug: str) -> Response:
        rows = Case.objects.filter(benchmark__project=project_for(request, slug, "read"))
        if name := text_parameter(request, "benchmark"):
            rows = rows.filter(benchmark__name=name)
        return paged(request, rows.select_related("benchmark"), "cases", render.case)


class RunsView(View):
    """Runs of a project, each with its status; the raw samples stand at a run's own address."""

    @extend_schema(
        parameters=[
            OpenApiParameter("commit"),
            OpenApiParameter("benchmark"),
            OpenApiParameter("branch"),
            OpenApiParameter("status", enum=list(RunStatus.labels)),
            *PAGES,
        ],
        responses={200: schemas.RUNS},
    )
    def get(self, request: Request, slug: str) -> Response:
        rows = Run.objects.filter(case__benchmark__project=project_for(request, slug, "read"))
        fields = {"commit": "commit__sha", "benchmark": "case__benchmark__name", "branch": "branch__name"}
        for name, field in fields.items():
            if value := text_parameter(request, name):
                rows = rows.filter(**{field: value})
        if status := text_parameter(request, "status"):
            if status not in RunStatus.labels:
                raise Problem(f"status: {status!r} is none of {', '.join(RunStatus.labels)}", status_code=400)
            rows = rows.filter(status=RunStatus[status.upper()])
        rows = rows.select_related("case__benchmark", "commit", "branch", "pool")
        return paged(request, rows, "runs", render.run_head)


class BisectionsView(View):
    @extend_schema(parameters=PAGES, responses={200: schemas.BISECTIONS})
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "read")
        rows = Bisection.objects.filter(series__case__benchmark__project=project).prefetch_related("probes")
        return paged(request, rows, "bisections", render.bisection)


class WorkersView(View):
    """Workers that measured this project."""

    @extend_schema(parameters=PAGES, responses={200: schemas.WORKERS})
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "read")
        ids = Run.objects.filter(case__benchmark__project=project).values("launch__worker")
        rows = Worker.objects.filter(pk__in=ids).select_related("pool")
        return paged(request, rows, "workers", render.worker)


class EnvironmentsView(View):
    """Environments in which this project was measured."""

    @extend_schema(parameters=PAGES, responses={200: schemas.ENVIRONMENTS})
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "read")
        ids = Run.objects.filter(case__benchmark__project=project).values("environment")
        rows = Environment.objects.filter(pk__in=ids).select_related("klass")
        return paged(request, rows, "environments", render.environment)


class TracesView(View):
    """Workloads and profiles that this project's runs refer to."""

    @extend_schema(parameters=PAGES, responses={200: schemas.TRACES})
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "read")
        ids = Run.objects.filter(case__benchmark__project=project, trace_summary__isnull=False)
        rows = TraceSummary.objects.filter(pk__in=ids.values("trace_summary"))
        return paged(request, rows, "traces", render.trace)
