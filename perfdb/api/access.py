"""Who may call what: a bearer token or a signed-in person, and the scope that each view names."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AnonymousUser
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.request import Request

from perfdb.api.problems import Problem
from perfdb.models import ApiToken, Project
from perfdb.services import access


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer pdb_...`. The token is `request.auth`."""

    def authenticate(self, request: Request) -> tuple[Any, ApiToken] | None:
        parts = get_authorization_header(request).split()
        if not parts or parts[0].lower() != b"bearer":
            return None
        if len(parts) != 2:
            raise AuthenticationFailed("the Authorization header must read: Bearer TOKEN")
        try:
            token = access.find_token(parts[1].decode("ascii"))
        except UnicodeDecodeError:
            token = None
        if token is None:
            raise AuthenticationFailed("the token is unknown, revoked or expired")
        return token.user or AnonymousUser(), token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def require(request: Request, scope: str, project: Project | None) -> None:
    """Raises NotAuthenticated for a visitor, Problem 403 naming the missing scope for anybody else."""
    if may(request, scope, project):
        return
    if request.auth is None and not request.user.is_authenticated:
        raise NotAuthenticated("this needs a token (Authorization: Bearer ...)")
    where = f" for project {project.slug}" if project else ""
    raise Problem(f"this needs the scope {scope!r}{where}", status_code=403)


def may(request: Request, scope: str, project: Project | None) -> bool:
    if isinstance(request.auth, ApiToken):
        if scope == "read" and project is not None and project.public:
            return True
        return access.token_allows(request.auth, scope, project)
    return access.user_allows(request.user, scope, project)


def project_for(request: Request, slug: str, scope: str) -> Project:
    """The project, if the caller may. A project that may not be read looks as if it did not exist."""
    project = Project.objects.filter(slug=slug).first()
    if project is None or (scope == "read" and not may(request, scope, project)):
        if request.auth is None and not request.user.is_authenticated and project is not None:
            raise NotAuthenticated("this needs a token (Authorization: Bearer ...)")
        raise Problem(f"no project {slug!r}", status_code=404)
    require(request, scope, project)
    return project


def caller(request: Request) -> str:
    """The name that goes into histories."""
    if isinstance(request.auth, ApiToken):
        return f"token {request.auth.name}"
    return str(request.user.get_username())
