"""Pages with nothing to show and with very much."""

from __future__ import annotations

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from perfdb.models import Project
from tests.web.data import make_project, sha
from tests.web.much import long_series, many_cases

pytestmark = pytest.mark.django_db


def test_an_empty_installation(client: Client) -> None:
    assert "python manage.py track" in client.get("/").content.decode()
    for path in ("/workers/", "/inbox/"):
        assert client.get(path, follow=True).status_code == 200
    Project.objects.create(slug="bare", name="Bare")
    for path in ("", "alerts/", "jobs/"):
        answer = client.get(f"/projects/bare/{path}")
        assert answer.status_code == 200
        assert "None" not in answer.content.decode().replace("None.", "")


def test_much(client: Client, django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    """1000 cases at one commit and a series of 3000 commits: few queries, small pages."""
    project = make_project("much", 3000)
    many_cases(project, 1000)
    series = long_series(project, 3000)
    pages = {
        "/projects/much/": 30,
        f"/projects/much/commits/{sha(2999)}/": 45,
        f"/series/{series.pk}/": 20,
    }
    for path, queries in pages.items():
        with django_assert_max_num_queries(queries):
            answer = client.get(path)
        assert answer.status_code == 200
        assert len(answer.content) < 600_000, (path, len(answer.content))
