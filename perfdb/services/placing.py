"""Commit order. A branch's positions follow first-parent order of the graph, never arrival or clock.

`place` is the one operation that gives and changes positions; everything that repeats a position (measurements,
changes, alerts) is moved with it, in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from django.db import connection, transaction

from perfdb.models import UNPLACED, Alert, Branch, BranchCommit, Change, Commit


@dataclass(frozen=True, slots=True)
class Placement:
    """What `place` did: commits new on the branch, moved to another position, and no longer on it."""

    added: tuple[str, ...]
    moved: int
    dropped: tuple[str, ...]


@transaction.atomic
def place(branch: Branch, line: Sequence[str]) -> Placement:
    """Make `line` (SHAs, oldest first, contiguous in first-parent order, all known as commits) the branch's end.

    Commits already placed before the line's first one stay; others that the line lacks were rewritten away:
    their results keep their rows and become unplaced. Raises KeyError for a SHA that is no known commit.
    """
    branch = Branch.objects.select_for_update().get(pk=branch.pk)
    commits = {row.sha: row for row in Commit.objects.filter(project_id=branch.project_id, sha__in=line)}
    wanted = [commits[sha] for sha in line]
    placed = list(branch.places.select_related("commit").order_by("position"))
    before = {row.commit.sha: row.position for row in placed}
    order = [row.commit for row in placed[: _kept(placed, wanted)]] + wanted
    after = {commit.sha: position for position, commit in enumerate(order)}
    dropped = tuple(sha for sha in before if sha not in after)
    moved = {before[sha]: after[sha] for sha in before if sha in after and before[sha] != after[sha]}
    added = [commit for commit in order if commit.sha not in before]
    branch.places.filter(commit__sha__in=dropped).delete()
    if moved:
        rows = [row for row in placed if row.position in moved]
        for row in rows:
            row.position = moved[row.position]
        BranchCommit.objects.bulk_update(rows, ["position"])
    BranchCommit.objects.bulk_create(
        [BranchCommit(branch=branch, commit=commit, position=after[commit.sha]) for commit in added]
    )
    if added or moved or dropped:
        _move_measurements(branch)
    if moved or dropped:
        _move_findings(branch, moved, {before[sha] for sha in dropped})
    if wanted and branch.head_id != order[-1].id:
        branch.head = order[-1]
        branch.save(update_fields=["head"])
    return Placement(tuple(commit.sha for commit in added), len(moved), dropped)


@transaction.atomic
def extend(branch: Branch, sha: str, first_parents: Sequence[str]) -> Placement | None:
    """Place `sha` behind the branch's head by what an uploader says of its ancestors (newest first).

    None, and nothing changes, where it is placed already or its ancestors do not reach the present head: an upload
    never rewrites a branch.
    """
    branch = Branch.objects.select_for_update().get(pk=branch.pk)
    if branch.places.filter(commit__sha=sha).exists():
        return None
    line = [sha, *first_parents]
    last = branch.places.select_related("commit").order_by("-position").first()
    if last is not None:
        if last.commit.sha not in line:
            return None
        line = line[: line.index(last.commit.sha) + 1]
    Commit.objects.bulk_create(
        [Commit(project_id=branch.project_id, sha=own, parents=[parent]) for own, parent in pairwise(line)]
        + [Commit(project_id=branch.project_id, sha=line[-1])],
        ignore_conflicts=True,
    )
    return place(branch, line[::-1])


def _kept(placed: Sequence[BranchCommit], wanted: Sequence[Commit]) -> int:
    """How many of the placed commits stay in front of the wanted line."""
    if not wanted:
        return len(placed)
    where = {row.commit.sha: index for index, row in enumerate(placed)}
    first = wanted[0]
    if first.sha in where:
        return where[first.sha]
    if first.parents and first.parents[0] in where:
        return where[first.parents[0]] + 1
    return 0


def _move_measurements(branch: Branch) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE perfdb_measurement m SET position = target.position
            FROM (
                SELECT s.id AS series_id, c.id AS commit_id, COALESCE(p.position, %s) AS position
                FROM perfdb_series s
                JOIN perfdb_commit c ON c.project_id = %s
                LEFT JOIN perfdb_branchcommit p ON p.commit_id = c.id AND p.branch_id = s.branch_id
                WHERE s.branch_id = %s
            ) target
            WHERE m.series_id = target.series_id AND m.commit_id = target.commit_id
              AND m.position <> target.position
            """,
            [UNPLACED, branch.project_id, branch.pk],
        )


def _move_findings(branch: Branch, moved: dict[int, int], dropped: set[int]) -> None:
    """Changes and alerts follow their commits; one whose end was rewritten away is no longer active."""
    for change in Change.objects.filter(series__branch=branch):
        if change.good_position in dropped or change.bad_position in dropped:
            change.active = False
        good = moved.get(change.good_position, change.good_position)
        bad = moved.get(change.bad_position, change.bad_position)
        if good < bad:
            change.good_position, change.bad_position = good, bad
            if change.end_position is not None:
                change.end_position = moved.get(change.end_position, change.end_position)
        change.save(update_fields=["active", "good_position", "bad_position", "end_position"])
    for alert in Alert.objects.filter(branch=branch, good_position__isnull=False, bad_position__isnull=False):
        good = moved.get(alert.good_position or 0, alert.good_position or 0)
        bad = moved.get(alert.bad_position or 0, alert.bad_position or 0)
        if good < bad:
            alert.good_position, alert.bad_position = good, bad
            alert.save(update_fields=["good_position", "bad_position"])
