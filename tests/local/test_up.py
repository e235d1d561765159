"""`manage.py up` as a whole: real servers, web, workers and beat in real processes."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import pytest

from perfdb.local.state import StateFolder
from perfdb.local.status import StackStatus, running_status
from tests.local.processes import Family, eventually

CHECKOUT = Path(__file__).resolve().parents[2]
SERVICES = {"postgres", "valkey", "web", "worker-measure", "worker-analysis", "beat"}
pytestmark = pytest.mark.timeout(300)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="every other test runs as an ordinary user then")


@dataclass(frozen=True)
class Up:
    """A running `manage.py up`."""

    process: "subprocess.Popen[bytes]"
    state: StateFolder
    output: Path

    def status(self) -> StackStatus:
        status = running_status(self.state)
        assert status is not None, self.output.read_text()
        return status

    def ready(self) -> StackStatus:
        def is_ready() -> bool:
            assert self.process.poll() is None, self.output.read_text()
            status = running_status(self.state)
            return status is not None and status.phase == "ready"

        eventually(is_ready, within_s=120)
        return self.status()


def _environment(folder: Path, **more: str) -> dict[str, str]:
    scrubbed = {
        name: value
        for name, value in os.environ.items()
        if name not in {"DATABASE_URL", "REDIS_URL", "PERFDB_BASE_URL", "PERFDB_STATIC_ROOT"}
    }
    return {**scrubbed, "PERFDB_STATE": str(folder), **more}


def _manage(folder: Path, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(CHECKOUT / "manage.py"), *arguments],
        env=_environment(folder, **more),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def _up(folder: Path, *, prefix: tuple[str, ...] = (), more: Mapping[str, str] | None = None) -> Iterator[Up]:
    output = folder.with_name(f"{folder.name}.out")
    command = [*prefix, sys.executable, str(CHECKOUT / "manage.py"), "up"]
    with output.open("ab") as stream:
        process = subprocess.Popen(
            command, env=_environment(folder, **(more or {})), stdout=stream, stderr=stream, cwd=CHECKOUT
        )
    try:
        yield Up(process=process, state=StateFolder(folder), output=output)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def home(services_folder: Path) -> Iterator[Path]:
    """A folder for state folders, which any user can enter."""
    folder = services_folder / "up"
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def shared(home: Path) -> Iterator[Up]:
    """One stack for the tests that leave it running."""
    with _up(home / "shared") as up:
        up.ready()
        yield up


def _get(url: str) -> tuple[int, bytes]:
    with urllib.request.urlopen(url, timeout=20) as response:
        return response.status, response.read()


def test_everything_runs_and_the_address_answers(shared: Up) -> None:
    status = shared.status()
    assert {service.name for service in status.services} == SERVICES
    assert all(service.pid and psutil.pid_exists(service.pid) for service in status.services)
    code, body = _get(f"{status.address}/healthz")
    assert (code, json.loads(body)["status"]) == (200, "ok")
    assert {path.stem for path in shared.state.logs.iterdir()} >= SERVICES


def test_the_administrators_secrets_are_shown_once_and_kept_nowhere(shared: Up) -> None:
    output = shared.output.read_text()
    for name in ("password", "token"):
        secret = re.search(rf"^  {name} +(\S+)$", output, re.MULTILINE)
        assert secret is not None, output
        assert output.count(secret[1]) == 1
        for log in shared.state.logs.iterdir():
            assert secret[1] not in log.read_text()
    again = _manage(shared.state.path, "bootstrap")
    assert (again.returncode, again.stdout) == (0, "")


def test_plotly_comes_from_the_package_and_static_files_are_cached_for_ever(shared: Up) -> None:
    manifest = json.loads((shared.state.static / "staticfiles.json").read_text())
    hashed = manifest["paths"]["plotly/plotly.min.js"]
    with urllib.request.urlopen(f"{shared.status().address}/static/{hashed}", timeout=20) as response:
        assert "immutable" in response.headers["Cache-Control"]
        assert len(response.read()) > 1_000_000


def test_a_second_up_says_where_the_first_runs(shared: Up) -> None:
    status = shared.status()
    second = _manage(shared.state.path, "up")
    assert second.returncode == 0
    assert second.stdout == f"perfdb: already running at {status.address} (pid {status.pid})\n"
    assert shared.status().services == status.services


def test_status_names_every_service(shared: Up) -> None:
    shown = _manage(shared.state.path, "status")
    assert shown.returncode == 0
    assert all(name in shown.stdout for name in SERVICES)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores to keep apart")
def test_measuring_has_cores_of_its_own(shared: Up) -> None:
    pids = {service.name: service.pid for service in shared.status().services}
    worker = pids.pop("worker-measure")
    measuring = set(psutil.Process(worker).cpu_affinity())
    for name, pid in pids.items():
        assert not measuring & set(psutil.Process(pid).cpu_affinity()), name
    told = psutil.Process(worker).environ()["PERFDB_MEASURE_CPUS"]
    assert {int(cpu) for cpu in told.split(",")} == measuring


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_killed_service_comes_back(shared: Up, name: str) -> None:
    before = {service.name: service for service in shared.status().services}[name]
    assert before.pid is not None
    family = Family.of(before.pid)
    os.kill(before.pid, signal.SIGKILL)

    def back() -> bool:
        now = {service.name: service for service in shared.status().services}[name]
        return now.pid is not None and now.restarts > before.restarts

    eventually(back)
    eventually(lambda: _is_well(shared.status().address), within_s=60)
    eventually(lambda: family.alive() == [])


def _is_well(address: str) -> bool:
    try:
        return _get(f"{address}/healthz")[0] == 200
    except OSError:
        return False


def test_a_stop_signal_ends_everything_within_ten_seconds(home: Path) -> None:
    with _up(home / "stopped") as up:
        up.ready()
        family = Family.of(up.process.pid)
        up.process.terminate()
        assert up.process.wait(10) == 0
    assert family.alive() == []
    assert running_status(up.state) is None


def test_it_runs_on_given_servers_and_down_leaves_those_alone(
    home: Path, database_url: str, redis_url: str
) -> None:
    with _up(home / "given", more={"DATABASE_URL": database_url, "REDIS_URL": redis_url}) as up:
        status = up.ready()
        assert {service.name for service in status.services} == SERVICES - {"postgres", "valkey"}
        assert _get(f"{status.address}/healthz")[0] == 200
        family = Family.of(up.process.pid)
        done = _manage(up.state.path, "down")
        assert (done.returncode, done.stdout) == (0, "perfdb: stopped\n")
        assert up.process.wait(10) == 0
    assert family.alive() == []
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM django_migrations").fetchone() != (0,)
    assert _manage(up.state.path, "status").returncode == 3
    assert _manage(up.state.path, "down").stdout == "perfdb: not running\n"


def test_nothing_outlives_either_of_the_two_processes_of_up(home: Path) -> None:
    with _up(home / "killed") as up:
        status = up.ready()
        family = Family.of(up.process.pid)
        os.kill(status.pid, signal.SIGKILL)
        assert up.process.wait(10) == 128 + signal.SIGKILL
    assert family.alive() == []
    assert up.state.status_file.exists(), "the stale file is there, and is known to be stale"
    assert running_status(up.state) is None
    with _up(home / "killed") as again:
        again.ready()
        family = Family.of(again.process.pid)
        again.process.kill()
        again.process.wait(10)
        eventually(lambda: family.alive() == [], within_s=10)


def test_nothing_outlives_the_whole_of_up_killed_at_once(home: Path) -> None:
    with _up(home / "killed") as up:
        status = up.ready()
        family = Family.of(up.process.pid)
        os.kill(status.pid, signal.SIGSTOP)  # so that it cannot tidy up between the two
        os.kill(up.process.pid, signal.SIGKILL)
        os.kill(status.pid, signal.SIGKILL)
        up.process.wait(10)
        eventually(lambda: family.alive() == [], within_s=10)


def test_a_port_that_is_taken_is_said_before_anything_starts(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = _manage(home / "port", "up", "--port", str(port))
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr
    assert not (home / "port" / "postgres" / "data").exists()


def test_a_folder_that_cannot_be_written_is_named(home: Path) -> None:
    blocker = home / "file"
    blocker.write_text("in the way")
    done = _manage(blocker / "state", "up")
    assert done.returncode == 1
    assert f"cannot keep data in {blocker / 'state'}: {blocker}: File exists" in done.stderr


def test_a_database_that_is_away_is_said_and_nothing_is_left(home: Path) -> None:
    done = _manage(home / "away", "up", DATABASE_URL="postgresql://nobody@127.0.0.1:1/perfdb")
    assert done.returncode == 1
    assert "perfdb did not start: migrate ended with status 1" in done.stderr
    assert "127.0.0.1" in done.stderr
    assert running_status(StateFolder(home / "away")) is None


def test_a_stop_while_it_starts_leaves_nothing(home: Path) -> None:
    with _up(home / "early") as up:
        eventually(lambda: running_status(up.state) is not None, within_s=60)
        eventually(lambda: (up.state.logs / "migrate.log").exists(), within_s=60)
        family = Family.of(up.process.pid)
        up.process.terminate()
        assert up.process.wait(10) == 0
    assert family.alive() == []


def _as_nobody() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv")
    assert setpriv is not None, "setpriv is part of util-linux"
    # The interpreter may lie under root's home: reading is allowed everywhere, writing is not.
    return (
        *(setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"),
        *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
    )


@needs_root
def test_it_works_as_an_ordinary_user(home: Path) -> None:
    theirs = home / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    with _up(theirs / "state", prefix=_as_nobody(), more={"HOME": str(theirs)}) as up:
        status = up.ready()
        assert {psutil.Process(service.pid).uids().real for service in status.services} == {65534}
        assert _get(f"{status.address}/healthz")[0] == 200
        family = Family.of(up.process.pid)
        up.process.send_signal(signal.SIGINT)  # what Ctrl-C sends
        assert up.process.wait(10) == 0
    assert family.alive() == []


@needs_root
def test_an_ordinary_user_is_told_which_folder_is_closed_to_them(home: Path) -> None:
    with _up(home / "closed", prefix=_as_nobody()) as up:
        assert up.process.wait(60) == 1
    assert f"cannot keep data in {home / 'closed'}: Permission denied" in up.output.read_text()
