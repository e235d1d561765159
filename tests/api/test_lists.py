"""Lists, pages, conditional requests and request ids."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.api.conftest import Caller

Callers = Callable[..., Caller]
LISTS = (
    "commits", "benchmarks", "cases", "runs", "bisections", "workers", "environments", "traces", "series", "alerts",
    "jobs",
)  # fmt: skip


@pytest.fixture
def reader(caller: Callers) -> Caller:
    """A reader of a project with three benchmarks at one commit."""
    runs = [
        {"benchmark": f"b{i}", "params": {"n": i}, "metrics": [{"name": "t", "unit": "s", "samples": [1.0]}],
         "trace_summary": {"name": "mixed", "requests": 3}}
        for i in range(3)
    ]  # fmt: skip
    body = {"commit": {"sha": "a" * 40}, "launches": [{"runs": runs}]}
    assert caller("upload").post("projects/lab/uploads", body).status_code == 201
    return caller("read")


@pytest.mark.parametrize("name", LISTS)
def test_every_list_answers(reader: Caller, name: str) -> None:
    answer = reader.get(f"projects/lab/{name}")
    assert answer.status_code == 200, answer.content
    rows = answer.json()[name]
    assert len(rows) == {
        "commits": 1, "benchmarks": 3, "cases": 3, "runs": 3, "series": 3, "environments": 1, "traces": 1
    }.get(name, 0)  # fmt: skip
    assert answer.json()["next"] is None
    assert reader.get(f"projects/lab/{name}", cursor="x").status_code == 400
    assert reader.get(f"projects/lab/{name}", limit="0").status_code == 400


def test_pages_follow_one_another(reader: Caller) -> None:
    seen = []
    address = "/api/v1/projects/lab/cases?limit=2"
    while address:
        page = reader.client.get(address, headers=reader.headers).json()
        seen += [row["benchmark"] for row in page["cases"]]
        address = page["next"]
    assert seen == ["b2", "b1", "b0"]


def test_filters(reader: Caller) -> None:
    assert len(reader.get("projects/lab/runs", benchmark="b1").json()["runs"]) == 1
    assert reader.get("projects/lab/runs", status="oom").json()["runs"] == []
    assert reader.get("projects/lab/runs", status="odd").status_code == 400
    assert reader.get("projects/lab/runs", benchmark="a\x00b").status_code == 400
    assert reader.get(f"projects/lab/commits/{'a' * 40}").json()["sha"] == "a" * 40
    assert reader.get(f"projects/lab/commits/{'b' * 40}").status_code == 404


def test_what_has_not_changed_is_not_sent_again(reader: Caller) -> None:
    first = reader.get("projects/lab/cases")
    again = reader.get("projects/lab/cases", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_every_answer_has_a_request_id(reader: Caller) -> None:
    assert len(reader.get("projects/lab")["X-Request-ID"]) == 32
    assert reader.get("projects/lab", headers={"X-Request-ID": "build-7"})["X-Request-ID"] == "build-7"
    hostile = reader.get("projects/nothing", headers={"X-Request-ID": "a b\tc"})
    assert hostile.status_code == 404
    assert len(hostile["X-Request-ID"]) == 32


@pytest.mark.parametrize("name", LISTS)
def test_an_outsider_sees_nothing(reader: Caller, caller: Callers, name: str) -> None:
    assert caller().get(f"projects/lab/{name}").status_code == 401


def test_a_caller_beyond_the_limit_is_told_when_to_come_back(
    reader: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perfdb.api.requests import CallerThrottle

    monkeypatch.setattr(CallerThrottle, "rate", "2/min", raising=False)
    answers = [reader.get("projects/lab") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[2]["Retry-After"]) > 0
    assert answers[2]["Content-Type"] == "application/problem+json"
