"""Named merges are entered, rolls are named, and rewritten history does not stop a search."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import Settings

from perfdb.manifest import parse
from perfdb.models import Alert, Bisection, Branch, Build, Measurement
from perfdb.services import bisection, build, track
from tests.services.bisection_lab import BEFORE, Lab, Level, prepared
from tests.services.repo import GitRepo

pytestmark = pytest.mark.django_db
SLOW = 13.0
MANIFEST = """
schema = 1
[project]
name = "m"
[build]
command = ["{python}", "build.py"]
[[benchmark]]
name = "work"
tier = "micro"
entry = "m:work"
"""


@pytest.fixture
def repo(tmp_path: Path, settings: Settings) -> GitRepo:
    settings.PERFDB_DATA = tmp_path / "data"
    repo = GitRepo(tmp_path / "merged")
    for number in range(BEFORE + 2):
        repo.commit(f"old {number}", {"notes.txt": str(number)})
    return repo


def merge(repo: GitRepo, name: str, *, onto: str = "main") -> str:
    repo.git("checkout", "--quiet", onto)
    repo.git("merge", "--quiet", "--no-ff", "-m", f"merge {name}", name)
    return repo.git("rev-parse", "HEAD")


def side(repo: GitRepo, name: str, count: int, *, at: str = "main") -> list[str]:
    repo.git("checkout", "--quiet", "-b", name, at)
    return [repo.commit(f"{name} {number}", {f"{name}.txt": str(number)}) for number in range(count)]


def trunk(repo: GitRepo, count: int) -> list[str]:
    repo.git("checkout", "--quiet", "main")
    return [repo.commit(f"main {number}", {"main.txt": f"{repo._minute}"}) for number in range(count)]


def lab_of(repo: GitRepo, levels: dict[str, Level]) -> Lab:
    project = track.track(str(repo.path))
    track.fetch(project)
    project.jobs.all().delete()
    branch = Branch.objects.get(project=project, name="main")
    shas = list(branch.places.order_by("position").values_list("commit__sha", flat=True))
    return prepared(branch, shas[: BEFORE - 2], levels)


def search(lab: Lab) -> tuple[Bisection, Alert]:
    last = lab.branch.places.count() - 1
    alert = lab.alert(BEFORE, last, ratio=1.3)
    started = bisection.start_for_alert(alert)
    assert started is not None
    row = lab.run(started)
    alert.refresh_from_db()
    return row, alert


def test_the_culprit_inside_a_merge_is_named(repo: GitRepo) -> None:
    inside = side(repo, "feature", 5)
    between = trunk(repo, 2)
    merged = merge(repo, "feature")
    after = trunk(repo, 2)
    lab = lab_of(repo, dict.fromkeys([*inside[3:], merged, *after], SLOW))
    row, alert = search(lab)

    assert row.answer["kind"] == "culprit"
    assert [row.shas[index] for index in row.answer["commits"]] == [merged]
    (follow,) = row.descents.all()
    assert row.answer["inside"] == follow.pk
    assert follow.shas == [*repo.git("rev-parse", f"{inside[0]}^").split(), *inside]
    assert between[0] not in follow.shas
    assert alert.culprit is not None
    assert alert.culprit.sha == inside[3]
    assert alert.conclusion.startswith(f"Inside the merge {merged[:10]}: first bad commit {inside[3][:10]}")
    assert f"bisection {follow.pk} searches the 5 commits" in row.answer["reason"]
    # What was measured off the branch is kept, listed, and in nobody's line.
    assert follow.answer["off_branch"] == inside
    positions = Measurement.objects.filter(commit__sha__in=inside).values_list("position", flat=True)
    assert set(positions) == {-1}


def test_a_merge_whose_side_is_innocent_is_the_culprit_itself(repo: GitRepo) -> None:
    side(repo, "feature", 4)
    trunk(repo, 1)
    merged = merge(repo, "feature")
    after = trunk(repo, 2)
    lab = lab_of(repo, dict.fromkeys([merged, *after], SLOW))
    row, alert = search(lab)
    assert row.descents.get().answer["kind"] == "not_reproduced"
    assert alert.culprit is not None
    assert alert.culprit.sha == merged
    assert "the merge itself" in alert.conclusion
    assert alert.state == "confirmed"


def test_merges_inside_merges_are_entered_too(repo: GitRepo) -> None:
    outer = side(repo, "outer", 2)
    inner = side(repo, "inner", 3, at="outer")
    repo.git("checkout", "--quiet", "outer")
    outer.append(repo.commit("outer goes on", {"outer.txt": "on"}))
    joined = merge(repo, "inner", onto="outer")
    outer_last = repo.commit("outer ends", {"outer.txt": "end"})
    trunk(repo, 1)
    merged = merge(repo, "outer")
    after = trunk(repo, 2)
    lab = lab_of(repo, dict.fromkeys([*inner[1:], joined, outer_last, merged, *after], SLOW))
    row, alert = search(lab)
    assert alert.culprit is not None
    assert alert.culprit.sha == inner[1]
    assert Bisection.objects.filter(alert=alert).count() == 3
    assert row.descents.get().descents.get().answer["kind"] == "culprit"


def test_a_side_with_a_root_of_its_own(repo: GitRepo) -> None:
    repo.git("checkout", "--quiet", "--orphan", "other")
    other = [repo.commit(f"other {number}", {"other.txt": str(number)}) for number in range(4)]
    repo.git("checkout", "--quiet", "main")
    repo.git("rm", "--quiet", "-r", "--cached", "--ignore-unmatch", "other.txt")
    repo.git(
        "merge", "--quiet", "--no-ff", "--allow-unrelated-histories", "-X", "ours", "-m", "join", "other"
    )
    merged = repo.git("rev-parse", "HEAD")
    after = trunk(repo, 2)
    lab = lab_of(repo, dict.fromkeys([*other[2:], merged, *after], SLOW))
    _, alert = search(lab)
    assert alert.culprit is not None
    assert alert.culprit.sha == other[2]


def test_a_roll_is_named(repo: GitRepo) -> None:
    trunk(repo, 2)
    old, new = "a" * 40, "b" * 40
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{old},third_party/dep")
    repo.git("commit", "--quiet", "-m", "add dep")
    (repo.path / "requirements.txt").write_text("dep==2\n")
    repo.git("add", "requirements.txt")
    repo.git("update-index", "--cacheinfo", f"160000,{new},third_party/dep")
    repo.git("commit", "--quiet", "-m", "roll dep d1..d9")
    roll = repo.git("rev-parse", "HEAD")
    repo.git("commit", "--quiet", "--allow-empty", "-m", "after")
    after = repo.git("rev-parse", "HEAD")
    lab = lab_of(repo, {roll: SLOW, after: SLOW})
    _, alert = search(lab)
    assert alert.culprit is not None
    assert alert.culprit.sha == roll
    assert "moves the submodule third_party/dep from aaaaaaaaaa to bbbbbbbbbb" in alert.conclusion
    assert "nothing but dependencies (requirements.txt)" in alert.conclusion


def test_a_force_push_in_the_middle_does_not_lose_the_search(repo: GitRepo) -> None:
    commits = trunk(repo, 8)
    lab = lab_of(repo, dict.fromkeys(commits[5:], SLOW))
    alert = lab.alert(BEFORE, lab.branch.places.count() - 1, ratio=1.3)
    started = bisection.start_for_alert(alert)
    assert started is not None
    history = list(started.noise_history)
    bisection.advance(started.pk)
    lab.serve()
    bisection.advance(started.pk)

    repo.git("reset", "--quiet", "--hard", commits[2])
    trunk(repo, 1)
    track.fetch(lab.project)
    lab.project.jobs.filter(kind="measure").delete()

    row = lab.run(started)
    assert row.noise_history == history
    assert row.answer["kind"] == "culprit"
    assert row.shas[row.answer["commits"][0]] == commits[5]
    assert "5 of" in row.answer["reason"]
    assert "rewritten away" in row.answer["reason"]
    assert set(commits[3:]) <= set(row.answer["off_branch"])


def test_every_probe_has_a_clean_checkout_of_one_build(repo: GitRepo) -> None:
    sha = repo.commit("builds", {"build.py": "open('built.txt', 'w').write('once')"})
    project = track.track(str(repo.path))
    track.fetch(project)
    manifest = parse(MANIFEST, source="m")
    mirror, commit = track.repository(project), project.commits.get(sha=sha)
    for _ in range(2):
        with build.checkout(mirror, commit, manifest) as checkout:
            assert (checkout.root / "built.txt").read_text() == "once"
            assert not (checkout.root / "left behind").exists()
            (checkout.root / "left behind").write_text("stale")
            (checkout.root / "built.txt").write_text("spoilt")
    assert Build.objects.filter(commit=commit).count() == 1
