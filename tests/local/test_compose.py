"""docker-compose.yml and the Dockerfile against the code: there is no Docker engine in the tests, so every
command, variable and health check is run or looked up here instead."""

import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.urls import resolve

from perfdb.config.addresses import broker_url, database_settings
from tests.local.processes import eventually

CHECKOUT = Path(__file__).resolve().parents[2]
SECRETS = {"PERFDB_SECRET_KEY": "s" * 50, "POSTGRES_PASSWORD": "Passw0rd"}
LONG_RUNNING = {"web": "Listening at", "worker": "ready.", "analysis": "ready.", "beat": "beat: Starting"}


def _interpolated(node: Any) -> Any:
    """`node` with ${NAME}, ${NAME:-default} and ${NAME:?message} replaced as compose would, given SECRETS."""
    if isinstance(node, dict):
        return {key: _interpolated(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_interpolated(value) for value in node]
    if not isinstance(node, str):
        return node

    def value(found: re.Match[str]) -> str:
        name, operator, operand = found["name"], found["operator"], found["operand"]
        if name in SECRETS:
            return SECRETS[name]
        assert operator == ":-", f"{name} has no default and is no secret"
        return operand or ""

    return re.sub(r"\$\{(?P<name>\w+)(?:(?P<operator>:[-?])(?P<operand>[^}]*))?\}", value, node)


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    parsed = _interpolated(yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text()))
    found: dict[str, dict[str, Any]] = parsed["services"]
    return found


def _own(services: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: service for name, service in services.items() if "build" in service}


def test_the_services_are_the_ones_of_the_plan(services: dict[str, dict[str, Any]]) -> None:
    assert set(services) == {"postgres", "redis", "migrate", *LONG_RUNNING}
    assert set(_own(services)) == {"migrate", *LONG_RUNNING}


def test_the_two_secrets_have_no_default() -> None:
    text = (CHECKOUT / "docker-compose.yml").read_text()
    for name in SECRETS:
        assert set(re.findall(rf"\$\{{{name}(:.)", text)) == {":?"}, name


def test_every_variable_is_read_by_the_code(services: dict[str, dict[str, Any]]) -> None:
    sources = "".join(path.read_text() for path in (CHECKOUT / "perfdb").rglob("*.py"))
    for name, service in _own(services).items():
        unread = [variable for variable in service["environment"] if f'"{variable}"' not in sources]
        assert unread == [], name


def test_the_addresses_name_the_other_services(services: dict[str, dict[str, Any]]) -> None:
    given = services["postgres"]["environment"]
    for name, service in _own(services).items():
        database = database_settings(service["environment"]["DATABASE_URL"])
        assert database["HOST"] in services, name
        assert (database["USER"], database["PASSWORD"], database["NAME"]) == (
            given["POSTGRES_USER"],
            given["POSTGRES_PASSWORD"],
            given["POSTGRES_DB"],
        )
        assert broker_url(service["environment"]["REDIS_URL"]) == "redis://redis:6379/0"
        assert "redis" in services


def test_what_a_service_waits_for_exists_and_can_become_true(services: dict[str, dict[str, Any]]) -> None:
    for name, service in _own(services).items():
        for other, wait in service["depends_on"].items():
            if wait["condition"] == "service_healthy":
                assert "healthcheck" in services[other], (name, other)
            else:
                assert wait["condition"] == "service_completed_successfully"
                assert services[other]["restart"] == "no", (name, other)


def test_each_queue_of_the_settings_has_a_worker(services: dict[str, dict[str, Any]]) -> None:
    from django.conf import settings

    served = {
        command[command.index("--queues") + 1]
        for command in (service["command"] for service in _own(services).values())
        if "--queues" in command
    }
    assert served == {queue.name for queue in settings.CELERY_TASK_QUEUES}


