"""The health check against real servers, and with each of them away."""

import pytest
from django.db import connection
from django.test import Client
from pytest_django import Settings


@pytest.mark.django_db
def test_both_servers_answer(client: Client) -> None:
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (
        200,
        {"status": "ok", "database": "ok", "broker": "ok"},
    )
    assert "no-cache" in response.headers["Cache-Control"]


@pytest.mark.django_db
def test_a_broker_that_is_away_is_named(client: Client, settings: Settings) -> None:
    settings.REDIS_URL = "unix:///nonexistent/valkey.sock"
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (
        503,
        {"status": "failing", "database": "ok", "broker": "failing"},
    )


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_away_is_named(client: Client) -> None:
    host = connection.settings_dict["HOST"]
    connection.close()
    connection.settings_dict["HOST"] = "/nonexistent"
    try:
        response = client.get("/healthz")
    finally:
        connection.close()
        connection.settings_dict["HOST"] = host
    assert (response.status_code, response.json()) == (
        503,
        {"status": "failing", "database": "failing", "broker": "ok"},
    )


@pytest.mark.django_db
def test_every_response_carries_the_security_headers(client: Client) -> None:
    headers = client.get("/healthz").headers
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"


@pytest.mark.django_db
def test_an_unknown_host_is_refused(client: Client) -> None:
    assert client.get("/healthz", headers={"host": "evil.example"}).status_code == 400
