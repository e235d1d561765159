"""A named merge is searched on: its side becomes a bisection of its own, from the fork to the side's head."""

from __future__ import annotations

from perfdb.models import Bisection, Commit
from perfdb.services.bisection_probes import reuse
from perfdb.services.track import record_commits, repository
from perfdb.stats.bisect import Answer
from perfdb.vcs import CommitInfo, GitError, Repository

MAX_DEPTH = 6
LEAST_COST = 10.0
"""A search with less than this left to spend is not begun."""


def descend(bisection: Bisection, answer: Answer) -> tuple[Bisection | None, str]:
    """The search of the named merge's side, and a sentence on it; (None, "") where no merge was named.

    The sentence says why, where the side cannot be searched.
    """
    if answer.kind != "culprit" or len(answer.commits) != 1:
        return None, ""
    project = bisection.series.case.benchmark.project
    merge = Commit.objects.get(project=project, sha=bisection.shas[answer.commits[0]])
    if len(merge.parents) < 2:
        return None, ""
    left = None if bisection.max_cost is None else bisection.max_cost - answer.cost
    if left is not None and left < LEAST_COST:
        return None, "It is a merge; the budget leaves nothing to search its side."
    if depth(bisection) >= MAX_DEPTH:
        return None, f"It is a merge; no more than {MAX_DEPTH} merges are entered."
    try:
        side = side_of(repository(project), merge.sha)
    except GitError as error:
        return None, f"It is a merge; its side cannot be searched: {error}."
    if len(side) < 2:
        return None, "It is a merge that brought no commits of its own."
    record_commits(project, side)
    follow = Bisection.objects.create(
        alert=bisection.alert,
        series=bisection.series,
        parent=bisection,
        worker=bisection.worker,
        shas=[info.sha for info in side],
        response=bisection.response,
        threshold=bisection.threshold,
        alert_ratio=bisection.alert_ratio,
        max_cost=left,
        noise_history=bisection.noise_history,
        seed=bisection.seed,
        started_by=bisection.started_by,
    )
    reuse(follow)
    others = "" if len(merge.parents) == 2 else f" (of {len(merge.parents)} parents, the second)"
    return (
        follow,
        f"It is a merge: bisection {follow.pk} searches the {len(side) - 1} commits of its side{others}.",
    )


def side_of(mirror: Repository, merge: str) -> list[CommitInfo]:
    """The side's commits from the fork, which is the good end, to the side's head. Raises GitError.

    A side with a root of its own has no fork; its oldest commit is the good end then.
    """
    side = mirror.merged_side(merge)
    if side and side[0].parents:
        return [mirror.commit(side[0].parents[0]), *side]
    return side


def depth(bisection: Bisection) -> int:
    """How many merges were entered to get here."""
    count, row = 0, bisection
    while row.parent is not None:
        count, row = count + 1, row.parent
    return count


def merge_entered(bisection: Bisection) -> str:
    """The merge whose side this bisection searches, as its parent named it; empty at the top."""
    parent = bisection.parent
    if parent is None:
        return ""
    named = parent.answer.get("commits") or []
    return parent.shas[named[0]] if named else ""
