"""Who sees and does what: a visitor, a stranger, a viewer, a triager and an administrator."""

from __future__ import annotations

import pytest
from django.conf import settings as configured
from django.test import Client
from pytest_django import Settings

from perfdb.models import Alert, ApiToken, Project, Run, Subscription
from tests.web.data import World, person

pytestmark = pytest.mark.django_db
PUBLIC = {"home", "unsubscribe"}
PERSONAL = {"tokens", "inbox", "workers", *PUBLIC}


@pytest.fixture
def private(world: World) -> World:
    world.project.public = False
    world.project.save()
    return world


def signed_in(world: World, role: str) -> Client:
    client = Client()
    client.force_login(person(f"the-{role or 'stranger'}", world.project, role))
    return client


def posts(world: World) -> dict[str, dict[str, str]]:
    """Everything that a triager may do, by address."""
    slug = world.project.slug
    return {
        f"/projects/{slug}/alerts/act/": {
            "alert": str(world.alert.pk),
            "state": "acknowledged",
            "why": "known",
        },
        f"/runs/{world.run.uuid}/mark/": {"reason": "noisy neighbour"},
        f"/runs/{world.run.uuid}/again/": {},
        f"/jobs/{world.job.uuid}/": {"action": "retry"},
        f"/alerts/{world.alert.pk}/bisect/": {},
        f"/bisections/{world.bisection.pk}/cancel/": {},
        f"/projects/{slug}/subscriptions/": {"email": "new@example.org"},
    }


def test_a_visitor_is_sent_to_the_login_page_and_a_stranger_finds_nothing(
    client: Client, private: World
) -> None:
    stranger = signed_in(private, "")
    for name, path in private.pages().items():
        if name in PERSONAL:
            continue
        answer = client.get(path)
        assert answer.status_code == 302, name
        assert answer["Location"].startswith("/login/?next=/"), name
        assert stranger.get(path).status_code == 404, name
    assert private.project.name not in client.get("/").content.decode()


def test_a_stranger_cannot_tell_a_private_project_from_none(private: World) -> None:
    """Pages that only operators see must not say by their status that the project is there."""
    stranger = signed_in(private, "")
    for path in ("subscriptions/", "alerts/act/"):
        there = stranger.post(f"/projects/{private.project.slug}/{path}").status_code
        assert there == stranger.post(f"/projects/none/{path}").status_code == 404, path


def test_messages_of_a_private_project_stay_private(private: World) -> None:
    stranger = signed_in(private, "")
    assert private.message.subject not in stranger.get("/inbox/").content.decode()
    assert stranger.get(f"/inbox/{private.message.pk}/").status_code == 404
    assert private.message.subject in signed_in(private, "viewer").get("/inbox/").content.decode()


def test_with_a_mail_host_a_visitor_sees_no_message(client: Client, world: World, settings: Settings) -> None:
    settings.EMAIL_HOST = "mail.example.invalid"
    assert client.get("/inbox/").status_code == 302
    assert client.get(f"/inbox/{world.message.pk}/").status_code == 302


def test_a_viewer_reads_and_changes_nothing(private: World) -> None:
    viewer = signed_in(private, "viewer")
    for name, path in private.pages().items():
        if name not in {"tokens", "subscriptions"}:
            assert viewer.get(path).status_code == 200, name
    for path, data in posts(private).items():
        assert viewer.post(path, data).status_code == 403, path
    assert "<h2>Act</h2>" not in viewer.get(private.pages()["alert"]).content.decode()
    private.alert.refresh_from_db()
    assert private.alert.state != "acknowledged"
    assert Run.objects.get(pk=private.run.pk).invalid_reason == ""
    assert not Subscription.objects.filter(email="new@example.org").exists()


def test_a_triager_may(private: World) -> None:
    triager = signed_in(private, "triager")
    assert "<h2>Act</h2>" in triager.get(private.pages()["alert"]).content.decode()
    for path, data in posts(private).items():
        assert triager.post(path, data).status_code == 302, path
    assert triager.get("/tokens/").status_code == 403


def test_a_triager_of_one_project_may_not_act_in_another(private: World) -> None:
    other = Project.objects.create(slug="other", name="Other")
    client = Client()
    client.force_login(person("outsider", other, "triager"))
    for path, data in posts(private).items():
        assert client.post(path, data).status_code in (403, 404), path
    client.post("/projects/other/alerts/act/", {"alert": str(private.alert.pk), "state": "fixed"})
    assert Alert.objects.get(pk=private.alert.pk).state != "fixed"


def test_actions_need_post_and_a_csrf_token(private: World) -> None:
    triager = Client(enforce_csrf_checks=True)
    triager.force_login(person("triager", private.project, "triager"))
    for path, data in posts(private).items():
        assert triager.post(path, data).status_code == 403, path
        if "subscriptions" not in path:
            assert triager.get(path).status_code == 405, path


def test_a_token_is_shown_once(private: World) -> None:
    admin = Client()
    admin.force_login(person("root", superuser=True))
    page = admin.post(
        "/tokens/", {"name": "ci", "scope": ["upload"], "project": private.project.slug}
    ).content.decode()
    secret = page.split('id="secret">')[1].split("<")[0]
    token = ApiToken.objects.get(name="ci")
    assert secret.startswith("pdb_")
    assert token.project == private.project
    assert secret not in admin.get("/tokens/").content.decode()
    assert secret not in token.digest
    admin.post(f"/tokens/{token.pk}/revoke/")
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_a_token_without_scope_or_for_an_unknown_project_is_not_made(private: World) -> None:
    """A misspelt project must not become a token for every project."""
    admin = Client()
    admin.force_login(person("root", superuser=True))
    assert "no scope" in admin.post("/tokens/", {"name": "none"}).content.decode()
    admin.post("/tokens/", {"name": "typo", "scope": ["read"], "project": "no-such"})
    assert not ApiToken.objects.exists()


def test_unsubscribe_asks_on_get_and_does_on_post(client: Client, private: World) -> None:
    path = f"/unsubscribe/{private.subscription.unsubscribe_token}/"
    assert "<form" in client.get(path).content.decode()
    assert Subscription.objects.get(pk=private.subscription.pk).active
    one_click = Client(enforce_csrf_checks=True)
    assert one_click.post(path, {"List-Unsubscribe": "One-Click"}).status_code == 200
    assert not Subscription.objects.get(pk=private.subscription.pk).active
    assert "No more messages" in client.get(path).content.decode()


def test_signing_in_leads_back_but_never_elsewhere(client: Client, private: World) -> None:
    user = person("ann", private.project, "viewer")
    path = private.pages()["alert"]
    form = {"username": user.username, "password": "correct horse battery"}
    assert client.post("/login/", {**form, "next": path})["Location"] == path
    client.post("/logout/")
    assert (
        client.post("/login/", {**form, "next": "https://evil.example"})["Location"]
        == configured.LOGIN_REDIRECT_URL
    )


def test_every_page_has_the_security_headers(client: Client, world: World) -> None:
    answer = client.get(world.pages()["alert"])
    assert "script-src 'self'" in answer["Content-Security-Policy"]
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Frame-Options"] == "DENY"
