"""Every page: it shows, for nothing, for little and for much, and for odd data."""

from __future__ import annotations

import pytest
from django.test import Client

from perfdb.models import Bisection, Commit, Run
from tests.web.data import World, person

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(client: Client) -> Client:
    client.force_login(person("root", superuser=True))
    return client


def test_every_page_shows(admin: Client, world: World) -> None:
    for name, path in world.pages().items():
        answer = admin.get(path)
        assert answer.status_code == 200, (name, answer.status_code)
        assert "</html>" in answer.content.decode(), name


def test_the_regression_is_on_its_pages(client: Client, world: World) -> None:
    culprit = world.shas[world.culprit]
    pages = {
        name: client.get(path).content.decode() for name, path in world.pages().items() if name != "tokens"
    }
    assert world.bisection.answer["kind"] == "culprit"
    assert culprit[:10] in pages["alert"]
    assert "First bad commit of" in pages["commit"]
    assert "regressed" in pages["commit"]
    assert f"--head-commit {culprit}" in pages["alert"]
    assert "▲ named" in pages["bisection"]
    assert "error: no rule" in pages["commit-unbuilt"]
    assert "Results off the branch" in pages["series"]


def test_what_is_not_there_is_a_404(client: Client, world: World) -> None:
    missing = "00000000-0000-4000-8000-000000000000"
    for path in ("/projects/none/", "/series/999999/", f"/runs/{missing}/", "/alerts/999999/", "/bisections/999999/",
                 "/inbox/999999/", "/unsubscribe/nothing/", f"/projects/{world.project.slug}/commits/zz/"):  # fmt: skip
        assert client.get(path).status_code == 404, path


def test_odd_parameters_are_harmless(client: Client, world: World) -> None:
    slug = world.project.slug
    for query in ("page=x", "page=-1", "page=99999", "q=%00", "q=" + "a" * 5000):
        assert client.get(f"/projects/{slug}/?{query}").status_code in (200, 400), query
    for query in ("state=nonsense", "kind=nonsense", "state=%00"):
        assert client.get(f"/projects/{slug}/alerts/?{query}").status_code == 200, query
        assert client.get(f"/projects/{slug}/jobs/?{query}").status_code == 200, query


def test_runs_without_commit_and_commits_without_date(client: Client, world: World) -> None:
    orphan = Run.objects.get(commit=None)
    page = client.get(f"/runs/{orphan.uuid}/").content.decode()
    assert "no commit" in page
    undated = world.shas[1]
    answer = client.get(f"/projects/{world.project.slug}/commits/{undated}/")
    assert answer.status_code == 200
    assert "None" not in answer.content.decode().split("<h2>")[0]


def test_a_commit_off_every_branch_is_shown(client: Client, world: World) -> None:
    lost = Commit.objects.create(project=world.project, sha="d" * 40, subject="rewritten", vanished=True)
    page = client.get(f"/projects/{world.project.slug}/commits/{lost.sha}/").content.decode()
    assert "its history was rewritten" in page


def test_a_bisection_that_has_just_begun(client: Client, world: World) -> None:
    fresh = Bisection.objects.create(series=world.series, shas=world.shas[:5], alert_ratio=1.3)
    assert client.get(f"/bisections/{fresh.pk}/").status_code == 200
