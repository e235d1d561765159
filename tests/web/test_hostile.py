"""Text from commits, branches, uploads and logs is shown as text."""

from __future__ import annotations

import pytest
from django.test import Client

from perfdb.models import Job, Project, Run
from tests.web.data import HOSTILE, REPOSITORY, build_world, person

pytestmark = pytest.mark.django_db


def test_hostile_text_stays_text(client: Client) -> None:
    client.force_login(person("root", superuser=True))
    world = build_world(extra=HOSTILE)
    Project.objects.update(poll_error=f"fatal: {REPOSITORY} {HOSTILE}")
    Job.objects.filter(pk=world.job.pk).update(reason=f"cannot read {REPOSITORY}")
    Run.objects.filter(pk=world.run.pk).update(invalid_reason=HOSTILE, reason=HOSTILE)
    for name, path in world.pages().items():
        page = client.get(path).content.decode()
        assert "<script>alert" not in page, name
        assert "<img src=x" not in page, name
        assert "hunter2" not in page, "the secret in a repository's address"
        assert "</script></script>" not in page, name
    answer = client.get(world.pages()["series"])
    assert "alert(1)" in answer.content.decode()
    # Plotly reads tags in hover texts, after the JSON has been read.
    assert all("<script" not in text and "<img" not in text for text in answer.context["chart"]["text"])
