"""Tokens and roles: made here, shown once, checked here."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Q
from django.utils import timezone

from perfdb.models import ApiToken, Membership, Project, Role, Scope

PREFIX = "pdb_"
_USED_AT_STEP = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token just made. `secret` is not stored and cannot be shown again."""

    token: ApiToken
    secret: str


def create_token(
    name: str,
    scopes: Iterable[str],
    *,
    project: Project | None = None,
    user: User | None = None,
    expires_at: datetime | None = None,
    fork: bool = False,
) -> NewToken:
    """Raises ValueError for an unknown scope or none, and for a lifetime that is over already."""
    wanted = list(dict.fromkeys(scopes))
    unknown = [scope for scope in wanted if scope not in Scope.values]
    if unknown or not wanted:
        raise ValueError(
            f"scopes: {unknown[0] if unknown else 'none'} is no scope ({', '.join(Scope.values)})"
        )
    if expires_at is not None and expires_at <= timezone.now():
        raise ValueError("expires_at lies in the past")
    secret = PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        name=name[:200],
        prefix=secret[:12],
        digest=token_digest(secret),
        project=project,
        user=user,
        scopes=wanted,
        expires_at=expires_at,
        fork=fork,
    )
    return NewToken(token, secret)


def token_digest(secret: str) -> str:
    """SHA-256: the secret has 256 random bits, so a slow hash would protect nothing more."""
    return hashlib.sha256(secret.encode()).hexdigest()


def find_token(secret: str) -> ApiToken | None:
    """The living token with this secret; its last use is recorded at most once a minute."""
    now = timezone.now()
    token = (
        ApiToken.objects.filter(digest=token_digest(secret), revoked_at__isnull=True)
        .filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now))
        .select_related("project", "user")
        .first()
    )
    if token and (token.used_at is None or now - token.used_at > _USED_AT_STEP):
        ApiToken.objects.filter(pk=token.pk).update(used_at=now)
    return token


def revoke(token: ApiToken) -> None:
    ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=timezone.now())


def token_allows(token: ApiToken, scope: str, project: Project | None) -> bool:
    """Whether the token holds `scope` (admin holds all) for `project` (None: for something of no project)."""
    if token.project_id is not None and (project is None or project.pk != token.project_id):
        return False
    return scope in token.scopes or Scope.ADMIN in token.scopes


def user_allows(user: AbstractBaseUser | AnonymousUser, scope: str, project: Project | None) -> bool:
    """Whether a person may: superusers all, members by their role, anyone may read a public project."""
    if scope == Scope.READ and project is not None and project.public:
        return True
    if not user.is_authenticated:
        return False
    if getattr(user, "is_superuser", False):
        return True
    if project is None:
        return False
    role = Membership.objects.filter(project=project, user_id=user.pk).values_list("role", flat=True).first()
    return role is not None and scope in Role(role).scopes


def readable_projects(user: AbstractBaseUser | AnonymousUser, token: ApiToken | None = None) -> list[Project]:
    """The projects that a visitor may see."""
    rows = Project.objects.all()
    if token is not None:
        return [p for p in rows if p.public or token_allows(token, Scope.READ, p)]
    return [p for p in rows if user_allows(user, Scope.READ, p)]
