"""Session fixtures: the real PostgreSQL and Valkey of the embedded stack, started by the first test that needs
them. Tests that touch no database start nothing. Every pytest-xdist worker is a session with servers of its
own, so queues and databases are never shared. DATABASE_URL and REDIS_URL name servers to use instead."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import LazySettings
from django.db import connections

from perfdb.config.addresses import broker_url, database_settings
from perfdb.local.account import server_account
from perfdb.local.command import as_account
from perfdb.local.postgres import PostgresServer
from perfdb.local.state import StateFolder, prepare
from perfdb.local.valkey import ValkeyServer

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0


@pytest.fixture(scope="session")
def services_folder() -> Iterator[Path]:
    """A short-named scratch folder that the database's account can enter (pytest's own is closed to it)."""
    folder = Path(tempfile.mkdtemp(prefix="perfdb-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def database_url(services_folder: Path) -> Iterator[str]:
    """URL of a PostgreSQL server; the test database is made in it by pytest-django."""
    given = os.environ.get("DATABASE_URL")
    if given:
        yield given
        return
    account = server_account()
    state = StateFolder(services_folder / "state")
    prepare(state, account=account)
    server = PostgresServer(
        folder=state.postgres, socket_folder=state.postgres_socket_folder, account=account, durable=False
    )
    server.initialise()
    command = as_account(server.command(), account=account, death_signal=signal.SIGQUIT)
    with (state.logs / "postgres.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", start_new_session=True)
    try:
        server.ensure_database(timeout_s=_START_TIMEOUT_S)
        yield server.url()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(_STOP_TIMEOUT_S)


@pytest.fixture(scope="session")
def redis_url(services_folder: Path) -> Iterator[str]:
    """URL of a broker, as redis-py spells it."""
    given = os.environ.get("REDIS_URL")
    if given:
        yield given
        return
    folder = services_folder / "valkey"
    folder.mkdir()
    server = ValkeyServer(folder=folder, socket=folder / "valkey.sock")
    command = as_account(server.command(), account=None, death_signal=signal.SIGKILL)
    with (folder / "valkey.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        server.wait_ready(timeout_s=_START_TIMEOUT_S)
        yield server.url
    finally:
        process.terminate()
        process.wait(_STOP_TIMEOUT_S)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    database_url: str, redis_url: str, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """Point Django and Celery at the servers above; pytest-django calls this before it makes the database."""
    from django.conf import settings

    from perfdb.config.celery import app

    _redirect(settings, database_url=database_url, redis_url=redis_url)
    app.conf.update(broker_url=settings.CELERY_BROKER_URL)


def _redirect(settings: LazySettings, *, database_url: str, redis_url: str) -> None:
    connections["default"].settings_dict.update(database_settings(database_url))
    settings.DATABASE_URL = database_url
    settings.REDIS_URL = redis_url
    settings.CELERY_BROKER_URL = broker_url(redis_url)


@pytest.fixture(scope="session", autouse=True)
def locks_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Measurements of one test session wait for each other, not for whatever else measures on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFDB_LOCK_DIR", str(tmp_path_factory.mktemp("locks")))
        yield
