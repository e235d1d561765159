"""Events of GitHub, GitLab and Gitea. The signature is the caller's right; there is no token."""

from __future__ import annotations

import json
from functools import partial

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from perfdb.api import schemas
from perfdb.api.problems import Problem
from perfdb.api.requests import View, body
from perfdb.models import Project
from perfdb.services import hooks
from perfdb.tasks import fetch_project, fetch_pull_request


class HookView(View):
    """A push makes perfdb fetch the repository; a pull request of the repository itself is measured."""

    authentication_classes: tuple[type[BaseAuthentication], ...] = ()

    @extend_schema(request=schemas.PAYLOAD, responses={202: schemas.HOOKED, 200: schemas.HOOKED}, auth=[])
    def post(self, request: Request, slug: str, forge: str) -> Response:
        if forge not in hooks.FORGES:
            raise Problem(f"no forge {forge!r}; known: {', '.join(hooks.FORGES)}", status_code=404)
        raw = body(request)
        project = Project.objects.filter(slug=slug).first()
        # An unknown project and a wrong signature look alike, so that nobody can list projects here.
        if project is None or not hooks.genuine(project, forge, request.headers, raw):
            raise Problem("the signature does not fit the project's secret", status_code=403)
        try:
            event = hooks.read(forge, request.headers, json.loads(raw))
        except hooks.Ignored as why:
            return Response({"done": f"nothing: {why}"})
        except ValueError as error:
            raise Problem(str(error), status_code=422) from None
        if not project.url:
            return Response({"done": "nothing: the project is fed by uploads, it has no repository"})
        if isinstance(event, hooks.Push):
            transaction.on_commit(partial(fetch_project.delay, project.pk))
            return Response({"done": "the repository is fetched"}, status=202)
        transaction.on_commit(partial(fetch_pull_request.delay, project.pk, event.number, event.sha))
        return Response({"done": f"pull request {event.number} is measured"}, status=202)
