"""What people do on pages: states with history, marks on runs, jobs, bisections, subscriptions."""

from __future__ import annotations

import pytest
from django.test import Client
from pytest_django import DjangoCaptureOnCommitCallbacks

from perfdb.models import Alert, Bisection, Change, Job, JobState, Measurement, Message, Run, Subscription
from perfdb.services import notify, schedule
from tests.web.data import World, person

pytestmark = pytest.mark.django_db


@pytest.fixture
def triager(client: Client, world: World) -> Client:
    client.force_login(person("tess", world.project, "triager"))
    return client


def act(client: Client, world: World, **data: object) -> str:
    body = {"alert": world.alert.pk, **data}
    answer = client.post(f"/projects/{world.project.slug}/alerts/act/", body, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_transition_is_written_with_who_and_why(triager: Client, world: World) -> None:
    page = act(triager, world, state="acknowledged", why="we knew")
    event = world.alert.events.last()
    assert event is not None
    assert (event.who, event.to_state, event.text) == ("tess", "acknowledged", "we knew")
    assert "we knew" in page
    act(triager, world, state="acknowledged")
    assert world.alert.events.filter(to_state="acknowledged").count() == 1


def test_comment_claim_and_nonsense(triager: Client, world: World) -> None:
    before = Alert.objects.get(pk=world.alert.pk).state
    act(triager, world, why="only a word\0")
    act(triager, world, claim="1")
    act(triager, world, state="no-such-state")
    alert = Alert.objects.get(pk=world.alert.pk)
    assert alert.state == before
    assert alert.owner is not None
    assert alert.owner.username == "tess"
    assert [event.text for event in alert.events.all()][-2:] == ["only a word", "took it"]


def test_many_at_once_and_only_those_chosen(triager: Client, world: World) -> None:
    ids = list(Alert.objects.filter(project=world.project).values_list("pk", flat=True))
    assert len(ids) > 1
    path = f"/projects/{world.project.slug}/alerts/act/"
    triager.post(path, {"alert": ids, "state": "wontfix", "why": "old machine"})
    assert set(Alert.objects.values_list("state", flat=True)) == {"wontfix"}
    answer = triager.post(path, {"alert": ["x", "999999"], "state": "new"}, follow=True)
    assert "No alert was chosen" in answer.content.decode()
    assert set(Alert.objects.values_list("state", flat=True)) == {"wontfix"}


def test_marking_runs_invalid_analyses_again_and_can_be_taken_back(
    triager: Client, world: World, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    """With every launch from the culprit on marked, nothing is left of the change; taken back, it is there again."""
    slow = list(
        Measurement.objects.filter(series=world.series, position__gte=world.culprit).values_list(
            "run__uuid", flat=True
        )
    )
    with django_capture_on_commit_callbacks(execute=True):
        for uuid in slow:
            triager.post(f"/runs/{uuid}/mark/", {"reason": "wrong clock"})
    assert not Change.objects.filter(series=world.series, active=True, direction="regressed").exists()
    assert Run.objects.get(pk=world.run.pk).invalid_reason == "wrong clock (tess)"
    page = triager.get(f"/runs/{world.run.uuid}/").content.decode()
    assert "Marked invalid: wrong clock" in page
    with django_capture_on_commit_callbacks(execute=True):
        for uuid in slow:
            triager.post(f"/runs/{uuid}/mark/", {"take_back": "1"})
    assert Change.objects.filter(series=world.series, active=True, direction="regressed").exists()


def test_a_mark_needs_a_reason(triager: Client, world: World) -> None:
    page = triager.post(f"/runs/{world.run.uuid}/mark/", {"reason": " "}, follow=True).content.decode()
    assert "Say why" in page
    assert Run.objects.get(pk=world.run.pk).invalid_reason == ""


def test_measure_again_asks_for_one_job_of_that_case(triager: Client, world: World) -> None:
    for _ in range(2):
        triager.post(f"/runs/{world.run.uuid}/again/")
    job = Job.objects.get(priority=schedule.PRIORITY["asked"])
    assert list(job.cases.all()) == [world.run.case]
    assert job.commit == world.run.commit
    assert job.launches == 5


def test_a_run_without_a_commit_cannot_be_measured_again(triager: Client, world: World) -> None:
    orphan = Run.objects.get(commit=None)
    page = triager.post(f"/runs/{orphan.uuid}/again/", follow=True).content.decode()
    assert "only commits of a tracked repository" in page


def test_jobs_are_retried_and_cancelled(triager: Client, world: World) -> None:
    path = f"/jobs/{world.job.uuid}/"
    triager.post(path, {"action": "retry"})
    world.job.refresh_from_db()
    assert (world.job.state, world.job.reason) == (JobState.QUEUED, "")
    triager.post(path, {"action": "cancel"})
    world.job.refresh_from_db()
    assert world.job.state == JobState.CANCELLED
    Job.objects.filter(pk=world.job.pk).update(state=JobState.DONE)
    for action in ("retry", "cancel", "nonsense"):
        triager.post(path, {"action": action})
    world.job.refresh_from_db()
    assert world.job.state == JobState.DONE


def test_a_bisection_is_started_and_cancelled(triager: Client, world: World) -> None:
    change = world.alert.changes.filter(active=True)[0]
    answer = triager.post(f"/alerts/{world.alert.pk}/bisect/", {"change": change.pk})
    started = Bisection.objects.order_by("-pk")[0]
    assert answer["Location"] == f"/bisections/{started.pk}/"
    assert started.started_by == "tess"
    Bisection.objects.filter(pk=started.pk).update(state="running")
    triager.post(f"/bisections/{started.pk}/cancel/")
    started.refresh_from_db()
    assert started.state == "cancelled"


def test_a_bisection_that_is_under_way_is_not_started_twice(triager: Client, world: World) -> None:
    change = world.alert.changes.filter(active=True)[0]
    Bisection.objects.filter(pk=world.bisection.pk).update(state="running", series=change.series)
    answer = triager.post(f"/alerts/{world.alert.pk}/bisect/", {"change": change.pk})
    assert answer["Location"] == f"/bisections/{world.bisection.pk}/"


def test_what_cannot_be_bisected_is_said(triager: Client, world: World) -> None:
    world.alert.changes.update(active=False)
    page = triager.post(f"/alerts/{world.alert.pk}/bisect/", follow=True).content.decode()
    assert "No active change is left" in page
    assert triager.post(f"/alerts/{world.alert.pk}/bisect/", {"change": "999999"}).status_code == 404


def test_subscribing(triager: Client, world: World) -> None:
    path = f"/projects/{world.project.slug}/subscriptions/"
    triager.post(path, {"email": "ann@example.org", "metric_pattern": "*_p99", "digest": "on"})
    row = Subscription.objects.get(email="ann@example.org")
    assert (row.metric_pattern, row.digest, row.only_blocking) == ("*_p99", True, False)
    for bad in ({"email": "no address"}, {"webhook": "ftp://x"}, {}, {"email": "a@b.org", "webhook": "https://x.org"},
                {"email": "a@b.org\nBcc: c@d.org"}):  # fmt: skip
        page = triager.post(path, bad, follow=True).content.decode()
        assert "notice error" in page, bad
    assert Subscription.objects.count() == 2


def test_the_address_of_a_webhook_is_a_secret(triager: Client, world: World) -> None:
    """Whoever knows it may post there: pages show its host."""
    secret = "https://hooks.example.org/services/T0/B0/verysecret"
    path = f"/projects/{world.project.slug}/subscriptions/"
    triager.post(path, {"webhook": secret, "webhook_style": "slack"})
    notify.announce(world.alert, "culprit")
    message = Message.objects.get(recipient=secret)
    for page in (path, "/inbox/", f"/inbox/{message.pk}/", f"/alerts/{world.alert.pk}/"):
        text = triager.get(page).content.decode()
        assert "hooks.example.org" in text, page
        assert "verysecret" not in text, page
