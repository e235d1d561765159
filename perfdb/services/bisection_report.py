"""What a finished bisection says: one sentence after another for people, and the alert that learns of it."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import PurePosixPath
from statistics import median

from perfdb.models import AlertState, Bisection, Commit
from perfdb.services import alerts
from perfdb.services.bisection_probes import workers
from perfdb.services.track import repository
from perfdb.stats.bisect import Answer, Search
from perfdb.vcs import GitError

NAMING = ("culprit", "range", "several")
_DEPENDENCY_FILES = (
    "requirements*.txt", "constraints*.txt", "*.lock", "package-lock.json", "go.sum", "go.mod", "DEPS", "uv.lock",
    "environment*.yml", "WORKSPACE", "MODULE.bazel",
)  # fmt: skip
_NAMES_SHOWN = 5


def conclusion(bisection: Bisection, answer: Answer) -> str:
    """One sentence for people."""
    shas = ", ".join(bisection.shas[index][:10] for index in answer.commits[:8])
    spent = f"{answer.launches} launches, cost {answer.cost:.0f}"
    words = {
        "culprit": f"first bad commit {shas} (probability {answer.probability:.3f})",
        "range": f"the first bad commit is one of {shas}",
        "several": f"more than one commit changed it: {shas}",
        "not_reproduced": "could not reproduce the change",
        "recovered": "the level recovered inside the range",
        "outside": "the change lies outside the range",
        "inconclusive": "inconclusive",
        "running": "still searching",
    }
    return f"{words[answer.kind]}; {spent}. {answer.reason}".strip()


def remarks(bisection: Bisection, search: Search) -> list[str]:
    """What the answer alone does not say: the comparison behind a name, rolls, commits that are off the branch."""
    answer = search.answer
    found: list[str] = []
    if answer.kind == "culprit":
        for index in answer.commits[:1]:
            found += _compared(bisection, search, index)
            found += rolls(bisection, index)
    names = workers(bisection)
    if len(names) > 1:
        found.append(f"Measured by several workers: {', '.join(names)}.")
    project = bisection.series.case.benchmark.project
    gone = list(
        project.commits.filter(sha__in=bisection.shas, vanished=True)
        .order_by("pk")
        .values_list("sha", flat=True)
    )
    if gone:
        names_gone = _names([sha[:10] for sha in gone])
        found.append(f"{len(gone)} of {len(bisection.shas)} commits were rewritten away since: {names_gone}.")
    return found


def off_branch(bisection: Bisection) -> list[str]:
    """Commits of the search that have no place on the series' branch: their results are kept, off the series' line."""
    placed = set(
        bisection.series.branch.places.filter(commit__sha__in=bisection.shas).values_list(
            "commit__sha", flat=True
        )
    )
    return [sha for sha in bisection.shas if sha not in placed]


def _compared(bisection: Bisection, search: Search, index: int) -> list[str]:
    before, after = search.launches_of(index - 1), search.launches_of(index)
    if index < 1 or not before or not after:
        return []
    if bisection.response == "pass_fail":
        told = f"{sum(after):.0f} of {len(after)} launches failed, {sum(before):.0f} of {len(before)} before"
    else:
        unit = bisection.series.metric.unit
        told = (
            f"median {median(after):.4g} {unit} of {len(after)} launches, "
            f"{median(before):.4g} of {len(before)} before"
        )
    return [f"Compared with its parent {bisection.shas[index - 1][:10]}: {told}."]


def rolls(bisection: Bisection, index: int) -> list[str]:
    """Submodules and dependency files that the named commit moves: the change may lie in what they bring."""
    project = bisection.series.case.benchmark.project
    commit = Commit.objects.get(project=project, sha=bisection.shas[index])
    if not project.url or not commit.parents:
        return []
    try:
        mirror = repository(project)
        moved = mirror.submodule_rolls(commit.parents[0], commit.sha)
        paths = mirror.changed_paths(commit.parents[0], commit.sha)
    except GitError as error:
        return [f"What it changed could not be read: {error}."]
    found = [
        f"It moves the submodule {path} from {old[:10]} to {new[:10]}: the change may lie inside."
        for path, (old, new) in list(moved.items())[:_NAMES_SHOWN]
    ]
    files = [path for path in paths if any(fnmatch(PurePosixPath(path).name, p) for p in _DEPENDENCY_FILES)]
    if files:
        only = set(paths) <= set(files) | set(moved)
        found.append(
            f"It changes {'nothing but ' if only else ''}dependencies ({_names(files)}): the change may lie in them."
        )
    return found


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def tell_alert(bisection: Bisection, answer: Answer, text: str) -> None:
    """Write the answer into the alert: a culprit only where one commit was named."""
    alert = bisection.alert
    if alert is None:
        return
    shas = [bisection.shas[index] for index in answer.commits]
    inside = bisection.parent
    if answer.kind == "culprit" and len(shas) == 1:
        share = alert.culprit_probability if inside and alert.culprit_probability is not None else 1.0
        alert.culprit = Commit.objects.get(project=alert.project, sha=shas[0])
        alert.culprit_probability = min(1.0, max(0.0, answer.probability)) * share
    alert.conclusion = text
    alert.save()
    if answer.kind in NAMING and alert.state == AlertState.NEW:
        alerts.move(alert, AlertState.CONFIRMED, who=alerts.SYSTEM, why=text)
    elif answer.kind in ("not_reproduced", "recovered") and alert.is_open and inside is None:
        alerts.move(alert, AlertState.RECOVERED, who=alerts.SYSTEM, why=text)
    else:
        alerts.comment(alert, text, who=alerts.SYSTEM)


def inside_merge(merge: str, answer: Answer, text: str) -> str:
    """The conclusion of a search of a merge's side, told with the merge that was named before."""
    if answer.kind in NAMING:
        return f"Inside the merge {merge[:10]}: {text}"
    if answer.kind == "not_reproduced":
        return f"First bad commit {merge[:10]}, the merge itself: its side alone does not show the change. {text}"
    return f"First bad commit {merge[:10]}, a merge; which commit of its side it is stays open: {text}"
