"""Inbox, tokens, subscriptions, workers."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from perfdb.models import ApiToken, Message, Project, Scope, Subscription, Worker
from perfdb.services import access, subscribe
from perfdb.web import asked
from perfdb.web.access import LoginNeeded, administrator, may_operate, operable, readable


def inbox(request: HttpRequest) -> HttpResponse:
    """Messages of the projects that this person may read. Only an installation without a mail host (the demo) shows
    them to visitors: there the mails go nowhere else."""
    if not request.user.is_authenticated and settings.EMAIL_HOST:
        raise LoginNeeded
    projects = access.readable_projects(request.user)
    rows = Message.objects.filter(alert__project__in=projects).select_related("alert__project")
    return render(request, "web/inbox.html", {"rows": rows[:100]})


def message(request: HttpRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(Message.objects.select_related("alert__project"), pk=pk)
    if row.alert is None:
        administrator(request)
    else:
        if not request.user.is_authenticated and settings.EMAIL_HOST:
            raise LoginNeeded
        readable(request, row.alert.project)
    return render(request, "web/message.html", {"message": row})


def tokens(request: HttpRequest) -> HttpResponse:
    """Tokens of this installation. A new one is shown once, on the page that made it."""
    administrator(request)
    secret = None
    if request.method == "POST":
        slug = asked.text(request.POST, "project")
        # An unknown project must not become a token for every project.
        project = get_object_or_404(Project, slug=slug) if slug else None
        try:
            made = access.create_token(
                asked.text(request.POST, "name") or "unnamed",
                request.POST.getlist("scope"),
                project=project,
                fork="fork" in request.POST,
            )
        except ValueError as error:
            messages.error(request, str(error))
        else:
            secret = made.secret
    context = {
        "tokens": ApiToken.objects.select_related("project"),
        "projects": Project.objects.all(),
        "scopes": Scope.choices,
        "secret": secret,
    }
    return render(request, "web/tokens.html", context)


@require_POST
def token_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    administrator(request)
    access.revoke(get_object_or_404(ApiToken, pk=pk))
    return redirect("web:tokens")


def workers(request: HttpRequest) -> HttpResponse:
    if not request.user.is_authenticated and not any(p.public for p in Project.objects.all()):
        raise LoginNeeded
    rows = Worker.objects.select_related("pool", "environment__klass")
    return render(request, "web/workers.html", {"workers": rows})


def subscriptions(request: HttpRequest, slug: str) -> HttpResponse:
    project = get_object_or_404(Project, slug=slug)
    operable(request, project)
    if request.method == "POST":
        try:
            subscribe.subscribe(
                project,
                email=asked.text(request.POST, "email", limit=254),
                webhook=asked.text(request.POST, "webhook", limit=500),
                webhook_style="slack" if request.POST.get("webhook_style") == "slack" else "json",
                benchmark_pattern=asked.text(request.POST, "benchmark_pattern", limit=300),
                metric_pattern=asked.text(request.POST, "metric_pattern"),
                only_blocking="only_blocking" in request.POST,
                digest="digest" in request.POST,
            )
        except ValidationError as error:
            messages.error(request, "; ".join(error.messages))
        except ValueError as error:
            messages.error(request, str(error))
        else:
            messages.success(request, "Subscribed.")
        return redirect("web:subscriptions", slug)
    context = {
        "project": project, "rows": project.subscriptions.filter(active=True),
        "operate": may_operate(request, project),
    }  # fmt: skip
    return render(request, "web/subscriptions.html", context)


@csrf_exempt  # the one-click POST of RFC 8058 comes from a mail program; the token is the authority
@require_http_methods(["GET", "POST"])
def unsubscribe(request: HttpRequest, token: str) -> HttpResponse:
    """GET asks, POST does: mail scanners follow links."""
    row = get_object_or_404(Subscription, unsubscribe_token=token)
    done = request.method == "POST" and subscribe.unsubscribe(token)
    return render(request, "web/unsubscribe.html", {"row": row, "done": done or not row.active})
