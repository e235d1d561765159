"""What CI asks: may this commit pass? One answer with everything that led to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.db.models import Avg

from perfdb.models import BranchCommit, BranchKind, Commit, Project, Run
from perfdb.services import lineage
from perfdb.services.comparing import WINDOW, Cell, by_outcome, compare_commits
from perfdb.stats.verdict import Outcome

_FALLBACK_LAUNCH_S = 60.0


class Decision(StrEnum):
    PASS = "pass"  # noqa: S105  (the decision, no secret)
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOTHING = "nothing measured"

    @property
    def exit_code(self) -> int:
        """0 pass, 1 regression, 3 nothing could be concluded or nothing was measured (2 is an error)."""
        return {Decision.PASS: 0, Decision.FAIL: 1}.get(self, 3)


@dataclass(frozen=True, slots=True)
class Answer:
    """regressions that block, advisory ones apart; missing: cells of the base that the head lacks; broken: cells of
    the base that failed at the head; invalid: cells whose head runs are all invalid. launches, minutes: what would
    settle the inconclusive cells. note: which base was taken, and why not the one asked for."""

    decision: Decision
    base: Commit | None
    head: Commit
    note: str
    regressions: tuple[Cell, ...] = ()
    advisory: tuple[Cell, ...] = ()
    improvements: tuple[Cell, ...] = ()
    changed: tuple[Cell, ...] = ()
    same: tuple[Cell, ...] = ()
    inconclusive: tuple[Cell, ...] = ()
    missing: tuple[Cell, ...] = ()
    broken: tuple[Cell, ...] = ()
    invalid: tuple[Cell, ...] = ()
    new: tuple[Cell, ...] = ()
    launches: int = 0
    minutes: float = 0.0

    @property
    def coverage(self) -> tuple[int, int]:
        """(cells decided, cells that the base has)."""
        decided = (
            len(self.regressions)
            + len(self.advisory)
            + len(self.improvements)
            + len(self.same)
            + len(self.changed)
        )
        return decided, decided + len(self.inconclusive) + len(self.missing) + len(self.broken) + len(
            self.invalid
        )


def gate(project: Project, *, base: str, head: str) -> Answer:
    """Compare `head` with its merge base on `base` (branch or SHA). Raises lineage.UnknownCommit."""
    head_commit = lineage.resolve(project, head)
    if not Run.objects.filter(commit=head_commit).exists():
        return Answer(Decision.NOTHING, None, head_commit, f"nothing was measured at {head_commit.short}")
    base_commit, note = choose_base(project, base, head_commit)
    if base_commit is None:
        return Answer(Decision.NOTHING, None, head_commit, note)
    cells = compare_commits(project, [base_commit, *same_level(project, base_commit)], head_commit)
    return _answer(base_commit, head_commit, note, cells)


def choose_base(project: Project, base: str, head: Commit) -> tuple[Commit | None, str]:
    """The merge base by the graph, else its nearest measured ancestor; the note says which and why."""
    tip = lineage.resolve(project, base)
    graph = lineage.Lineage.of(project)
    fork = graph.merge_base(tip.sha, head.sha)
    if fork == head.sha:
        # The head is on the base branch already: compare with what came before it.
        fork = next(iter(graph.parents[head.sha]), None)
        if fork is None:
            return None, f"{head.short} is the first commit: there is nothing to compare it with"
    if fork is None:
        return None, f"{head.short} and {base} share no stored commit: their order is unknown"
    measured = set(
        project.commits.filter(sha__in=graph.first_parents(fork), runs__isnull=False).values_list(
            "sha", flat=True
        )
    )
    for back, sha in enumerate(graph.first_parents(fork)):
        if sha in measured:
            commit = project.commits.get(sha=sha)
            if back == 0:
                return commit, f"compared with the merge base {commit.short}"
            return (
                commit,
                f"the merge base {fork[:10]} is not measured; compared with {commit.short}, {back} commits back",
            )
    return None, f"neither the merge base {fork[:10]} nor any stored ancestor of it was measured"


def same_level(project: Project, base: Commit) -> list[Commit]:
    """The commits before `base` on the main branch, newest first, that may stand beside it: a longer memory.

    Which of them lie on its level is decided for each series by itself (`comparing`).
    """
    place = BranchCommit.objects.filter(
        commit=base, branch__project=project, branch__kind=BranchKind.TRUNK
    ).first()
    if place is None:
        return []
    rows = BranchCommit.objects.filter(
        branch_id=place.branch_id, position__gt=place.position - WINDOW, position__lt=place.position
    ).select_related("commit")
    return [row.commit for row in rows.order_by("-position")]


def _answer(base: Commit, head: Commit, note: str, cells: Sequence[Cell]) -> Answer:
    regressed = by_outcome(cells, Outcome.REGRESSED)
    blocking = tuple(cell for cell in regressed if cell.policy.blocking)
    unsettled = tuple(by_outcome(cells, Outcome.INCONCLUSIVE, Outcome.INVALID))
    absent = [cell for cell in cells if cell.base.measured and not cell.head.measured]
    invalid = tuple(cell for cell in absent if set(cell.head.failures) == {"invalid"})
    broken = tuple(cell for cell in absent if cell.head.failures and cell not in invalid)
    missing = tuple(cell for cell in absent if not cell.head.failures)
    launches, minutes = _price(unsettled)
    decided = by_outcome(cells, Outcome.REGRESSED, Outcome.IMPROVED, Outcome.SAME, Outcome.CHANGED)
    if blocking or broken:
        decision = Decision.FAIL
    elif unsettled or missing or invalid or not decided:
        decision = Decision.INCONCLUSIVE if decided or unsettled or missing or invalid else Decision.NOTHING
    else:
        decision = Decision.PASS
    return Answer(
        decision,
        base,
        head,
        note,
        regressions=blocking,
        advisory=tuple(cell for cell in regressed if not cell.policy.blocking),
        improvements=tuple(by_outcome(cells, Outcome.IMPROVED)),
        changed=tuple(by_outcome(cells, Outcome.CHANGED)),
        same=tuple(by_outcome(cells, Outcome.SAME)),
        inconclusive=unsettled,
        missing=missing,
        broken=broken,
        invalid=invalid,
        new=tuple(cell for cell in cells if cell.head.measured and not cell.base.measured),
        launches=launches,
        minutes=minutes,
    )


def _price(cells: Sequence[Cell]) -> tuple[int, float]:
    """Launches a case that would settle all of its cells, and the minutes they take."""
    more: dict[int, int] = {}
    for cell in cells:
        needed = cell.verdict.launches_needed if cell.verdict else None
        if needed is not None:
            wanted = max(0, needed - len(cell.head.values)) + max(0, needed - len(cell.base.values))
            more[cell.case.pk] = max(more.get(cell.case.pk, 0), wanted)
    seconds = dict(
        Run.objects.filter(case_id__in=more, duration_s__isnull=False)
        .values_list("case_id")
        .annotate(mean=Avg("duration_s"))
        .values_list("case_id", "mean")
    )
    total = sum(count * seconds.get(case_id, _FALLBACK_LAUNCH_S) for case_id, count in more.items())
    return sum(more.values()), math.ceil(total / 6.0) / 10.0
