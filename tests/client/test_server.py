"""upload and gate against a live server: what is stored, what is refused, and what happens when nobody answers."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_django.live_server_helper import LiveServer

from perfdb.models import Measurement, Project, Run
from perfdb.services import access
from tests.client.command import Called, perfdb
from tests.client.test_here import STEADY, result, scaled

pytestmark = pytest.mark.django_db(transaction=True)
Caller = Callable[..., Called]


@pytest.fixture
def project() -> Project:
    return Project.objects.create(slug="tiny", name="Tiny", public=False)


@pytest.fixture
def secret(project: Project) -> str:
    return access.create_token("ci", ["read", "upload"], project=project).secret


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "tiny"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    commit(root, "first")
    return root


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A Person", "-c", "user.email=a@example.invalid"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(root: Path, subject: str) -> str:
    git(root, "commit", "-q", "--allow-empty", "-m", subject)
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def call(live_server: LiveServer, secret: str, repo: Path) -> Caller:
    def run(*arguments: str | Path, **env: str) -> Called:
        given = {"PERFDB_SERVER": live_server.url, "PERFDB_PROJECT": "tiny", "PERFDB_TOKEN": secret} | env
        return perfdb(*arguments, cwd=repo, env=given)

    return run


def test_from_the_first_upload_to_a_failing_gate(call: Caller, repo: Path) -> None:
    result(repo / "a.json", "x", STEADY)
    done = call("upload", "a.json")
    assert (done.code, done.out) == (0, "a.json: 5 runs stored\n"), done.err
    first = call("gate")
    assert first.code == 3
    assert "first commit" in first.out
    worse = commit(repo, "slower")
    assert call("gate", "--head", worse).code == 2  # the server has not heard of this commit
    result(repo / "b.json", "x", scaled(1.3))
    assert call("upload", "b.json").code == 0
    gated = call("gate", "--head", worse)
    assert gated.code == 1, gated.out
    assert "+30" in gated.out
    markdown = call("gate", "--head", worse, "--output", "markdown").out
    assert markdown.startswith("### perfdb: fail")
    commit(repo, "the same again")
    result(repo / "c.json", "x", scaled(1.301))
    assert call("upload", "c.json").code == 0
    passed = call("gate")
    assert (passed.code, passed.out.splitlines()[0]) == (0, "perfdb: pass")


def test_the_same_file_twice_is_stored_once(call: Caller, repo: Path) -> None:
    result(repo / "a.json", "x", [[1.0, 1.1], [1.0, 1.1]])
    assert call("upload", "a.json").out == "a.json: 2 runs stored\n"
    assert call("upload", "a.json").out == "a.json: 0 runs stored, 2 were there already\n"
    assert Run.objects.count() == 2


def test_a_server_that_is_away_loses_nothing(call: Caller, repo: Path, live_server: LiveServer) -> None:
    result(repo / "a.json", "x", STEADY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
        away = call("upload", "a.json", PERFDB_SERVER=nobody, PERFDB_RETRIES="0")
    assert away.code == 2
    assert "1 upload waits in" in away.err
    assert not Run.objects.exists()
    nothing = call("upload")  # it waits for the other address
    assert nothing.code == 2
    (note,) = (repo / "spool").glob("*.to")
    # The server comes back under the address that the upload waits for.
    note.write_text(json.dumps(json.loads(note.read_text()) | {"server": live_server.url}))
    again = call("upload")
    assert (again.code, "5 runs stored" in again.out) == (0, True), again.err
    assert Run.objects.count() == 5
    assert not list((repo / "spool").iterdir())


def test_a_wrong_token_and_an_unknown_project(call: Caller, repo: Path) -> None:
    result(repo / "a.json", "x", STEADY)
    wrong = call("upload", "a.json", PERFDB_TOKEN="pdb_wrong")
    assert wrong.code == 2
    assert "unknown, revoked or expired" in wrong.err
    unknown = call("upload", "a.json", "--project", "other")
    assert unknown.code == 2
    assert "no project 'other'" in unknown.err
    nobody = call("upload", "a.json", PERFDB_TOKEN="")
    assert nobody.code == 2
    assert "token" in nobody.err
    assert not Run.objects.exists()
    assert not (repo / "spool").exists()


@pytest.mark.parametrize(
    ("value", "words"),
    [("NaN", "finite"), ('"fast"', "fast"), ("-1.0", "no possible duration"), ("1e999", "finite")],
)
def test_what_is_no_measurement_is_refused_and_named(
    call: Caller, repo: Path, value: str, words: str
) -> None:
    path = result(repo / "a.json", "x", [[123.0]])
    path.write_text(path.read_text().replace("123.0", value))
    done = call("upload", "a.json")
    assert done.code == 2
    assert "a.json" in done.err
    assert words in done.err
    assert not Measurement.objects.exists()


def test_a_file_of_another_tool(call: Caller, repo: Path) -> None:
    (repo / "bench.txt").write_text(
        "pkg: example\nBenchmarkSum-8 100 52 ns/op\nBenchmarkSum-8 100 53 ns/op\n"
    )
    done = call("upload", "bench.txt")
    assert done.code == 0, done.err
    assert Run.objects.get().case.benchmark.name == "example.BenchmarkSum"


def test_a_file_with_no_result_is_not_sent(call: Caller, repo: Path) -> None:
    (repo / "a.json").write_text('{"format": "perfdb", "benchmarks": []}')
    done = call("upload", "a.json")
    assert done.code == 2
    assert "nothing is sent" in done.err


def test_a_pull_request_has_a_branch_of_its_own(call: Caller, repo: Path) -> None:
    result(repo / "a.json", "x", STEADY)
    assert call("upload", "a.json", "--pull-request", "7").code == 0
    assert {run.branch.name for run in Run.objects.all()} == {"pr/7"}
