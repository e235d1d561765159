"""Who may see and do what on pages. Every view calls one of these first."""

from __future__ import annotations

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest

from perfdb.models import Project, Scope
from perfdb.services import access


class LoginNeeded(Exception):
    """An anonymous visitor asked for what a signed-in person might see."""


class LoginNeededMiddleware:
    """Sends the visitor to the login page and back."""

    def __init__(self, get_response):  # type: ignore[no-untyped-def]  # Django's protocol
        self.get_response = get_response

    def __call__(self, request: HttpRequest):  # type: ignore[no-untyped-def]  # as above
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception):  # type: ignore[no-untyped-def]  # as above
        return redirect_to_login(request.get_full_path()) if isinstance(error, LoginNeeded) else None


def readable(request: HttpRequest, project: Project) -> Project:
    """Raises LoginNeeded for a visitor, Http404 (not 403: it must look absent) for anybody else."""
    if access.user_allows(request.user, Scope.READ, project):
        return project
    if not request.user.is_authenticated:
        raise LoginNeeded
    raise Http404("no such page")


def operable(request: HttpRequest, project: Project | None) -> None:
    """Raises LoginNeeded, Http404 (the project may not be seen) or PermissionDenied unless this person may operate."""
    if not request.user.is_authenticated:
        raise LoginNeeded
    if project is not None:
        readable(request, project)
    if not access.user_allows(request.user, Scope.OPERATE, project):
        raise PermissionDenied("this needs the role triager or admin in the project")


def may_operate(request: HttpRequest, project: Project | None) -> bool:
    return bool(request.user.is_authenticated) and access.user_allows(request.user, Scope.OPERATE, project)


def administrator(request: HttpRequest) -> None:
    if not request.user.is_authenticated:
        raise LoginNeeded
    if not getattr(request.user, "is_superuser", False):
        raise PermissionDenied("this needs an administrator")
