"""Tracked repositories: fetch, record commits in graph order, ask for what is to be measured."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from perfdb.models import Branch, BranchKind, Commit, Job, Pool, Project
from perfdb.services import catalogue, schedule
from perfdb.services.placing import Placement, place
from perfdb.vcs import CommitInfo, Credential, GitError, NoRepository, Repository


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one look at a repository brought."""

    placements: dict[str, Placement]
    jobs: tuple[Job, ...]


def slug_for(url: str) -> str:
    """A project's name from its path or URL: the last part, lower case."""
    tail = PurePosixPath(url.rstrip("/").removesuffix(".git")).name or "project"
    return re.sub(r"[^a-z0-9_-]+", "-", tail.lower()).strip("-")[:80] or "project"


def mirror_path(project: Project) -> Path:
    return Path(settings.PERFDB_DATA) / "repositories" / f"{project.pk}.git"


def repository(project: Project) -> Repository:
    """The project's mirror, made on first use. Raises NoRepository."""
    if not project.url:
        raise NoRepository(f"project {project.slug} is fed by uploads; it has no repository")
    return Repository.open_mirror(project.url, mirror_path(project), credential=credential(project))


def credential(project: Project) -> Credential:
    """What `project.credential` names: `env:NAME` (a token) or `file:PATH` (an SSH key). Never the secret itself."""
    kind, _, name = project.credential.partition(":")
    if kind == "env" and name:
        token = os.environ.get(name)
        if not token:
            raise NoRepository(f"credential: the environment variable {name} is not set on this worker")
        return Credential(token=token)
    if kind == "file" and name:
        return Credential(key_file=Path(name))
    if project.credential:
        raise NoRepository("credential: give env:NAME or file:PATH")
    return Credential()


def track(
    url: str,
    *,
    slug: str | None = None,
    branches: Sequence[str] = (),
    depth: int = 100,
    credential_name: str = "",
    public: bool = True,
) -> Project:
    """Start to track a repository. Raises NoRepository, and makes no project, where git cannot read it."""
    if Path(url).exists():
        url = str(Path(url).resolve())
    project, made = Project.objects.get_or_create(
        slug=slug or slug_for(url),
        defaults={
            "name": slug or slug_for(url),
            "url": url,
            "tracked_branches": list(branches),
            "history_depth": depth,
            "credential": credential_name,
            "public": public,
        },
    )
    if not made and project.url and project.url != url:
        raise ValueError(f"project {project.slug} already tracks {project.url}; give another name")
    try:
        mirror = repository(project)
    except GitError:
        if made:
            project.delete()
        raise
    if made:
        project.default_branch = branches[0] if branches else mirror.default_branch()
    project.url = url
    project.tracked_branches = list(branches) or [project.default_branch]
    project.history_depth = depth
    project.save()
    return project


def fetch(project: Project, *, pool: Pool | None = None, measure_history: bool = True) -> Fetched:
    """Look at the repository: new commits get their place and jobs; a failure is kept on the project and raised."""
    try:
        mirror = repository(project)
        mirror.fetch()
        heads = mirror.branches()
    except GitError as error:
        Project.objects.filter(pk=project.pk).update(poll_error=str(error), polled_at=timezone.now())
        raise
    placements: dict[str, Placement] = {}
    jobs: list[Job] = []
    missing = [name for name in project.tracked_branches if name not in heads]
    for name in project.tracked_branches:
        if name not in heads:
            continue
        line = mirror.first_parents(heads[name], depth=project.history_depth)
        branch, placement = _record(project, name, line)
        placements[name] = placement
        wanted = placement.added if measure_history else placement.added[-1:]
        jobs.extend(_ask(project, branch, mirror, line, set(wanted), pool or catalogue.pool("default")))
    note = f"no such branch: {', '.join(missing)}" if missing else ""
    Project.objects.filter(pk=project.pk).update(poll_error=note, polled_at=timezone.now())
    _mark_vanished(project, placements)
    return Fetched(placements, tuple(jobs))


@transaction.atomic
def _record(project: Project, name: str, line: Sequence[CommitInfo]) -> tuple[Branch, Placement]:
    record_commits(project, line)
    branch = catalogue.branch(project, name=name, pull_request=None)
    return branch, place(branch, [info.sha for info in line])


def record_commits(project: Project, infos: Sequence[CommitInfo]) -> None:
    """Make or complete the rows of commits that git knows."""
    Commit.objects.bulk_create(
        [
            Commit(
                project=project,
                sha=info.sha,
                parents=list(info.parents),
                author=info.author[:200],
                subject=info.subject[:500],
                message=info.message,
                committed_at=info.committed_at,
            )
            for info in infos
        ],
        update_conflicts=True,
        unique_fields=["project", "sha"],
        update_fields=["parents", "author", "subject", "message", "committed_at"],
    )


def _ask(
    project: Project,
    branch: Branch,
    mirror: Repository,
    line: Sequence[CommitInfo],
    wanted: set[str],
    pool: Pool,
) -> list[Job]:
    """One job per new commit that touches a watched path; the newest first."""
    rows = {row.sha: row for row in project.commits.filter(sha__in=wanted)}
    jobs = []
    for info in reversed(line):
        if info.sha in wanted and _touches(project, mirror, info):
            newest = info.sha == line[-1].sha
            priority = schedule.PRIORITY["new" if newest else "history"]
            jobs.append(schedule.request(branch, rows[info.sha], pool=pool, priority=priority))
    return jobs


def _touches(project: Project, mirror: Repository, info: CommitInfo) -> bool:
    if not project.path_filter or not info.parents:
        return True
    try:
        changed = mirror.changed_paths(info.parents[0], info.sha)
    except GitError:
        return True  # the parent lies beyond a shallow history
    return any(PurePosixPath(path).match(pattern) for path in changed for pattern in project.path_filter)


def _mark_vanished(project: Project, placements: dict[str, Placement]) -> None:
    dropped = {sha for placement in placements.values() for sha in placement.dropped}
    if dropped:
        still = set(project.commits.filter(places__isnull=False).values_list("sha", flat=True))
        project.commits.filter(sha__in=dropped - still).update(vanished=True)


def set_trunk(project: Project, name: str) -> None:
    """Make `name` the project's main branch."""
    project.branches.filter(kind=BranchKind.TRUNK).exclude(name=name).update(kind=BranchKind.BRANCH)
    project.branches.filter(name=name).update(kind=BranchKind.TRUNK)
    Project.objects.filter(pk=project.pk).update(default_branch=name)
