"""Events of forges: signed ones are heard, others are not, and a fork's code is never run by one."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest

from perfdb import tasks
from perfdb.models import Project
from perfdb.services import hooks
from tests.api.conftest import Caller

Callers = Callable[..., Caller]
SHA = "a" * 40
PUSH = {"ref": "refs/heads/main", "after": SHA}
EVENTS = {"github": "X-GitHub-Event", "gitlab": "X-Gitlab-Event", "gitea": "X-Gitea-Event"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, lab: Project, django_capture_on_commit_callbacks: Any) -> Any:
    """Calls of the tasks that an event starts; the project has a repository."""
    Project.objects.filter(pk=lab.pk).update(url="https://example.invalid/lab.git")
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(tasks.fetch_project, "delay", lambda *a: calls.append(("fetch", *a[1:])))
    monkeypatch.setattr(tasks.fetch_pull_request, "delay", lambda *a: calls.append(("pull", *a[1:])))

    def send(
        caller: Caller, forge: str, event: str, payload: Any, *, key: str | None = None
    ) -> tuple[int, Any]:
        raw = json.dumps(payload)
        key = hooks.secret(lab) if key is None else key
        signed = hmac.new(key.encode(), raw.encode(), hashlib.sha256).hexdigest()
        marks = {
            "github": ("X-Hub-Signature-256", f"sha256={signed}"),
            "gitlab": ("X-Gitlab-Token", key),
            "gitea": ("X-Gitea-Signature", signed),
        }
        name, value = marks[forge]
        with django_capture_on_commit_callbacks(execute=True):
            answer = caller.post(f"hooks/lab/{forge}", raw, headers={EVENTS[forge]: event, name: value})
        return answer.status_code, list(calls)

    return send


def pull(**extra: Any) -> dict[str, Any]:
    head = {"sha": SHA, "repo": {"full_name": "us/lab"}}
    return {
        "action": "opened",
        "repository": {"full_name": "us/lab"},
        "pull_request": {"number": 7, "head": head},
    } | extra


def merge(**extra: Any) -> dict[str, Any]:
    attributes = {
        "action": "open", "iid": 7, "source_project_id": 1, "target_project_id": 1, "last_commit": {"id": SHA}
    }  # fmt: skip
    return {"object_attributes": attributes | extra}


@pytest.mark.parametrize(("forge", "event"), [("github", "push"), ("gitlab", "Push Hook"), ("gitea", "push")])
def test_a_push_fetches_the_repository(caller: Callers, asked: Any, forge: str, event: str) -> None:
    assert asked(caller(), forge, event, PUSH) == (202, [("fetch",)])


@pytest.mark.parametrize(
    ("forge", "event", "payload"),
    [
        ("github", "pull_request", pull()),
        ("gitea", "pull_request", pull(action="synchronized")),
        ("gitlab", "Merge Request Hook", merge()),
    ],
)
def test_a_pull_request_is_measured(
    caller: Callers, asked: Any, forge: str, event: str, payload: Any
) -> None:
    assert asked(caller(), forge, event, payload) == (202, [("pull", 7, SHA)])


def test_the_code_of_a_fork_is_not_run(caller: Callers, asked: Any) -> None:
    stranger = {"sha": SHA, "repo": {"full_name": "stranger/lab"}}
    assert asked(caller(), "github", "pull_request", pull(pull_request={"number": 7, "head": stranger})) == (
        200,
        [],
    )
    assert asked(caller(), "gitlab", "Merge Request Hook", merge(source_project_id=2)) == (200, [])


@pytest.mark.parametrize("forge", list(EVENTS))
def test_who_does_not_know_the_secret_is_not_heard(caller: Callers, asked: Any, forge: str) -> None:
    assert asked(caller(), forge, "push", PUSH, key="guess") == (403, [])
    assert caller().post(f"hooks/lab/{forge}", PUSH).status_code == 403
    assert caller().post(f"hooks/nothing/{forge}", PUSH).status_code == 403


@pytest.mark.parametrize(
    ("event", "payload", "status"),
    [
        ("push", {"ref": "refs/tags/v1", "after": SHA}, 200),
        ("push", {"ref": "refs/heads/main", "after": "0" * 40}, 200),
        ("ping", {}, 200),
        ("pull_request", pull(action="closed"), 200),
        ("push", {}, 422),
        ("push", [], 422),
        ("pull_request", pull(pull_request={"number": "7; rm", "head": pull()["pull_request"]["head"]}), 422),
        (
            "pull_request",
            pull(
                pull_request={
                    "number": 7,
                    "head": {"sha": "--upload-pack=x", "repo": {"full_name": "us/lab"}},
                }
            ),
            422,
        ),
    ],
)
def test_events_that_ask_for_nothing_or_make_no_sense(
    caller: Callers, asked: Any, event: str, payload: Any, status: int
) -> None:
    assert asked(caller(), "github", event, payload) == (status, [])
