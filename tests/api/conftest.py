"""Callers of the API with one token each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from perfdb.models import Project
from perfdb.services import access


class Caller:
    """One token's (or nobody's) view of the API."""

    def __init__(self, client: Client, secret: str | None) -> None:
        self.client = client
        self.headers = {"Authorization": f"Bearer {secret}"} if secret else {}

    def get(self, path: str, *, headers: dict[str, str] | None = None, **params: str) -> Any:
        return self.client.get(f"/api/v1/{path}", params, headers=self.headers | (headers or {}))

    def post(self, path: str, body: Any, *, headers: dict[str, str] | None = None) -> Any:
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        return self.client.post(
            f"/api/v1/{path}", data, content_type="application/json", headers=self.headers | (headers or {})
        )

    def delete(self, path: str) -> Any:
        return self.client.delete(f"/api/v1/{path}", headers=self.headers)


@pytest.fixture(autouse=True)
def _fresh_budgets() -> None:
    """Rate limits count in the cache, which outlives a test."""
    cache.clear()


@pytest.fixture
def lab(db: None) -> Project:
    return Project.objects.create(slug="lab", name="Lab", public=False)


@pytest.fixture
def caller(client: Client, lab: Project) -> Callable[..., Caller]:
    def with_scopes(*scopes: str) -> Caller:
        secret = access.create_token("test", scopes, project=lab).secret if scopes else None
        return Caller(client, secret)

    return with_scopes
