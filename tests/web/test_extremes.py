"""Pages with nothing to show and with very much."""

from __future__ import annotations

import base64

import msgspec
import numpy as np
import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from perfdb.models import Alert, Change, Project, Run, Series
from perfdb.services.batch import Batch
from perfdb.services.ingest import ingest
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


def test_a_run_of_very_many_samples(client: Client) -> None:
    """All are counted, few are sent."""
    project = make_project("long", 2)
    metric = {"name": "time", "unit": "ms", "samples": [1.0 + number % 97 for number in range(300_000)]}
    body = {"commit": {"sha": sha(1)}, "launches": [{"runs": [{"benchmark": "spin", "metrics": [metric]}]}]}
    assert not ingest(project, msgspec.convert(body, Batch)).rejected
    answer = client.get(f"/runs/{Run.objects.get().uuid}/")
    assert answer.status_code == 200
    assert len(answer.content) < 60_000
    (chart,) = answer.context["charts"]
    counts = np.frombuffer(base64.b64decode(chart["counts"]["bdata"]), dtype="<i4")
    assert counts.sum() == 300_000
    assert "300000" in answer.content.decode()


def test_an_alert_of_very_many_changes(
    client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    project = make_project("much", 3000)
    many_cases(project, 1000)
    series = list(Series.objects.all())
    alert = Alert.objects.create(
        project=project, branch=series[0].branch, kind="regression", title="all of it"
    )
    Change.objects.bulk_create(
        Change(
            series=row,
            alert=alert,
            kind="step",
            good_position=1,
            bad_position=2,
            ratio=1.2,
            direction="regressed",
        )
        for row in series
    )
    with django_assert_max_num_queries(20):
        page = client.get(f"/alerts/{alert.pk}/").content.decode()
    assert "<b>1000</b>" in page
    assert "and 800 more" in page
