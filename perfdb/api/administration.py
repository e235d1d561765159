"""What an administrator sets: tokens, policies and their back-test, subscriptions, and the secret of webhooks."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from django.core.exceptions import ValidationError
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from perfdb.api import render, schemas
from perfdb.api.access import caller, project_for
from perfdb.api.lists import PAGES
from perfdb.api.problems import Problem
from perfdb.api.requests import View, decoded, paged
from perfdb.models import ApiToken, PolicyVersion, Subscription
from perfdb.services import access, hooks, links, policy_versions
from perfdb.services.subscribe import subscribe

_decode_token = msgspec.json.Decoder(schemas.NewToken).decode
_decode_policy = msgspec.json.Decoder(schemas.NewPolicy).decode
_decode_subscription = msgspec.json.Decoder(schemas.NewSubscription).decode


class TokensView(View):
    """Tokens of a project. The secret of a new one is in the answer, once. Scope: admin."""

    @extend_schema(parameters=PAGES, responses={200: schemas.TOKENS})
    def get(self, request: Request, slug: str) -> Response:
        rows = ApiToken.objects.filter(project=project_for(request, slug, "admin"))
        return paged(request, rows, "tokens", render.token)

    @extend_schema(request=schemas.NEW_TOKEN, responses={201: schemas.MADE_TOKEN})
    def post(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "admin")
        wanted = decoded(request, _decode_token)
        expires = None if wanted.days is None else timezone.now() + timedelta(days=wanted.days)
        made = access.create_token(
            wanted.name, wanted.scopes, project=project, expires_at=expires, fork=wanted.fork
        )
        made.token.refresh_from_db()
        return Response({"token": render.token(made.token), "secret": made.secret}, status=201)


class TokenView(View):
    @extend_schema(responses={204: None})
    def delete(self, request: Request, slug: str, pk: int) -> Response:
        """Revoke a token; it stays in the list. Scope: admin."""
        project = project_for(request, slug, "admin")
        token = ApiToken.objects.filter(project=project, pk=pk).first()
        if token is None:
            raise Problem(f"no token {pk} in {slug}", status_code=404)
        access.revoke(token)
        return Response(status=204)


class PoliciesView(View):
    """Thresholds, every version of every scope; POST makes a new version, which then decides. Scope: admin."""

    @extend_schema(parameters=PAGES, responses={200: schemas.POLICIES})
    def get(self, request: Request, slug: str) -> Response:
        rows = PolicyVersion.objects.filter(project=project_for(request, slug, "read"))
        return paged(request, rows.select_related("benchmark", "pool"), "policies", render.policy)

    @extend_schema(request=schemas.NEW_POLICY, responses={201: schemas.POLICY})
    def post(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "admin")
        wanted = decoded(request, _decode_policy)
        try:
            draft = policy_versions.draft(
                project,
                benchmark=wanted.benchmark,
                metric=wanted.metric,
                pool=wanted.pool,
                values=wanted.values,
            )
        except ValueError as error:
            raise Problem(str(error), status_code=422) from None
        made = policy_versions.activate(draft, author=caller(request), why=wanted.why)
        return Response(render.policy(made), status=201)


class BacktestView(View):
    """Which changes of the stored history a draft would find, held against the present policy. Stores nothing."""

    @extend_schema(request=schemas.NEW_POLICY, responses={200: schemas.BACKTEST})
    def post(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "operate")
        wanted = decoded(request, _decode_policy)
        try:
            draft = policy_versions.draft(
                project,
                benchmark=wanted.benchmark,
                metric=wanted.metric,
                pool=wanted.pool,
                values=wanted.values,
            )
        except ValueError as error:
            raise Problem(str(error), status_code=422) from None
        found = policy_versions.backtest(draft)
        return Response(msgspec.to_builtins(found))


class SubscriptionsView(View):
    """Who hears of alerts. Scope: admin."""

    @extend_schema(parameters=PAGES, responses={200: schemas.SUBSCRIPTIONS})
    def get(self, request: Request, slug: str) -> Response:
        rows = Subscription.objects.filter(project=project_for(request, slug, "admin"))
        return paged(request, rows, "subscriptions", render.subscription)

    @extend_schema(request=schemas.NEW_SUBSCRIPTION, responses={201: schemas.SUBSCRIPTION})
    def post(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "admin")
        wanted = decoded(request, _decode_subscription)
        try:
            made = subscribe(project, **msgspec.structs.asdict(wanted))
        except ValidationError as error:
            raise Problem("; ".join(error.messages), status_code=422) from None
        except ValueError as error:
            raise Problem(str(error), status_code=422) from None
        return Response(render.subscription(made), status=201)


class SubscriptionView(View):
    @extend_schema(responses={204: None})
    def delete(self, request: Request, slug: str, pk: int) -> Response:
        """End a subscription. Scope: admin."""
        project = project_for(request, slug, "admin")
        if not Subscription.objects.filter(project=project, pk=pk).update(active=False):
            raise Problem(f"no subscription {pk} in {slug}", status_code=404)
        return Response(status=204)


class HookSecretView(View):
    """What to enter at the forge: one address each and the secret. Scope: admin."""

    @extend_schema(responses={200: schemas.HOOK})
    def get(self, request: Request, slug: str) -> Response:
        project = project_for(request, slug, "admin")
        urls = {forge: links.absolute(reverse("api:hook", args=[slug, forge])) for forge in hooks.FORGES}
        return Response({"secret": hooks.secret(project), "urls": urls})
