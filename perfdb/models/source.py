"""Where code comes from: projects, commits, their places on branches, builds."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Project(models.Model):
    """A tracked repository. `url` is a path or URL that git can fetch; empty for projects fed by upload only."""

    slug = models.SlugField(max_length=80, unique=True)
    name = models.CharField(max_length=200)
    url = models.CharField(max_length=500, blank=True, default="")
    default_branch = models.CharField(max_length=200, default="main")
    manifest_path = models.CharField(max_length=300, default="perfdb.toml")
    public = models.BooleanField(default=True, help_text="Anonymous people may read.")
    # Name of an environment variable or file on the worker that holds the credential; never the secret itself.
    credential = models.CharField(max_length=300, blank=True, default="")
    tracked_branches = ArrayField(models.CharField(max_length=200), default=list, blank=True)
    history_depth = models.PositiveIntegerField(default=100)
    path_filter = ArrayField(models.CharField(max_length=300), default=list, blank=True)
    poll_interval_s = models.PositiveIntegerField(default=60)
    bisection_minutes_per_day = models.PositiveIntegerField(
        default=240, help_text="Measuring time that bisections started by alerts may take in a day."
    )
    polled_at = models.DateTimeField(null=True, blank=True)
    poll_error = models.TextField(blank=True, default="")
    settings = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering: ClassVar = ["slug"]

    def __str__(self) -> str:
        return self.slug


class Commit(models.Model):
    """One revision. `parents` are SHAs in git's order; `vanished` once no ref reaches it any more."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="commits")
    sha = models.CharField(max_length=64)
    parents = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    author = models.CharField(max_length=200, blank=True, default="")
    subject = models.CharField(max_length=500, blank=True, default="")
    message = models.TextField(blank=True, default="")
    committed_at = models.DateTimeField(null=True, blank=True)
    vanished = models.BooleanField(default=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "sha"], name="commit_unique_sha"),
            models.CheckConstraint(condition=Q(sha__regex=r"^[0-9a-f]{7,64}$"), name="commit_sha_is_hex"),
        ]

    def __str__(self) -> str:
        return self.sha[:10]

    @property
    def short(self) -> str:
        return self.sha[:10]


class BranchKind(models.TextChoices):
    TRUNK = "trunk", "main branch"
    BRANCH = "branch", "branch"
    PULL_REQUEST = "pull_request", "pull request"


class Branch(models.Model):
    """A line of commits. Runs of a pull request live on its own branch and never enter the trunk's series."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="branches")
    name = models.CharField(max_length=300)
    kind = models.CharField(max_length=20, choices=BranchKind.choices, default=BranchKind.BRANCH)
    head = models.ForeignKey(Commit, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        verbose_name_plural = "branches"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "name"], name="branch_unique_name"),
        ]

    def __str__(self) -> str:
        return self.name


class BranchCommit(models.Model):
    """A commit's place on a branch. `position` counts first-parent order from the oldest known commit.

    It changes when history is rewritten; `services.track.place_commits` is the one place that does so.
    """

    branch = models.ForeignKey(Branch, on_delete=models.CASCADE, related_name="places")
    commit = models.ForeignKey(Commit, on_delete=models.CASCADE, related_name="places")
    position = models.IntegerField()

    class Meta:
        ordering: ClassVar = ["branch", "position"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["branch", "commit"], name="branchcommit_unique_commit"),
            models.UniqueConstraint(
                fields=["branch", "position"],
                name="branchcommit_unique_position",
                deferrable=models.Deferrable.DEFERRED,
            ),
            models.CheckConstraint(condition=Q(position__gte=0), name="branchcommit_position_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.branch_id}@{self.position}"


class BuildStatus(models.TextChoices):
    RUNNING = "running", "running"
    OK = "ok", "built"
    FAILED = "failed", "failed"
    TIMEOUT = "timeout", "timed out"


class Build(models.Model):
    """One commit built by one command. `artifact_hash` covers the built tree, so equal hashes rule code out."""

    commit = models.ForeignKey(Commit, on_delete=models.CASCADE, related_name="builds")
    command = models.TextField()
    command_hash = models.CharField(max_length=64)
    status = models.CharField(max_length=10, choices=BuildStatus.choices, default=BuildStatus.RUNNING)
    log = models.TextField(blank=True, default="")
    artifact_hash = models.CharField(max_length=64, blank=True, default="")
    duration_s = models.FloatField(null=True, blank=True)
    built_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["commit", "command_hash"], name="build_unique_command"),
        ]

    def __str__(self) -> str:
        return f"{self.commit} {self.status}"
