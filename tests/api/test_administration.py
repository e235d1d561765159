"""Tokens, policies, subscriptions: made, listed, ended, and closed to an outsider."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perfdb.models import ApiToken, PolicyVersion, Project, Subscription
from tests.api.conftest import Caller

Callers = Callable[..., Caller]


def test_a_token_is_shown_once_used_and_revoked(caller: Callers) -> None:
    admin = caller("admin")
    made = admin.post("projects/lab/tokens", {"name": "ci", "scopes": ["read", "upload"], "days": 30})
    assert made.status_code == 201, made.content
    secret, token = made.json()["secret"], made.json()["token"]
    assert secret.startswith("pdb_")
    assert ApiToken.objects.get(pk=token["id"]).digest != secret
    user = Caller(admin.client, secret)
    assert user.get("projects/lab").status_code == 200
    assert user.get("projects/lab/tokens").status_code == 403
    listed = admin.get("projects/lab/tokens").json()["tokens"]
    assert "secret" not in str(listed)
    assert next(row for row in listed if row["id"] == token["id"])["used_at"] is not None
    assert admin.delete(f"projects/lab/tokens/{token['id']}").status_code == 204
    assert user.get("projects/lab").status_code == 401
    assert admin.delete("projects/lab/tokens/999999").status_code == 404


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"name": "x", "scopes": ["fly"]}, "scopes"),
        ({"name": "x", "scopes": []}, "scopes"),
        ({"name": "", "scopes": ["read"]}, "name"),
        ({"name": "x", "scopes": ["read"], "days": 0}, "days"),
    ],
)
def test_a_token_that_does_not_fit(caller: Callers, body: dict[str, object], words: str) -> None:
    answer = caller("admin").post("projects/lab/tokens", body)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]
    assert ApiToken.objects.count() == 1


def test_a_new_policy_takes_the_place_of_the_old(caller: Callers) -> None:
    admin = caller("admin")
    for floor in (0.02, 0.03):
        made = admin.post("projects/lab/policies", {"values": {"relative_floor": floor}, "why": "noisy"})
        assert made.status_code == 201, made.content
    rows = admin.get("projects/lab/policies").json()["policies"]
    assert [(row["version"], row["active"]) for row in rows] == [(2, True), (1, False)]
    assert rows[0]["author"] == "token test"


def test_a_policy_of_five_is_refused(caller: Callers) -> None:
    answer = caller("admin").post("projects/lab/policies", {"values": {"relative_floor": 5}})
    assert answer.status_code == 422
    assert "5 % is 0.05" in answer.json()["detail"]
    unknown = caller("admin").post("projects/lab/policies", {"values": {}, "benchmark": "nothing"})
    assert unknown.status_code == 422
    assert not PolicyVersion.objects.exists()


def test_a_back_test_finds_the_changes_of_the_history(caller: Callers, lab: Project) -> None:
    shas = [f"{number:040x}" for number in range(1, 17)]
    up = caller("upload")
    for index, sha in enumerate(shas):
        level = 10.0 if index < 8 else 11.0
        runs = [
            {"runs": [{"benchmark": "work", "metrics": [
                {"name": "time", "unit": "ms", "lower_is_better": True, "samples": [level + k / 1000]}
            ]}]}
            for k in range(4)
        ]  # fmt: skip
        commit = {"sha": sha, "first_parents": shas[:index][::-1]}
        assert up.post("projects/lab/uploads", {"commit": commit, "launches": runs}).status_code == 201
    draft = {"values": {"relative_floor": 0.02}}
    found = caller("operate").post("projects/lab/policies/backtest", draft).json()
    assert found == {"series": 1, "only_now": [], "only_with_draft": [], "both": 1}
    assert not PolicyVersion.objects.exists()


def test_subscriptions(caller: Callers) -> None:
    admin = caller("admin")
    made = admin.post("projects/lab/subscriptions", {"email": "a@example.invalid", "only_blocking": True})
    assert made.status_code == 201, made.content
    assert admin.post("projects/lab/subscriptions", {"email": "no address"}).status_code == 422
    assert admin.post("projects/lab/subscriptions", {}).status_code == 422
    rows = admin.get("projects/lab/subscriptions").json()["subscriptions"]
    assert [row["email"] for row in rows] == ["a@example.invalid"]
    assert admin.delete(f"projects/lab/subscriptions/{rows[0]['id']}").status_code == 204
    assert not Subscription.objects.filter(active=True).exists()


@pytest.mark.parametrize("path", ["tokens", "policies", "subscriptions", "hook"])
@pytest.mark.parametrize("scopes", [(), ("read", "upload", "operate")])
def test_an_outsider_administers_nothing(caller: Callers, path: str, scopes: tuple[str, ...]) -> None:
    outsider = caller(*scopes)
    status = {401, 403}
    if path != "policies":
        assert outsider.get(f"projects/lab/{path}").status_code in status
    if path != "hook":
        assert outsider.post(f"projects/lab/{path}", {"values": {}}).status_code in status
    assert not PolicyVersion.objects.exists()
