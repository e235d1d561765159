"""A real repository from fetch to culprit: built, measured by the runner, stored, analysed, bisected."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from perfdb.models import (
    Alert,
    Bisection,
    Build,
    BuildStatus,
    Job,
    JobState,
    Measurement,
    Pool,
    Project,
    Run,
    Worker,
)
from perfdb.services import alerts, bisection, detect, measure, schedule, track
from tests.services.repo import GitRepo

MANIFEST = """
schema = 1
[project]
name = "tiny"
[build]
command = ["{python}", "build.py"]
[[benchmark]]
name = "work"
tier = "micro"
entry = "tiny:work"
params = { n = [2000] }
launches = 3
timeout_s = 30
"""
FAST = "def work(n):\n    total = 0\n    for i in range(n):\n        total += i\n    return total\n"
SLOW = FAST.replace("range(n)", "range(2 * n)")


@pytest.fixture
def data_folder(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The heartbeat's thread has a connection of its own, which does not see this test's open transaction.
    monkeypatch.setattr(schedule, "HEARTBEAT", timedelta(hours=1))
    settings.PERFDB_DATA = tmp_path / "data"
    return settings.PERFDB_DATA


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    repo = GitRepo(tmp_path / "tiny")
    repo.commit("first", {"perfdb.toml": MANIFEST, "build.py": "", "tiny.py": FAST})
    return repo


@pytest.fixture
def worker(transactional_db: None) -> Worker:
    pool = Pool.objects.create(name="default")
    return Worker.objects.create(name="w1", pool=pool)


def work_off(worker: Worker) -> list[measure.Outcome]:
    """What the worker and the analysis do, without a broker."""
    outcomes = []
    while job := schedule.claim(worker):
        outcome = measure.perform(job, worker=worker)
        outcomes.append(outcome)
        bundled = alerts.bundle(detect.analyse(outcome.series_ids))
        for alert in Alert.objects.filter(pk__in=bundled.new, kind="regression"):
            bisection.start_for_alert(alert)
        for pending in bisection.unfinished():
            bisection.advance(pending)
    return outcomes


@pytest.mark.django_db(transaction=True)
def test_slower_commit_is_measured_found_and_named(data_folder: Path, repo: GitRepo, worker: Worker) -> None:
    for number in range(5):
        repo.commit(f"note {number}", {"notes.txt": str(number)})
    broken = repo.commit("does not build", {"build.py": "raise SystemExit('no')"})
    repo.commit("builds again", {"build.py": ""})
    slow = repo.commit("slower", {"tiny.py": SLOW})
    for number in range(4):
        repo.commit(f"more {number}", {"notes.txt": f"x{number}"})
    project = track.track(str(repo.path))
    fetched = track.fetch(project)
    assert len(fetched.jobs) == 13

    work_off(worker)

    assert Run.objects.filter(status=0).count() >= 3 * 12
    assert Build.objects.get(commit__sha=broken).status == BuildStatus.FAILED
    assert Job.objects.get(commit__sha=broken, kind="measure").state == JobState.FAILED
    assert not Run.objects.filter(commit__sha=broken).exists()
    alert = Alert.objects.get(kind="regression")
    assert alert.culprit is not None, alert.conclusion
    assert alert.culprit.sha == slow
    assert Bisection.objects.get().answer["kind"] == "culprit"


@pytest.mark.django_db(transaction=True)
def test_fetching_again_asks_for_new_commits_only(data_folder: Path, repo: GitRepo, worker: Worker) -> None:
    project = track.track(str(repo.path))
    assert len(track.fetch(project).jobs) == 1
    assert track.fetch(project).jobs == ()
    sha = repo.commit("second", {"notes.txt": "2"})
    jobs = track.fetch(project).jobs
    assert [job.commit.sha for job in jobs] == [sha]


@pytest.mark.django_db(transaction=True)
def test_rewritten_history_moves_results_with_their_commits(
    data_folder: Path, repo: GitRepo, worker: Worker
) -> None:
    gone = repo.commit("to be rewritten", {"notes.txt": "1"})
    project = track.track(str(repo.path))
    track.fetch(project)
    work_off(worker)
    repo.git("reset", "--quiet", "--hard", "HEAD~1")
    kept = repo.commit("instead", {"notes.txt": "2"})
    track.fetch(project)
    branch = project.branches.get(name="main")
    assert [place.commit.sha for place in branch.places.order_by("position")][-1] == kept
    positions = set(Measurement.objects.filter(commit__sha=gone).values_list("position", flat=True))
    assert positions == {-1}
    assert project.commits.get(sha=gone).vanished


def test_no_repository_makes_no_project(data_folder: Path, db: None, tmp_path: Path) -> None:
    with pytest.raises(track.NoRepository, match="is no repository that git can read"):
        track.track(str(tmp_path / "nothing"))
    assert not Project.objects.exists()
