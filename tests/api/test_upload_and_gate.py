"""The API as CI uses it: upload, read, compare, gate, and everything that does not fit."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import numpy as np
import pytest
from django.test import Client

from perfdb.models import Branch, Commit, Measurement, Project, Run
from perfdb.services import access
from perfdb.services.placing import place

SHAS = [f"{number:040x}" for number in range(1, 6)]


@pytest.fixture
def project(db: None) -> Project:
    project = Project.objects.create(slug="lab", name="Lab", public=False)
    branch = Branch.objects.create(project=project, name="main", kind="trunk")
    for number, sha in enumerate(SHAS):
        Commit.objects.create(project=project, sha=sha, parents=SHAS[number - 1 : number] if number else [])
    place(branch, SHAS)
    return project


class Api:
    """A caller with one token."""

    def __init__(self, client: Client, secret: str | None) -> None:
        self.client = client
        self.headers = {"Authorization": f"Bearer {secret}"} if secret else {}

    def post(self, path: str, body: Any, **extra: Any) -> Any:
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        return self.client.post(
            f"/api/v1/{path}", data, content_type="application/json", headers=self.headers | extra
        )

    def get(self, path: str, **params: str) -> Any:
        return self.client.get(f"/api/v1/{path}", params, headers=self.headers)


@pytest.fixture
def api(client: Client, project: Project) -> Api:
    return Api(client, access.create_token("ci", ["read", "upload"], project=project).secret)


def metric(samples: Any, **extra: Any) -> dict[str, Any]:
    return {"name": "time", "unit": "ms", "lower_is_better": True, "samples": samples, **extra}


def batch(sha: str, launches: list[Any], **extra: Any) -> dict[str, Any]:
    return {
        "commit": {"sha": sha},
        "launches": [
            {"environment": {"class": {"cpu_model": "test"}}, "runs": [{"benchmark": "work", "metrics": [m]}]}
            for m in launches
        ],
        **extra,
    }


def upload(api: Api, sha: str, medians: list[float]) -> Any:
    rng = np.random.default_rng(int(sha, 16))
    return api.post(
        "projects/lab/uploads",
        batch(sha, [metric((m * np.exp(rng.normal(0, 0.002, 20))).tolist()) for m in medians]),
    )


def test_upload_is_stored_and_repeated_harmlessly(api: Api) -> None:
    body = batch(SHAS[0], [metric([10.0, 11.0, 12.0])])
    first = api.post("projects/lab/uploads", body)
    assert first.status_code == 201, first.content
    assert first.json()["created"] == 1
    again = api.post("projects/lab/uploads", body)
    assert again.status_code == 200
    assert again.json() | {"created": 1, "duplicates": 0} == first.json()
    row = Measurement.objects.get()
    assert (row.position, row.n, row.value, row.minimum, row.maximum) == (0, 3, 11.0, 10.0, 12.0)


def test_typed_arrays_and_gzip_are_spoken(api: Api) -> None:
    packed = base64.b64encode(np.array([1.0, 2.0, 3.0], dtype="<f8").tobytes()).decode()
    body = gzip.compress(json.dumps(batch(SHAS[0], [metric({"dtype": "f8", "bdata": packed})])).encode())
    answer = api.post("projects/lab/uploads", body, **{"Content-Encoding": "gzip"})
    assert answer.status_code == 201, answer.content
    run = api.get(f"runs/{answer.json()['runs'][0]}").json()
    assert run["samples"][0]["values"] == [1.0, 2.0, 3.0]


def test_units_of_one_family_meet_in_the_stored_unit(api: Api) -> None:
    api.post("projects/lab/uploads", batch(SHAS[0], [metric([1.0])]))
    answer = api.post("projects/lab/uploads", batch(SHAS[1], [metric([990.0], unit="us")]))
    assert answer.status_code == 201
    assert Measurement.objects.get(position=1).value == pytest.approx(0.99)
    refused = api.post("projects/lab/uploads", batch(SHAS[2], [metric([5.0], unit="MB")]))
    assert refused.status_code == 422
    assert "cannot be expressed" in refused.json()["rejected"][0]["reason"]


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"samples": [1.0, "x"]}, 422, "$.launches[0].runs[0].metrics[0].samples"),
        ({"samples": [1.0, -2.0]}, 422, "samples[1] is negative"),
        ({"surprise": 1}, 422, "unknown field"),
        ({"samples": []}, 422, "no metric has a sample"),
    ],
)
def test_bad_items_are_named_and_nothing_is_stored(
    api: Api, change: dict[str, Any], status: int, words: str
) -> None:
    answer = api.post("projects/lab/uploads", batch(SHAS[0], [metric([1.0]) | change]))
    assert answer.status_code == status
    assert answer["Content-Type"] == "application/problem+json"
    assert words in answer.content.decode()
    assert not Run.objects.exists()


def test_nan_is_no_json(api: Api) -> None:
    text = json.dumps(batch(SHAS[0], [metric([1.0])])).replace("1.0", "NaN")
    answer = api.post("projects/lab/uploads", text)
    assert answer.status_code == 400
    assert "not JSON" in answer.json()["detail"]
    assert not Run.objects.exists()


def test_too_many_samples_are_refused_whole(api: Api) -> None:
    from perfdb.services import ingest

    packed = base64.b64encode(bytes(8 * (ingest.MAX_SAMPLES + 10))).decode()
    answer = api.post("projects/lab/uploads", batch(SHAS[0], [metric({"dtype": "f8", "bdata": packed})]))
    assert answer.status_code in (413, 422)
    assert not Run.objects.exists()


def test_who_may(client: Client, project: Project) -> None:
    body = batch(SHAS[0], [metric([1.0])])
    assert Api(client, None).post("projects/lab/uploads", body).status_code == 401
    assert Api(client, "pdb_wrong").get("projects/lab").status_code == 401
    reader = access.create_token("reader", ["read"], project=project).secret
    assert Api(client, reader).get("projects/lab").status_code == 200
    refused = Api(client, reader).post("projects/lab/uploads", body)
    assert refused.status_code == 403
    assert "upload" in refused.json()["detail"]
    other = Project.objects.create(slug="other", name="Other", public=False)
    stranger = access.create_token("stranger", ["read", "upload"], project=other).secret
    assert Api(client, stranger).get("projects/lab").status_code == 404
    fork = access.create_token("fork", ["read", "upload"], project=project, fork=True).secret
    assert Api(client, fork).post("projects/lab/uploads", body).status_code == 403
    assert Api(client, fork).post("projects/lab/uploads", body | {"pull_request": 7}).status_code == 201
    assert Run.objects.get().branch.name == "pr/7"


def test_gate_passes_fails_and_says_what_is_missing(api: Api) -> None:
    upload(api, SHAS[0], [10.0] * 5)
    upload(api, SHAS[1], [10.0] * 5)
    upload(api, SHAS[2], [13.0] * 5)
    same = api.get("projects/lab/gate", head=SHAS[1]).json()
    assert (same["decision"], same["exit_code"]) == ("pass", 0)
    assert same["base"]["sha"] == SHAS[0]
    worse = api.get("projects/lab/gate", head=SHAS[2]).json()
    assert (worse["decision"], worse["exit_code"]) == ("fail", 1)
    assert worse["regressions"][0]["verdict"]["ratio"] == pytest.approx(1.3, rel=0.01)
    nothing = api.get("projects/lab/gate", head=SHAS[3]).json()
    assert (nothing["decision"], nothing["exit_code"]) == ("nothing measured", 3)


def test_gate_says_when_the_base_is_not_measured(api: Api) -> None:
    upload(api, SHAS[0], [10.0] * 5)
    upload(api, SHAS[3], [10.0] * 5)
    answer = api.get("projects/lab/gate", head=SHAS[3]).json()
    assert answer["base"]["sha"] == SHAS[0]
    assert "is not measured" in answer["note"]
    assert "2 commits back" in answer["note"]


def test_second_push_of_a_pull_request_is_compared_with_the_base(api: Api, project: Project) -> None:
    pushes = ["a" * 40, "b" * 40]
    Commit.objects.create(project=project, sha=pushes[0], parents=[SHAS[0]])
    Commit.objects.create(project=project, sha=pushes[1], parents=[pushes[0]])
    upload(api, SHAS[0], [100.0] * 5)
    for sha in pushes:
        api.post(
            "projects/lab/uploads", batch(sha, [metric([130.0 + i / 10]) for i in range(5)], pull_request=3)
        )
    answer = api.get("projects/lab/gate", head=pushes[1]).json()
    assert answer["base"]["sha"] == SHAS[0]
    assert answer["decision"] == "fail"
    assert answer["regressions"][0]["verdict"]["ratio"] == pytest.approx(1.3, rel=0.01)


def test_a_benchmark_that_is_gone_does_not_pass(api: Api) -> None:
    upload(api, SHAS[0], [10.0] * 5)
    body = batch(SHAS[1], [metric([10.0])])
    body["launches"][0]["runs"][0]["benchmark"] = "another"
    api.post("projects/lab/uploads", body)
    answer = api.get("projects/lab/gate", head=SHAS[1]).json()
    assert answer["decision"] == "inconclusive"
    assert [cell["benchmark"] for cell in answer["missing"]] == ["work"]
    assert [cell["benchmark"] for cell in answer["new"]] == ["another"]


def test_an_upload_without_a_commit_is_kept_apart(api: Api) -> None:
    body = batch(SHAS[0], [metric([1.0])])
    del body["commit"]
    assert api.post("projects/lab/uploads", body).status_code == 201
    assert Measurement.objects.get().position == -1
