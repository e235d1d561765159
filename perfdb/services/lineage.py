"""Who descends from whom, from the stored parents: works for tracked and for upload-only projects alike."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from perfdb.models import BranchCommit, Commit, Project


class UnknownCommit(ValueError):
    """The text names no commit or branch of the project, or more than one."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """All stored commits of a project: SHA to parents."""

    parents: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, project: Project) -> Lineage:
        return cls({sha: tuple(parents) for sha, parents in project.commits.values_list("sha", "parents")})

    def first_parents(self, sha: str) -> list[str]:
        """`sha` and its first-parent ancestors, newest first, as far as they are stored."""
        out: list[str] = []
        current: str | None = sha
        while current is not None and current in self.parents:
            out.append(current)
            current = next(iter(self.parents[current]), None)
        return out

    def ancestors(self, sha: str) -> set[str]:
        """`sha` and everything reachable from it."""
        seen: set[str] = set()
        queue = deque([sha])
        while queue:
            current = queue.popleft()
            if current not in seen and current in self.parents:
                seen.add(current)
                queue.extend(self.parents[current])
        return seen

    def merge_base(self, base: str, head: str) -> str | None:
        """The nearest ancestor of `head` (breadth first, first parents first) that `base` has too."""
        known = self.ancestors(base)
        queue, seen = deque([head]), set()
        while queue:
            current = queue.popleft()
            if current in known:
                return current
            if current not in seen and current in self.parents:
                seen.add(current)
                queue.extend(self.parents[current])
        return None


def resolve(project: Project, name: str) -> Commit:
    """The commit that a branch name, a SHA or its beginning means. Raises UnknownCommit."""
    branch = project.branches.filter(name=name).select_related("head").first()
    if branch is not None:
        head = branch.head or _newest(branch.pk)
        if head is None:
            raise UnknownCommit(f"branch {name!r} has no commit yet")
        return head
    if len(name) < 7 or not all(c in "0123456789abcdef" for c in name.lower()):
        raise UnknownCommit(f"{name!r} is no branch of {project.slug} and no SHA of 7 or more digits")
    found = list(project.commits.filter(sha__startswith=name.lower())[:2])
    if len(found) != 1:
        how = "no commit" if not found else "more than one commit"
        raise UnknownCommit(f"{name!r} names {how} of {project.slug}")
    return found[0]


def _newest(branch_id: int) -> Commit | None:
    place = (
        BranchCommit.objects.filter(branch_id=branch_id)
        .select_related("commit")
        .order_by("-position")
        .first()
    )
    return place.commit if place else None
