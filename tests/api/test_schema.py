"""The OpenAPI document is complete and true: made without a warning, and kept by every operation whatever is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from perfdb.models import Project
from perfdb.services import access

PER_OPERATION = 12
# Not asked: whether bad data is always refused (an unknown query parameter is ignored) and good data always taken (a
# well-formed name may name nothing).
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def document(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.get("/api/v1/schema?format=json").content)
    return found


def test_the_document_is_made_without_a_warning(client: Client, db: None) -> None:
    from django.core.management import call_command

    complaints = StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=StringIO(), stderr=complaints)
    found = document(client)
    assert found["openapi"].startswith("3.1")
    assert {"post"} <= set(found["paths"]["/api/v1/projects/{slug}/uploads"])
    names = [op["operationId"] for path in found["paths"].values() for op in path.values()]
    assert len(names) == len(set(names))


@pytest.fixture
def one_connection(db: None) -> Iterator[None]:
    """Keep the test's connection, as Django's own client does: else the first answered request would close it."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.mark.parametrize("who", ["nobody", "admin"])
def test_no_request_breaks_the_server_or_the_document(one_connection: None, who: str) -> None:
    project = Project.objects.create(slug="lab", name="Lab", public=True)
    headers = {}
    if who == "admin":
        headers = {"Authorization": f"Bearer {access.create_token('all', ['admin']).secret}"}
    schema = schemathesis.openapi.from_wsgi("/api/v1/schema?format=json", get_wsgi_application())
    asked = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path.endswith("/schema"):
            continue

        @settings(
            max_examples=PER_OPERATION,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            if "slug" in (case.path_parameters or {}):
                case.path_parameters["slug"] = project.slug
            response = case.call(headers=headers)
            case.validate_response(response, checks=CHECKS, headers=headers)

        check()
        asked += 1
    assert asked >= 35
