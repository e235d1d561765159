"""Jobs are rows: claimed once, requeued when abandoned, sent again when the broker lost them."""

from __future__ import annotations

from datetime import timedelta
from threading import Barrier, Thread

import pytest
from django.db import connection
from django.utils import timezone

from perfdb.models import Branch, Commit, Job, JobState, Pool, Project, Worker
from perfdb.services import schedule


@pytest.fixture
def branch(db: None) -> Branch:
    project = Project.objects.create(slug="lab", name="Lab")
    return Branch.objects.create(project=project, name="main")


@pytest.fixture
def pool(db: None) -> Pool:
    return Pool.objects.create(name="default")


def commit(branch: Branch, number: int = 1) -> Commit:
    return Commit.objects.create(project=branch.project, sha=f"{number:040x}")


def worker(pool: Pool, name: str = "w") -> Worker:
    return Worker.objects.create(name=name, pool=pool)


def test_the_most_urgent_job_first_and_none_twice(branch: Branch, pool: Pool) -> None:
    late = schedule.request(branch, commit(branch, 1), pool=pool, priority=0)
    soon = schedule.request(branch, commit(branch, 2), pool=pool, priority=5)
    one = worker(pool)
    assert schedule.claim(one) == soon
    assert schedule.claim(one) == late
    assert schedule.claim(one) is None


def test_an_equal_request_raises_the_waiting_one(branch: Branch, pool: Pool) -> None:
    sha = commit(branch)
    first = schedule.request(branch, sha, pool=pool, priority=0)
    assert schedule.request(branch, sha, pool=pool, priority=9) == first
    assert Job.objects.get().priority == 9


def test_other_pools_jobs_are_left_alone(branch: Branch, pool: Pool) -> None:
    schedule.request(branch, commit(branch), pool=Pool.objects.create(name="h200"))
    assert schedule.claim(worker(pool)) is None


def test_a_silent_worker_loses_its_job_and_cannot_finish_it(branch: Branch, pool: Pool) -> None:
    schedule.request(branch, commit(branch), pool=pool)
    first = schedule.claim(worker(pool, "dies"))
    assert first is not None
    Job.objects.update(heartbeat_at=timezone.now() - schedule.SILENCE - timedelta(seconds=1))
    assert schedule.requeue_abandoned() == [first.pk]
    second = schedule.claim(worker(pool, "lives"))
    assert second is not None
    assert second.attempts == 2
    assert not schedule.beat(first)
    assert not schedule.finish(first, JobState.DONE)
    assert schedule.finish(second, JobState.DONE)
    assert Job.objects.get().state == JobState.DONE


def test_a_job_that_kills_its_workers_fails_in_the_end(branch: Branch, pool: Pool) -> None:
    schedule.request(branch, commit(branch), pool=pool)
    one = worker(pool)
    for _ in range(schedule.MAX_ATTEMPTS):
        assert schedule.claim(one) is not None
        Job.objects.update(heartbeat_at=timezone.now() - schedule.SILENCE - timedelta(seconds=1))
        schedule.requeue_abandoned()
    assert schedule.claim(one) is None
    job = Job.objects.get()
    assert job.state == JobState.FAILED
    assert "silent" in job.reason
    assert schedule.retry(job)
    assert schedule.claim(one) == job


def test_lost_messages_are_sent_again(branch: Branch, pool: Pool) -> None:
    job = schedule.request(branch, commit(branch), pool=pool)
    assert schedule.unsent() == [job.pk]
    schedule.mark_sent([job.pk])
    assert schedule.unsent() == []
    Job.objects.update(sent_at=timezone.now() - schedule.RESEND_AFTER - timedelta(seconds=1))
    assert schedule.unsent() == [job.pk]


def test_cancelling_a_running_job_is_noticed_at_the_next_beat(branch: Branch, pool: Pool) -> None:
    schedule.request(branch, commit(branch), pool=pool)
    job = schedule.claim(worker(pool))
    assert job is not None
    assert schedule.beat(job)
    assert schedule.cancel(job)
    assert not schedule.beat(job)


@pytest.mark.django_db(transaction=True)
def test_racing_workers_get_different_jobs() -> None:
    project = Project.objects.create(slug="race", name="Race")
    branch = Branch.objects.create(project=project, name="main")
    pool = Pool.objects.create(name="default")
    for number in range(1, 9):
        schedule.request(branch, commit(branch, number), pool=pool)
    workers = [worker(pool, f"w{i}") for i in range(4)]
    claimed: list[int] = []
    start = Barrier(len(workers))

    def take(one: Worker) -> None:
        start.wait()
        try:
            while (job := schedule.claim(one)) is not None:
                claimed.append(job.pk)
        finally:
            connection.close()

    threads = [Thread(target=take, args=(one,)) for one in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == len(set(claimed)) == 8