def test_the_servers_health_checks_ask_for_what_was_set_up(services: dict[str, dict[str, Any]]) -> None:
    test = services["postgres"]["healthcheck"]["test"]
    assert test[:2] == ["CMD", "pg_isready"]
    options = dict(zip(test[2::2], test[3::2], strict=True))
    given = services["postgres"]["environment"]
    assert options == {"--username": given["POSTGRES_USER"], "--dbname": given["POSTGRES_DB"]}
    assert services["redis"]["healthcheck"]["test"] == ["CMD", "redis-cli", "ping"]


def test_the_named_volumes_are_declared(services: dict[str, dict[str, Any]]) -> None:
    declared = yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text())["volumes"]
    mounted = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert mounted == set(declared)


def test_the_override_for_gpus_names_the_benchmark_worker(services: dict[str, dict[str, Any]]) -> None:
    override = yaml.safe_load((CHECKOUT / "docker-compose.gpu.yml").read_text())
    assert set(override["services"]) == {"worker"}


def _environment(
    service: dict[str, Any], database_url: str, redis_url: str, tmp_path: Path
) -> dict[str, str]:
    given = {name: str(value) for name, value in service["environment"].items()}
    here = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PERFDB_STATE": str(tmp_path)}
    return {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", **given, **here}


def _runnable(command: list[str], *, port: int, tmp_path: Path) -> list[str]:
    """The command with this environment's interpreter, and with its port and its file moved out of the way."""
    moved = [word.replace(":8000", f":{port}").replace("/tmp/", f"{tmp_path}/") for word in command]
    program = Path(sys.executable).with_name(moved[0])
    return [str(program), *moved[1:]]


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number: int = probe.getsockname()[1]
    return number


@pytest.fixture(scope="module")
def migrated(
    services: dict[str, dict[str, Any]], database_url: str, redis_url: str, services_folder: Path
) -> str:
    """The server's own database (the tests' one beside it is untouched), migrated by compose's command."""
    service = services["migrate"]
    done = subprocess.run(
        _runnable(service["command"], port=0, tmp_path=services_folder),
        env=_environment(service, database_url, redis_url, services_folder),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return database_url


@pytest.mark.parametrize("name", sorted(LONG_RUNNING))
def test_the_command_runs(
    services: dict[str, dict[str, Any]], migrated: str, redis_url: str, tmp_path: Path, port: int, name: str
) -> None:
    service = services[name]
    environment = _environment(service, migrated, redis_url, tmp_path)
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            _runnable(service["command"], port=port, tmp_path=tmp_path),
            env=environment,
            cwd=CHECKOUT,
            stdout=stream,
            stderr=stream,
        )
    try:
        eventually(lambda: LONG_RUNNING[name] in log.read_text() or process.poll() is not None, within_s=90)
        assert process.poll() is None, log.read_text()
        if "healthcheck" in service:
            program, *arguments = service["healthcheck"]["test"][1:]
            assert resolve("/healthz").url_name == "healthz"
            check = _runnable([program, *arguments], port=port, tmp_path=tmp_path)
            # As often as compose would before it calls the service unhealthy, and some more on a busy machine.
            eventually(
                lambda: subprocess.run(check, env=environment, check=False).returncode == 0, within_s=60
            )
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert process.returncode == 0, log.read_text()


def test_the_image_is_built_from_what_is_here(services: dict[str, dict[str, Any]]) -> None:
    dockerfile = (CHECKOUT / "Dockerfile").read_text()
    extras = re.search(r"'\.\[([\w,]+)\]'", dockerfile)
    assert extras is not None
    packaging = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert set(extras[1].split(",")) <= set(packaging["optional-dependencies"])
    base = re.search(r"^FROM python:(\d+\.\d+)", dockerfile, re.MULTILINE)
    assert base is not None
    assert base[1] in {"3.11", "3.12"}
    state = re.search(r"PERFDB_STATE=(\S+)", dockerfile)
    assert state is not None
    assert services["web"]["volumes"] == [f"state:{state[1]}"]
    command = yaml.safe_load(dockerfile.rsplit("CMD ", 1)[1])
    assert command == services["web"]["command"]
