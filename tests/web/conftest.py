"""Pages are tested on one made-up project; tasks run in the test's own transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from django.db import transaction
from django.db.models import Model
from pytest_django import DjangoDbBlocker, Settings

from tests.web.data import World, build_world


@pytest.fixture(autouse=True)
def tasks_at_once(db: None) -> Iterator[None]:
    from perfdb.config.celery import app

    app.conf.task_always_eager = True
    yield
    app.conf.task_always_eager = False


@pytest.fixture(autouse=True)
def inbox(settings: Settings, tmp_path: Path) -> Path:
    settings.EMAIL_BACKEND = "perfdb.local.inbox.InboxEmailBackend"
    settings.EMAIL_INBOX = tmp_path / "inbox"
    return tmp_path / "inbox"


@pytest.fixture(scope="module")
def built(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[World]:
    """Built once a module, in a transaction of its own around those of the tests."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield build_world()
        transaction.set_rollback(True)


@pytest.fixture
def world(built: World, db: None) -> World:
    """A project with one of everything; what a test does to it is undone."""
    return replace(
        built,
        **{field.name: _again(getattr(built, field.name)) for field in fields(built)},
    )


def _again(value: object) -> object:
    """Rows are read again: a test before may have changed the object."""
    return type(value).objects.get(pk=value.pk) if isinstance(value, Model) else value
