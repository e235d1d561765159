"""Who may do what: tokens (hashed, scoped, shown once) and roles."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from perfdb.models.source import Project


class Scope(models.TextChoices):
    READ = "read", "read"
    UPLOAD = "upload", "upload"
    OPERATE = "operate", "operate"
    ADMIN = "admin", "admin"


class Role(models.TextChoices):
    VIEWER = "viewer", "viewer"
    UPLOADER = "uploader", "uploader"
    TRIAGER = "triager", "triager"
    ADMIN = "admin", "admin"

    @property
    def scopes(self) -> set[str]:
        return {
            Role.VIEWER: {Scope.READ.value},
            Role.UPLOADER: {Scope.READ.value, Scope.UPLOAD.value},
            Role.TRIAGER: {Scope.READ.value, Scope.OPERATE.value},
            Role.ADMIN: set(Scope.values),
        }[self]


class ApiToken(models.Model):
    """A token of the API. Only its SHA-256 is stored; `prefix` identifies it to people.

    `project` None means every project (an administrator's token).
    """

    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="tokens"
    )
    scopes = ArrayField(models.CharField(max_length=10, choices=Scope.choices))
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="tokens"
    )
    fork = models.BooleanField(default=False, help_text="Uploads may not touch the main branch's series.")
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(scopes__len__gte=1), name="token_has_scopes"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}...)"


class Membership(models.Model):
    """A person's role in a project."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "user"], name="membership_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.user} {self.role}"
